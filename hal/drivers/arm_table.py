"""An arm as a table of joints, from which its driver, calibration, virtual bus, guard, URDF and simulation are made.

A table is Python (`ArmTable`) or a file ``NAME.arm.toml`` (`load_arm`). The file's keys are the names of the
attributes, but keys of angles end in ``_deg``:

    name = "gimbal"

    [[joints]]
    name = "pan"
    id = 1
    servo = "sts3215"
    range_deg = [-90, 90]
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hal.drivers.servo_family import ServoFamily, ServoModel
from hal.drivers.servo_models import find_servo
from hal.errors import SpecError
from hal.field import Field
from hal.limits import Limits
from hal.robot import Actuation, Range, RobotSpec, elements_of
from hal.spec import Spec

__all__ = ["ArmBody", "ArmJoint", "ArmTable", "SweepPlan", "load_arm"]

_WHOLE_TURN_DEG = 360.0
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ArmBody:
    """The body that a joint moves: a capsule, from the joint's axis to its far end.

    Attributes:
        origin: the joint's position in the frame of the body before it, metres; for the first joint, on the table.
        axis: axis of the joint's rotation in that frame; a positive angle is a right-handed turn about it.
        end: far end of the capsule, metres, in the body's own frame with its origin at the joint.
        radius: radius of the capsule, metres.
        mass: mass of the body, kg, spread evenly over the capsule.
    """

    origin: tuple[float, float, float]
    axis: tuple[float, float, float]
    end: tuple[float, float, float]
    radius: float
    mass: float


@dataclass(frozen=True, slots=True)
class ArmJoint:
    """Describe one joint of an arm.

    Attributes:
        name: the joint's name, lower case with underscores.
        id: id of the joint's servo.
        low: lower end of the range, rad; for a joint with mechanical stops, the angle of that stop.
        high: upper end of the range, likewise.
        servo: name of the servo's model (`hal.drivers.servo_models.servo_models`).
        reversed: whether a positive angle decreases the servo's steps. A calibration by hand measures this if
            ``upper`` is given.
        gear: turns of the servo for one turn of the joint.
        stops: whether the joint has a mechanical stop at both ends of its range. If not, a calibration asks for the
            joint's zero.
        grips: whether the joint holds objects by closing, towards ``low``.
        whole_turn: whether calibrations give the joint a whole turn, whatever its stops, as LeRobot does with some.
        home: angle at the start of an episode, rad.
        rest: angle at which the arm lies without torque, rad.
        gains: contents of the servo's registers ``p``, ``i`` and ``d``; by default the servo model's.
        torque_limit: largest duty cycle, 0 to 1.
        upper: appearance of the joint at its upper end, for the person who calibrates ("the upper arm leans forward").
        zero: appearance of the joint at zero.
        body: the body that the joint moves, for the simulation; None if a model of the robot provides it.
    """

    name: str
    id: int
    low: float
    high: float
    servo: str = "sts3215"
    reversed: bool = False
    gear: float = 1.0
    stops: bool = True
    grips: bool = False
    whole_turn: bool = False
    home: float = 0.0
    rest: float = 0.0
    gains: Mapping[str, int] = field(default_factory=dict)
    torque_limit: float = 1.0
    upper: str = ""
    zero: str = ""
    body: ArmBody | None = None

    @property
    def model(self) -> ServoModel:
        """The servo's model."""
        return find_servo(self.servo)

    @property
    def step_rad(self) -> float:
        """Angle of the joint for one step of its servo's encoder, rad."""
        return 2 * math.pi / self.model.family.steps / self.gear

    @property
    def middle(self) -> float:
        """Angle at the middle of the calibrated range, rad; 0 if that range is a whole turn."""
        return 0.0 if self.whole_turn else (self.low + self.high) / 2

    @property
    def register_values(self) -> dict[str, int]:
        """Contents of the servo's registers ``p``, ``i`` and ``d``: the joint's ``gains``, or the servo model's."""
        return {**self.model.gains, **self.gains}

    def __post_init__(self) -> None:
        where = f"joint {self.name!r}"
        model = find_servo(self.servo)
        if not 0 <= self.id <= 252:
            raise SpecError(f"{where}: its id is {self.id}, allowed are 0 to 252")
        if not -2 * math.pi < self.low < self.high < 2 * math.pi:
            raise SpecError(f"{where}: its range is {self.low} to {self.high} rad, from a lower to a higher angle")
        if not 0 < self.gear < math.inf or (self.high - self.low) * self.gear > 2 * math.pi + 1e-3:
            raise SpecError(f"{where}: its range is more than a turn of the servo, which can't be calibrated")
        for name, angle in (("home", self.home), ("rest", self.rest)):
            if not self.low - 1e-9 <= angle <= self.high + 1e-9:
                raise SpecError(f"{where}: {name} is {angle:g} rad, outside its range {self.low:g} to {self.high:g}")
        unknown = sorted(self.gains.keys() - model.gains.keys())
        if unknown:
            raise SpecError(f"{where}: gain {unknown[0]!r} is unknown, known are {', '.join(model.gains)}")
        if not 0.05 <= self.torque_limit <= 1.0:
            raise SpecError(f"{where}: torque_limit is {self.torque_limit}, allowed are 0.05 to 1")
        if not self.stops and not self.zero:
            raise SpecError(f"{where}: it has no stops, so say what it looks like at zero (zero = '...')")


