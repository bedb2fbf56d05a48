"""Describe the motors of Unitree's Go2 and G1: their order on the bus, their gains, and their limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from hal import Field, RobotSpec, Spec
from hal.field import Bound
from hal.limits import Limits
from hal.robot import Actuation, Range, elements_of
from hal.robots.go2 import GO2, TORQUE_LIMIT
from rlenv_robot.robot_models import RobotModel

__all__ = ["DAMPING_GAIN", "G1", "G1_JOINTS", "G1_MODEL", "G1_MOTORS", "GO2_MOTORS", "MOTORS", "MotorTable"]

DAMPING_GAIN = 3.0
"""kd of motors that give way under damping, N m s/rad: state ``Passive`` of unitree_rl_lab, the maker's own deployment
(deploy/robots/g1_29dof/config/config.yaml)."""

RATE_HZ = 50.0
"""Control periods a second, that of the Go2 in simulation and of the maker's walking policies."""


@dataclass(frozen=True)
class MotorTable:
    """Describe one kind of robot: motor ``i`` of its messages drives joint ``i`` of its spec.

    Attributes:
        nominal: the robot's description, without gains.
        messages: family of its messages, ``go`` (unitree_go) or ``hg`` (unitree_hg).
        stiffness: kp of each motor, N m/rad.
        damping: kd of each motor, N m s/rad.
        torque_limit: largest torque of each motor, N m. More for half a second stops the robot.
        lying: joint angles of the robot on the ground, rad; None for a robot that can't lie down by itself.
    """

    nominal: RobotSpec
    messages: Literal["go", "hg"]
    stiffness: tuple[float, ...]
    damping: tuple[float, ...]
    torque_limit: tuple[float, ...]
    lying: tuple[float, ...] | None = None

    @property
    def joints(self) -> tuple[str, ...]:
        """The names of the joints in the order of the motors."""
        return self.nominal.commands["joint_target"].elements

    @cached_property
    def spec(self) -> RobotSpec:
        """The description with gains and limits of torque, which a policy's manifest is compared with."""
        gains = {
            element: {"stiffness": Range.of(kp), "damping": Range.of(kd)}
            for element, kp, kd in zip(elements_of(self.nominal.commands), self.stiffness, self.damping, strict=True)
        }
        limits = replace(self.nominal.limits, max_effort={"joint_torque": self.torque_limit})
        return replace(self.nominal, limits=limits, actuation=Actuation(gains))

    def with_settings(
        self,
        kp: float | Sequence[float] | None = None,
        kd: float | Sequence[float] | None = None,
        home: Sequence[float] | None = None,
    ) -> MotorTable:
        """Return the table with other gains or another home.

        Args:
            kp: N m/rad, for all motors or for each; None keeps the table's.
            kd: N m s/rad, likewise.
            home: joint angles at which a reset ends, rad; None keeps the table's.

        Raises:
            ValueError: a number is negative or not finite, or there is not one for each motor.
            SpecError: the home is out of range.
        """
        stiffness, damping = self._each("kp", kp, self.stiffness), self._each("kd", kd, self.damping)
        nominal = self.nominal
        if home is not None:
            if len(home) != len(self.joints):
                raise ValueError(f"home has {len(home)} angles, expected one for each of: {', '.join(self.joints)}")
            nominal = replace(nominal, home={"joint_target": tuple(home)})
        return replace(self, nominal=nominal, stiffness=stiffness, damping=damping)

    def _each(self, name: str, value: float | Sequence[float] | None, default: tuple[float, ...]) -> tuple[float, ...]:
        if value is None:
            return default
        numbers = (value,) * len(default) if isinstance(value, int | float) else tuple(value)
        if len(numbers) != len(default) or not np.all(np.isfinite(numbers)) or min(numbers) < 0:
            raise ValueError(
                f"{name} is {value!r:.200}, expected a number of at least 0, or {len(default)} of them, one for each "
                f"of: {', '.join(self.joints)}"
            )
        return tuple(float(number) for number in numbers)


GO2_MOTORS = MotorTable(
    nominal=GO2,
    messages="go",
    stiffness=(40.0,) * 12,
    damping=(1.0,) * 12,
    torque_limit=TORQUE_LIMIT,
    lying=(0.0, 1.36, -2.65, 0.0, 1.36, -2.65, -0.2, 1.36, -2.65, 0.2, 1.36, -2.65),
)
"""The Go2 with the gains of its simulation (sim/models/go2.xml).

It lies as at the beginning of the maker's example (unitree_sdk2_python, example/go2/low_level/go2_stand_example.py).
"""

# -- The G1 with 29 joints ---------------------------------------------------------------------------------------

