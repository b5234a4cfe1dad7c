"""The speed of PPO on a GPU: learning alone, and a run that is all on the device. On a CPU `bench.py` measures it.

python benchmarks/bench_on_policy.py --device cuda [--rounds 5] [--output FILE]
Seconds to learn 8 x 2,048 HalfCheetah-shaped steps against the same written plainly, environment steps per second of a
run in torch/CartPole-v1 with a profile, and a check that learning does not wait for the device.
Writes benchmarks/results/on-policy-speed-<device>.json. --quick is a dry run with small sizes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from on_policy_device import measure_device
from provenance import write_result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="a dry run with small sizes")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    found = measure_device(args)
    output = args.output or Path(__file__).parent / "results" / f"on-policy-speed-{args.device}.json"
    write_result(output, found)
    if any("error" in part for part in found.values() if isinstance(part, dict)):
        raise SystemExit(f"a measurement failed, see {output}")


if __name__ == "__main__":
    main()
