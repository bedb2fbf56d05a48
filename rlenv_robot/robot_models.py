"""Look up robot models by name: their specs, simulations, twins and drivers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Never, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from hal import Robot, RobotSpec
from hal.drivers.added_sensor import AddedSensor, WithSensors, with_sensor_fields
from rlenv_robot.config.plugins import PluginTable, UnknownSetting, load_object, unknown_name
from rlenv_robot.config.sim_settings import SimSettings
from rlenv_robot.tables import Options

if TYPE_CHECKING:
    from hal.cameras.image_sensors import ImageSensor
    from hal.drivers.arm_table import ArmTable
    from sim.model import Reader, SimModel

__all__ = [
    "ROBOT_FILES",
    "HasRobotModel",
    "NamesRobot",
    "RobotModel",
    "SensorsFrom",
    "build",
    "find_robot_model",
    "is_robot_file",
    "load_robot_model",
    "load_sensors",
    "make_driver",
    "register_robot",
    "robot_file_forms",
    "robot_model_of",
    "robot_names",
    "unregister_robot",
]

_ELSEWHERE = {
    "render_mode": "render({'mode': 'window'}) shows an environment; to_gymnasium(env, render_mode=...) takes this",
    "max_episode_steps": "The length of an episode is the setting steps",
    "num_envs": "make_vector(name, num_envs) makes a batch",
    "record": "A batch is not recorded; make(name, record=...) records one environment",
    "robot": "A batch is simulated; make(name, robot) takes a robot",
    "seed": "The seed is an option of reset: reset({'seed': 7})",
}
"""Settings that other projects' ``make`` takes -> where they are here."""

_T = TypeVar("_T")

ROBOT_FILES = {".xml": "a MuJoCo model", ".arm.toml": "a table of an arm's joints"}
"""File extension of a robot's file -> what the file contains."""

_NO_OPTIONS: Mapping[str, Never] = MappingProxyType({})

SensorsFrom = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray], np.ndarray], Mapping[str, np.ndarray]]
"""Compute missing sensors of a recording.

The arguments are the recorded sensors, name -> (T, ...), the commands that led to rows 1 to T - 1, name -> (T - 1,
...), and the stamps (T,), ns. Returns name -> (T, ...); raises KeyError if an input is missing.
"""


