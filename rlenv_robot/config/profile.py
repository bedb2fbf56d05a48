"""What a run is made of, as a TOML file; every mistake is reported with file and key."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from hal import ProfileError
from hal.cameras.settings import CameraSettings
from hal.homing import HomingSettings
from rlenv_robot.config.sim_settings import NAMES, check_sim_sections

__all__ = ["Profile", "RecordSection", "ResetSection", "RobotSection", "ServeSection", "TaskSection", "load_profile"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TaskSection:
    """``[task]``: which task, and its own settings."""

    name: str = "so101-reach"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RobotSection:
    """``[robot]``: the kind, and where it is: ``sim``, ``twin`` or an address. ``seed`` draws a twin's faults."""

    kind: str = "so101"
    where: str = "sim"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ResetSection:
    """``[reset]``: who resets the scene, and how the robot goes home (units as `hal.homing.HomingSettings`).

    Attributes:
        signal: who is asked.
        fixture: address of the fixture's socket.
        command: program and arguments.
        gpio_chip, gpio_line: the chip's device and the line's offset on it.
        gpio_active_low, gpio_debounce_s: as `hal.reset.gpio.Gpio`.
        verdicts: whether each reset also asks how the episode before went.
    """

    signal: Literal["automatic", "terminal", "fixture", "command", "gpio"] = "automatic"
    fixture: str = ""
    command: list[str] = field(default_factory=list)
    gpio_chip: str = ""
    gpio_line: int = 0
    gpio_active_low: bool = False
    gpio_debounce_s: float = 0.02
    verdicts: bool = False
    velocity: float = HomingSettings().velocity
    tolerance: float = HomingSettings().tolerance
    deadline_s: float = HomingSettings().deadline_s
    signal_deadline_s: float = HomingSettings().signal_deadline_s


@dataclass(frozen=True, slots=True)
class ServeSection:
    """``[serve]``: how `rlenv-robot serve` runs the robot; a flag of the same name goes before a key.

    Attributes:
        address: that is bound.
        keys: folder of the server's keys; empty encrypts nothing, which only loopback allows.
        telemetry, telemetry_hz: the address at which watchers are told, and how often; empty tells nobody.
        pictures: where the cameras' pictures go out; empty is any free port beside ``address``.
        loop_hz: the robot's own loop, a whole multiple of the control rate; 0 is the control rate itself.
        watchdog_s: longest silence of the client before the robot holds.
        max_command_age_s: commands that were sent longer ago are refused.
        lease_s: after how much silence another client may take the robot.
        lower_s: at the end, go home slowly for at most so long.
        priority: of the loop for the real-time scheduler, 1 to 99; 0 does not ask for it.
        record: folder of the controller's own runs; empty keeps none.
        record_mib: most that one of these runs may have, MiB; 0 leaves it to the disk.
        record_required: refuse resets while the controller can't record.
    """

    address: str = "tcp://127.0.0.1:5555"
    keys: str = ""
    telemetry: str = ""
    telemetry_hz: float = 20.0
    pictures: str = ""
    loop_hz: float = 0.0
    watchdog_s: float = 0.2
    max_command_age_s: float = 0.1
    lease_s: float = 5.0
    lower_s: float = 5.0
    priority: int = 40
    record: str = ""
    record_mib: int = 0
    record_required: bool = False


@dataclass(frozen=True, slots=True)
class RecordSection:
    """``[record]``: the folder of the runs; empty records nothing."""

    folder: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """A whole profile. ``cameras`` are tables of their own, by name; ``file`` is where it came from, for messages."""

    task: TaskSection = field(default_factory=TaskSection)
    robot: RobotSection = field(default_factory=RobotSection)
    reset: ResetSection = field(default_factory=ResetSection)
    serve: ServeSection = field(default_factory=ServeSection)
    record: RecordSection = field(default_factory=RecordSection)
    timing: dict[str, Any] = field(default_factory=dict)
    randomise: dict[str, Any] = field(default_factory=dict)
    cameras: dict[str, CameraSettings] = field(default_factory=dict)
    file: str = "defaults"

    def to_dict(self) -> dict[str, Any]:
        """Every setting with its value, the defaults too, as plain data for a log; without the cameras' passwords."""
        plain = dataclasses.asdict(self)
        for name, camera in self.cameras.items():
            plain["cameras"][name]["source"] = camera.shown
        return plain


