"""Make environments, tasks and robots from names, objects, or places in modules."""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast, overload

import numpy as np

from hal import Automatic, Guard, Homing, ResetConfirmation, Robot, Spec
from hal.errors import missing_plugin, wrong_type
from hal.field import JsonObject
from rlenv_robot.config.plugin_names import plugin_of
from rlenv_robot.config.plugins import PluginTable, load_object
from rlenv_robot.config.sim_settings import SimSettings, sim_settings
from rlenv_robot.config.user import user_name
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.robot_models import (
    ROBOT_FILES,
    RobotModel,
    build,
    find_robot_model,
    is_robot_file,
    load_robot_model,
    register_robot,
    robot_file_forms,
    robot_model_of,
    robot_names,
)
from rlenv_robot.tables import Options
from rlenv_robot.tasks.episode_rules import Mode
from rlenv_robot.tasks.free import FREE, Free, free_task
from rlenv_robot.tasks.task import Task
from rlenv_robot.world import World

if TYPE_CHECKING:
    from rlenv_robot.config.profile import Profile
    from rlenv_robot.robot_env.intervention import Operator
    from rlenv_robot.vector.env import RobotBatch, VectorEnvironment
    from sim.latency import DelayModel
    from sim.model import SimModel
    from sim.randomize.randomise import Randomise

__all__ = [
    "BatchEngine",
    "TaskLike",
    "environment_names",
    "find_task",
    "make",
    "make_vector",
    "on_register",
    "register_task",
    "robot",
    "task",
    "unregister_task",
]

TaskLike: TypeAlias = str | Task | World | Callable[..., Task] | Callable[..., World]
"""An environment for `make`: a name, ``module:factory``, a MuJoCo model's path, a task, a world, or a factory."""

_TASKS = PluginTable(
    "task",
    "rlenv_robot.tasks",
    {
        "go": "rlenv_robot.tasks.go:Go",
        "go2-walk": "rlenv_robot.tasks.walk:Walk",
        "so101-reach": "rlenv_robot.tasks.reach:Reach",
        "so101-push": "rlenv_robot.tasks.cube:Push",
        "so101-pick-place": "rlenv_robot.tasks.cube:PickPlace",
    },
)
"""The factories of tasks, and of worlds without a robot, by name."""

_ENGINES = PluginTable("batch engine", "rlenv_robot.batch_engines", {})


class BatchEngine(Protocol):
    """Make batches of environments with another physics engine than MuJoCo's batch on the CPU.

    A package declares one in the entry-point group ``rlenv_robot.batch_engines``, under the first part of its device
    names: ``warp`` for ``device="warp:cuda:1"``.
    """

    def __call__(
        self, sim_model: SimModel, task: Task, num_envs: int, device: str | None, arrays: str, settings: SimSettings,
        *, seed: int | None, **options: Any,
    ) -> Any:  # fmt: skip
        """Return N environments with the members of `rlenv_robot.VectorEnvironment`.

        Args:
            sim_model: the robot.
            task: the task of the robots.
            num_envs: N.
            device: the part of the device's name after the first colon; None if there is none.
            arrays: type of the tables' arrays, ``numpy`` or ``torch``.
            settings: timing and randomisation, as keyword arguments of `sim.batch.SimBatch`.
            seed: as for `make_vector`.
            options: as for `make_vector`: ``autoreset``, ``mode``, ``streams``.

        Raises:
            ValueError: the engine does not support a setting.
        """
        ...


_TASK_FORMS = (
    *robot_file_forms(),
    "module:factory",
    f"{FREE!r} for a robot at an address or a driver",
)


def register_task(
    name: str, factory: str | Callable[..., Task] | Callable[..., World], robot: RobotModel | None = None
) -> None:
    """Register a task under a name for `make`, `make_vector` and the command line.

    An installed package declares its tasks in the entry-point group ``rlenv_robot.tasks`` instead, as
    ``name = "module:factory"``.

    Args:
        name: such as ``my-arm-wipe``.
        factory: a class or function whose keyword arguments are the task's settings, or its place as
            ``module:factory``. It returns a `Task`, or a `World` if there is no robot.
        robot: the model of the task's robot, which is registered too (`register_robot`) unless it already is.

    Raises:
        TypeError: the name is no string, or the factory neither a string nor callable.
        ValueError: the name is taken, or another robot model has the robot's name.
    """
    if not isinstance(name, str):
        raise wrong_type("name", name, "a text such as 'my-arm-wipe'")
    if not isinstance(factory, str) and not callable(factory):
        raise TypeError(f"register_task: factory is a {type(factory).__name__}, expected a class, function or text")
    if is_robot_file(name):
        raise ValueError(f"task name {name!r} is not allowed: names that end in {' or '.join(ROBOT_FILES)} are files")
    if name == FREE:
        raise ValueError(f"task name {name!r} is not allowed: it stands for the task of whatever robot is driven")
    _TASKS.check_new(name)
    if robot is not None and not (robot.name in robot_names() and find_robot_model(robot.name) == robot):
        register_robot(robot)
    _TASKS.register(name, factory)
    for listener in _listeners.values():
        listener(name)


