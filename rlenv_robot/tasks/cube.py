"""What the tasks with a cube have in common: the target, the start, the reward, and the end where the cube is lost."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from hal import Field
from hal.robots.so101 import HOME
from hal.robots.so101_cube import CUBE_AREA
from rlenv_robot.task import Arrays

__all__ = [
    "TARGET",
    "Rewards",
    "check_settings",
    "distance",
    "gap",
    "lost",
    "observed",
    "place_on_table",
    "shaped_reward",
    "start_near_home",
]

Rewards = Literal["dense", "sparse"]
"""``dense`` leads to the target; ``sparse`` is 1 where the task is fulfilled and else 0."""

TARGET = Field("target_position", (3,), "float32", -1.0, 1.0, "m", "where the cube's middle shall be", ("x", "y", "z"))

_START_NOISE = 0.15
_LOST_M = -0.05


def check_settings(tolerance_m: float, steps: int, rewards: str, area: float) -> None:
    """Refuse what no episode can be made of.

    Raises:
        ValueError: naming the setting.
    """
    if not tolerance_m > 0:
        raise ValueError(f"tolerance_m is {tolerance_m}, it must be above 0")
    if steps < 1:
        raise ValueError(f"steps is {steps}, it must be at least 1")
    if rewards not in get_args(Rewards):
        raise ValueError(f"rewards is {rewards!r}, allowed are 'dense' and 'sparse'")
    if not 0 < area <= 1:
        raise ValueError(f"area is {area}, it must be above 0 and at most 1")


def start_near_home(rng: np.random.Generator) -> np.ndarray:
    """Joint goals near home, rad, shape (6,); the gripper's is home's."""
    noise = rng.uniform(-_START_NOISE, _START_NOISE, 6).astype(np.float32)
    noise[5] = 0.0
    return np.asarray(HOME, np.float32) + noise


def place_on_table(rng: np.random.Generator, share: float) -> tuple[float, float]:
    """x and y in metres, from the middle ``share`` (in width and in depth) of where cubes lie."""
    x, y = ((low + high) / 2 + share * (high - low) * rng.uniform(-0.5, 0.5) for low, high in CUBE_AREA)
    return float(x), float(y)


def observed(sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
    """The sensors, and the target spread over their leading axes."""
    shape, target = sensors["cube_position"].shape, goal["target_position"]
    return {**sensors, "target_position": target if target.shape == shape else np.broadcast_to(target, shape)}


def distance(one: np.ndarray, other: Any) -> np.ndarray:
    """Metres between points, shape (..., 3) -> (...)."""
    result: np.ndarray = np.sqrt(np.square(one - other).sum(axis=-1))
    return result


def gap(sensors: Arrays, goal: Arrays) -> np.ndarray:
    """From the cube's middle to the target, metres; shape = leading axes."""
    return distance(sensors["cube_position"], goal["target_position"])


def shaped_reward(sensors: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
    """Leads the fingers to the cube and the cube to the target, at most 1; shape = leading axes.

    ``0.2 exp(-g / 0.05 m) + 0.4 exp(-d / 0.1 m) + 0.4 exp(-d / 0.02 m) - 0.5 |q* - q*before|^2``: ``g`` from finger
    tips to cube and ``d`` from cube to target after the step, ``q*`` the goals of the five joints before the gripper.
    """
    near, away = distance(following["gripper_position"], following["cube_position"]), gap(following, goal)
    change = np.square(following["joint_goal"][..., :5] - sensors["joint_goal"][..., :5]).sum(axis=-1)
    value: np.ndarray = 0.2 * np.exp(-near / 0.05) + 0.4 * np.exp(-away / 0.1) + 0.4 * np.exp(-away / 0.02)
    value -= 0.5 * change
    return value


def lost(sensors: Arrays) -> np.ndarray:
    """The cube fell off the table; bool, shape = leading axes."""
    below: np.ndarray = sensors["cube_position"][..., 2] < _LOST_M
    return below