@dataclass(frozen=True)
class SweepPlan:
    """The order in which an arm's motors sweep its joints for a calibration, and how the other joints keep clear.

    Attributes:
        zero_pose: appearance of the arm with every joint at zero, the pose in which a person holds it at first.
        order: names of the joints; the sweep of a joint relies only on the positions of joints before it.
        folded: the pose in which the arm is let down afterwards, by joint, rad; other joints are at zero.
        shares: largest duty cycle of each joint, 0 to 1: a little more than it takes to carry the arm.
        followers: a function of the swept joint and its goal, rad, that returns the goals of other joints, rad.
    """

    zero_pose: str
    order: tuple[str, ...]
    folded: Mapping[str, float]
    shares: Mapping[str, float]
    followers: Callable[[str, float], Mapping[str, float]] = lambda name, goal: {}


@dataclass(frozen=True)
class ArmTable:
    """An arm whose joints are moved by servos on one bus.

    Attributes:
        name: name of the robot model.
        joints: the joints from the base to the tip.
        rate_hz: control periods a second.
        max_velocity: fastest commanded motion, rad/s.
        max_lead: greatest distance of a goal ahead of its joint, rad.
        baud: bits a second on the bus.
        described: the robot's description, if it says more than the joints do (`spec`).
        derived: sensors computed from the joints' angles: name -> a function of the angles, rad, shape (n,).
        sweep: how the arm calibrates itself; None if it can't.

    Raises:
        SpecError: the table contradicts itself; the message names joint and attribute.
    """

    name: str
    joints: tuple[ArmJoint, ...]
    rate_hz: float = 30.0
    max_velocity: float = 2.0
    max_lead: float = 0.5
    baud: int = 1_000_000
    described: RobotSpec | None = None
    derived: Mapping[str, Callable[[np.ndarray], np.ndarray]] = field(default_factory=dict)
    sweep: SweepPlan | None = None

    def __post_init__(self) -> None:
        if not self.joints:
            raise SpecError(f"arm {self.name!r} has no joint")
        for what, values in (("name", self.names), ("servo id", self.ids)):
            double = next((value for value in values if values.count(value) > 1), None)
            if double is not None:
                raise SpecError(f"arm {self.name!r}: two joints have the {what} {double!r}")
        families = {joint.model.family.name for joint in self.joints}
        if len(families) > 1:
            raise SpecError(f"arm {self.name!r}: servos of {' and '.join(sorted(families))} can't share a bus")
        bodies = [joint.name for joint in self.joints if joint.body is not None]
        if bodies and len(bodies) < len(self.joints):
            raise SpecError(f"arm {self.name!r}: give every joint a body or none; only {', '.join(bodies)} have one")
        self.spec  # noqa: B018  # what can't be described is said now

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the joints from the base to the tip."""
        return tuple(joint.name for joint in self.joints)

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """Ids of the servos in the order of the joints."""
        return tuple(joint.id for joint in self.joints)

    @cached_property
    def family(self) -> ServoFamily:
        """The servos' protocol and registers."""
        return self.joints[0].model.family

    @cached_property
    def low(self) -> np.ndarray:
        """Lower ends of the joints' ranges, rad, shape (n,)."""
        return np.array([joint.low for joint in self.joints])

    @cached_property
    def high(self) -> np.ndarray:
        """Upper ends of the joints' ranges, rad, shape (n,)."""
        return np.array([joint.high for joint in self.joints])

    @cached_property
    def step_rad(self) -> np.ndarray:
        """Angle of each joint for one step of its servo's encoder, rad, shape (n,)."""
        return np.array([joint.step_rad for joint in self.joints])

    def joint(self, name: str) -> ArmJoint:
        """Return a joint by its name.

        Raises:
            ValueError: the arm has no joint of this name.
        """
        for joint in self.joints:
            if joint.name == name:
                return joint
        raise ValueError(f"joint {name!r} is unknown, the joints of {self.name} are {', '.join(self.names)}")

    def actuation(
        self,
        gains: Mapping[str, Mapping[str, int]],
        volts: float | None = None,
        delay_s: float | Sequence[float] | None = None,
    ) -> Actuation:
        """Return the gains and delays of an arm's manifest.

        Args:
            gains: contents of ``p``, ``i`` and ``d`` by joint.
            volts: supply voltage, V; None if it is not declared.
            delay_s: time from a goal on the bus to the first motion, seconds: a number, or a list of both ends.

        Raises:
            ValueError: a number is not allowed.
        """
        low = max(joint.model.volts[0] for joint in self.joints)
        high = min(joint.model.volts[1] for joint in self.joints)
        if volts is not None and not low <= volts <= high:
            raise ValueError(
                f"the setting volts is {volts}, allowed are {low:g} to {high:g}, as these servos take them"
                if low <= high
                else "the setting volts can't be used: these servos have supplies of different voltage"
            )
        tables: dict[str, dict[str, Range]] = {}
        for element, joint in zip(elements_of(self.spec.commands), self.joints, strict=True):
            values: dict[str, float] = dict(gains[joint.name])
            if volts is not None:
                values["volts"] = volts
                if joint.model.stiffness is not None:
                    values["stiffness"] = joint.model.stiffness * values["p"] * volts
            tables[element] = {name: Range.of(value) for name, value in values.items()}
        try:
            delays = {} if delay_s is None else {"command": Range.of(delay_s)}
        except ValueError as error:
            raise ValueError(f"the setting delay_s {error}") from error
        return Actuation(tables, delays)

    @cached_property
    def spec(self) -> RobotSpec:
        """The robot's description: the table's ``described``, or else one made from the joints."""
        if self.described is not None:
            return self.described
        low, high = tuple(map(float, self.low)), tuple(map(float, self.high))
        turn = 2 * np.pi  # servos report a little outside their range when pushed
        fastest = min(joint.model.max_rate * joint.step_rad for joint in self.joints)

        def field_(name: str, unit: str, meaning: str, least: Any, most: Any) -> Field:
            return Field(name, (len(self.joints),), "float32", least, most, unit, meaning, self.names)

        return RobotSpec(
            name=self.name,
            sensors=Spec(
                f"{self.name.replace('-', '_')}_sensors",
                (
                    field_("joint_position", "rad", "measured joint angles", -turn, turn),
                    field_("joint_velocity", "rad/s", "measured joint velocities", -50.0, 50.0),
                    field_("joint_goal", "rad", "the goal that the servos hold, read back", low, high),
                ),
            ),
            commands=Spec(
                f"{self.name.replace('-', '_')}_commands",
                (field_("joint_target", "rad", "goal angles of the servos", low, high),),
            ),
            rate_hz=self.rate_hz,
            limits=Limits(
                max_velocity={"joint_target": min(self.max_velocity, fastest)},
                max_lead={"joint_target": self.max_lead},
            ),
            home={"joint_target": tuple(joint.home for joint in self.joints)},
            measured_by={"joint_target": "joint_position"},
            max_age_s={"joint_position": 0.1, "joint_velocity": 0.1},
            max_rate={"joint_position": max(joint.model.max_rate * joint.step_rad for joint in self.joints)},
        )