def unregister_task(name: str) -> None:
    """Remove a registered task, but not its robot. An unknown name is allowed."""
    _TASKS.unregister(name)


_listeners: dict[str, Callable[[str], None]] = {}


def on_register(listener: Callable[[str], None], key: str) -> None:
    """Have a listener called with the name of each task that `register_task` adds from now on.

    Args:
        listener: called with the name of the task.
        key: identifies the listener, which replaces an earlier one with the same key.
    """
    _listeners[key] = listener


def environment_names() -> list[str]:
    """Return all names that `make` accepts, besides the path of any MuJoCo model and ``module:factory``.

    They are the names of built-in tasks, of registered ones, and of those that installed packages declare.
    """
    return _TASKS.names()


def task(name: TaskLike, **options: object) -> Task:
    """Return a task.

    Args:
        name: such as ``so101-reach``; ``module:factory``; the path of a robot's file, a MuJoCo model (``.xml``) or a
            table of an arm's joints (``.arm.toml``), for a task that moves the robot without a goal
            (`rlenv_robot.tasks.free.Free`); a task; or a class or function that makes one.
        options: the task's settings, such as ``tolerance_m``.

    Raises:
        TypeError: ``name`` is none of these.
        ValueError: the name or a setting is unknown, or a value is wrong.
        SpecError: the model's file is missing, or contains no robot.
    """
    resolved = _resolve(name, options)
    if not isinstance(resolved, Task):
        raise ValueError(f"{resolved.name!r} is an environment without a robot, expected a task of one")
    return resolved


def find_task(name: str, **options: object) -> Task:
    """Return a registered task. Use it for every name from data, a log or a policy's file.

    Args:
        name: one of `environment_names`. Nothing else is looked up: no file is opened, and no module of that name is
            imported.
        options: the task's settings.

    Raises:
        ValueError: the name is unknown, or that of an environment without a robot; a setting is unknown, or a value
            wrong.
    """
    if name not in _TASKS:
        raise _TASKS.unknown(name)
    return task(name, **options)


def _resolve(name: TaskLike, options: Options) -> Task | World:
    """Return the task, or the world without a robot, that a name or object stands for."""
    if isinstance(name, str):
        resolved, origin = build(_factory(name), name, options), f"{name!r} makes"
    elif callable(name) and not isinstance(name, Task | World):
        origin = f"{getattr(name, '__name__', 'the factory')} makes"
        resolved = build(name, getattr(name, "__name__", "the factory"), options)
    elif isinstance(name, type):  # a class has its instances' attributes, and so may look like one of them
        resolved, origin = build(name, name.__name__, options), f"{name.__name__} makes"
    else:
        resolved, origin = name, "this is"
        if options and isinstance(name, Task | World):
            raise ValueError(
                f"{type(name).__name__} is an object already, so it accepts no settings ({', '.join(options)}): "
                "pass them to its constructor"
            )
    if isinstance(resolved, Task | World):
        return resolved
    raise TypeError(_no_task(resolved, origin))


def _factory(name: str) -> Callable[..., object]:
    if is_robot_file(name):
        return partial(Free, name)
    if ":" in name:
        return cast("Callable[..., object]", load_object(name, Path.cwd()))  # `build` checks it
    if name == FREE:
        raise ValueError(
            f"{FREE!r} takes its robot from make(robot=...) or `run --robot`: the address of a server, or a driver as "
            "module:factory; it has no simulation of its own"
        )
    if name not in _TASKS:
        raise _TASKS.unknown(name, "environment", _TASK_FORMS)
    return cast("Callable[..., object]", _TASKS.load(name))


