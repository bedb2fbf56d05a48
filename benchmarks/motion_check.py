"""Measure the cost of the check of self-collision and boxes in each period of an SO-101 at 240 Hz, in processor time.

The arm reaches each command at once. Commands are led within 20 rad/s² and 400 rad/s³, or limited in speed alone.

    python benchmarks/motion_check.py [--seconds 30] [--rounds 5]
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from hal import Guard, RobotState
from hal.limits import Limits
from sim.mjcf.collision import ModelCheck
from sim.model import at_rate
from sim.robots.so101 import so101

HZ = 240.0
OUT = [[0.2, -0.1, -0.01, 0.3, 0.1, 0.1], [-0.05, 0.12, 0.0, 0.15, 0.3, 0.3]]
IN = [[-0.25, -0.4, -0.02, 0.42, 0.4, 0.4]]

POSES = np.array(((-0.6, -1.0, 0.9, 0.6, 0.0, 0.2), (0.6, -0.8, 0.7, 0.9, 0.5, 0.6)))
"""Two poses with a way between them that comes within 6 mm of a box, and near another one."""

FREE = np.array(((0.7, -0.8, 0.6, 0.5, 0.0, 0.3), (1.2, -1.1, 0.9, 0.7, 0.5, 0.6)))
"""Two poses with a way between them that stays 4 cm away from everything."""


class Arm:
    """An arm that reaches each command at once."""

    simulated = True

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    def _read(self, target: np.ndarray) -> RobotState:
        sensors = {field.name: np.zeros(field.shape, field.dtype) for field in self.spec.sensors}
        return RobotState({**sensors, "joint_position": target.copy()}, {"joint_target": target}, time.monotonic_ns())

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        return self._read(np.array(self.spec.home["joint_target"], np.float32))

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        return self._read(np.array(command["joint_target"]))

    def stop(self, reason: str) -> None:
        pass

    def close(self) -> None:
        pass


def calm(low: np.ndarray, high: np.ndarray, ticks: int) -> Iterator[np.ndarray]:
    """Sweep between two poses in three seconds and back, as a person teaches an arm."""
    return _sweep(FREE, ticks)


def near(low: np.ndarray, high: np.ndarray, ticks: int) -> Iterator[np.ndarray]:
    """Sweep as `calm` does, past boxes."""
    return _sweep(POSES, ticks)


def _sweep(poses: np.ndarray, ticks: int) -> Iterator[np.ndarray]:
    for tick in range(ticks):
        share = 0.5 - 0.5 * np.cos(2 * np.pi * tick / HZ / 6.0)
        yield poses[0] + share * (poses[1] - poses[0])


def wild(low: np.ndarray, high: np.ndarray, ticks: int) -> Iterator[np.ndarray]:
    """Jump to random poses of the whole range, most of which are not clear."""
    dice = np.random.default_rng(0)
    for tick in range(ticks):
        if tick % 150 == 0:
            goal = dice.uniform(low, high)
        yield goal


def along(low: np.ndarray, high: np.ndarray, ticks: int) -> Iterator[np.ndarray]:
    """Press against the obstacles without end: the goal moves a little where the arm is held back."""
    dice = np.random.default_rng(1)
    goal = np.array((0.3, 0.9, 0.6, 0.4, 0.0, 0.2))
    for _ in range(ticks):
        goal = np.clip(goal + dice.normal(0, 0.01, 6), low, high)
        yield goal


def report(goals: Callable[..., Iterator[np.ndarray]], led: bool, ticks: int, rounds: int) -> None:
    """Print what the periods cost: of each, the cheapest of all rounds, which other programs disturbed the least."""
    runs = [measure(goals, led, ticks) for _ in range(rounds)]
    ordered = np.sort(np.min([took for took, _, _ in runs], axis=0)) * 1e6
    _, looks, held = runs[0]
    print(
        f"{goals.__name__:6s} {'led' if led else 'limited':8s} "
        f"mean {ordered.mean():6.1f} median {np.median(ordered):6.1f} "
        f"99.9% {ordered[int(0.999 * (len(ordered) - 1))]:6.1f} longest {ordered[-1]:6.1f} us; "
        f"looks: mean {np.mean(looks):.2f} most {max(looks)}; {held} of {ticks} held back",
        flush=True,
    )


def measure(goals: Callable[..., Iterator[np.ndarray]], led: bool, ticks: int) -> tuple[list[float], list[int], int]:
    """Return the time of each period, seconds, its number of looks, and the number of commands that were held back."""
    arm = at_rate(so101(looks=False), HZ)
    check = ModelCheck(arm, keep_out=OUT, keep_in=IN)
    limits: Limits | None = None
    if led:
        limits = arm.spec.limits.merged(max_acceleration={"joint_target": 20.0}, max_jerk={"joint_target": 400.0})
    guard = Guard(Arm(arm.spec), limits=limits, check=check)
    took: list[float] = []
    looks: list[int] = []
    counter = [0]
    inner, clear = check.clearances_m, guard._clear

    def clearances(*arguments: Any) -> np.ndarray:
        counter[0] += 1
        return inner(*arguments)

    def timed(*arguments: Any) -> Any:
        counter[0], began = 0, time.thread_time()
        values = clear(*arguments)
        took.append(time.thread_time() - began)
        looks.append(counter[0])
        return values

    check.clearances_m, guard._clear = clearances, timed  # type: ignore[method-assign]
    guard.reset({})
    low, high = arm.spec.commands["joint_target"].bounds
    for goal in goals(low, high, ticks):
        guard.step({"joint_target": goal.astype(np.float32)})
    assert guard._way is not None
    return took, looks, guard._way.held_back


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="of the arm's time, for each kind of motion")
    parser.add_argument("--rounds", type=int, default=5, help="how often each motion is repeated")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for led in (True, False):
        for goals in (calm, near, along, wild):
            report(goals, led, round(options.seconds * HZ), options.rounds)


if __name__ == "__main__":
    main()