@dataclass(frozen=True, slots=True)
class RobotModel:
    """A robot model (such as SO-101), independent of any single robot.

    Each attribute except ``name`` is an object, or its location as ``module:name``, which is imported on first use. A
    model needs its spec and at least one of ``simulated`` and ``driver``.

    Attributes:
        name: as in ``RobotSpec.name``; users write it in profiles, and tasks refer to their robot by it.
        spec: the `hal.RobotSpec`.
        simulated: a function that returns the `sim.model.SimModel` of the nominal simulation. Its argument ``looks``
            (bool) says whether to include purely visual parts.
        driver: a class or function that returns the `hal.Robot` of the hardware; a profile's ``[robot.options]`` are
            its keyword arguments.
        twin: a function of a seed that returns a `sim.model.SimModel` with a real robot's faults.
        variation: a function that returns the range in which such robots differ, as plain data: the keys ``timing`` and
            ``randomise``, as in a profile. ``rlenv-robot train`` draws from it.
        sensors_from: a function that computes the sensors of a recording that lacks some
            (`SensorsFrom`).
        arm: the table of the joints of an arm of servos, which ``robot calibrate`` and ``robot twin --bus`` take.
        image_sensors: cameras whose images are sensors too, beside those of ``spec``. Simulations draw them; on a real
            robot `hal.cameras.image_sensors.WithImageSensors` takes them from its cameras.
        sensors: further sensors beside those of ``spec`` (`with_sensors`).
    """

    name: str
    spec: str | RobotSpec
    simulated: str | Callable[..., SimModel] | None = None
    driver: str | Callable[..., Robot] | None = None
    twin: str | Callable[[int], SimModel] | None = None
    variation: str | Callable[[], Mapping[str, Options]] | None = None
    sensors_from: str | SensorsFrom | None = None
    arm: str | ArmTable | None = None
    image_sensors: tuple[ImageSensor, ...] = ()
    sensors: tuple[AddedSensor, ...] = ()

    @classmethod
    def from_name(cls, name: str) -> RobotModel:
        """Return a registered robot model, such as ``so101``; for errors see `find_robot_model`."""
        return find_robot_model(name)

    @classmethod
    def from_file(cls, path: str | Path, start_noise: float = 0.0) -> RobotModel:
        """Load the robot model in a file, a MuJoCo model or a table of an arm's joints; its name is in the file.

        Args:
            path: the path of the file, with an extension of `ROBOT_FILES`. A file that has changed is read again.
            start_noise: as for `sim.mjcf.robot.mjcf_file`; not for a table.

        Raises:
            SpecError: the file is missing, or contains no robot.
        """
        file = Path(path)
        modified_ns = file.stat().st_mtime_ns if file.is_file() else 0
        return _from_file(str(file.absolute()), modified_ns, start_noise)

    @classmethod
    def from_arm(cls, arm: ArmTable) -> RobotModel:
        """Return the robot model of a servo arm.

        Its driver is `hal.drivers.bus_arm.BusArm`. It has a simulation if the table gives every joint a body.

        Args:
            arm: the table of its joints.
        """
        from hal.drivers.bus_arm import BusArm

        def simulated(looks: bool = True) -> SimModel:
            from sim.robots.arm import arm_sim_model

            return arm_sim_model(arm)

        has_bodies = all(joint.body is not None for joint in arm.joints)
        return cls(arm.name, arm.spec, simulated if has_bodies else None, driver=partial(BusArm, arm=arm), arm=arm)

    def with_sensors(self, sensors: Sequence[str | AddedSensor], folder: Path | None = None) -> RobotModel:
        """Return the robot model with additional sensors, for simulations, drivers and servers.

        Args:
            sensors: each a `hal.AddedSensor`, its location as ``module:name``, or a name that an installed package
                declares (entry points ``rlenv_robot.sensors``).
            folder: an additional location of modules, such as the folder of a profile.

        Raises:
            ValueError: a name is unknown, or an object is not a sensor.
        """
        return replace(self, sensors=(*self.sensors, *load_sensors(sensors, folder)))

    def load_spec(self) -> RobotSpec:
        """Return the robot's spec, including the additional sensors.

        Raises:
            ValueError: the object is not a `hal.RobotSpec`, can't be imported, or has another name than the model.
            SpecError: the spec already has one of the additional sensors.
        """
        spec = load_object(self.spec)
        if not isinstance(spec, RobotSpec):
            raise ValueError(f"robot {self.name!r}: its spec is a {type(spec).__name__}, it must be a hal.RobotSpec")
        if spec.name != self.name:
            raise ValueError(f"robot {self.name!r}: its spec's name is {spec.name!r}; the two must be the same")
        return with_sensor_fields(spec, self.sensors)

    def make_sim_model(self, looks: bool = True) -> SimModel:
        """Return the nominal simulation model, in which policies are trained.

        Args:
            looks: whether to include purely visual parts.

        Raises:
            ValueError: the robot has no simulation.
        """
        if self.simulated is None:
            raise ValueError(f"robot {self.name!r} has no simulation; use its driver or a server's address")
        model = load_object(self.simulated)(looks=looks or bool(self.image_sensors))
        return self._with_sensors(cast("SimModel", model))

    def _with_sensors(self, model: SimModel) -> SimModel:
        if self.sensors:
            readers = {sensor.name: _simulated(sensor, model) for sensor in self.sensors}
            spec = with_sensor_fields(model.spec, self.sensors)
            model = replace(model, spec=spec, sensors={**model.sensors, **readers})
        if not self.image_sensors:
            return model
        from sim.rendering.image_sensors import with_image_sensors  # looks for OpenGL

        return with_image_sensors(model, self.image_sensors)

    def make_twin(self, seed: int = 0) -> SimModel:
        """Return a simulation with a real robot's faults, drawn from a seed.

        Its manifest has the gains of the nominal simulation: as for a real robot, the true gains are unknown.

        Raises:
            ValueError: the robot has no twin.
        """
        if self.twin is None:
            raise ValueError(f"there is no twin of {self.name!r}, use 'sim'")
        twin = self._with_sensors(cast("SimModel", load_object(self.twin)(seed)))
        if twin.spec.actuation is not None or self.simulated is None:
            return twin
        from hal.robot import Actuation
        from sim.randomize.actuation import configured_spec

        nominal = configured_spec(replace(self, sensors=()).make_sim_model(looks=False)).actuation or Actuation()
        return replace(twin, spec=replace(twin.spec, actuation=Actuation(nominal.gains)))

    def load_arm(self) -> ArmTable:
        """Return the table of the arm's joints.

        Raises:
            ValueError: the robot has no such table.
        """
        if self.arm is None:
            raise ValueError(f"robot {self.name!r} is not described by a table of servos on a bus")
        return cast("ArmTable", load_object(self.arm))

    def load_variation(self) -> Mapping[str, Options]:
        """Return ``timing`` and ``randomise`` of the range in which such robots differ; empty if unknown."""
        return {} if self.variation is None else cast("Mapping[str, Options]", load_object(self.variation)())

    def load_sensors_from(self) -> SensorsFrom | None:
        """Return the function that computes missing sensors of a recording, or None if the robot has none."""
        return cast("SensorsFrom | None", load_object(self.sensors_from))

    def make_driver(self, options: Options = _NO_OPTIONS, folder: Path | None = None) -> Robot:
        """Create the hardware's driver, not yet guarded.

        The driver `servo-bus` gets this model's table of joints, unless the options name another one.

        Args:
            options: the driver's keyword arguments.
            folder: an additional location of the driver's module, such as the folder of a profile.

        Raises:
            ValueError: the robot has no driver, the driver rejects the options, or is for another robot.
        """
        if self.driver is None:
            raise ValueError(f"robot {self.name!r} has no driver: name one, such as robot.driver = 'my_arm:Arm'")
        if self.arm is not None and self.driver in _SERVO_BUS_DRIVERS:
            options = {"arm": self.load_arm(), **options}
        spec, driver = replace(self, sensors=()).load_spec(), make_driver(self.driver, options, folder)
        theirs = driver.spec
        difference = spec.difference(replace(theirs, rate_hz=spec.rate_hz))  # its own loop may be faster
        if difference:
            driver.close()
            details = ""
            if theirs.name == spec.name:
                details = f", another robot of this name: {'; '.join(difference)}; give yours a name of its own"
            raise ValueError(
                f"the driver {_name_of(self.driver)} drives a {theirs.name!r}, expected {self.name!r}{details}"
            )
        return WithSensors(driver, self.sensors) if self.sensors else driver

    def make_served_simulation(
        self,
        where: str,
        seed: int = 0,
        rate_hz: float | None = None,
        conditions: SimSettings | None = None,
    ) -> Robot:
        """Create a simulated robot in real time that starts in its present pose, as hardware does.

        Args:
            where: ``sim``, the nominal model, or ``twin``, a model with a real robot's faults.
            seed: draws a twin's faults.
            rate_hz: the rate of its steps; by default that of its spec.
            conditions: its timing and randomisation (`rlenv_robot.config.sim_settings.sim_settings`). Its model is
                drawn once, by the first reset, since it is never put back to its start.

        Raises:
            ValueError: ``where`` is unknown, the robot model has no twin, or its physics do not support the rate.
        """
        from sim.robot import SimRobot

        if where not in ("sim", "twin"):
            raise ValueError(f"a simulated robot is 'sim' or 'twin', this is {where!r}")
        model = self.make_twin(seed) if where == "twin" else self.make_sim_model()
        if rate_hz is not None:
            from sim.model import at_rate

            model = at_rate(model, rate_hz)
        return SimRobot(model, real_time=True, teleport=False, **(conditions or {}))


