"""Control steps a second of the batch on the CPU and of the one on a GPU, for a task's robot, at several sizes.

Both get the same commands, and hand all sensors to the host in every step. On a GPU the first steps compile kernels and
record the step; they are not counted.

    python benchmarks/gpu.py [--robot go2] [--num 1024 4096] [--device cuda:0] [--seconds 5]

Needs the extra gpu. `--device cpu` shows that it runs, and says nothing about speed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np

from rlenv_robot.robot_models import find_robot_model
from sim.batch import SimBatch
from sim.gpu import WarpBatch
from sim.model import SimModel

WARM = 3


def commands(model: SimModel, num: int) -> dict[str, np.ndarray]:
    """The robots' home, scattered by a twentieth of the unit."""
    scatter = np.random.default_rng(0)
    told = {}
    for field in model.spec.commands:
        home = np.broadcast_to(np.asarray(model.spec.home.get(field.name, 0.0)), (num, *field.shape))
        values = home + scatter.uniform(-0.05, 0.05, home.shape)
        told[field.name] = np.clip(values, field.low, field.high).astype(field.numpy_dtype)
    return told


def measure(batch: SimBatch | WarpBatch, seconds: float) -> tuple[float, int]:
    """Median of control steps of all robots a second, and how many robots broke."""
    told = commands(batch.sim_model, batch.num)
    batch.reset(seeds=np.arange(batch.num))
    for _ in range(WARM):
        batch.step(told)
    rates, until = [], time.perf_counter() + seconds
    while not rates or time.perf_counter() < until:
        began = time.perf_counter()
        batch.step(told)
        rates.append(batch.num / (time.perf_counter() - began))
    broken = int(batch.broken.sum())
    batch.close()
    return statistics.median(rates), broken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="go2")
    parser.add_argument("--num", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    model = find_robot_model(args.robot).make_sim_model(looks=False)
    print(f"{args.robot}, {model.substeps} steps of the physics a control step; {os.cpu_count()} processors")
    print(f"{'robots':>8}{'CPU':>12}{args.device:>12}  control steps/s, all robots together")
    for num in args.num:
        (cpu, _), (gpu, broken) = (
            measure(batch, args.seconds) for batch in (SimBatch(model, num), WarpBatch(model, num, args.device))
        )
        print(f"{num:8}{cpu:12.0f}{gpu:12.0f}" + (f"  ({broken} broken)" if broken else ""))


if __name__ == "__main__":
    main()
