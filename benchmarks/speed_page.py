"""Writes docs/speed.md from the results of `bench.py`, `cost_growth.py` and `bench_gpu.py`.

python benchmarks/speed_page.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE, CPU, GPU = ROOT / "docs" / "speed.md", RESULTS / "speed-cpu.json", RESULTS / "speed-gpu.json"
# The same measurement on other processors, with the same programs: speed-cpu-NAME.json.
OTHERS, KERNELS = "speed-cpu-*.json", ("kernel-cost-products", "kernel-cost-narrow-products")
GROWTH = {device: RESULTS / f"cost-growth-{device}.json" for device in ("cpu", "cuda")}
HEAD = """\
<!-- Written by benchmarks/speed_page.py from benchmarks/results: run `make bench`. -->
# Speed

Every program takes turns with its peers on the same cores, with the same settings as far as both have them. A ratio is
this library's speed divided by the peer's: its median over the rounds, with a bootstrap interval of 95 %.
"""
END = """
*Plain* is the same algorithm written in eager PyTorch, in a file of one's own. *Ready* is the time from the start of
the program to the end of its warm-up, with compilation; *memory* is the most that the process had; of both, ours stands
before the peer's. `make bench` repeats the measurement (`QUICK=1`: a few workloads in 5 minutes), `make bench-gpu` that
on a GPU, `make cost-growth` (`DEVICE=cuda`) that of how cost grows."""
TITLES = {
    "training": "End-to-end training",
    "updates": "Updates alone",
    "calls": "Single calls: `predict` of 1 and of 1,024 observations, a batch from the replay",
    "files": "Saving and resuming",
    "programs": "Starting",
}
NOTES = {
    "updates": "On a processor with AVX-512 the matrix products of compiled updates are this library's own\n"
    "(`engine/product.cpp`); the peers call MKL.",
    "calls": "Eager: with 1,024 observations, nine tenths of TD3's time are matrix products of MKL, on both sides.",
    "files": "A checkpoint of a run with 50,000 transitions in its replay, 5,000 of them new. This library writes what "
    "is new, syncs it, and checks all of it by SHA-256 when it is loaded; the peer writes its whole replay, unsynced.\n"
    "A resume ends where the first step begins.",
    "programs": "Seconds from the command to its end. *First update*: `train sac HalfCheetah-v5` to the end of its\n"
    "first update, with 10 random steps before; eager, and with a program that an earlier process has compiled. Nine\n"
    "tenths of the import of SAC are torch's own.",
}
# What this library is to reach, as a ratio (of a task and a peer) or in seconds.
AIMS = {
    ("sac-halfcheetah", "stable_baselines3 SAC"): 2.3, ("sac-halfcheetah", "sbx SAC"): 1.35,
    ("td3-halfcheetah", "stable_baselines3 TD3"): 2.0, ("dqn-cartpole", "stable_baselines3 DQN"): 3.5,
    ("qr_dqn-cartpole", "sb3_contrib QRDQN"): 10.0, ("tqc-halfcheetah", "sb3_contrib TQC"): 3.3,
    ("iql-updates", "d3rlpy IQL"): 2.5, ("td3_bc-updates", "d3rlpy TD3PlusBC"): 3.0,
    ("cql-updates", "d3rlpy CQL"): 1.7,
    **{(f"predict-{algo}-1", f"stable_baselines3 {algo.upper()}"): 2.0 for algo in ("sac", "td3", "dqn", "ppo")},
}  # fmt: skip
AIMED_SECONDS = {"first update, eager": 8, "first update, compiled before": 12}


def ratio(one: dict[str, Any]) -> str:
    if "ratio_median" not in one:
        return ""
    low, high = one["ratio_interval"]
    return f"**{one['ratio_median']:.2f}** [{low:.2f}, {high:.2f}]"


def turn_row(one: dict[str, Any]) -> str:
    """A row of programs that take turns: rates, or milliseconds of single calls."""
    ours, peer = one["ours_steps_per_s"], one["peer_steps_per_s"]
    rates = [
        f"{1e3 / x:.3g}" if one["unit"] == "calls" else f"{x:,.0f}" if x >= 10 else f"{x:.2f}" for x in (ours, peer)
    ]
    aim = AIMS.get((one["task"], one["peer"]))
    cells = [one["task"], one["peer"], ratio(one), f"{aim:g}" if aim else "", *rates]
    cells += ["{:g} / {:g}".format(*one[name]) for name in ("ready_s", "peak_mib")]
    return f"| {' | '.join(cells)} |"


def program_row(one: dict[str, Any]) -> str:
    aim, peer = AIMED_SECONDS.get(one["task"]), f"{one['peer_s']:.2f}" if "peer" in one else ""
    wanted = f"{aim} s" if aim else ""
    return f"| {one['task']} | {one.get('peer', '')} | {ratio(one)} | {wanted} | {one['ours_s']:.2f} | {peer} |"


def group_section(group: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from ("", f"## {TITLES[group]}", "")
    if group in NOTES:
        yield from (NOTES[group], "")
    unit = next((one["unit"] for one in rows if "unit" in one), "steps")
    rate = {"calls": "ms", "programs": "seconds"}.get(unit, f"{unit}/s")
    head = ["workload", "peer", "ratio", "aim", rate, "peer's"]
    head += ["ready (s)", "memory (MiB)"] if unit != "programs" else []
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for one in rows:
        if "error" in one:
            yield f"| {one['task']} | | failed: {one['error']} |" + " |" * (len(head) - 3)
        else:
            yield program_row(one) if unit == "programs" else turn_row(one)


def standing(result: dict[str, Any]) -> Iterator[str]:
    """In how many rows this library is faster, and where it is slower."""
    rows = rows_of(result)
    behind = [f"{one['task']} ({one['peer']}: {one['ratio_median']:.2f})" for one in rows if one["ratio_median"] < 1]
    yield f"Faster than the peer in {len(rows) - len(behind)} of {len(rows)} rows" + (
        f"; slower in {', '.join(behind)}." if behind else "."
    )


def cpu_sections(result: dict[str, Any]) -> Iterator[str]:
    made = result["provenance"]
    versions = {**made["versions"], **made.get("peer_versions", {})}
    names = ("processor", "torch", "stable-baselines3", "sb3-contrib", "sbx-rl", "d3rlpy", "tianshou")
    where = ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
    yield f"{result['machine']['cores']} cores, {result['rounds']} rounds; {where}; commit {made['commit'][:12]}."
    yield from ("", *standing(result))
    for group in TITLES:
        if result.get(group):
            yield from group_section(group, result[group])


def rows_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of every group that have a peer."""
    return [one for group in TITLES for one in result.get(group, []) if "ratio_median" in one]


