"""Make the subject of a check (an environment, a batch, recorded data or a robot) from a name, a file or an object."""

from __future__ import annotations

import inspect
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hal import Robot
from rlenv_kit.environment import check_environment
from rlenv_kit.json_subject import JsonSubject
from rlenv_kit.report import Report
from rlenv_kit.robot import check_robot
from rlenv_kit.robot_probe import BoundedRobot, MotionBounds, is_simulated
from rlenv_kit.source_data import check_source
from rlenv_kit.source_probe import StandardSource
from rlenv_kit.supervisor import Deadlines, Witness
from rlenv_kit.vector import check_vector
from rlenv_kit.vector_probe import StandardVector
from rlenv_robot.config.plugins import load_object
from rlenv_robot.config.profile import load_profile
from rlenv_robot.env import Environment
from rlenv_robot.registry import environment_names, make, make_vector, robot, task
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.robot_models import ROBOT_FILES, is_robot_file, robot_model_of
from rlenv_robot.serving import profile_driver
from rlenv_robot.source import open_source
from rlenv_robot.tasks.task import Task
from rlenv_robot.world import World

__all__ = ["Subject", "subject_of"]

_NUMBERS = ("num_envs", "num", "n", "number", "count")
"""Names of the one parameter of a factory that makes a batch."""


@dataclass(frozen=True)
class Subject:
    """The subject of a check, and how to make each of its parts.

    Attributes:
        name: for the report.
        make_environment: makes a new environment; None for a robot alone.
        make_robot: makes a new robot; None if there is none.
        is_real: whether a real machine may move.
        make_source: makes source data; None if there are none.
        make_batch: makes a batch of N environments; None if there is none.
        num_envs: number of environments in the batch under test.
    """

    name: str
    make_environment: Callable[[], Any] | None
    make_robot: Callable[[], Robot] | None = None
    is_real: bool = False
    make_source: Callable[[], StandardSource] | None = None
    make_batch: Callable[[int], StandardVector] | None = None
    num_envs: int = 3

    def motion(self, bounds: MotionBounds) -> list[str]:
        """Return a line for each command that says how far and how fast a real robot will move."""
        if self.make_robot is None:
            return []
        subject = self.make_robot()
        try:
            return bounds.describe(subject.spec)
        finally:
            subject.close()

    def check(
        self, *, steps: int, seed: int, bounds: MotionBounds, part: str = "", only: int = 0,
        time_limit_s: float = math.inf, witness: Witness | None = None,
        begins: Callable[[str], None] = lambda part: None, ended: Callable[[Report], None] = lambda report: None,
    ) -> list[Report]:  # fmt: skip
        """Check the robot, if there is one, then the environment, the batch, and the source data.

        Args:
            steps: as for `check_environment`; a robot's walks have at most 10.
            seed: seeds all random draws.
            bounds: limits on the motions of a real robot.
            part: ``robot``, ``environment``, ``batch`` or ``source`` checks that part only.
            only: number of the only check to run; without ``part``, of the environment's checks if there is one.
            time_limit_s: the time limit of all parts together, seconds. The check that exceeds it fails, and the
                reports list the checks after it as not reached.
            witness: receives the progress of each part.
            begins: called with the name of each part before it.
            ended: called with each report.
        """
        end_s = time.monotonic() + time_limit_s

        def told(part: str) -> dict[str, Any]:
            begins(part)
            total = max(end_s - time.monotonic(), 0.0)
            return {"deadlines": Deadlines.of_subject(self.is_real, total), "witness": witness, "only": only}

        def add(report: Report) -> None:
            reports.append(report)
            ended(report)

        if only and not part:
            part = "environment" if self.make_environment else "source" if self.make_source else "robot"
        reports: list[Report] = []
        if self.make_robot is not None and part in ("", "robot"):
            add(check_robot(self.make_robot, steps=min(steps, 10), seed=seed, repeatable=not self.is_real,
                            bounds=bounds if self.is_real else None, **told("robot")))  # fmt: skip
        if self.make_environment is not None and part in ("", "environment"):
            add(check_environment(self.make_environment, steps=steps, seed=seed, repeatable=not self.is_real,
                                  name=self.name, **told("environment")))  # fmt: skip
        if self.make_batch is not None and part in ("", "batch"):
            add(check_vector(self.make_batch, self.make_environment, num_envs=self.num_envs, steps=steps, seed=seed,
                             name=self.name, **told("batch")))  # fmt: skip
        if self.make_source is not None and part in ("", "source"):
            add(check_source(self.make_source, seed=seed, name=self.name, **told("source")))
        return reports


def subject_of(
    name: str,
    where: str = "sim",
    keys: str | Path | None = None,
    bounds: MotionBounds | None = None,
    num_envs: int = 0,
) -> Subject:
    """Return the subject that a name on the command line stands for.

    Args:
        name: one of `environment_names`, a MuJoCo model, a profile (``.toml``), a folder of recorded data, a program
            (``exec:COMMAND`` or ``tcp://HOST:PORT``, see `rlenv_kit.json_subject.JsonSubject`), or
            ``module:factory``; the module may be a file (``path/to/file.py:factory``). The factory makes an
            environment, a world, a task, a robot, source data, or an environment of Gymnasium or PettingZoo; with the
            parameter ``num_envs``, a batch.
        where: the robot, as for `rlenv_robot.make`.
        keys: as for `rlenv_robot.make`.
        bounds: limits on the motions of a real robot.
        num_envs: 2 or more also checks a simulated batch of that size.

    Raises:
        ValueError: the name is unknown, or a batch was requested of something that can't be batched.
        TypeError: the factory makes something else.
    """
    subject = _subject(name, where, keys, bounds)
    if not num_envs:
        return subject
    if num_envs < 2 or where != "sim" or not subject.make_robot:
        raise ValueError(
            f"a batch of {num_envs} of {name!r} on {where!r} can't be checked, allowed are at least 2 simulated robots "
            "with a task"
        )
    return replace(subject, make_batch=lambda num: make_vector(_task_of(name), num), num_envs=num_envs)