def _no_task(candidate: object, origin: str) -> str:
    """Return a message that names what an object lacks to be a task or a world, and what is allowed."""
    lacking = min((_lacking(candidate, protocol) for protocol in (Task, World)), key=len)
    hint = f"; it lacks {', '.join(lacking)}" if len(lacking) <= 6 else ""
    return (
        f"{origin} a {type(candidate).__name__}, which is neither a task nor a world{hint}. Allowed are a name "
        f"({', '.join(environment_names())}), {', '.join(_TASK_FORMS)}, a Task, a World, or a class of these"
    )


def _lacking(candidate: object, protocol: type) -> list[str]:
    members = [name for name in vars(protocol) if not name.startswith("_")]
    return [name for name in members if inspect.getattr_static(candidate, name, None) is None]  # or None stands there


def _person() -> str:
    """Return the name under which a robot's server shows this program: the user's, with the process."""
    return f"{user_name('somebody')}, process {os.getpid()} on {socket.gethostname()}"


def robot(
    robot_model: str | RobotModel,
    where: str | Robot = "sim",
    *,
    keys: str | Path | None = None,
    take: Literal["no", "ask", "force"] = "no",
    ahead: int = 0,
    client: str = "",
    timing: DelayModel | Options | None = None,
    randomise: Randomise | Options | None = None,
    gains: Mapping[str, float | Sequence[float]] | None = None,
) -> Robot:
    """Return a robot of a model: simulated, on the network, or driven by this process.

    Args:
        robot_model: a `RobotModel`, or its name, such as ``so101``; or the path of a MuJoCo model.
        where: ``sim``; ``twin``, a simulation with a real arm's faults, in real time; the address of a server, such as
            ``tcp://127.0.0.1:5555``; ``driver``, the model's own driver; a driver as ``module:factory``; or a
            `hal.Robot` object. Drivers are guarded here, and go home slowly at each reset without confirmation; a robot
            object is only guarded. If people are near a robot, serve it instead (`rlenv_robot.serving`).
        keys: for a server: the folder of this machine's keys (`rlenv-robot robot keys new`), which a robot on another
            machine requires.
        take: for a server: the action if another client holds the robot, see `real.RemoteRobot`.
        ahead: for a server: the number of frames by which commands go ahead of the readings, for a slow network, see
            `real.ClientSettings`. The observation is then so many frames old when its action begins.
        client: for a server: the name that it shows for this client; empty for the user's name and this process.
        timing: the timing of a simulation (``sim``): its delays, resolution and losses, see `sim.latency.DelayModel`.
        randomise: the randomisation of a simulation (``sim``): the properties of its model that each episode draws, see
            `sim.randomize.randomise.Randomise`.
        gains: the gains of a simulation (``sim``), for its manifest: the gains during the identification of
            ``randomise``, such as ``{"p": 16, "volts": 7.4}``.

    Raises:
        TypeError: ``robot_model`` is no model, or ``where`` neither a string nor a robot.
        ValueError: the model or place is unknown; timing or randomisation do not fit or are not for a simulation; keys
            were given for a robot that is not on the network; a key is missing, damaged or readable by others; or the
            driver can't be made.
        WireError: the address is invalid, or is another machine's and there are no keys.
    """
    if not isinstance(robot_model, str | RobotModel):
        raise wrong_type("robot_model", robot_model, "a name such as 'so101', or a RobotModel")
    if keys is not None and not (isinstance(where, str) and "://" in where):
        raise ValueError(f"keys are for a robot on the network, such as 'tcp://10.0.0.7:5555', and this is {where!r}")
    if ahead and not (isinstance(where, str) and "://" in where):
        raise ValueError(f"ahead is for a robot on the network, such as 'tcp://10.0.0.7:5555', and this is {where!r}")
    settings = sim_settings(timing, randomise)
    if gains:
        settings["gains"] = gains
    if settings and where != "sim":
        raise ValueError(f"{' and '.join(settings)} can be chosen for robot 'sim' only, and this is {where!r}")
    if not isinstance(where, str):
        given = _guarded(where)
        return given if isinstance(robot_model, str) else _with_image_sensors(given, robot_model)
    model = load_robot_model(robot_model) if isinstance(robot_model, str) else robot_model
    if where == "sim":
        from sim.robot import SimRobot

        # Parts that are only looked at would cost time in every step; images are drawn from models of their own.
        return Guard(SimRobot(model.make_sim_model(looks=False), validate=False, **settings))
    if where == "twin":
        return Homing(Guard(model.make_served_simulation("twin")), Automatic())
    if "://" in where:
        from real.client.cameras import RemoteCameras
        from real.client.robot import RemoteRobot

        client = client or _person()
        remote = RemoteRobot(where, expect=model.load_spec(), keys=keys, take=take, ahead=ahead, client=client)
        # The server's guard, next to the motors, limits the commands.
        return _with_image_sensors(RemoteCameras(remote, keys), model)
    if where == "driver" or ":" in where:
        driver = replace(model, driver=where) if ":" in where else model
        return _with_image_sensors(_homed(driver.make_driver(folder=Path.cwd())), model)
    hint = "; a serial port stands in a profile (launch/robot.toml) for rlenv-robot serve" if "/" in where else ""
    raise ValueError(f"robot {where!r} is unknown, allowed are 'sim', 'twin', an address such as "
                     f"'tcp://127.0.0.1:5555', 'driver', a driver as module:factory, or a Robot{hint}")  # fmt: skip