def other_section(results: list[dict[str, Any]]) -> Iterator[str]:
    """The ratios on other processors: they depend on the vectors that each side's products use."""
    made = [one["provenance"] for one in results]
    titles = [f"{one['versions']['processor']}, commit {one['commit'][:12]}" for one in made]
    yield from ("", "## On other processors", "", f"| workload | peer | {' | '.join(titles)} |")
    yield "|---" * (2 + len(titles)) + "|"
    found = [{(one["task"], one["peer"]): one for one in rows_of(result)} for result in results]
    for key in dict.fromkeys(key for rows in found for key in rows):
        yield f"| {' | '.join([*key, *(ratio(rows.get(key, {})) for rows in found)])} |"


def kernel_section(results: list[dict[str, Any]]) -> Iterator[str]:
    """What this library's own matrix products gain."""
    yield from ("", "## Own matrix products", "")
    for one in results:
        what = one["what"][0].upper() + one["what"][1:]
        where = f"{one['provenance']['versions']['processor']}, {one['machine']['cores']} cores"
        yield f"- {what} ({where}): {one['reached']}."
    yield ""
    yield "So a processor without AVX-512 keeps torch's, except in numeric mode `portable`, where MKL is slow."


def gpu_section(result: dict[str, Any]) -> Iterator[str]:
    """Absolute figures of `bench_gpu.py`."""
    peak, product = result["peak_flops"], result["product_flops"]
    yield from ("", "## On a GPU", "")
    known = f"its published peak with TF32 is {peak / 1e12:,.0f} TFLOP/s, and " if peak else ""
    yield f"{result['machine']['device']}, {result['rounds']} rounds, commit {result['provenance']['commit'][:12]}; "
    yield f"{known}a large matrix product reaches {product / 1e12:,.3g} TFLOP/s here. The operations of an update are"
    yield "counted from the sizes of its matrix products; all seeds are one program."
    yield from ("", "| updates | seeds | updates/s | of all seeds | share of the peak | of a product | ready (s) |")
    yield "|---" * 7 + "|"
    for one in result["updates"]:
        rates, shares = f"{one.get('per_s', 0):,.0f} | {one.get('all_per_s', 0):,.0f}", ["", ""]
        if "error" not in one:
            found = (one["share_of_peak"], one["share_of_product"])
            shares = [f"{share:.2%}" if share is not None else "" for share in found]
        ready = one.get("ready_s", one.get("error"))
        yield f"| {one['algo']} | {one['seeds']} | {rates} | {' | '.join(shares)} | {ready} |"
    names = {"runs": "SAC in HalfCheetah-v5, steps", "plain": "the same written plainly in eager PyTorch, updates"}
    if result.get("runs"):
        yield from ("", "| whole runs, and others | seeds | per second | of all seeds | ready (s) |")
        yield "|---" * 5 + "|"
    for group, title in names.items():
        for one in result.get(group, []):
            what = title if group == "runs" else f"{one['algo']}, {title}"
            rates = f"{one['per_s']:,.0f} | {one['all_per_s']:,.0f}" if "per_s" in one else " | "
            yield f"| {what} | {one['seeds']} | {rates} | {one.get('ready_s', one.get('error'))} |"
    for one in result.get("calls", []):
        if "per_s" in one:
            yield f"| {one['call']}: {1e3 / one['per_s']:.3g} ms | 1 | {one['per_s']:,.0f} | | {one['ready_s']} |"


