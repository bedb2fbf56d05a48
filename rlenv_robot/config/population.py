"""Read and write populations: files with the identified servos of many real arms, one row an arm."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Ge, Gt, Interval, Len, MinLen

from hal import ProfileError, SpecError
from hal.atomic_file import atomic_write
from hal.robot import RobotSpec
from recorder.json_data import JsonDict
from rlenv_robot.config.validation import validate

__all__ = ["BUILTIN", "FORMAT", "Population", "PopulationArm", "ReplayError", "ServoRow", "load_population"]

FORMAT: Literal["rlenv-robot population 1"] = "rlenv-robot population 1"
"""The value of a file's key ``format``."""

BUILTIN = "builtin"
"""The name of the population that is part of the package."""

_MOST_BYTES = 16 << 20

_Text: TypeAlias = Annotated[str, Len(1, 200)]
_Positive: TypeAlias = Annotated[list[Annotated[float, Gt(0)]], MinLen(1)]
_NotNegative: TypeAlias = Annotated[list[Annotated[float, Ge(0)]], MinLen(1)]


@dataclass(frozen=True, slots=True)
class ServoRow:
    """The identified servos of one arm; lists have one number for each joint.

    Attributes:
        stiffness: torque per angle of error, N m/rad.
        damping: torque per speed, N m s/rad.
        friction: torque that is overcome before the joint moves, N m.
        offset: distance below its goal at which the servo stops without load, rad.
        armature: inertia of the rotors behind their gears, kg m^2, one for all joints.
        delay: delay of the goals, s, at most 2 (`sim.latency.delays.LONGEST_S`).
        backlash: play between motor and joint, rad, one for all joints.
    """

    stiffness: _Positive
    damping: _NotNegative
    friction: _NotNegative
    offset: Annotated[list[float], MinLen(1)]
    armature: Annotated[float, Gt(0)]
    delay: Annotated[float, Interval(ge=0, le=2)]
    backlash: Annotated[float, Ge(0)]


@dataclass(frozen=True, slots=True)
class ReplayError:
    """Errors of an open-loop replay of episodes outside the fit, root mean squares over the fitted joints, rad.

    Attributes:
        identified: the error with the identified servos.
        nominal: the error with the nominal servos.
    """

    identified: Annotated[float, Ge(0)]
    nominal: Annotated[float, Ge(0)]


@dataclass(frozen=True, slots=True)
class PopulationArm:
    """One real arm.

    Attributes:
        name: the arm's name in the file.
        source: the recorded data from which it was identified.
        episodes: number of the fitted episodes.
        frames: number of their frames.
        fitted: the joints that were identified; the others have nominal values.
        values: its servos.
        error_rad: errors on episodes that were not fitted.
        held_out: whether training leaves the arm out, so that policies can be judged on it.
    """

    name: _Text
    source: _Text
    episodes: Annotated[int, Ge(1)]
    frames: Annotated[int, Ge(1)]
    fitted: list[_Text]
    values: ServoRow
    error_rad: ReplayError
    held_out: bool = False


