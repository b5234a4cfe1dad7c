"""A stand-in for `rl-training train` and `resume`: takes steps, evaluates, saves and ends as a run does, in a moment.

Its return is 100 gamma + seed. Tags of its config make it fail, die or take its time: `fail`, `full-disk`, `die-once`,
`die-always`, `failed-seed`, `diverge`, `slow`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import yaml

received: list[int] = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: received.append(number))


def write(path: Path, value: Any) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value))
    temporary.rename(path)


def record(run_dir: Path, config: dict[str, Any], status: str, step: int, **more: Any) -> None:
    metrics = {"global_step": step, "eval_return_means": means(config), "eval_return_mean": means(config)[0]}
    about = {"status": status, "resume": "exact", "failed_seeds": {}, "execution_plan": {}, "elapsed": 1.0}
    if status == "finished" and "failed-seed" in config["tags"]:
        about["failed_seeds"] = {"1": {}}
    about |= {"metrics": metrics, "seeds": config["seeds"], "env_id": config["env_id"], **more}
    write(run_dir / "run.json", about)


def means(config: dict[str, Any]) -> list[float]:
    return [100 * config["algo_kwargs"].get("gamma", 0.99) + seed for seed in config["seeds"]]


def main() -> int:
    if sys.argv[1] == "train":
        config = yaml.safe_load(Path(sys.argv[3]).read_text())
        run_dir = Path(config["output_dir"]) / config["run_name"]
        run_dir.mkdir()
        (run_dir / "config.yaml").write_text(yaml.safe_dump(config))
    else:
        run_dir = Path(sys.argv[2])
        config = yaml.safe_load((run_dir / "config.yaml").read_text())
    with (run_dir.parent.parent / "starts.txt").open("a") as file:
        file.write(f"{sys.argv[1]} {run_dir.name} {os.environ.get('RL_TRAINING_CORES')}\n")
    tags, saved = config["tags"], sorted((run_dir / "checkpoints").glob("step_*"))
    step = int(saved[-1].name[5:]) if saved else 0
    record(run_dir, config, "running", step)
    if "fail" in tags:
        print("a notice\nerror: the environment failed: on purpose", file=sys.stderr)
        return 1
    if "full-disk" in tags:
        print(f"error: {run_dir}: No space left on device; the last good checkpoint is kept", file=sys.stderr)
        return 1
    if "diverge" in tags:
        why = "loss became NaN or infinite at update 2"
        record(run_dir, config, "failed", step, failure=why, failed_seeds={str(seed): {} for seed in config["seeds"]})
        print(f"error: {why}", file=sys.stderr)
        return 1
    if "die-always" in tags:
        os.kill(os.getpid(), signal.SIGKILL)
    total = config["total_timesteps"]
    while step < total and not received:
        time.sleep(0.05 if "slow" in tags else 0)
        step = min(step + 100, total)
        with (run_dir / "evaluations.jsonl").open("a") as file:
            for seed, mean in zip(config["seeds"], means(config), strict=True):
                file.write(json.dumps({"step": step, "seed": seed, "returns": [mean * step / total]}) + "\n")
        (run_dir / "checkpoints" / f"step_{step}").mkdir(parents=True, exist_ok=True)
        if "die-once" in tags and sys.argv[1] == "train":
            os.kill(os.getpid(), signal.SIGKILL)
    record(run_dir, config, "finished" if step == total else "stopped", step)
    return 0 if step == total else 128 + received[0]


if __name__ == "__main__":
    sys.exit(main())
