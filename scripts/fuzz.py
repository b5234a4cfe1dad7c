"""Fuzzes checkpoints, agents, configs and datasets: each is rejected in one line, or loads; none executes code.

Raw mutations (flips, cuts, splices) must be detected by the digests. Sealed mutations recompute every digest, as an
attacker would, to reach the checks after them; some of those that load are resumed for a few steps. Configs and
datasets have no digest: they must load or be rejected. The same seed gives the same files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "tests", "benchmarks")]

import hostile  # noqa: E402
import hostile_data  # noqa: E402
import torch  # noqa: E402
from conftest import make_quick_config  # noqa: E402
from fuzz_data import mutated_dataset  # noqa: E402
from fuzz_mutations import mutate_bytes, mutate_json, mutate_safetensors, mutate_yaml  # noqa: E402
from provenance import write_result  # noqa: E402

from rl_training.algorithms.registry import algorithm_names  # noqa: E402
from rl_training.checkpoint.read import list_checkpoints  # noqa: E402
from rl_training.core.assets import packaged_configs  # noqa: E402
from rl_training.core.checks import ConfigError, UserError  # noqa: E402
from rl_training.data.datasets.formats.loaders import load_transitions  # noqa: E402
from rl_training.run.agent import agent_from_checkpoint, find_checkpoint, load_agent  # noqa: E402
from rl_training.run.loading import load_config  # noqa: E402
from rl_training.run.resume import resume_training  # noqa: E402
from rl_training.run.run import train  # noqa: E402
from rl_training.run.session import TrainingFailure  # noqa: E402
from rl_training.run.watchdog import Watchdog  # noqa: E402

EXECUTING = {"pickle.find_class", "marshal.loads", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen"}
TIMEOUT = 20  # seconds after which a load counts as hung
NAMES = ("replay_a_b.safetensors", f"replay_{0:012d}_{10**12 - 1}.safetensors", "x.safetensors", "learner.json")
RESUMED_SHARE = 0.3  # of the sealed checkpoints that load


class Fuzzer:
    def __init__(self, seed: int, home: Path) -> None:
        self.rng, self.home = random.Random(seed), home
        self.counts: Counter[str] = Counter()
        self.undetected, self.tracebacks, self.executions = 0, 0, 0
        self.slowest, self.number = 0.0, 0
        self.forbidden: set[str] = set()
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGALRM, _hung)
        Watchdog._watch = lambda watchdog: None  # a forged timeout of a microsecond would end this process
        threading.excepthook = lambda found: self._report("thread", f"{found.exc_type.__name__}: {found.exc_value}")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in self.forbidden:
            return
        if sys._getframe(1).f_code.co_filename.startswith("<frozen importlib"):  # an import, such as TensorBoard
            return
        self.executions += 1
        print(f"executed: {event} {arguments!r}"[:300], file=sys.stderr)

    def attempt(self, kind: str, load: Callable[[], Any]) -> bool:
        """Load a case. Returns whether it loaded; any error but a one-line rejection counts as a traceback."""
        # Training may start processes: a config may have a video or workers.
        self.forbidden = EXECUTING - {"subprocess.Popen"} if kind == "resumed" else EXECUTING
        started = time.perf_counter()
        signal.alarm(TIMEOUT)
        try:
            load()
            outcome = "loaded"
        except (UserError, TrainingFailure) as error:
            outcome = "rejected"
            allowed = len(error.problems) if isinstance(error, ConfigError) else 1
            if len(str(error).splitlines()) > allowed:
                self._report(kind, f"more than one line: {error}")
        except (Exception, Hung) as error:
            if isinstance(error, Hung) and kind == "resumed":  # a config may have a million evaluations
                return True
            outcome = "traceback"
            self._report(kind, traceback.format_exc())
        finally:
            signal.alarm(0)
            self.forbidden = set()
        self.slowest = max(self.slowest, time.perf_counter() - started)
        self.counts[f"{kind} {outcome}"] += 1
        return outcome == "loaded"

    def _report(self, kind: str, text: str) -> None:
        self.tracebacks += 1
        self._show(kind, text)

    def _show(self, kind: str, text: str) -> None:
        print(f"--- {kind}, case {self.number}\n{text}", file=sys.stderr, flush=True)

    def place(self) -> Path:
        self.number += 1
        shutil.rmtree(self.home / "case", ignore_errors=True)
        (self.home / "case").mkdir()
        return self.home / "case"

    # --- one case each ---------------------------------------------------------------------------------------------
    def raw_checkpoint(self, run: Path) -> None:
        checkpoint = _linked_copy(run, self.place())
        _mutate_some_file(self.rng, checkpoint)
        if self.attempt("raw checkpoint", lambda: _load_all(checkpoint)):
            self.undetected += 1
            self._show("raw checkpoint", "mutated, and loaded without an error")

    def sealed_checkpoint(self, run: Path) -> None:
        home = self.place() / run.name
        checkpoint = _linked_copy(run, home / "checkpoints")
        _forge(self.rng, checkpoint)
        loads = self.attempt("sealed checkpoint", lambda: _load_all(checkpoint))
        if loads and self.rng.random() < RESUMED_SHARE:
            self.attempt("resumed", lambda: _resume(run, home))

    def raw_agent(self, run: Path) -> None:
        path = self.place() / "agent.safetensors"
        path.write_bytes(_mutated(self.rng, _agent_of(run).read_bytes()))
        if self.attempt("raw agent", lambda: load_agent(path)):
            self.undetected += 1
            self._show("raw agent", "mutated, and loaded without an error")

    def sealed_agent(self, run: Path) -> None:
        path = _forged_agent(self.rng, run, self.place())
        self.attempt("sealed agent", lambda: load_agent(path))

    def config(self) -> None:
        path = self.place() / "config.yaml"
        text = self.rng.choice(packaged_configs()).read_bytes()
        path.write_bytes(mutate_yaml(self.rng, text) if self.rng.random() < 0.6 else _mutated(self.rng, text))
        self.attempt("config", lambda: load_config(path))

    def dataset(self) -> None:
        place = self.place()
        path = mutated_dataset(self.rng, place)
        self.attempt("dataset", lambda: load_transitions(path).sha256())


class Hung(BaseException):
    """A load timed out; not an Exception, so that no handler catches it."""


def _hung(number: int, frame: Any) -> None:
    raise Hung(f"no answer in {TIMEOUT} s")


def _load_all(checkpoint: Path) -> None:
    """Load the agent and every tensor, as evaluating and resuming do."""
    found = find_checkpoint(checkpoint)[0]
    agent_from_checkpoint(found)
    for name in found.names(""):
        if name.endswith(".safetensors"):
            found.tensors(name)


def _resume(run: Path, home: Path) -> None:
    for name in ("run.json", "metrics.jsonl", "evaluations.jsonl"):
        shutil.copy(run / name, home / name)
    resume_training(home, total_timesteps=44, show_progress=False)


def _linked_copy(run: Path, place: Path) -> Path:
    source = list_checkpoints(run / "checkpoints")[-1]
    place = place / source.name
    place.mkdir(parents=True)
    for file in source.iterdir():
        os.link(file, place / file.name)
    return place


def _replace(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)  # unlinked first: the original is a hard link to the same file
    path.write_bytes(data)


def _mutated(rng: random.Random, data: bytes) -> bytes:
    """Mutated bytes that differ from `data`."""
    while (after := mutate_bytes(rng, data)) == data:
        pass
    return after


def _mutate_some_file(rng: random.Random, checkpoint: Path) -> None:
    file = rng.choice(sorted(checkpoint.iterdir()))
    if rng.random() < 0.03:
        file.unlink()
    elif rng.random() < 0.05:
        other = rng.choice([path for path in sorted(checkpoint.iterdir()) if path != file])
        _replace(file, other.read_bytes())
    else:
        _replace(file, _mutated(rng, file.read_bytes()))


def _forge(rng: random.Random, checkpoint: Path) -> None:
    """Mutate one or two things, and recompute the digests."""
    changes: dict[str, Any] = {}
    for _ in range(rng.choice((1, 1, 1, 2))):
        kind = rng.random()
        tensors = sorted(checkpoint.glob("*.safetensors"))
        if not tensors:  # an offline run has a single file, which the first change may remove
            break
        file = rng.choice(tensors)
        if kind < 0.45:
            state = json.loads((checkpoint / "state.json").read_bytes())
            _replace(checkpoint / "state.json", json.dumps(mutate_json(rng, state)).encode())
        elif kind < 0.85:
            _replace(file, mutate_safetensors(rng, file.read_bytes()))
        elif kind < 0.9:
            file.rename(checkpoint / rng.choice(NAMES))
        elif kind < 0.93:
            file.unlink()
        else:
            manifest = mutate_json(rng, json.loads((checkpoint / "manifest.json").read_bytes()))
            changes = manifest if isinstance(manifest, dict) else {"files": manifest}
    try:
        hostile.seal(checkpoint, **changes)
    except ValueError:  # NaN has no canonical form
        (checkpoint / "manifest.json").write_text(json.dumps(changes))


def _agent_of(run: Path) -> Path:
    return next((run / "agents").glob("*_final.safetensors"))


def _forged_agent(rng: random.Random, run: Path, place: Path) -> Path:
    if rng.random() < 0.6:
        return hostile.agent_file(lambda about: mutate_json(rng, about))(run, place)
    data, path = mutate_safetensors(rng, _agent_of(run).read_bytes()), place / "agent.safetensors"
    try:
        return hostile.agent_file(lambda about: about, data)(run, place)
    except Exception:  # so broken that it cannot be sealed
        path.write_bytes(data)
        return path


def make_runs(home: Path) -> list[Path]:
    runs = []
    for algo in algorithm_names():
        config = make_quick_config(
            algo, home, total_timesteps=40, checkpoint_interval=20, seeds=(0, 1), num_envs=2, workers=0
        )
        runs.append(train(config, show_progress=False).run_dir)
    return runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=5000, metavar="N", help="checkpoints and agents")
    parser.add_argument("--configs", type=int, default=1000, metavar="N")
    parser.add_argument("--datasets", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "fuzz.json")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        runs = make_runs(home / "runs")
        fuzzer = Fuzzer(args.seed, home)
        for number, run in enumerate(runs):  # imports everything, so that no import counts as an execution
            _linked_copy(run, home / str(number) / "checkpoints")
            _resume(run, home / str(number))
            load_config(packaged_configs()[0])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        cases = [fuzzer.raw_checkpoint, fuzzer.sealed_checkpoint, fuzzer.raw_agent, fuzzer.sealed_agent]
        for _ in range(args.checkpoints):
            fuzzer.rng.choices(cases, (25, 45, 15, 15))[0](fuzzer.rng.choice(runs))
        for _ in range(args.configs):
            fuzzer.config()
        load_transitions(hostile_data.minari()(fuzzer.place()))
        for _ in range(args.datasets):
            fuzzer.dataset()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        executions = fuzzer.executions + (home / "executed").exists()
    result = {
        "seed": args.seed,
        "checkpoints_and_agents": args.checkpoints,
        "configs": args.configs,
        "datasets": args.datasets,
        "code_executions": executions,
        "tracebacks": fuzzer.tracebacks,
        "undetected_flips": fuzzer.undetected,
        "outcomes": dict(sorted(fuzzer.counts.items())),
        "slowest_load_seconds": round(fuzzer.slowest, 3),
        "memory_growth_mib": round(grown),
        "seconds": round(time.monotonic() - started, 1),
    }
    write_result(args.output, result)
    print(
        f"fuzz: {args.checkpoints} checkpoints and agents, {args.configs} configs, {args.datasets} datasets in "
        f"{result['seconds']:.0f} s: code executions {executions}, tracebacks {fuzzer.tracebacks}, "
        f"undetected flips {fuzzer.undetected}"
    )
    return 1 if executions or fuzzer.tracebacks or fuzzer.undetected else 0


if __name__ == "__main__":
    sys.exit(main())