def growth_section(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    """How cost grows with each factor, with a picture for each device."""
    yield from ("", "## How cost grows", "")
    yield "SAC with the shapes of HalfCheetah-v5 (REDQ for more critics), 256x256 and a batch of 256 but for the one"
    yield "factor; milliseconds of one step: its updates, or with environments one step of the loop with one update."
    yield "The dashed line is the time in proportion to the work, from the largest value back: a curve above it has"
    yield "fixed costs for small values, one below it grows faster than the work for large ones."
    for name in dict.fromkeys(name for result in results.values() for name in result["factors"]):
        yield from ("", f"### {name.capitalize()}", "")
        for device, result in results.items():
            if name in result["factors"]:
                yield from growth_of(name, device, result["factors"][name])


def growth_of(name: str, device: str, found: dict[str, Any]) -> Iterator[str]:
    rows, broken = found["rows"], found["break"]
    picture = f"cost-growth-{device}-{name.replace(' ', '-')}.svg"
    yield f"![{name} on {device}](../benchmarks/results/{picture})"
    yield ""
    yield f"| {name}, {device} | " + " | ".join(f"{row['value']:,}" for row in rows) + " |"
    yield "|---" * (len(rows) + 1) + "|"
    yield "| ms | " + " | ".join(f"{row['ms']:.3g}" for row in rows) + " |"
    yield ""
    if broken is None:
        yield "The time grows no faster than the work."
        return
    grown = f"the work {broken['work_grows']:.1f}, the time {broken['time_grows']:.1f} times"
    yield f"From {broken['from']:,} to {broken['to']:,} {grown}."
    for one in broken.get("operators", [])[:3]:
        small, large = one["ms"]
        yield f"`{one['operator']}`: {small:.3g} to {large:.3g} ms in an eager update."
    if "explanation" in broken:
        yield broken["explanation"]


def write_page(result: Path, target: Path) -> None:
    """Write the page of a result of `bench.py`, with the other results beside it."""
    lines = [HEAD, *(cpu_sections(json.loads(result.read_text())) if result.exists() else ())]
    if result == CPU:
        others = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(OTHERS))]
        kernels = [json.loads(path.read_text()) for name in KERNELS if (path := RESULTS / f"{name}.json").exists()]
        lines += [*(other_section(others) if others else ()), *(kernel_section(kernels) if kernels else ())]
    growth = {device: json.loads(path.read_text()) for device, path in GROWTH.items() if path.exists()}
    if growth:
        lines += growth_section(growth)
    if GPU.exists():
        lines += gpu_section(json.loads(GPU.read_text()))
    lines += [END]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_page(CPU, PAGE)
