"""What deterministic kernels cost: updates on a GPU, by turns with kernels that Inductor picks by a timer.

python benchmarks/determinism_cost.py [--device cuda] [--cases cql=16 sac=64] [--rounds 20] [--output FILE]
A case is an algorithm and its number of seeds. Both programs run the same updates; the ratio is the speed of kernels
that are chosen by rule, as training uses them, divided by that of the others. --device cpu only tests this script.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

from bench_gpu import turn
from flops import update_flops
from provenance import write_result
from sources import learner_class, parse_changes, shape_name, updates_per_call
from turns import Side, in_turns, machine, spread

RESULT = Path(__file__).resolve().parent / "results" / "determinism-cost.json"
CASES = ("cql=16", "qr_dqn=16", "sac=1", "sac=16", "sac=64")
WANTED = 0.95
BY = ("rule", "timer")


def starts(cases: list[str], args: argparse.Namespace) -> list[partial[Side]]:
    """The program of each case, once with kernels by rule and once by a timer."""
    found = []
    for case in cases:
        algo, _, seeds = case.partition("=")
        at_once = updates_per_call(parse_changes(learner_class(algo), args.changes)) if args.device != "cpu" else 1
        flops = update_flops(algo, shape_name(algo), tuple(args.changes))
        count = turn(int(seeds) * flops / 20e12 + 2.5e-4, at_once, args)
        words = [algo, shape_name(algo), str(3 * at_once), str(count), *args.changes]
        words += [f"seeds={seeds}", f'device="{args.device}"']
        found += [partial(Side, sys.executable, "side_learner.py", [*words, f'kernels="{by}"']) for by in BY]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--parallel", type=int, default=12, help="programs that compile at once")
    parser.add_argument("--set", dest="changes", nargs="+", default=[])
    parser.add_argument("--output", type=Path, default=RESULT)
    args = parser.parse_args()
    timed = in_turns(starts(args.cases, args), args.rounds, args.parallel)
    rows: list[dict[str, Any]] = []
    for case, rule, timer in zip(args.cases, timed[::2], timed[1::2], strict=True):
        row: dict[str, Any] = {"case": case}
        if rule is None or timer is None:
            row["error"] = "it did not start"
        else:
            row |= spread([one / other for one, other in zip(rule.rates, timer.rates, strict=True)])
            row |= {"by_rule_per_s": statistics.median(rule.rates), "by_timer_per_s": statistics.median(timer.rates)}
            row["reached"] = row["ratio_median"] >= WANTED
        print(row, flush=True)
        rows.append(row)
    what = "updates per second with kernels chosen by rule over those with kernels picked by a timer"
    write_result(args.output, {"what": what, "wanted": WANTED, "machine": machine(), "rows": rows})


if __name__ == "__main__":
    main()