@dataclass(frozen=True, slots=True)
class Population:
    """The servos of many real arms of one kind, whose rows are their joint distribution.

    Attributes:
        robot: the robot model whose nominal simulation was fitted, such as ``so101``.
        joints: names of the joints, in the order of each list of `ServoRow`.
        arms: the arms.
        format: `FORMAT`.

    Raises:
        ValueError: an arm's lists are not as long as ``joints``, or two names are the same; the message begins with the
            key.
    """

    __pydantic_config__: ClassVar[Mapping[str, object]] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    robot: _Text
    joints: Annotated[list[_Text], MinLen(1)]
    arms: list[PopulationArm] = field(default_factory=list)
    format: Literal["rlenv-robot population 1"] = FORMAT

    def __post_init__(self) -> None:
        if len(set(self.joints)) < len(self.joints):
            raise ValueError(f"joints is {self.joints}, expected different names")
        names = [arm.name for arm in self.arms]
        for number, arm in enumerate(self.arms):
            for key in ("stiffness", "damping", "friction", "offset"):
                count = len(getattr(arm.values, key))
                if count != len(self.joints):
                    raise ValueError(
                        f"arms[{number}].values.{key} has {count} numbers, there are {len(self.joints)} joints"
                    )
            if arm.name in names[:number]:
                raise ValueError(f"arms[{number}].name is {arm.name!r}, which another arm has")
            unknown = [joint for joint in arm.fitted if joint not in self.joints]
            if unknown:
                raise ValueError(f"arms[{number}].fitted has {unknown[0]!r}, joints are {', '.join(self.joints)}")

    @property
    def training(self) -> Population:
        """The arms that are not held out."""
        return dataclasses.replace(self, arms=[arm for arm in self.arms if not arm.held_out])

    @property
    def held_out(self) -> Population:
        """The arms that are held out."""
        return dataclasses.replace(self, arms=[arm for arm in self.arms if arm.held_out])

    def choose(self, names: Sequence[str]) -> Population:
        """Return the population of some arms only, in the order of their names.

        Raises:
            SpecError: there is no arm of a name.
        """
        by_name = {arm.name: arm for arm in self.arms}
        for name in names:
            if name not in by_name:
                raise SpecError(f"there is no arm {name!r}, arms are {', '.join(by_name) or 'none'}")
        return dataclasses.replace(self, arms=[by_name[name] for name in names])

    def settings(self, robot: RobotSpec) -> dict[str, dict[str, Any]]:
        """Return ``timing`` and ``randomise`` with which each episode of a simulation draws one of the arms.

        An arm of the robot is a command ``joint_target`` of the population's joints, with a prefix if the robot has
        several. Each of several arms draws a row of its own, and the delay of all commands is that of the first arm.

        Args:
            robot: the description of the simulated robot, such as an SO-101 with objects on its table.

        Returns:
            Plain data for `rlenv_robot.make` and `rlenv_robot.make_vector`, or `sim.latency.DelayModel.from_dict` and
            `sim.randomize.randomise.Randomise.from_dict`.

        Raises:
            SpecError: there is no arm in the population, or none on the robot.
        """
        if not self.arms:
            raise SpecError("the population has no arm to draw, or all of its arms are held out")
        commands = [
            command
            for command in robot.commands
            if command.name.endswith("joint_target") and list(command.elements or ()) == self.joints
        ]
        if not commands:
            raise SpecError(
                f"{robot.name!r} has no command joint_target with the joints {', '.join(self.joints)}, so it has no "
                f"arm of this population of {self.robot!r}"
            )
        timing: dict[str, Any] = {}
        randomise: dict[str, Any] = {}
        for command in commands:
            prefix = command.name.removesuffix("joint_target")
            table = _Table(self.arms, {"group": prefix.rstrip("_")} if prefix else {})
            timing.setdefault("command_delay", table.shared("delay"))
            if any(arm.values.backlash for arm in self.arms):
                timing.setdefault("backlash", {})[command.name] = table.shared("backlash")
            for number, joint in enumerate(self.joints):
                randomise |= table.joint(f"{prefix}{joint}", number)
        return {"timing": timing, "randomise": randomise}

    def to_dict(self) -> JsonDict:
        """Return JSON data, as in a file."""
        data = dataclasses.asdict(self)
        return {"format": data.pop("format"), **data}

    def save(self, path: str | Path) -> None:
        """Write the file; an existing one is replaced in one step.

        Raises:
            ProfileError: a value is not allowed, so that the file could not be read; nothing is written.
            OSError: the file can't be written.
        """
        head = self.to_dict()
        validate(Population, head, str(path))
        arms = ",\n".join(map(json.dumps, head.pop("arms")))
        with atomic_write(path) as part:
            part.write_text(f'{json.dumps(head)[:-1]}, "arms": [\n{arms}\n]}}\n', encoding="utf-8")


@dataclass(frozen=True)
class _Table:
    """The columns of a population as plain data of draws; the group is empty for a robot with one arm."""

    arms: Sequence[PopulationArm]
    group: Mapping[str, str]

    def shared(self, key: str) -> dict[str, Any]:
        """Return the column of a value that all joints share."""
        return self._column([getattr(arm.values, key) for arm in self.arms])

    def joint(self, name: str, number: int) -> dict[str, Any]:
        """Return the lines of one joint of a simulation."""
        rows = [arm.values for arm in self.arms]
        stops = [-row.stiffness[number] * row.offset[number] for row in rows]
        return {
            f"actuator.{name}.kp": self._column([row.stiffness[number] for row in rows], "N m/rad"),
            f"actuator.{name}.biasprm[0]": self._column(stops, "N m"),
            f"joint.{name}.damping": self._column([row.damping[number] for row in rows], "N m s/rad"),
            f"joint.{name}.frictionloss": self._column([row.friction[number] for row in rows], "N m"),
            f"joint.{name}.armature": self._column([row.armature for row in rows], "kg m^2"),
        }

    def _column(self, values: list[float], unit: str = "") -> dict[str, Any]:
        return {"rows": values, **self.group, **({"unit": unit} if unit else {})}


def load_population(path: str | Path) -> Population:
    """Read a population.

    Args:
        path: the file, or `BUILTIN`.

    Raises:
        ProfileError: the file is missing, is not JSON, is larger than 16 MiB, has an unknown key, or a value that is
            not allowed; the message names file and key.
    """
    name = str(path)
    source = resources.files("sim.robots").joinpath("so101_population.json") if name == BUILTIN else Path(path)
    try:
        with source.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ProfileError(name, "", f"has more than {_MOST_BYTES >> 20} MiB, which no population needs")
        data = json.loads(content, parse_constant=_refuse)
    except FileNotFoundError:
        advice = "rlenv-robot sim2real population writes one"
        raise ProfileError(name, "", f"there is no such file; {advice}") from None
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, ProfileError):
            raise
        raise ProfileError(name, "", f"not readable as JSON: {error}") from error
    if not isinstance(data, dict):
        raise ProfileError(name, "", "is no population: expected an object with format, robot, joints and arms")
    if data.get("format") != FORMAT:
        raise ProfileError(name, "format", f"is {data.get('format')!r:.80}, it must be {FORMAT!r}")
    return validate(Population, data, name)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a finite number")