def make_driver(
    source: str | Callable[..., Robot], options: Options = _NO_OPTIONS, folder: Path | None = None
) -> Robot:
    """Create a driver, not yet guarded.

    Args:
        source: a class or function that returns it, its location as ``module:name``, or the name of a built-in driver
            (``feetech``) or of one that an installed package declares (entry points ``rlenv_robot.drivers``).
        options: its keyword arguments.
        folder: as for `RobotModel.make_driver`.

    Raises:
        ValueError: the driver can't be imported or created, or is not a `hal.Robot`; the message is one line.
    """
    name = _name_of(source)
    if isinstance(source, str) and ":" not in source:
        if source not in _DRIVERS:
            raise unknown_name(source, "driver", [*_DRIVERS.names(), "module:factory"])
        factory = cast("Callable[..., Robot]", _DRIVERS.load(source))
    else:
        factory = load_object(source, folder)
    try:
        driver = build(factory, name, options)
    except ValueError:
        raise
    except Exception as error:  # whatever a user's driver raises, such as a serial port that is not there
        raise ValueError(f"the driver {name} can't be made: {type(error).__name__}: {error}") from error
    if not isinstance(driver, Robot) or isinstance(driver, type):
        raise ValueError(
            f"the driver {name} is a {type(driver).__name__}, expected a hal.Robot with spec, reset, step, stop, close"
        )
    return driver