def _with_image_sensors(real: Robot, model: RobotModel) -> Robot:
    """Return a robot with the images of its cameras among its sensors, where the model asks for them.

    Raises:
        ValueError: the robot lacks a further sensor of the model.
    """
    missing = [sensor.name for sensor in model.sensors if sensor.name not in real.spec.sensors]
    if missing:
        raise ValueError(
            f"the robot has no sensor {', '.join(missing)}: put hal.WithSensors around it, inside its guard"
        )
    if all(sensor.name in real.spec.sensors for sensor in model.image_sensors):
        return real
    from hal.cameras.image_sensors import WithImageSensors

    return WithImageSensors(real, model.image_sensors)


def _homed(driver: Robot) -> Robot:
    """Return a driver, guarded and with resets by slow motion unless it has these already."""
    return driver if isinstance(driver, Guard | Homing) else Homing(Guard(driver), Automatic())


def _guarded(where: object) -> Robot:
    if isinstance(where, Robot) and not isinstance(where, type):
        return where if isinstance(where, Guard) else Guard(where)
    raise TypeError(
        f"robot is {where!r:.80} ({type(where).__name__}), allowed are 'sim', 'twin', an address, 'driver', "
        "module:factory, or a hal.Robot object"
    )


_robot = robot  # `make` has a parameter of that name


