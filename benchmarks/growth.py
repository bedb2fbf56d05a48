"""Our batch from 1 to 4,096 environments: steps a second against bare MuJoCo, and the memory that each takes.

    pip install 'rlenv-robot[gym]' 'gymnasium[mujoco]' matplotlib
    python benchmarks/growth.py [--rounds 5] [--json benchmarks/growth.json] [--plot docs/curves/growth.png]
    python benchmarks/growth.py --drawn benchmarks/growth.json --plot docs/curves/growth.png

Half-cheetah and ant as in `step.py`. Each number of environments has a process of its own, in which memory is what the
process grew by from before the batch until it had run, and each round times the batch and then bare `mj_step` on one
thread. Given are the median of the ratios and their quartiles.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from step import SUBJECTS, many, raw

from recorder.figures.style import QUIET, heading, saved, series, sheet

NUMBERS = tuple(4**power for power in range(7))
ROWS = {"half-cheetah": 32_768, "ant": 8_192}  # steps of all environments together in a round


class Point(NamedTuple):
    """The measurements with one number of environments."""

    num: int
    rates: list[float]  # control steps a second, a round
    ratios: list[float]  # to bare MuJoCo in the same round
    kilobytes: float  # of memory, each environment


def measured(name: str, num: int, rounds: int) -> Point:
    """Measure in this process."""
    subject = SUBJECTS[name]
    bare = raw(subject)
    bare()
    before = _resident()
    run = many(subject, os.cpu_count() or 1, num, max(4, ROWS[name] // num))
    run()
    kilobytes = (_resident() - before) / num / 1e3
    pairs = [(run(), bare()) for _ in range(rounds)]
    return Point(num, [ours for ours, _ in pairs], [ours / theirs for ours, theirs in pairs], kilobytes)


def _resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def alone(name: str, num: int, rounds: int) -> Point:
    """Measure in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measured, name, num, rounds).result()


def plot(found: dict[str, list[Point]], path: Path) -> None:
    """Ratio and memory against the number."""
    figure, (left, right) = sheet(1, 2, 9, 3.6)
    for index, (name, points) in enumerate(found.items()):
        low, middle, high = np.quantile([point.ratios for point in points], [0.25, 0.5, 0.75], axis=1)
        nums, style = [point.num for point in points], series(index)
        left.plot(nums, middle, marker="o", ms=4, label=name, **style)
        left.fill_between(nums, low, high, color=style["color"], alpha=0.2, lw=0)
        right.plot(nums, [point.kilobytes for point in points], marker="o", ms=4, label=name, **style)
    left.axhline(os.cpu_count() or 1, color=QUIET, lw=0.8, ls=":")
    left.set(ylabel="steps a second, bare MuJoCo's\non one thread = 1", ylim=(0, None))
    right.set(ylabel="memory, kB an environment", yscale="log")
    for axis in (left, right):
        axis.set(xscale="log", xlabel="environments", xticks=NUMBERS, xticklabels=[f"{num:,}" for num in NUMBERS])
        axis.minorticks_off()
        axis.legend(fontsize=8, frameon=False)
    heading(figure, "From one environment to thousands", ["shaded: quartiles"])
    saved(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="keep the measurements there")
    parser.add_argument("--drawn", type=Path, metavar="FILE", help="measure nothing, draw what --json kept")
    parser.add_argument("--plot", type=Path, help="a picture of it, .png")
    given = parser.parse_args()
    if given.drawn:
        kept = json.loads(given.drawn.read_text())
        plot({name: [Point(**point) for point in points] for name, points in kept.items()}, given.plot)
        return
    found: dict[str, list[Point]] = {}
    for name in SUBJECTS:
        print(f"{name + ', environments':<28}{'steps/s':>10}{'of raw':>9}   quartiles      kB each")
        for num in NUMBERS:
            point = alone(name, num, given.rounds)
            found.setdefault(name, []).append(point)
            low, middle, high = np.quantile(point.ratios, [0.25, 0.5, 0.75])
            rate = np.median(point.rates)
            print(
                f"{num:<28,}{rate:>10,.0f}{middle:>9.2f}   {low:.2f} to {high:.2f}{point.kilobytes:>12,.1f}", flush=True
            )
    if given.json:
        kept = {name: [point._asdict() for point in points] for name, points in found.items()}
        given.json.write_text(json.dumps(kept, indent=1) + "\n")
    if given.plot:
        plot(found, given.plot)


if __name__ == "__main__":
    main()