def load_sensors(sensors: Sequence[str | AddedSensor], folder: Path | None = None) -> tuple[AddedSensor, ...]:
    """Load the sensors given as names, locations or objects, as `RobotModel.with_sensors` accepts them."""
    return tuple(_sensor(sensor, folder) for sensor in sensors)


def _sensor(source: str | AddedSensor, folder: Path | None) -> AddedSensor:
    if isinstance(source, str) and ":" not in source and source not in _SENSORS:
        raise unknown_name(source, "sensor", [*_SENSORS.names(), "module:name"])
    sensor = _SENSORS.load(source) if isinstance(source, str) and ":" not in source else load_object(source, folder)
    if not isinstance(sensor, AddedSensor):
        raise ValueError(f"sensor {source!r} is a {type(sensor).__name__}, expected a hal.AddedSensor")
    return sensor


def _simulated(sensor: AddedSensor, model: SimModel) -> Reader:
    source = sensor.simulated
    if source is None:
        raise ValueError(f"sensor {sensor.name!r} is not simulated: give simulated=, or use the robot's driver")
    return cast("Reader", source(model.model) if callable(source) else source)


def _name_of(source: object) -> str:
    return source if isinstance(source, str) else str(getattr(source, "__name__", "given"))


@cache
def _from_file(path: str, modified_ns: int, start_noise: float) -> RobotModel:
    if path.endswith(".arm.toml"):
        from hal.drivers.arm_table import load_arm

        if start_noise:
            raise ValueError("start_noise is for the file of a MuJoCo model, and this is a table of joints")
        return RobotModel.from_arm(load_arm(path))
    from sim.mjcf.robot import mjcf_file

    model = mjcf_file(path, start_noise)
    return RobotModel(model.spec.name, model.spec, lambda looks=True: model)


_ROBOTS = PluginTable(
    "robot",
    "rlenv_robot.robots",
    {
        "go2": RobotModel(
            "go2",
            "hal.robots.go2:GO2",
            "sim.robots.go2:go2",
            twin="sim.robots.go2:go2_twin",
            variation="sim.robots.variations:go2_variation",
        ),
        "so101": RobotModel(
            "so101",
            "hal.robots.so101:SO101",
            "sim.robots.so101:so101",
            twin="sim.robots.twin:so101_twin",
            variation="sim.robots.variations:so101_variation",
            sensors_from="hal.robots.so101:sensors_from_joints",
            arm="hal.drivers.so101_arm:SO101_ARM",
        ),
        "so101-cube": RobotModel(
            "so101-cube",
            "hal.robots.so101:SO101_CUBE",
            "sim.robots.so101:so101_cube",
            twin="sim.robots.twin:so101_cube_twin",
            variation="sim.robots.variations:so101_cube_variation",
        ),
    },
)


_SERVO_BUS_DRIVERS = ("feetech", "servo-bus")
"""Names of the driver for any arm of servos that a table of joints describes."""

_DRIVERS = PluginTable("driver", "rlenv_robot.drivers", dict.fromkeys(_SERVO_BUS_DRIVERS, "hal.drivers.bus_arm:BusArm"))

_SENSORS = PluginTable("sensor", "rlenv_robot.sensors", {})


def register_robot(model: RobotModel) -> None:
    """Register a robot model under its name for `rlenv_robot.make`, profiles and the command line.

    An installed package declares its models in the entry-point group ``rlenv_robot.robots`` instead, as
    ``name = "module:MODEL"``.

    Raises:
        TypeError: the object is not a `RobotModel`.
        ValueError: the name is taken.
    """
    if not isinstance(model, RobotModel):
        raise TypeError(f"register_robot takes a RobotModel, this is a {type(model).__name__}")
    _ROBOTS.register(model.name, model)


def unregister_robot(name: str) -> None:
    """Remove a registered robot model. An unknown name is allowed."""
    _ROBOTS.unregister(name)


def robot_names() -> list[str]:
    """Return the names of all robot models: built-in, registered, and declared by installed packages."""
    return _ROBOTS.names()


