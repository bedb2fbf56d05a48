"""Describe a robot that speaks ROS 2 in a TOML file: the topics of its sensors and of its commands."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from hal import Field, Limits, ProfileError, RobotError, RobotSpec, Spec
from recorder.json_data import JsonDict
from rlenv_robot.config.validation import validate

__all__ = ["EXAMPLE", "CommandMap", "RobotMap", "SensorMap", "load_map", "values_at"]

EXAMPLE = """\
name = "lab-arm"
rate_hz = 50                  # of our control periods

[network]                     # arguments of the transport; without this table the router of this machine
domain = 0

[sensors.joint_position]
topic = "/joint_states"
type = "sensor_msgs/msg/JointState"
path = ["position"]           # the place of the numbers in a message; several are concatenated
names = "name"                # the place of their names, for elements
elements = ["pan", "lift"]
unit = "rad"
low = -3.2
high = 3.2
max_age_s = 0.2

[commands.joint_target]
topic = "/joint_trajectory_controller/joint_trajectory"
type = "trajectory_msgs/msg/JointTrajectory"    # or std_msgs/msg/Float64MultiArray, geometry_msgs/msg/Twist
elements = ["pan", "lift"]
unit = "rad"
low = [-1.5, -1.0]
high = [1.5, 1.0]
max_velocity = 1.0
max_lead = 0.3
home = [0.0, 0.5]
measured_by = "joint_position"
"""

Numbers = float | list[float]
CommandType = Literal[
    "trajectory_msgs/msg/JointTrajectory", "std_msgs/msg/Float64MultiArray", "geometry_msgs/msg/Twist"
]


@dataclass(frozen=True, kw_only=True)
class SensorMap:
    """The source of a sensor's values.

    Attributes:
        topic: full name of the topic.
        type: type of its messages.
        path: dotted paths to the numbers in a message; they are concatenated.
        names: dotted path to the names of the numbers, such as ``name`` of a JointState; empty for a fixed order.
        elements: the names of the sensor's elements; with ``names`` these are picked, in this order.
        unit: SI unit of the sensor.
        scale: what a message's number is multiplied with to be in that unit, such as 0.0174533 for degrees.
        low: the lowest legal value, one number or one for each element.
        high: the highest legal value.
        max_age_s: greatest age of a sample that counts as measured, seconds.
        clock: ``header`` for the stamp in the message's header, ``sent`` for the time at which it left its sender,
            which is right where headers have simulated time.
        meaning: one sentence about the quantity.
    """

    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid"}

    topic: str
    type: str
    path: list[str]
    elements: list[str]
    max_age_s: float
    names: str = ""
    unit: str = "1"
    scale: float = 1.0
    low: Numbers = -1e9
    high: Numbers = 1e9
    clock: Literal["header", "sent"] = "header"
    meaning: str = ""


@dataclass(frozen=True, kw_only=True)
class CommandMap:
    """The topic that carries a command.

    Attributes:
        topic: full name of the topic.
        type: type of its messages: JointTrajectory, with the elements as joint names, Float64MultiArray, in the order
            of the elements, or Twist, with axes such as ``linear.x`` as elements.
        elements: the names of the command's elements.
        low: the lowest legal value, one number or one for each element.
        high: the highest legal value.
        home: the command at which the robot may rest.
        measured_by: the sensor that measures the same quantity; only velocities may have none.
        unit: SI unit of the command.
        scale: what a message's number is multiplied with to be in that unit.
        max_velocity: fastest change, units a second; the guard limits the command to it.
        max_lead: largest distance between command and measured value; the guard limits the command to it.
        meaning: one sentence about the quantity.
    """

    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid"}

    topic: str
    type: CommandType
    elements: list[str]
    low: Numbers
    high: Numbers
    home: Numbers
    measured_by: str = ""
    unit: str = "1"
    scale: float = 1.0
    max_velocity: Numbers | None = None
    max_lead: Numbers | None = None
    meaning: str = ""

    @property
    def is_velocity(self) -> bool:
        """Whether 0 holds the robot: a Twist, or a unit that ends in ``/s``."""
        return self.type.endswith("Twist") or self.unit.endswith("/s")


@dataclass(frozen=True, kw_only=True)
class RobotMap:
    """A robot that speaks ROS 2.

    Attributes:
        name: kind of the robot.
        rate_hz: control periods a second.
        sensors: name -> source of its values.
        commands: name -> topic that carries it.
        transport: ``zenoh`` or ``dds``.
        network: arguments of the transport: ``domain``, ``distribution``, ``namespace``, ``node``, and of Zenoh
            ``router`` and ``trust_network``.
        horizon_s: time in which a JointTrajectory reaches its goal, seconds; 0 for two control periods.
        connect_s: longest wait for the first message of each sensor, seconds.
    """

    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid"}

    name: str
    rate_hz: float
    sensors: dict[str, SensorMap]
    commands: dict[str, CommandMap]
    transport: str = "zenoh"
    network: JsonDict = field(default_factory=dict)
    horizon_s: float = 0.0
    connect_s: float = 5.0

    def spec(self) -> RobotSpec:
        """Return the robot's description.

        Raises:
            SpecError: the parts contradict each other.
        """

        def described(name: str, part: SensorMap | CommandMap) -> Field:
            low, high = (tuple(bound) if isinstance(bound, list) else bound for bound in (part.low, part.high))
            return Field(
                name, (len(part.elements),), "float32", low, high, part.unit, part.meaning, tuple(part.elements)
            )

        def given(key: str) -> dict[str, Any]:
            values = {name: getattr(command, key) for name, command in self.commands.items()}
            return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if v not in (None, "")}

        return RobotSpec(
            self.name,
            Spec("sensors", tuple(described(name, part) for name, part in self.sensors.items())),
            Spec("commands", tuple(described(name, part) for name, part in self.commands.items())),
            self.rate_hz,
            Limits(max_velocity=given("max_velocity"), max_lead=given("max_lead")),
            home=given("home"),
            measured_by=given("measured_by"),
            max_age_s={name: part.max_age_s for name, part in self.sensors.items()},
        )


def load_map(path: str | Path) -> RobotMap:
    """Read a robot's map from a TOML file, such as `EXAMPLE`.

    Raises:
        ProfileError: the file is missing or no TOML, or a key is missing, unknown or wrong.
    """
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProfileError(str(path), "", f"can't be read: {error}") from None
    found = validate(RobotMap, data, str(path))
    for name, part in found.sensors.items():
        if len(part.path) == 0 or len(part.elements) == 0:
            raise ProfileError(str(path), f"sensors.{name}", "needs at least one path and one element")
    for name, command in found.commands.items():
        if not command.is_velocity and command.measured_by not in found.sensors:
            problem = f"is {command.measured_by!r}, a command of positions needs one of {', '.join(found.sensors)}"
            raise ProfileError(str(path), f"commands.{name}.measured_by", problem)
        if command.scale == 0:
            raise ProfileError(str(path), f"commands.{name}.scale", "is 0, it must be another number")
    return found


def values_at(message: Any, sensor: SensorMap) -> np.ndarray:
    """Return a sensor's values in a message, float32 of shape (n,), in its unit.

    Raises:
        RobotError: the message lacks a path, a named element or a number, or has other names than numbers.
    """
    numbers = np.concatenate([np.ravel(np.asarray(_at(message, path), float)) for path in sensor.path])
    if sensor.names:
        names = list(_at(message, sensor.names))
        missing = [element for element in sensor.elements if element not in names]
        if missing:
            raise RobotError(f"{', '.join(missing)} is missing; the message has {', '.join(map(str, names[:20]))}")
        if len(numbers) != len(names):
            raise RobotError(f"{len(names)} names and {len(numbers)} numbers in {', '.join(sensor.path)}")
        numbers = numbers[[names.index(element) for element in sensor.elements]]
    if len(numbers) != len(sensor.elements):
        raise RobotError(f"{len(numbers)} numbers in {', '.join(sensor.path)}, there must be {len(sensor.elements)}")
    if not np.isfinite(numbers).all():
        raise RobotError(f"a number in {', '.join(sensor.path)} is NaN or infinite")
    return (numbers * sensor.scale).astype(np.float32)


def _at(message: Any, path: str) -> Any:
    for part in path.split("."):
        if not hasattr(message, part):
            raise RobotError(f"the message has no field {path!r}")
        message = getattr(message, part)
    return message