_LEG = {  # joint -> range of the left one, rad; largest torque, N m; no-load speed, rad/s; kp, kd
    "hip_pitch": (-2.5307, 2.8798, 88.0, 32.0, 60.0, 1.0),
    "hip_roll": (-0.5236, 2.9671, 139.0, 20.0, 60.0, 1.0),
    "hip_yaw": (-2.7576, 2.7576, 88.0, 32.0, 60.0, 1.0),
    "knee": (-0.087267, 2.8798, 139.0, 20.0, 100.0, 2.0),
    "ankle_pitch": (-0.87267, 0.5236, 50.0, 37.0, 40.0, 1.0),
    "ankle_roll": (-0.2618, 0.2618, 50.0, 37.0, 40.0, 1.0),
}
_WAIST = {
    "waist_yaw": (-2.618, 2.618, 88.0, 32.0, 60.0, 1.0),
    "waist_roll": (-0.52, 0.52, 50.0, 37.0, 40.0, 1.0),
    "waist_pitch": (-0.52, 0.52, 50.0, 37.0, 40.0, 1.0),
}
_ARM = {
    "shoulder_pitch": (-3.0892, 2.6704, 25.0, 37.0, 40.0, 1.0),
    "shoulder_roll": (-1.5882, 2.2515, 25.0, 37.0, 40.0, 1.0),
    "shoulder_yaw": (-2.618, 2.618, 25.0, 37.0, 40.0, 1.0),
    "elbow": (-1.0472, 2.0944, 25.0, 37.0, 40.0, 1.0),
    "wrist_roll": (-1.97222, 1.97222, 25.0, 37.0, 40.0, 1.0),
    "wrist_pitch": (-1.61443, 1.61443, 5.0, 22.0, 40.0, 1.0),
    "wrist_yaw": (-1.61443, 1.61443, 5.0, 22.0, 40.0, 1.0),
}
_Row = tuple[float, float, float, float, float, float]


def _sides(part: Mapping[str, _Row]) -> dict[str, _Row]:
    """Return the joints of both sides; the range of a roll is mirrored on the right."""
    rows = {f"left_{name}": row for name, row in part.items()}
    for name, (low, high, torque, speed, kp, kd) in part.items():
        mirrored = (-high, -low) if name.endswith("_roll") else (low, high)
        rows[f"right_{name}"] = (*mirrored, torque, speed, kp, kd)
    return rows


_G1_ROWS = {**_sides(_LEG), **_WAIST, **_sides(_ARM)}

G1_JOINTS = tuple(_G1_ROWS)
"""The joints in the order of the maker's motor numbers 0 to 28 (example/g1/low_level/g1_low_level_example.py)."""

_LOW, _HIGH, _TORQUE, _SPEED, _KP, _KD = (tuple(column) for column in zip(*_G1_ROWS.values(), strict=True))
_BENT = {"hip_pitch": -0.1, "knee": 0.3, "ankle_pitch": -0.2}
_HOME = tuple(_BENT.get(name.partition("_")[2], 0.0) for name in G1_JOINTS)


def _joints(name: str, unit: str, meaning: str, low: Bound, high: Bound) -> Field:
    return Field(name, (len(G1_JOINTS),), "float32", low, high, unit, meaning, G1_JOINTS)


G1 = RobotSpec(
    name="g1",
    sensors=Spec("g1_sensors", (
        _joints("joint_position", "rad", "measured joint angles", -2 * np.pi, 2 * np.pi),
        _joints("joint_velocity", "rad/s", "measured joint velocities", -100.0, 100.0),
        _joints("joint_goal", "rad", "the goal that the motors hold", _LOW, _HIGH),
        _joints("joint_torque", "N m", "what the motors gave", -200.0, 200.0),
        Field("angular_velocity", (3,), "float32", -100.0, 100.0, "rad/s",
              "of the pelvis in its own frame, as the gyroscope tells", ("x", "y", "z")),
        Field("orientation", (4,), "float32", -1.0, 1.0, "1", "of the pelvis, unit quaternion", ("w", "x", "y", "z")),
    )),
    commands=Spec("g1_commands", (_joints("joint_target", "rad", "goal angles of the motors", _LOW, _HIGH),)),
    rate_hz=RATE_HZ,
    limits=Limits(max_velocity={"joint_target": _SPEED}),
    home={"joint_target": _HOME},
    measured_by={"joint_target": "joint_position"},
    max_age_s={"joint_position": 0.04, "joint_velocity": 0.04, "angular_velocity": 0.04, "orientation": 0.04},
    max_rate={"joint_position": _SPEED},
)  # fmt: skip
"""The G1 with 29 joints, pitch and roll of ankles and waist in series (``mode_pr`` 0).

Ranges, torques and speeds: mjlab 1.6.0, asset_zoo/robots/unitree_g1 (g1.xml and g1_constants.py, "Motor specs (from
Unitree)"). Gains: the maker's g1_low_level_example.py. Home: unitree_rl_lab, deploy/robots/g1_29dof, state FixStand,
legs alone.
"""

G1_MOTORS = MotorTable(G1, "hg", _KP, _KD, _TORQUE)
"""The G1 can't lie down by itself: at the end it is damped, and must hang from its crane."""

MOTORS: Mapping[str, MotorTable] = {"go2": GO2_MOTORS, "g1": G1_MOTORS}
"""Name of a robot -> its table."""


G1_MODEL = RobotModel("g1", spec=G1, driver="rlenv_unitree.driver:g1")
"""The G1 as a robot model. It has a driver, and no simulation here."""
