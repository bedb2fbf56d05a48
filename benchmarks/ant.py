"""Gymnasium's Ant-v5 without contact forces as a robot and a task of ours, from the MJCF that Gymnasium installs.

``mujoco.batch`` does not compute contact forces (``cfrc_ext``), so they are neither observed nor charged:
``gymnasium.make("Ant-v5", include_cfrc_ext_in_observation=False, contact_cost_weight=0)``.
"""

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
PERIOD_S = 0.05


def mjcf_path() -> Path:
    """Gymnasium's own file."""
    return Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "ant.xml"


SPEC = RobotSpec(
    "ant",
    Spec("ant_sensors", (
        Field("qpos", (15,), "float64"), Field("qvel", (14,), "float64"),
        Field("torso_x", (1,), "float64", unit="m", meaning="as mj_step leaves it, which is what Gymnasium reads"),
    )),
    Spec("ant_commands", (Field("torque", (8,), "float32", -1.0, 1.0),)),
    1 / PERIOD_S,
)  # fmt: skip


def ant() -> SimModel:
    """The simulated robot: state as sensors, eight torques."""
    model = mujoco.MjModel.from_xml_path(str(mjcf_path()))
    sensors = {"qpos": Columns("qpos"), "qvel": Columns("qvel"), "torso_x": Columns("xpos", slice(3, 4))}
    return SimModel(SPEC, model, SUBSTEPS, sensors, {"torque": slice(None)}, scatter=_scatter, derived="as_stepped")


def _scatter(generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
    """Gymnasium's reset noise of 0.1."""
    qpos += generator.uniform(-0.1, 0.1, qpos.size)
    qvel += 0.1 * generator.standard_normal(qvel.size)


@dataclass(frozen=True)
class Ant:
    """Ant-v5: reward 1 while healthy, forward speed, less half the squared torques; ends where unhealthy.

    With ``falls=False`` it goes on (Gymnasium's ``terminate_when_unhealthy=False``).
    """

    steps: int = 1000
    falls: bool = True
    name = "ant"
    robot = "ant"
    action = SPEC.commands
    goal = Spec("none")
    state = Spec("none")

    @cached_property
    def observation(self) -> Spec:
        return Spec("observation", (Field("position", (13,), "float64"), Field("velocity", (14,), "float64")))

    def begin(self, rng: np.random.Generator, options: Mapping[str, Any]) -> Episode:
        return Episode({})

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        return action

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        return {"position": sensors["qpos"][..., 2:], "velocity": sensors["qvel"]}

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        return {}

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        torque = action["torque"]
        speed = (following["torso_x"].T[0] - sensors["torso_x"].T[0]) / PERIOD_S
        return speed + self.healthy(following) - 0.5 * np.vecdot(torque, torque)  # float32, as Gymnasium sums torques

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        ends = ~self.healthy(sensors)
        return ends if self.falls else ends & False

    def healthy(self, sensors: Arrays) -> np.ndarray:
        qpos, qvel = sensors["qpos"], sensors["qvel"]
        height = qpos.T[2]
        finite = np.isfinite(np.vecdot(qpos, qpos) + np.vecdot(qvel, qvel))
        return (height >= 0.2) & (height <= 1.0) & finite

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        return np.zeros(sensors["qpos"].shape[:-1], bool)

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        return {"x_m": sensors["qpos"][..., 0]}
