"""Read profiles: the settings of a run as a TOML file; every error names the file and the key."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

from annotated_types import Ge, Gt, Len, MinLen

from hal import ProfileError, SpecError
from hal.cameras.settings import CameraSettings
from hal.errors import wrong_type
from hal.homing import HomingSettings
from hal.limits import Limits
from hal.robot import ROBOT_FILE_ENDINGS, Actuation
from recorder.json_data import JsonDict
from rlenv_robot.config.plugins import PluginTable, unknown_name
from rlenv_robot.config.serve_section import ServeSection
from rlenv_robot.config.sim_settings import check_sim_sections, drawn_arms
from rlenv_robot.config.validation import json_schema, validate

__all__ = [
    "RESET_SIGNALS",
    "GuardSection",
    "PopulationSection",
    "Profile",
    "RecordSection",
    "ResetSection",
    "RobotSection",
    "ServeSection",
    "TaskSection",
    "load_profile",
    "profile_schema",
]

_Positive: TypeAlias = Annotated[float, Gt(0)]
_NotNegative: TypeAlias = Annotated[float, Ge(0)]
_Count: TypeAlias = Annotated[int, Ge(0)]

_Box: TypeAlias = Annotated[list[float], Len(6, 6)]

RESET_SIGNALS = PluginTable(
    "reset signal",
    "rlenv_robot.reset_signals",
    {
        "automatic": "hal:Automatic",
        "terminal": "hal:Terminal",
        "fixture": "hal:Fixture",
        "command": "hal:Command",
        "gpio": "hal.reset.fixture:Gpio",
    },
)
"""Reset signals by name; those of packages are created with ``reset.options`` as keyword arguments."""

_MOST_BYTES = 4 << 20
_HOMING = HomingSettings()


@dataclass(frozen=True, slots=True)
class TaskSection:
    """The task and its settings.

    Attributes:
        name: a registered task, module:factory, or the path of a MuJoCo model.
        options: the task's settings, such as tolerance_m.
    """

    name: str = "so101-reach"
    options: JsonDict = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GuardSection:
    """The guard beside the motors: limits that replace the robot's, and regions to keep clear of (docs/bridge.md).

    Attributes:
        max_velocity: command -> maximum velocity, units a second; each limit is a number, or a list with one for each
            element.
        max_lead: command -> maximum distance between command and measurement, units.
        max_following_error: command -> maximum distance between the applied command and its measurement, units.
        max_acceleration: command -> maximum acceleration, units a second squared.
        max_jerk: command -> maximum jerk, units a second cubed.
        max_effort: sensor -> maximum measured effort, such as a current, in the sensor's unit.
        effort_s: how long an effort may exceed max_effort, seconds.
        self_collision: whether commands that bring parts of the robot too close to each other are held back; needs a
            simulation model of the robot.
        clearance_m: the distance that parts keep from each other and from boxes, metres.
        keep_out: boxes that no moving part may enter, each the lowest x, y, z and the highest x, y, z in the base
            frame, metres; need a simulation model too.
        keep_in: boxes that every moving part must stay inside, in the same form.

    Raises:
        ValueError: a limit is not a positive number, or requires another limit; the message begins with its key.
    """

    max_velocity: JsonDict = field(default_factory=dict)
    max_lead: JsonDict = field(default_factory=dict)
    max_following_error: JsonDict = field(default_factory=dict)
    max_acceleration: JsonDict = field(default_factory=dict)
    max_jerk: JsonDict = field(default_factory=dict)
    max_effort: JsonDict = field(default_factory=dict)
    effort_s: _NotNegative = Limits.effort_s
    self_collision: bool = False
    clearance_m: _Positive = 0.005
    keep_out: list[_Box] = field(default_factory=list)
    keep_in: list[_Box] = field(default_factory=list)

    def __post_init__(self) -> None:
        for key, table in self._tables().items():
            for name, value in table.items():
                numbers = value if isinstance(value, list) else [value]
                for number in numbers:
                    if isinstance(number, bool) or not isinstance(number, int | float) or not number > 0:
                        raise ValueError(f"{key}.{name} is {value!r}, it must be a number above 0, or a list of them")

    def limits(self, own: Limits) -> Limits:
        """Return the limits of a robot, with those of this section replacing the robot's.

        Args:
            own: the robot's limits.

        Raises:
            SpecError: a limit requires another limit.
        """
        return own.merged(**self._tables(), effort_s=self.effort_s if self.max_effort else None)

    @property
    def checks_motion(self) -> bool:
        """Whether commands are checked with the robot's simulation model."""
        return self.self_collision or bool(self.keep_out) or bool(self.keep_in)

    def _tables(self) -> dict[str, JsonDict]:
        return {
            each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name.startswith("max_")
        }