def find_robot_model(name: str) -> RobotModel:
    """Return a registered robot model. Use it for every name from data, a log or a peer on the network.

    Args:
        name: one of `robot_names`. Nothing else is looked up: no file is opened, and no module of that name is
            imported.

    Raises:
        ValueError: the name is unknown (the message lists the known names), or its object is not a robot model.
    """
    if name not in _ROBOTS:
        raise _ROBOTS.unknown(name)
    model = _made(_ROBOTS.load(name), name)
    if model.name != name:
        raise ValueError(f"robot {name!r} is registered under that name, but its RobotModel is called {model.name!r}")
    return model


def load_robot_model(argument: str) -> RobotModel:
    """Load the robot model with a name given by a user, on the command line, in a profile or in Python.

    It may import a module, so never pass it a name from data, a log or a peer; use `find_robot_model` for those.

    Args:
        argument: one of `robot_names`; the path of a robot's file, a MuJoCo model (``.xml``) or a table of an arm's
            joints (``.arm.toml``); or ``module:name``.

    Raises:
        ValueError: the name is unknown (the message lists the known names), or its object is not a robot model.
        SpecError: the file is missing, or contains no robot.
    """
    if is_robot_file(argument):
        return RobotModel.from_file(argument)
    if ":" in argument:
        return _made(load_object(argument), argument)
    if argument not in _ROBOTS:
        raise _ROBOTS.unknown(argument, forms=robot_file_forms())
    return find_robot_model(argument)


def _made(model: object, name: str) -> RobotModel:
    if not isinstance(model, RobotModel) and callable(model):
        model = model()  # a function that returns one, so that a package can decide at run time
    if not isinstance(model, RobotModel):
        raise ValueError(f"robot {name!r} is a {type(model).__name__}, expected an rlenv_robot.RobotModel")
    return model


class NamesRobot(Protocol):
    """A task that refers to its robot model by name."""

    @property
    def robot(self) -> str:
        """The robot model's name: ``RobotSpec.name``."""
        ...


@runtime_checkable
class HasRobotModel(Protocol):
    """A task that includes its robot model, which need not be registered."""

    @property
    def robot_model(self) -> RobotModel:
        """The robot model of the task."""
        ...


def robot_model_of(task: NamesRobot) -> RobotModel:
    """Return the robot model of a task: the included one, else the one with the name ``robot``.

    Raises:
        ValueError: as for `load_robot_model`.
        SpecError: as for `load_robot_model`.
    """
    return task.robot_model if isinstance(task, HasRobotModel) else load_robot_model(task.robot)


def is_robot_file(name: str) -> bool:
    """Return whether a name is the path of a robot's file."""
    return name.endswith(tuple(ROBOT_FILES))


def robot_file_forms() -> list[str]:
    """Return the accepted kinds of robot files, for messages."""
    return [f"the path of {meaning} ({ending})" for ending, meaning in ROBOT_FILES.items()]


def build(factory: Callable[..., _T], name: str, options: Options) -> _T:
    """Call a factory with a user's settings as its keyword arguments.

    Args:
        factory: a class or function.
        name: the name of the object that it makes, for messages.
        options: the settings.

    Raises:
        ValueError: a setting is unknown, missing or rejected, or the factory can't be called.
    """
    if not callable(factory):
        raise ValueError(f"{name} is a {type(factory).__name__}, expected a class or function that makes it")
    try:
        signature = inspect.signature(factory)
    except ValueError:  # a built-in class hides its signature
        return factory(**options)
    parameters = signature.parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        for option in options:
            if option not in parameters:
                hint = f". {_ELSEWHERE[option]}" if option in _ELSEWHERE else ""
                raise UnknownSetting(str(unknown_name(option, f"{name}'s setting", parameters)) + hint, option)
    try:
        return factory(**options)
    except TypeError as error:
        for option, value in options.items():
            default = parameters[option].default if option in parameters else None
            if (allowed := _kind_of(default)) and _kind_of(value) != allowed:
                raise ValueError(
                    f"{name}: {option} is {value!r:.80} ({type(value).__name__}), allowed is {allowed} such as its "
                    f"default, {default!r}"
                ) from error
        values = ", ".join(f"{option} = {value!r:.80}" for option, value in options.items()) or "none was set"
        raise ValueError(f"{name}: a setting has a wrong type, {values}: {error}") from error


def _kind_of(value: object) -> str:
    """Return the words for a value's kind, if it is a simple one; empty for any other."""
    if isinstance(value, bool | np.bool_):
        return "True or False"
    if isinstance(value, int | float | np.number):
        return "a number"
    return "a text" if isinstance(value, str) else ""