# -- Files -------------------------------------------------------------------------------------------------------

_ARM_KEYS = {"name": str, "rate_hz": float, "max_velocity": float, "max_lead": float, "baud": int, "joints": list}
_JOINT_KEYS = {
    "name": str, "id": int, "servo": str, "range_deg": list, "reversed": bool, "gear": float, "stops": bool,
    "grips": bool, "whole_turn": bool, "home_deg": float, "rest_deg": float, "gains": dict, "torque_limit": float,
    "upper": str, "zero": str, "body": dict,
}  # fmt: skip
_BODY_KEYS = {"origin": list, "axis": list, "end": list, "radius": float, "mass": float}
_REQUIRED = {"name", "id", "range_deg", "joints", *_BODY_KEYS}


def load_arm(path: str | Path) -> ArmTable:
    """Return the arm in a TOML file.

    Raises:
        SpecError: the file is missing, is not TOML, or does not describe an arm; the message names the key.
    """
    file = Path(path).expanduser()
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise SpecError(f"{path}: has more than {_MOST_BYTES >> 20} MiB, which no table of joints needs")
        plain = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SpecError(f"{path}: no table of joints: {error}") from error
    try:
        values = _checked("the file", plain, _ARM_KEYS)
        joints = tuple(_joint(number, joint) for number, joint in enumerate(values.pop("joints"), 1))
        return ArmTable(joints=joints, **values)
    except ValueError as error:
        raise SpecError(f"{path}: {error}") from error