@dataclass(frozen=True, slots=True)
class RobotSection:
    """The robot, and where it runs.

    Attributes:
        kind: a registered robot model, such as so101, or the path of a MuJoCo model.
        where: sim, the nominal simulation; twin, a simulation with a real robot's faults; driver, the hardware; or a
            server's address. By default driver if one is named, else sim.
        seed: draws a twin's faults; 0 is the identified robot, every other number a variant of it.
        driver: creates the hal.Robot of the hardware: the name of a driver, such as feetech, or a class or function
            such as my_arm:Arm, whose module may lie beside the profile. Empty selects the robot model's driver.
        options: the driver's keyword arguments.
        sensors: sensors to add to those of the robot model: names that installed packages declare (entry points
            ``rlenv_robot.sensors``), or objects such as my_sensor:FORCE, whose module may lie beside the profile.
        gains: the gains during the identification of [randomise], such as p = 16 and volts = 7.4; a number, or a list
            of both ends (docs/sim-to-real.md, "The manifest").
        guard: the limits that the guard beside the motors applies.
    """

    kind: str = "so101"
    where: str = ""
    seed: int = 0
    driver: str = ""
    options: JsonDict = field(default_factory=dict)
    sensors: list[Annotated[str, MinLen(1)]] = field(default_factory=list)
    gains: JsonDict = field(default_factory=dict)
    guard: GuardSection = field(default_factory=GuardSection)

    def __post_init__(self) -> None:
        try:
            Actuation({"": self.gains})
        except SpecError as error:
            raise ValueError(str(error).replace("gains..", "gains.")) from None
        if not self.where:
            object.__setattr__(self, "where", "driver" if self.driver else "sim")


@dataclass(frozen=True, slots=True)
class ResetSection:
    """The reset of the scene, and the homing of the robot (units as in `hal.homing.HomingSettings`).

    Attributes:
        signal: what confirms that the scene is ready: automatic, terminal, fixture, command, gpio, a name that an
            installed package declares (entry points ``rlenv_robot.reset_signals``), or an object such as
            my_button:Button, whose module may lie beside the profile.
        options: keyword arguments of a package's signal.
        fixture: address of the fixture's socket, such as tcp://127.0.0.1:5556.
        command: the program and its arguments.
        gpio_chip: the chip's device, such as /dev/gpiochip0.
        gpio_line: the line's offset on the chip.
        gpio_active_low: whether low voltage is active, as with a button to ground.
        gpio_debounce_s: changes shorter than this are ignored, seconds.
        verdicts: whether each reset also asks for the verdict on the previous episode.
        velocity: maximum velocity of a command during homing, units a second.
        tolerance: distance from the start that counts as reached, units.
        deadline_s: time limit for homing, seconds.
        signal_deadline_s: time limit for the confirmation, seconds.

    Raises:
        ValueError: a key that the signal requires is missing; the message begins with the key.
    """

    signal: Annotated[str, MinLen(1)] = "automatic"
    options: JsonDict = field(default_factory=dict)
    fixture: str = ""
    command: list[Annotated[str, MinLen(1)]] = field(default_factory=list)
    gpio_chip: str = ""
    gpio_line: _Count = 0
    gpio_active_low: bool = False
    gpio_debounce_s: _Positive = 0.02
    verdicts: bool = False
    velocity: _Positive = _HOMING.velocity
    tolerance: _Positive = _HOMING.tolerance
    deadline_s: _Positive = _HOMING.deadline_s
    signal_deadline_s: _Positive = _HOMING.signal_deadline_s

    def __post_init__(self) -> None:
        needed = {
            "fixture": ("fixture", "its address"),
            "command": ("command", "program and arguments"),
            "gpio": ("gpio_chip", "the chip's device, such as '/dev/gpiochip0'"),
        }
        if ":" not in self.signal and self.signal not in RESET_SIGNALS:
            raise unknown_name(self.signal, "signal", [*RESET_SIGNALS.names(), "module:name"])
        key, text = needed.get(self.signal, ("signal", ""))
        if not getattr(self, key):
            raise ValueError(f"{key} is missing: signal is {self.signal!r}, so give {text}")


