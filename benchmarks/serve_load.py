"""200 requests in flight at a prediction server for a minute: errors, latency, and the server's memory.

python benchmarks/serve_load.py [--agent FILE] [--seconds 60] [--output FILE]    (`make serve-load`)
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from provenance import write_result

IN_FLIGHT = 200
RESULTS = Path(__file__).parent / "results"


def make_agent(folder: Path) -> Path:
    """An agent with two hidden layers of 256, as a run of SAC on Pendulum has it."""
    import rl_training

    agent = rl_training.SAC(
        "Pendulum-v1", total_timesteps=200, output_dir=folder, eval_episodes=1, video=False, report=False
    )
    return Path(agent.learn(show_progress=False).save(folder / "agent.safetensors"))


def resident_bytes(process: int) -> int:
    """The memory of a process (Linux)."""
    line = next(one for one in Path(f"/proc/{process}/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


class Load:
    """Threads that each send one request after the other."""

    def __init__(self, host: str, body: bytes, until: float) -> None:
        self.host, self.body, self.until = host, body, until
        self.times: list[float] = []
        self.errors: list[str] = []

    def client(self) -> None:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        while time.monotonic() < self.until:
            start = time.monotonic()
            try:
                connection.request("POST", "/predict", self.body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                data = answer.read()
                if answer.status != 200 or "action" not in json.loads(data):
                    self.errors.append(f"{answer.status} {data[:80]!r}")
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.errors.append(f"{type(error).__name__}: {error}")
                connection.close()
            self.times.append(time.monotonic() - start)

    def run(self, process: int) -> list[int]:
        """Run every client to the end; returns the server's memory once a second."""
        threads = [threading.Thread(target=self.client) for _ in range(IN_FLIGHT)]
        for thread in threads:
            thread.start()
        memory = []
        while time.monotonic() < self.until:
            time.sleep(min(1.0, max(0.0, self.until - time.monotonic())))
            memory.append(resident_bytes(process))
        for thread in threads:
            thread.join()
        return memory


def measure(agent: Path, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "rl_training", "serve", str(agent), "--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        about = json.loads(server.stdout.readline())
        host = about["url"].removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request("GET", "/contract")
        size = json.loads(connection.getresponse().read())["inputs"][0]["shape"][1]
        load = Load(host, json.dumps({"obs": [0.1] * size}).encode(), time.monotonic() + seconds)
        memory = load.run(server.pid)
    finally:
        server.terminate()
        code = server.wait(30)
    times = np.array(load.times) * 1e3
    early = memory[len(memory) // 4]  # after the threads and their memory are there
    grown = (memory[-1] - early) / 2**20
    return {
        "what": f"rl-training serve: {IN_FLIGHT} requests in flight for {seconds:g} seconds",
        "reached": f"{len(times)} answers, {len(load.errors)} errors, memory {grown:+.1f} MiB after the first quarter",
        "in_flight": IN_FLIGHT,
        "seconds": seconds,
        "requests": len(times),
        "requests_per_second": round(len(times) / seconds, 1),
        "errors": len(load.errors),
        "first_errors": load.errors[:3],
        "latency_ms": {
            name: round(float(np.quantile(times, share)), 1) for name, share in (("median", 0.5), ("p99", 0.99))
        },
        "memory_mib": {"after_a_quarter": round(early / 2**20, 1), "at_the_end": round(memory[-1] / 2**20, 1)},
        "exit_code": code,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--output", type=Path, default=RESULTS / "serve-load.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(args.agent or make_agent(Path(folder)), args.seconds)
    write_result(args.output, result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
