"""Gymnasium's HalfCheetah-v5 as a robot and a task of ours, from the MJCF that Gymnasium installs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np

from hal import Field, RobotSpec, Spec
from rlenv_robot.tasks.task import Arrays, Episode
from sim.model import Columns, SimModel

SUBSTEPS = 5
_NEVER = np.False_
PERIOD_S = 0.05


def mjcf_path() -> Path:
    """Gymnasium's own file."""
    return Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "half_cheetah.xml"


SPEC = RobotSpec(
    "half-cheetah",
    Spec("half_cheetah_sensors", (Field("qpos", (9,), "float64"), Field("qvel", (9,), "float64"))),
    Spec("half_cheetah_commands", (Field("torque", (6,), "float32", -1.0, 1.0),)),
    1 / PERIOD_S,
)


def half_cheetah() -> SimModel:
    """The simulated robot: state as sensors, six torques."""
    model = mujoco.MjModel.from_xml_path(str(mjcf_path()))
    sensors = {"qpos": Columns("qpos"), "qvel": Columns("qvel")}
    return SimModel(SPEC, model, SUBSTEPS, sensors, {"torque": slice(None)}, scatter=_scatter)


def _scatter(generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
    """Gymnasium's reset noise of 0.1."""
    qpos += generator.uniform(-0.1, 0.1, qpos.size)
    qvel += 0.1 * generator.standard_normal(qvel.size)


@dataclass(frozen=True)
class HalfCheetah:
    """HalfCheetah-v5: observation without x, reward forward speed less 0.1 times squared torques, 1000 steps."""

    steps: int = 1000
    name = "half-cheetah"
    robot = "half-cheetah"
    action = SPEC.commands
    goal = Spec("none")
    state = Spec("none")

    @cached_property
    def observation(self) -> Spec:
        return Spec("observation", (Field("position", (8,), "float64"), Field("velocity", (9,), "float64")))

    def begin(self, rng: np.random.Generator, options: Mapping[str, Any]) -> Episode:
        return Episode({})

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        return action

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        return {"position": sensors["qpos"][..., 1:], "velocity": sensors["qvel"]}

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        return {}

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        torque, before, after = action["torque"], sensors["qpos"], following["qpos"]
        if torque.ndim == 1:  # one environment: Python's numbers, which cost less than NumPy's
            return (after.item(0) - before.item(0)) / PERIOD_S - 0.1 * float(torque.dot(torque))
        squares = np.vecdot(torque, torque).astype(np.float64)  # summed in float32, as Gymnasium does
        return (after[..., 0] - before[..., 0]) / PERIOD_S - 0.1 * squares

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        qpos = sensors["qpos"]
        return _NEVER if qpos.ndim == 1 else np.zeros(qpos.shape[:-1], bool)

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        return np.zeros(sensors["qpos"].shape[:-1], bool)

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        return {"x_m": sensors["qpos"][..., 0]}
