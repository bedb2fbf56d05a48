"""A small robot that isn't an arm, for whatever must hold for any MJCF."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
import pytest

from hal import Field, RobotSpec, Spec
from sim.model import Columns, Computed, SimModel

PENDULUM = """
<mujoco>
  <option timestep="0.01" integrator="implicitfast"/>
  <size memory="200K"/>
  <worldbody>
    <body name="one">
      <joint name="a" axis="0 1 0" damping="0.05"/>
      <geom type="capsule" size="0.02" fromto="0 0 0 0 0 0.5" mass="1"/>
      <body pos="0 0 0.5">
        <joint name="b" axis="0 1 0" damping="0.05"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0 0 0.5" mass="0.5"/>
        <body pos="0 0 0.5">
          <joint name="c" axis="1 0 0" damping="0.05"/>
          <geom type="sphere" size="0.05" mass="0.2"/>
          <site name="end"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="a"/>
    <position joint="b" kp="4" kv="0.3" ctrlrange="-2 2"/>
    <motor joint="c"/>
  </actuator>
  <keyframe><key qpos="0.1 0 0" ctrl="0 0.5 0"/></keyframe>
</mujoco>
"""


def shaken(generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
    qpos += generator.uniform(-0.1, 0.1, qpos.shape)
    qvel += generator.uniform(-0.1, 0.1, qvel.shape)


def bend_squared(qpos: np.ndarray) -> np.ndarray:
    return qpos * qpos


def make_pendulum(mjcf: str = PENDULUM) -> SimModel:
    spec = RobotSpec(
        "pendulum",
        Spec(
            "pendulum_sensors",
            (
                Field("angles", (3,), "float64"),
                Field("ends", (2,), "float32", elements=("a", "c")),
                Field("middle", (), "float64"),
                Field("swapped", (3,), "float64"),
                Field("squared", (), "float32"),
                Field("frame", (3, 3), "float64"),
            ),
        ),
        Spec("pendulum_commands", (Field("torque", (2,), "float64", -1, 1), Field("bend", (), "float32", -2, 2))),
        rate_hz=20.0,
        home={"bend": 0.25},
    )
    return SimModel(
        spec,
        mujoco.MjModel.from_xml_string(mjcf),
        substeps=5,
        sensors={
            "angles": Columns("qpos"),
            "ends": Columns("qpos", (0, 2)),
            "middle": Columns("qpos", (1,)),
            "swapped": Columns("qpos", (2, 0, 1)),
            "squared": Computed(lambda bend: bend_squared(bend)[..., 0], (Columns("qpos", slice(1, 2)),)),
            "frame": Columns("site_xmat"),
        },
        commands={"torque": (0, 2), "bend": (1,)},
        start={"bend": (1,)},
        keyframe=0,
        scatter=shaken,
    )


@pytest.fixture(scope="session")
def pendulum() -> SimModel:
    return make_pendulum()


@pytest.fixture(scope="session")
def pendulum_of() -> Callable[[str], SimModel]:
    return make_pendulum


@pytest.fixture(scope="session")
def pendulum_xml() -> str:
    return PENDULUM