def make(
    name: TaskLike,
    robot: str | Robot = "sim",
    *,
    env_id: str | None = None,
    mode: Mode = "training",
    record: str | Path | None = None,
    info: JsonObject | None = None,
    keys: str | Path | None = None,
    ahead: int = 0,
    profile: Profile | None = None,
    timing: DelayModel | Options | None = None,
    randomise: Randomise | Options | None = None,
    judge: ResetConfirmation | None = None,
    operator: Operator | None = None,
    behaviour: Spec | None = None,
    answers: bool = False,
    check_outputs: int | None = None,
    **options: object,
) -> Environment:
    """Make an environment, in simulation or on a robot.

    Args:
        name: one of `environment_names`, or anything else that `task` takes; also a `World`, or ``free`` for a task
            without a goal of the robot (`free_task`).
        robot: see `rlenv_robot.registry.robot`; this one argument moves a policy from simulation to the arm.
        env_id: 1 to 36 characters; by default a new one.
        mode: ``training``, or ``inference``, which hides privileged state.
        record: a folder; all episodes are recorded into a new run inside it.
        info: metadata of every recorded episode, such as ``{"policy": "v3", "source": "expert"}``.
        keys: see `rlenv_robot.registry.robot`.
        ahead: see `rlenv_robot.registry.robot`.
        profile: the settings of the run, kept in the record. A simulation has its timing and randomisation.
        timing: the timing of a simulation, instead of the profile's; see `rlenv_robot.registry.robot`.
        randomise: the randomisation of a simulation, instead of the profile's; see `rlenv_robot.registry.robot`.
        judge: asked after every episode how it went, such as `hal.Terminal`; the verdict is recorded.
        operator: the device of a person who may take over, such as `rlenv_operate.teleop.keyboard.Keyboard`.
        behaviour: the parameters of the distribution that actions are drawn from, which ``step`` may then give in
            ``extra_info["behaviour"]`` and a record keeps; see `Environment`.
        answers: whether a record holds, with each action, the frame number of the observation that it answers, for
            policies that predict slowly.
        check_outputs: n, to end the episode as a fault where an output of every n-th frame does not fit its
            description; None is 1, or 16 for a simulated robot; 0 checks nothing. See `Environment`.
        options: the task's own settings.

    Raises:
        TypeError: an argument is an object of another kind.
        ValueError: a name, robot, mode or setting is unknown, or env_id is wrong.
    """
    _check_profile(profile)
    if not isinstance(record, str | Path | None):
        raise wrong_type("record", record, "a folder such as 'runs', or None")
    for word, value, fits, allowed in (
        ("info", info, isinstance(info, Mapping), "a mapping such as {'operator': 'ann'}"),
        ("judge", judge, hasattr(judge, "judge"), "a ResetConfirmation such as hal.Terminal()"),
        ("operator", operator, hasattr(operator, "poll"), "a device such as rlenv_operate.teleop.keyboard.Keyboard"),
        ("behaviour", behaviour, isinstance(behaviour, Spec), "a hal.Spec"),
    ):
        if value is not None and not fits:
            raise wrong_type(word, value, allowed)
    resolved = free_task(robot, keys, **options) if name == FREE else _resolve(name, options)
    world: World
    if isinstance(resolved, Task):
        model = _model_of(resolved, profile)
        settings = sim_settings(timing, randomise, profile if robot == "sim" else None, model.load_spec())
        task_robot = _robot(model, robot, keys=keys, ahead=ahead, **settings)
        world = _with_operator(RobotWorld(task_robot, resolved, mode, judge), operator)
    else:
        if judge is not None or operator is not None:
            raise ValueError(f"{resolved.name!r} has no robot to judge or take over; leave out judge and operator")
        if robot != "sim":
            raise ValueError(f"{resolved.name!r} takes no robot, and robot is {robot!r:.80}; leave it out")
        world = resolved
    observer = None
    if record is not None:
        from rlenv_robot.recording.observer import record_to

        plain, key = (None, None) if profile is None else (profile.to_dict(), profile.record.key or None)
        observer = record_to(Path(record), world, info, plain, key, behaviour, answers)
    return Environment(world, env_id, observer, behaviour or Spec("behaviour"), check_outputs)


def _check_profile(profile: object) -> None:
    if profile is not None and not hasattr(profile, "names_task"):
        raise wrong_type("profile", profile, "a Profile: load_profile('robot.toml')")


def _model_of(task: Task, profile: Profile | None) -> RobotModel:
    """Return the task's robot model, with the sensors that a profile adds to it."""
    model = robot_model_of(task)
    if profile is None or not profile.robot.sensors:
        return model
    return model.with_sensors(profile.robot.sensors, Path(profile.file).absolute().parent)


def _with_operator(world: RobotWorld, operator: Operator | None) -> World:
    if operator is None:
        return world
    from rlenv_robot.robot_env.intervention import HumanIntervention

    return HumanIntervention(world, operator)


@overload
def make_vector(
    name: TaskLike, num_envs: int, *, threads: int = 0, seed: int | None = None, profile: Profile | None = None,
    timing: DelayModel | Options | None = None, randomise: Randomise | Options | None = None,
    cameras: Sequence[str] = (), image_size: tuple[int, int] = (320, 240), device: str = "cpu",
    arrays: Literal["torch"], **options: object,
) -> Any: ...  # fmt: skip


@overload
def make_vector(
    name: TaskLike, num_envs: int, *, threads: int = 0, seed: int | None = None, profile: Profile | None = None,
    timing: DelayModel | Options | None = None, randomise: Randomise | Options | None = None,
    cameras: Sequence[str] = (), image_size: tuple[int, int] = (320, 240), device: str = "cpu",
    arrays: Literal["numpy"] = "numpy", **options: object,
) -> VectorEnvironment: ...  # fmt: skip


