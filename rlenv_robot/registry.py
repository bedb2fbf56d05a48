"""Names to things: one word chooses the world in which a task is carried out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hal import Automatic, Guard, Homing, ResetConfirmation, Robot
from rlenv_robot.config.sim_settings import conditions
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.core import Mode, RobotWorld
from rlenv_robot.robot_models import MODEL_FILE, RobotModel, is_model_file, loaded, robot_model_for, unknown
from rlenv_robot.robot_models import robot_model as robot_model_of
from rlenv_robot.tasks.task import Task
from rlenv_robot.world import World

if TYPE_CHECKING:
    from rlenv_robot.config.profile import Profile
    from rlenv_robot.robot_env.intervention import Operator
    from rlenv_robot.vector.env import RobotBatch, VectorEnvironment
    from sim.latency.delay_model import DelayModel
    from sim.model import SimModel
    from sim.randomize.randomise import Randomise

__all__ = ["environment_names", "make", "make_vector", "robot", "task"]

_TASKS: Mapping[str, str] = {
    "go2-walk": "rlenv_robot.tasks.walk:Walk",
    "so101-reach": "rlenv_robot.tasks.reach:Reach",
    "so101-push": "rlenv_robot.tasks.push:Push",
    "so101-pick-place": "rlenv_robot.tasks.pick_place:PickPlace",
    "so101-pair-lift": "rlenv_robot.tasks.pair_lift:PairLift",
}
_WORLDS: Mapping[str, str] = {
    "go": "rlenv_robot.tasks.go:Go",
}
"""Name -> the class, as ``module:name``; the robots are in `rlenv_robot.robot_models`."""

_ANY_MODEL = f"the path of a MuJoCo model ({MODEL_FILE})"


def environment_names() -> list[str]:
    """What `make` knows by name; beside these, the path of any MuJoCo model."""
    return sorted((*_TASKS, *_WORLDS))


def task(name: str, **options: Any) -> Task:
    """A task by name.

    Args:
        name: such as ``so101-reach``; or the path of a MuJoCo model, ending in ``.xml``, whose robot is moved without a
            goal (`rlenv_robot.tasks.free.Free`).
        options: the task's own settings, such as ``tolerance_m``.

    Raises:
        ValueError: unknown name, unknown setting, or a wrong value.
        SpecError: the model's file is missing, or no model of a robot.
    """
    if is_model_file(name):
        from rlenv_robot.tasks.free import Free

        return _built(partial(Free, name), name, options)  # type: ignore[no-any-return]
    if name not in _TASKS:
        raise unknown(name, "task", [*_TASKS, _ANY_MODEL])
    chosen: Task = _built(loaded(_TASKS[name]), name, options)
    return chosen


def _built(factory: Callable[..., Any], name: str, options: Mapping[str, Any]) -> Any:
    known = inspect.signature(factory).parameters
    for option in options:
        if option not in known:
            raise unknown(option, f"{name}'s setting", known)
    try:
        return factory(**options)
    except TypeError as error:
        given = ", ".join(f"{option} = {value!r:.80}" for option, value in options.items())
        raise ValueError(f"{name}: a setting has a wrong type, {given}: {error}") from error


def robot(
    robot_model: str | RobotModel,
    where: str | Robot = "sim",
    *,
    keys: str | Path | None = None,
    take: Literal["no", "ask", "force"] = "no",
    timing: DelayModel | Mapping[str, Any] | None = None,
    randomise: Randomise | Mapping[str, Any] | None = None,
) -> Robot:
    """A robot of a kind, in one of its worlds.

    Args:
        kind: ``RobotSpec.name``, such as ``so101``; the path of a MuJoCo model; or the kind itself.
        where: ``sim``; ``twin``, a simulation with a real arm's faults, in real time; the address of a server,
            such as ``tcp://127.0.0.1:5555``; or a robot of your own, which is guarded here.
        keys: for a server: the folder of this machine's keys (`rlenv-robot keys new`). Beyond this machine no robot is
            reached without.
        take: for a server: what happens where another client holds the robot, see `real.RemoteRobot`.
        timing: of a simulation (``sim``): how late, coarse and lossy it is, see `sim.latency.delay_model.DelayModel`.
        randomise: of a simulation (``sim``): what of its model each episode draws, see
        `sim.randomize.randomise.Randomise`.

    Raises:
        ValueError: an unknown kind or place, timing or randomisation that do not fit or are not for a simulation,
            keys for a robot that is not on the network, or a key that is missing,
            damaged or readable by others.
        WireError: the address is not understood, or another machine's and there are no keys.
        SpecMismatch: a robot of your own is of another kind.
    """
    if keys is not None and not (isinstance(where, str) and "://" in where):
        raise ValueError(f"keys are for a robot on the network, such as 'tcp://10.0.0.7:5555', and this is {where!r}")
    given = conditions(timing, randomise)
    if given and where != "sim":
        raise ValueError(f"{' and '.join(given)} can be chosen for robot 'sim' alone, and this is {where!r}")
    if not isinstance(where, str):
        return where if isinstance(where, Guard) else Guard(where)
    chosen = robot_model_of(robot_model) if isinstance(robot_model, str) else robot_model
    if where == "sim":
        from sim.robot import SimRobot

        return Guard(SimRobot(chosen.simulated(), **given))
    if where == "twin":
        return Homing(Guard(chosen.served("twin")), Automatic())
    if "://" in where:
        from real.client.cameras import RemoteCameras
        from real.client.robot import RemoteRobot

        return Guard(RemoteCameras(RemoteRobot(where, expect=chosen.robot_spec(), keys=keys, take=take), keys))
    raise ValueError(f"robot {where!r} is unknown, allowed are 'sim', 'twin', an address such as "
                     "'tcp://127.0.0.1:5555', or a Robot")  # fmt: skip


def make(
    name: str,
    robot: str | Robot = "sim",
    *,
    env_id: str | None = None,
    mode: Mode = "training",
    record: str | Path | None = None,
    info: Mapping[str, Any] | None = None,
    keys: str | Path | None = None,
    profile: Profile | None = None,
    timing: DelayModel | Mapping[str, Any] | None = None,
    randomise: Randomise | Mapping[str, Any] | None = None,
    judge: ResetConfirmation | None = None,
    operator: Operator | None = None,
    **options: Any,
) -> Environment:
    """An environment by name, in simulation or on a robot.

    Args:
        name: one of `environment_names`, or the path of a MuJoCo model, see `task`.
        robot: see `rlenv_robot.registry.robot`; the one word that moves a policy from simulation to the arm.
        env_id: 1 to 36 characters; by default a new one.
        mode: ``training``, or ``inference``, where privileged state can't be reached.
        record: a folder; every episode is recorded into a new run inside it.
        info: what every recorded episode shall say of itself, such as ``{"policy": "v3", "source": "expert"}``.
        keys: see `rlenv_robot.registry.robot`.
        profile: what the run is made of; kept in the record. A simulation has its timing and randomisation.
        timing, randomise: of a simulation, instead of the profile's; see `rlenv_robot.registry.robot`.
        judge: asked after every episode how it went, such as `hal.Terminal`; the verdict is recorded.
        operator: the device of a person who may take over, such as `rlenv_robot.robot_env.keyboard.Keyboard`.
        options: the task's own settings.

    Raises:
        ValueError: an unknown name, robot, mode or setting, or a wrong env_id.
    """
    if name in _WORLDS:
        if judge is not None or operator is not None:
            raise ValueError(f"{name!r} has no robot: nobody judges it or takes over; leave out judge and operator")
        world: World = _built(loaded(_WORLDS[name]), name, options)
    elif name in _TASKS or is_model_file(name):
        chosen = task(name, **options)
        given = conditions(timing, randomise, profile if robot == "sim" else None)
        there = _robot(robot_model_for(chosen), robot, keys=keys, **given)
        world = _with_person(RobotWorld(there, chosen, mode, judge), operator)
    else:
        raise unknown(name, "environment", [*environment_names(), _ANY_MODEL])
    observer = None
    if record is not None:
        from rlenv_robot.recording.observer import record_to

        observer = record_to(Path(record), world, info, profile.to_dict() if profile is not None else None)
    return Environment(world, env_id, observer)


def _with_person(world: RobotWorld, operator: Operator | None) -> World:
    if operator is None:
        return world
    from rlenv_robot.robot_env.intervention import HumanIntervention

    return HumanIntervention(world, operator)


_robot = robot  # `make` has a parameter of that name


def make_vector(
    name: str,
    num_envs: int,
    *,
    threads: int = 0,
    seed: int | None = None,
    profile: Profile | None = None,
    timing: DelayModel | Mapping[str, Any] | None = None,
    randomise: Randomise | Mapping[str, Any] | None = None,
    cameras: Sequence[str] = (),
    image_size: tuple[int, int] = (320, 240),
    device: str = "cpu",
    **options: Any,
) -> VectorEnvironment:
    """Many simulated environments of one task that step together, on native threads or on a GPU.

    Args:
        name: of a task with a simulated robot.
        num_envs: how many, at least 1.
        threads: native threads, of the physics and of the cameras; 0 for one a processor.
        seed: of all randomness; each environment has its own stream whatever their number.
        profile: whose timing and randomisation they have.
        timing, randomise: instead of the profile's; see `rlenv_robot.registry.robot`.
        cameras: whose pictures each step gives, RGB, uint8, (num_envs, height, width, 3) in ``extra_info["images"]``
            by the camera's name, and those of ended episodes in ``extra_info["final"]["images"]``.
        picture_size: their width and height, pixels.
        device: where the physics run: ``cpu``; ``warp``, the first GPU, by MuJoCo Warp in single precision (extra
            ``gpu``); or ``warp:`` and Warp's name of a device, such as ``warp:cuda:1``.
        options: the task's own settings, and those of `VectorEnvironment`.

    Raises:
        ValueError: an unknown name, setting or device, or what a GPU's batch does not have.
        RobotError: no such camera, no such GPU, or MuJoCo Warp is not installed.
    """
    from rlenv_robot.vector.env import VectorEnvironment
    from sim.batch import SimBatch

    if name in _WORLDS:
        raise ValueError(f"{name!r} has no simulated robot, and batches are of these; use make, once for each")
    own = {key: options.pop(key) for key in ("autoreset", "mode", "streams") if key in options}
    chosen = task(name, **options)
    model, given = robot_model_for(chosen).simulated(looks=bool(cameras)), conditions(timing, randomise, profile)
    batch: RobotBatch
    if device != "cpu":
        batch = _on_gpu(model, num_envs, device, [*given, *(["cameras"] if cameras else [])])
    else:
        batch = simulated = SimBatch(model, num_envs, threads, **given)
    if cameras:
        from sim.rendering.batch import ImageBatch  # looks for OpenGL

        batch = ImageBatch(simulated, cameras, image_size, threads)
    return VectorEnvironment(batch, chosen, seed=seed, **own)


def _on_gpu(model: SimModel, num: int, device: str, given: Sequence[str]) -> RobotBatch:
    robot_model, _, name = device.partition(":")
    if robot_model != "warp":
        raise ValueError(f"device {device!r} is unknown, allowed are 'cpu', 'warp' and such as 'warp:cuda:1'")
    if given:
        raise ValueError(f"{' and '.join(given)} need device='cpu', and this is {device!r}")
    from sim.gpu.batch import WarpBatch  # imports Warp

    return WarpBatch(model, num, name or None)