@dataclass(frozen=True, slots=True)
class RecordSection:
    """The recording of runs.

    Attributes:
        folder: the folder of the runs; empty records nothing.
        key: file of the private key that signs each run's chain of digests, including the controller's runs; created if
            missing; empty leaves the runs unsigned.
    """

    folder: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class PopulationSection:
    """The real arms from which each episode of a simulation draws one (docs/sim-to-real.md, "A population of arms").

    Attributes:
        file: a file of `rlenv-robot sim2real population`, relative to the profile's folder, or builtin for the arms
            that are part of the package; empty draws none.
        arms: names of the arms to draw from; empty for all that the file does not hold out.
    """

    file: str = ""
    arms: list[Annotated[str, MinLen(1)]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Profile:
    """The settings of a run of rlenv-robot.

    Attributes:
        task: the task and its settings.
        robot: the robot, and where it runs.
        reset: how the scene is reset, and how the robot goes home.
        serve: how `rlenv-robot serve` runs the robot.
        record: where runs are recorded.
        timing: delays, resolution and losses of a simulation (docs/simulation.md).
        randomise: properties of a simulation's model that each episode draws: path -> distribution
            (docs/simulation.md).
        population: the real arms that a simulation draws; lines of timing and randomise replace the arms' own.
        cameras: a table for each camera, by name (docs/cameras.md).
        extensions: the settings of each extension of the server, by its name (entry points
            ``rlenv_robot.server_extensions``).
        file: the file of the profile, for messages.
        names_task: whether the profile has a [task]; a console has a task only then.
    """

    __pydantic_config__: ClassVar[Mapping[str, object]] = {"extra": "forbid", "strict": True}

    task: TaskSection = field(default_factory=TaskSection)
    robot: RobotSection = field(default_factory=RobotSection)
    reset: ResetSection = field(default_factory=ResetSection)
    serve: ServeSection = field(default_factory=ServeSection)
    record: RecordSection = field(default_factory=RecordSection)
    timing: JsonDict = field(default_factory=dict)
    randomise: JsonDict = field(default_factory=dict)
    population: PopulationSection = field(default_factory=PopulationSection)
    cameras: dict[str, CameraSettings] = field(default_factory=dict)
    extensions: dict[str, JsonDict] = field(default_factory=dict)
    file: str = field(default="defaults", metadata={"internal": True})
    names_task: bool = field(default=False, metadata={"internal": True})

    def to_dict(self) -> JsonDict:
        """Return every setting, including defaults, as JSON data for a log, without the cameras' passwords."""
        data = dataclasses.asdict(self)
        for name, camera in self.cameras.items():
            data["cameras"][name]["source"] = camera.shown
        del data["names_task"]
        return data


def load_profile(path: str | Path) -> Profile:
    """Read a profile.

    Raises:
        ProfileError: the file is missing or not TOML, a key is unknown, or a value is not allowed.
        TypeError: this is no path.
    """
    if not isinstance(path, str | Path):
        raise wrong_type("path", path, "the path of a profile such as 'robot.toml'")
    file = str(path)
    if file.endswith(ROBOT_FILE_ENDINGS):
        raise ProfileError(file, "", f'describes a robot and is no profile; a profile has [robot] with kind = "{file}"')
    try:
        with Path(path).open("rb") as stream:
            text = stream.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ProfileError(file, "", f"has more than {_MOST_BYTES >> 20} MiB, which no profile needs")
        data = tomllib.loads(text.decode())
    except FileNotFoundError:
        advice = "launch/ holds profiles to start from"
        if ":" in file:
            advice = f'a profile has [robot] with driver = "{file}"'
        raise ProfileError(file, "", f"there is no such file; {advice}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProfileError(file, "", f"not readable as TOML: {error}") from error
    for key in ("file", "names_task"):  # the fields are no keys: they are set below
        if key in data:
            raise ProfileError(file, key, "is unknown; a profile must not set it")
    check_sim_sections(file, data)
    profile = validate(Profile, {**data, "cameras": _named_cameras(file, data.get("cameras", {}))}, file)
    profile = dataclasses.replace(profile, file=file, names_task="task" in data)
    if profile.population.file:
        if profile.robot.where == "twin":
            advice = 'write where = "sim", and population.arms = [NAME] for one arm'
            raise ProfileError(
                file, "population.file", f"is for the nominal simulation, and robot.where is twin; {advice}"
            )
        drawn_arms(profile)
    return profile


def _named_cameras(file: str, cameras: object) -> dict[str, object]:
    """Return the table of each camera, with the table's title as its name."""
    if not isinstance(cameras, dict):
        raise ProfileError(file, "cameras", f"is {cameras!r}, it must be a table for each camera: [cameras.wrist]")
    for name, camera in cameras.items():
        if isinstance(camera, dict) and "name" in camera:
            key = f"cameras.{name}"
            raise ProfileError(file, f"{key}.name", f"is not allowed: the table's title names it, [{key}]")
    return {
        name: {"source": "", **camera, "name": name} if isinstance(camera, dict) else camera
        for name, camera in cameras.items()
    }


def profile_schema() -> JsonDict:
    """Return the JSON schema of profiles, with which editors complete and check them."""
    from sim.latency import DelayModel

    schema = json_schema(Profile)
    del schema["properties"]["file"], schema["properties"]["names_task"]
    camera = schema["$defs"]["CameraSettings"]
    del camera["properties"]["name"]
    value = {"description": "a number, or a table: the distribution that each episode draws it from"}
    schema["properties"]["timing"] |= {
        "properties": {setting.name: value for setting in dataclasses.fields(DelayModel)},
        "additionalProperties": False,
    }
    schema["properties"]["randomise"]["additionalProperties"] = {"type": "object"}
    return {"$schema": "http://json-schema.org/draft-07/schema#"} | schema