def load_profile(path: str | Path) -> Profile:
    """Read a profile.

    Raises:
        ProfileError: the file is missing or no TOML, a key is unknown, or a value has the wrong type.
    """
    file = Path(path)
    try:
        plain = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProfileError(str(file), "", "there is no such file; launch/ holds profiles to start from") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProfileError(str(file), "", f"not readable as TOML: {error}") from error
    known = {item.name: item for item in dataclasses.fields(Profile) if item.name != "file"}
    _check_keys(str(file), "", plain, list(known))
    hints = typing.get_type_hints(Profile)
    check_sim_sections(str(file), plain)
    drawn: dict[str, Any] = {name: plain.pop(name) for name in NAMES if name in plain}
    cameras = _cameras(str(file), plain.pop("cameras", {}))
    made: dict[str, Any] = {name: _section(str(file), name, hints[name], value) for name, value in plain.items()}
    profile = Profile(**made, **drawn, cameras=cameras, file=str(file))
    _check_reset(str(file), profile.reset)
    return profile


def _cameras(file: str, plain: Any) -> dict[str, CameraSettings]:
    if not isinstance(plain, dict):
        raise ProfileError(file, "cameras", f"is {plain!r}, it must be a table for each camera: [cameras.wrist]")
    made = {}
    for name, section in plain.items():
        where = f"cameras.{name}"
        if isinstance(section, dict):
            if "name" in section:
                raise ProfileError(file, f"{where}.name", f"is not allowed: the table's title names it, [{where}]")
            section = {"source": "", **section, "name": name}
        try:
            made[name] = _section(file, where, CameraSettings, section)
        except ProfileError:
            raise
        except ValueError as error:
            key, _, problem = str(error).partition(" ")
            raise ProfileError(file, f"{where}.{key}", problem) from error
    return made


def _section(file: str, name: str, kind: type[_T], plain: Any) -> _T:
    if not isinstance(plain, dict):
        raise ProfileError(file, name, f"is {plain!r}, it must be a table: [{name}]")
    hints = typing.get_type_hints(kind)
    _check_keys(file, f"{name}.", plain, list(hints))
    return kind(**{key: _value(file, f"{name}.{key}", hints[key], value) for key, value in plain.items()})


_NEEDED = {"fixture": ("fixture", "its address"), "command": ("command", "program and arguments"),
           "gpio": ("gpio_chip", "the chip's device, such as '/dev/gpiochip0'")}  # fmt: skip
"""What a signal can't do without: the key, and what belongs there."""


def _check_reset(file: str, section: ResetSection) -> None:
    key, what = _NEEDED.get(section.signal, ("signal", ""))
    if not getattr(section, key):
        raise ProfileError(file, f"reset.{key}", f"is missing: signal is {section.signal!r}, so give {what}")
    if not all(isinstance(word, str) and word for word in section.command):
        raise ProfileError(file, "reset.command", f"is {section.command!r}, it must be a list of texts, none empty")
    if section.gpio_line < 0:
        raise ProfileError(file, "reset.gpio_line", f"is {section.gpio_line}, it must be 0 or above")


def _check_keys(file: str, prefix: str, plain: dict[str, Any], allowed: list[str]) -> None:
    for key in plain:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ProfileError(file, prefix + key, f"is unknown; {hint}allowed are {', '.join(allowed)}")


def _value(file: str, key: str, wanted: Any, value: Any) -> Any:
    if typing.get_origin(wanted) is Literal:
        choices = typing.get_args(wanted)
        if value not in choices:
            raise ProfileError(file, key, f"is {value!r}, allowed are {', '.join(map(repr, choices))}")
        return value
    plain = typing.get_origin(wanted) or wanted
    assert not isinstance(plain, types.UnionType)
    whole_as_float = plain is float and type(value) is int
    if type(value) is not plain and not whole_as_float:
        raise ProfileError(file, key, f"is {value!r} ({type(value).__name__}), it must be a {plain.__name__}")
    if plain is float and not value > 0:  # every float here is a speed, a length or a time
        raise ProfileError(file, key, f"is {value!r}, it must be above 0")
    return float(value) if plain is float else value