def _joint(number: int, plain: object) -> ArmJoint:
    where = f"joint {plain['name'] if isinstance(plain, dict) and 'name' in plain else number}"
    values = _checked(where, plain, _JOINT_KEYS)
    low, high = _numbers(f"{where}: range_deg", values.pop("range_deg"), 2)
    for key in ("home", "rest"):
        if f"{key}_deg" in values:
            values[key] = math.radians(values.pop(f"{key}_deg"))
    body = values.pop("body", None)
    if body is not None:
        values["body"] = _body(f"{where}: body", body)
    # Half a step is what rounding the degrees of a table may cost; a whole turn is meant as one.
    if math.isclose(high - low, _WHOLE_TURN_DEG):
        low, high = low + 0.05, high - 0.05
    return ArmJoint(low=math.radians(low), high=math.radians(high), **values)


def _body(where: str, plain: object) -> ArmBody:
    values = _checked(where, plain, _BODY_KEYS)
    for key in ("origin", "axis", "end"):
        values[key] = tuple(_numbers(f"{where}.{key}", values[key], 3))
    if not np.linalg.norm(values["axis"]) > 0.5 or not values["radius"] > 0 or not values["mass"] > 0:
        raise SpecError(f"{where}: the axis must have a direction, radius and mass must be above 0")
    return ArmBody(**values)


def _numbers(where: str, values: object, count: int) -> list[float]:
    if (
        not isinstance(values, list)
        or len(values) != count
        or not all(type(value) in (int, float) and math.isfinite(value) for value in values)
    ):
        raise SpecError(f"{where} is {values!r:.80}, wanted are {count} numbers")
    return [float(value) for value in values]


def _checked(where: str, plain: object, keys: Mapping[str, type]) -> dict[str, Any]:
    """Return a table of a file once its keys and their types are right."""
    if not isinstance(plain, dict):
        raise SpecError(f"{where} is {plain!r:.80}, wanted is a table with the keys {', '.join(keys)}")
    for key, value in plain.items():
        if key not in keys:
            raise SpecError(f"{where}: key {key!r} is unknown, known are {', '.join(keys)}")
        right = type(value) is keys[key] or (keys[key] is float and type(value) is int)
        if not right:
            raise SpecError(f"{where}: {key} is {value!r:.80}, wanted is of type {keys[key].__name__}")
    missing = sorted((keys.keys() & _REQUIRED) - plain.keys())
    if missing:
        raise SpecError(f"{where}: the key {missing[0]!r} is missing")
    return {key: float(value) if keys[key] is float else value for key, value in plain.items()}
