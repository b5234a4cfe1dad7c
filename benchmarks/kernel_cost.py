"""What a choice of kernels costs: updates with the kernels that training uses, by turns with others.

python benchmarks/kernel_cost.py determinism|compile|products|narrow-products [--device cuda] [--cases cql=16 sac=64]
                                 [--rounds 20] [--output FILE]
determinism: on a GPU, Inductor's kernels chosen by rule against those that it picks by a timer.
compile: on a CPU, compiled updates against eager ones, of which `compile: auto` has an estimate (`run/plan.py`).
products: on a CPU, this library's matrix products in compiled updates against those of torch.
narrow-products: the same with code for processors without AVX-512, which keep torch's.
A case is an algorithm and its number of seeds. The ratio is the speed of the first divided by that of the second.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench_gpu import TURN_S, turn
from flops import update_flops
from provenance import write_result
from sources import learner_class, parse_changes, shape_name, updates_per_call
from turns import Side, in_turns, machine, spread

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Comparison:
    """Two ways to compute the same updates, as settings of `side_learner.py`."""

    what: str
    device: str
    cases: tuple[str, ...]
    sides: tuple[str, str]
    words: tuple[str, ...] = ()  # of both sides
    wanted: float | None = None


CPU_CASES = tuple(f"{algo}=1" for algo in ("sac", "td3", "tqc", "crossq", "dqn", "iql", "td3_bc", "cql"))
PRODUCTS = ('products="own"', 'products="torch"')
COMPARISONS = {
    "determinism": Comparison(
        "updates per second with kernels chosen by rule over those with kernels picked by a timer",
        "cuda", ("cql=16", "qr_dqn=16", "sac=1", "sac=16", "sac=64"), ('kernels="rule"', 'kernels="timer"'),
        wanted=0.95,
    ),
    "compile": Comparison(
        "compiled updates per second over eager ones", "cpu", CPU_CASES, ('compile="on"', 'compile="off"')
    ),
    "products": Comparison(
        "compiled updates per second with this library's matrix products over those with torch's, which calls MKL",
        "cpu", CPU_CASES, PRODUCTS,
    ),
    "narrow-products": Comparison(
        "the same with code for processors without AVX-512", "cpu", CPU_CASES, PRODUCTS, ('march="haswell"',)
    ),
}  # fmt: skip


def starts(comparison: Comparison, cases: list[str], args: argparse.Namespace) -> list[partial[Side]]:
    """The programs of each case, one for each side."""
    found = []
    for case in cases:
        algo, _, seeds = case.partition("=")
        at_once = updates_per_call(parse_changes(learner_class(algo), args.changes)) if args.device != "cpu" else 1
        flops = update_flops(algo, shape_name(algo), tuple(args.changes))
        count = turn(int(seeds) * flops / 20e12 + 2.5e-4, at_once, args)
        if comparison.device == "cpu":
            count = max(2, int(TURN_S / (flops / 1e11 + 2e-4)))
        words = [algo, shape_name(algo), str(3 * at_once), str(count), *args.changes]
        words += [f"seeds={seeds}", f'device="{args.device}"', *comparison.words]
        found += [partial(Side, sys.executable, "side_learner.py", [*words, side]) for side in comparison.sides]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("compare", choices=COMPARISONS)
    parser.add_argument("--device", help="default: the comparison's; cpu only tests one that is meant for a GPU")
    parser.add_argument("--cases", nargs="+")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--parallel", type=int, default=12, help="programs that compile at once")
    parser.add_argument("--set", dest="changes", nargs="+", default=[])
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    comparison = COMPARISONS[args.compare]
    args.device = args.device or comparison.device
    cases = args.cases or list(comparison.cases)
    timed = in_turns(starts(comparison, cases, args), args.rounds, args.parallel)
    rows: list[dict[str, Any]] = []
    for case, first, second in zip(cases, timed[::2], timed[1::2], strict=True):
        row: dict[str, Any] = {"case": case}
        if first is None or second is None:
            row["error"] = "it did not start"
        else:
            row |= spread([one / other for one, other in zip(first.rates, second.rates, strict=True)])
            row |= {"first_per_s": statistics.median(first.rates), "second_per_s": statistics.median(second.rates)}
            if comparison.wanted is not None:
                row["as_wanted"] = row["ratio_median"] >= comparison.wanted
        print(row, flush=True)
        rows.append(row)
    names = {row["case"].removesuffix("=1"): row["ratio_median"] for row in rows if "error" not in row}
    reached = ", ".join(f"{name} {value:.2f}" for name, value in names.items())
    wanted = {} if comparison.wanted is None else {"wanted": comparison.wanted}
    result = {"what": comparison.what, "reached": reached, **wanted, "machine": machine(), "rows": rows}
    write_result(args.output or RESULTS / f"kernel-cost-{args.compare}.json", result)


if __name__ == "__main__":
    main()