_PROGRAMS = ("exec:", "tcp://")
"""Beginnings of the name of a program: a command, or the address where it listens."""


def _program(name: str) -> Subject:
    """Return what a program offers: an environment, source data, or both."""
    program = name.removeprefix("exec:")
    calls = JsonSubject(program).calls()
    source = JsonSubject(program, "source") if "sample_steps" in calls else None
    environment = JsonSubject(program, "environment") if "step" in calls or source is None else None
    return Subject(name, environment, make_source=source)


def _task_of(name: str) -> Any:
    if not name.endswith(".toml"):
        return _importable(name) if ":" in name else name
    profile = load_profile(name)
    return task(profile.task.name, **dict(profile.task.options))


def _subject(name: str, where: str, keys: str | Path | None, bounds: MotionBounds | None) -> Subject:
    if name.startswith(_PROGRAMS):
        return _program(name)
    if Path(name).is_dir() and name not in environment_names():
        return Subject(name, None, make_source=lambda: open_source(name))
    if name.endswith(".toml") and not is_robot_file(name):
        profile = load_profile(name)
        if profile.robot.where == "driver" and not profile.names_task and where == "sim":
            return _robot(name, lambda: profile_driver(profile)[0])
        return _registered(profile.task.name, where, keys, bounds, dict(profile.task.options))
    if ":" not in name or name in environment_names() or is_robot_file(name):
        return _registered(name, where, keys, bounds, {})
    factory: Any = load_object(_importable(name), Path.cwd())
    if not callable(factory):
        raise TypeError(f"{name!r} is a {type(factory).__name__}, expected a class or a function without arguments")
    if _takes_a_number(factory):
        return Subject(name, None, make_batch=factory)
    factory = _named(factory, _importable(name))
    made = factory()
    if isinstance(made, Task | World):
        return _registered(_importable(name), where, keys, bounds, {})
    if isinstance(made, Robot) and not hasattr(made, "observation"):
        return Subject(name, None, factory, is_real=not is_simulated(made))
    if all(hasattr(made, member) for member in ("init", "sample_steps", "sample_trajectories")):
        return Subject(name, None, make_source=factory)
    if _is_environment(made):
        made.close()
        world = getattr(made, "world", None)
        real = isinstance(world, RobotWorld) and not is_simulated(world.robot)
        return Subject(name, factory, is_real=real)
    return _foreign(name, made, factory)


def _robot(name: str, make_robot: Callable[[], Robot]) -> Subject:
    made = make_robot()
    try:
        return Subject(name, None, make_robot, is_real=not is_simulated(made))
    finally:
        made.close()


def _takes_a_number(factory: Callable[..., Any]) -> bool:
    """Return whether a factory makes a batch: it needs one argument, the number of environments."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # a class of C without a signature
        return False
    needed = [one for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    return len(needed) == 1 and needed[0].name in _NUMBERS


def _named(factory: Callable[[], Any], name: str) -> Callable[[], Any]:
    """Return a factory that another process can import by its name, such as of a lambda that a module holds."""
    module, _, attribute = name.rpartition(":")
    if isinstance(factory, type) or getattr(factory, "__qualname__", "") == attribute:
        return factory

    def made() -> Any:
        return factory()

    made.__module__, made.__qualname__ = module, attribute
    return made


def _is_environment(made: object) -> bool:
    return all(hasattr(made, member) for member in ("env_id", "observation", "action", "reset", "step", "close"))


def _importable(name: str) -> str:
    """Return ``module:factory`` of a place that may be a file, whose folder is searched from now on."""
    module, _, factory = name.rpartition(":")
    if not module.endswith(".py"):
        return name
    file = Path(module)
    if not file.is_file():
        raise ValueError(f"there is no file {module!r}; expected such as path/to/file.py:{factory or 'make'}")
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return f"{file.stem}:{factory}"


def _registered(
    name: str, where: str, keys: str | Path | None, bounds: MotionBounds | None, options: Mapping[str, Any]
) -> Subject:
    with make(name, where, keys=keys, **dict(options)) as env:
        robot_world = isinstance(env.world, RobotWorld)
        is_real = robot_world and where != "sim"
        if is_real:
            env.reset()  # a robot that can't be reached raises here: that is no finding

    def make_robot() -> Robot:
        return robot(robot_model_of(task(name, **dict(options))), where, keys=keys)

    def make_environment() -> Environment:
        if is_real:
            return make(name, BoundedRobot(make_robot(), bounds or MotionBounds()), **dict(options))
        return make(name, where, keys=keys, **dict(options))

    shown = name if where == "sim" else f"{name} on {where}"
    return Subject(shown, make_environment, make_robot if robot_world else None, is_real)


def _foreign(name: str, made: Any, factory: Callable[[], Any]) -> Subject:
    """Return an environment of Gymnasium or PettingZoo as ours."""
    if hasattr(made, "observation_space") and hasattr(made, "reset") and hasattr(made, "step"):
        import rlenv_robot as rr

        adapt = rr.from_pettingzoo if hasattr(made, "possible_agents") else rr.from_gymnasium
        made.close()
        return Subject(name, lambda: adapt(factory()))
    raise TypeError(
        f"{name!r} makes a {type(made).__name__}, expected an environment (env_id, observation, action, reset, step, "
        f"close), a hal.Robot, a task, a world, source data, or an environment of Gymnasium or PettingZoo; a "
        f"robot's file ends in {' or '.join(ROBOT_FILES)}"
    )