def make_vector(
    name: TaskLike,
    num_envs: int,
    *,
    threads: int = 0,
    seed: int | None = None,
    profile: Profile | None = None,
    timing: DelayModel | Options | None = None,
    randomise: Randomise | Options | None = None,
    cameras: Sequence[str] = (),
    image_size: tuple[int, int] = (320, 240),
    device: str = "cpu",
    arrays: Literal["numpy", "torch"] = "numpy",
    **options: object,
) -> Any:
    """Make many simulated environments of one task that step together, on native threads or on a GPU.

    Args:
        name: a task with a simulated robot, as for `task`.
        num_envs: number of environments, at least 1.
        threads: native threads, for the physics and for the cameras; 0 for one per processor.
        seed: the seed of all random draws; each environment has its own random stream, independent of their number.
        profile: the profile that sets timing and randomisation.
        timing: overrides the profile's; see `rlenv_robot.registry.robot`.
        randomise: overrides the profile's; see `rlenv_robot.registry.robot`.
        cameras: names of the cameras to render in each step. Images are RGB, uint8, (num_envs, height, width, 3) in
            ``extra_info["images"]`` by the camera's name, and those of ended episodes in
            ``extra_info["final"]["images"]``.
        image_size: their width and height, pixels.
        device: device of the physics: ``cpu``, or a device of an installed `BatchEngine`: ``warp``, the first GPU, by
            MuJoCo Warp in single precision (plug-in rlenv_gpu, extra ``gpu``); or ``warp:`` and Warp's name of a
            device, such as ``warp:cuda:1``.
        arrays: type of the tables' arrays: ``numpy``; or ``torch``, which keeps observations, rewards and resets on a
            GPU (`rlenv_gpu.environment.TensorEnvironment`).
        options: the task's settings, and those of `VectorEnvironment`.

    Raises:
        TypeError: an argument is an object of another kind.
        ValueError: a name, setting or device is unknown, or the device does not support a setting.
        RobotError: there is no such camera or GPU, or MuJoCo Warp is not installed.
    """
    from rlenv_robot.vector.env import VectorEnvironment
    from sim.batch import SimBatch

    _check_profile(profile)
    for word, value, fits, allowed in (
        ("threads", threads, hasattr(threads, "__index__"), "a whole number, 0 for one per processor"),
        ("device", device, isinstance(device, str), "'cpu', or such as 'warp:cuda:0'"),
        ("cameras", cameras, not isinstance(cameras, str), "a list of names, such as ['wrist']"),
        ("image_size", image_size, len(np.shape(image_size)) == 1, "width and height in pixels, such as (320, 240)"),
    ):
        if not fits:
            raise wrong_type(word, value, allowed)
    vector_options: dict[str, Any] = {
        key: options.pop(key) for key in ("autoreset", "mode", "streams", "check_outputs") if key in options
    }
    resolved = _resolve(name, options)
    if not isinstance(resolved, Task):
        raise ValueError(f"{resolved.name!r} has no simulated robot to batch; call make once per environment")
    model = _model_of(resolved, profile).make_sim_model(looks=bool(cameras))
    settings = sim_settings(timing, randomise, profile, model.spec)
    if arrays not in ("numpy", "torch"):
        raise ValueError(f"arrays is {arrays!r}, allowed are 'numpy' and 'torch'")
    if device != "cpu":
        engine, device_name = _engine(device)
        if vector_options.pop("check_outputs", None):
            raise ValueError(f"check_outputs needs device='cpu', and this is {device!r}; leave it out, or give 0")
        if cameras:
            raise ValueError(f"cameras need device='cpu', and this is {device!r}")
        return engine(model, resolved, num_envs, device_name, arrays, settings, seed=seed, **vector_options)
    if arrays == "torch":
        raise ValueError("arrays='torch' needs a device such as 'warp', or 'warp:cpu' for tests")
    batch: RobotBatch
    batch = simulated = SimBatch(model, num_envs, threads, **settings)
    if cameras:
        from sim.rendering.batch import ImageBatch  # looks for OpenGL

        batch = ImageBatch(simulated, cameras, image_size, threads)
    return VectorEnvironment(batch, resolved, seed=seed, **vector_options)


def _engine(device: str) -> tuple[BatchEngine, str | None]:
    """Return the engine of a device, and the engine's own name of that device; None for its default one.

    Raises:
        ValueError: no installed package has such a device.
    """
    kind, _, name = device.partition(":")
    if kind not in _ENGINES:
        package = plugin_of("rlenv_robot.batch_engines", kind)
        if package is not None:
            raise ValueError(f"device {device!r} is in {missing_plugin(package)}")
        allowed = ", ".join(["'cpu'", *(f"{engine!r} and such as '{engine}:cuda:1'" for engine in _ENGINES.names())])
        raise ValueError(f"device {device!r} is unknown, allowed are {allowed}")
    return cast("BatchEngine", _ENGINES.load(kind)), name or None
