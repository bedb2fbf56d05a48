"""Teleoperate from a terminal in consecutive episodes, which are recorded and judged, until the person stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from hal import Answer, DeadlineExceeded, Robot, RobotSpec
from rlenv_operate.episode import (
    FREE_STEPS,
    GivenVerdict,
    TeleopEpisode,
    bounded_velocity,
    expert_recorder,
    teleop_world,
)
from rlenv_operate.teleop.gamepad import Gamepad, find_gamepads
from rlenv_operate.teleop.keyboard import TAKE, Keyboard
from rlenv_operate.teleop.leader import Leader, LeaderDriver, LeaderReader
from rlenv_operate.teleop.terminal import KeyClutch, TeleopKeys
from rlenv_robot.config.profile import load_profile
from rlenv_robot.env import Environment
from rlenv_robot.registry import robot, task
from rlenv_robot.robot_env.intervention import Operator
from rlenv_robot.robot_models import make_driver, robot_model_of
from rlenv_robot.tasks.free import Free, free_task
from rlenv_robot.tasks.task import Task

__all__ = ["TeleopSettings", "leader_of_profile", "teleop_task", "teleoperate"]

_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class TeleopSettings:
    """The settings of `teleoperate`.

    Attributes:
        where: the robot, as `rlenv_robot.robot` takes it: a server's address, ``twin``, or a driver; not ``sim``, whose
            time does not advance by itself.
        kind: name of the robot's model, if neither a task nor a server defines it.
        keys: folder of this machine's keys.
        take: the action if another client holds the robot.
        task: the task of the episodes, as `teleop_task` takes it.
        steps: length of an episode, as `teleop_task` takes it.
        leader: profile of the leader arm; empty for another device.
        gamepad: event device of a gamepad, or ``any``; empty for another device. Without both, keys jog the joints.
        absolute: whether the robot takes the leader's pose, instead of its motion since the clutch was closed.
        engaged: whether the clutch is closed at the beginning of each episode.
        velocity: maximum velocity of a commanded value, units per second; None: 2.0 with a leader, else 0.5.
        record: folder of the recorded runs; None records nothing.
        operator: name of the person, for the record.
        episodes: number of episodes; None continues until the person stops.
        clearing: options of the first reset if it must clear a stop: ``clear_stop`` and ``stop_number``.

    Raises:
        ValueError: a value is out of range, or two devices are named.
    """

    where: str = "tcp://127.0.0.1:5555"
    kind: str = "so101"
    keys: str | Path | None = None
    take: Literal["no", "ask", "force"] = "no"
    task: str = ""
    steps: int | None = None
    leader: str | Path = ""
    gamepad: str = ""
    absolute: bool = False
    engaged: bool = False
    velocity: float | None = None
    record: str | Path | None = None
    operator: str = "operator"
    episodes: int | None = None
    clearing: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.where == "sim":
            raise ValueError("the robot is 'sim', in which no time passes by itself; allowed: an address, 'twin'")
        if self.velocity is not None and not 0 < self.velocity < np.inf:
            raise ValueError(f"velocity is {self.velocity}, it must be above 0 and finite")
        if self.episodes is not None and self.episodes < 1:
            raise ValueError(f"episodes is {self.episodes}, it must be at least 1")
        if self.leader and self.gamepad:
            raise ValueError("a leader and a gamepad are named; name one device")
        if self.absolute and not self.leader:
            raise ValueError("absolute is for a leader arm, and none is named")


def teleop_task(robot: str, name: str = "", steps: int | None = None) -> Task:
    """Return the task of teleoperated episodes.

    Args:
        robot: name of the robot's model, for episodes without a goal.
        name: as `rlenv_robot.task` takes it; empty for episodes without a goal.
        steps: length of an episode in control periods; None: the task's default, and 36,000 without a task.

    Raises:
        ValueError: the name is unknown.
    """
    options = {} if steps is None else {"steps": steps}
    return task(name, **options) if name else task(Free, **{"path": robot, "steps": FREE_STEPS, **options})


def leader_of_profile(file: str | Path) -> LeaderDriver:
    """Create the driver of a leader arm, without opening it.

    Args:
        file: a profile whose ``[robot]`` names the leader's driver and options.

    Raises:
        ProfileError: the profile can't be used.
        ValueError: it names no driver, or one that can't be a leader.
    """
    section = load_profile(file).robot
    if not section.driver:
        raise ValueError(f"{file}: robot.driver is empty; name the leader's driver, such as 'feetech'")
    driver = make_driver(section.driver, section.options, Path(file).absolute().parent)
    if not isinstance(driver, LeaderDriver):
        driver.close()
        raise ValueError(f"{file}: the driver {section.driver!r} has no method lead(), so its robot can't be a leader")
    return driver


def teleoperate(settings: TeleopSettings, keys: TeleopKeys, say: Callable[[str], None]) -> int:
    """Let a person move a robot in consecutive episodes.

    An episode ends by a verdict's key, by the task's end, or by KeyboardInterrupt, which also ends the session. However
    the session ends, the robot holds, the record is closed, and the terminal is restored.

    Args:
        settings: the settings of the session.
        keys: reads the person's keys.
        say: takes lines for the person.

    Returns:
        The number of completed episodes.

    Raises:
        RobotError: the robot can't be reached or moved.
        OSError: the device can't be opened.
        ValueError: a setting does not fit the robot.
    """
    with ExitStack() as ends:
        ends.callback(keys.close)
        resolved = _task(settings)
        model = robot_model_of(resolved)
        if "://" in settings.where:
            moved = robot(model, settings.where, keys=settings.keys, take=settings.take)
        else:
            moved = robot(model, settings.where)
        ends.callback(moved.close)
        device = _device(settings, moved, keys)
        ends.callback(device.close)
        device.open()  # a leader that is missing shows before the robot moves
        keys.open()
        judge = GivenVerdict(lambda text, seconds: _ask(keys, settings.operator, say, text, seconds))
        world = teleop_world(moved, resolved, judge)
        observer = None if settings.record is None else expert_recorder(settings.record, world, settings.operator)
        env = ends.enter_context(Environment(world, None, observer))
        episode = TeleopEpisode(env, moved.spec, device, _velocity(settings), say)
        return _episodes(settings, episode, keys, judge, say)


def _episodes(
    settings: TeleopSettings, episode: TeleopEpisode, keys: TeleopKeys, judge: GivenVerdict, say: Callable[[str], None]
) -> int:
    count = 0
    while settings.episodes is None or count < settings.episodes:
        say("the robot goes to its start")
        episode.begin(settings.clearing if count == 0 else {})
        keys.clear()
        judge.given = None
        say(f"episode {count}: space engages and releases; + success, - failure, x discard; Ctrl-C ends")
        if settings.engaged:
            keys.press(TAKE[0])
        while not episode.over:
            if keys.verdict is not None:
                judge.given = Answer(settings.operator, "", keys.verdict)
                episode.end(f"{keys.verdict}, says {settings.operator}")
            else:
                episode.period()
        say(f"episode {count} ended: {episode.end_reason}")
        count += 1
    return count


def _task(settings: TeleopSettings) -> Task:
    """Return the task that is named; without one, that of the robot at an address, of a driver, or of the model."""
    if settings.task or ":" not in settings.where:
        return teleop_task(settings.kind, settings.task, settings.steps)
    return free_task(settings.where, settings.keys, steps=settings.steps or FREE_STEPS)


def _velocity(settings: TeleopSettings) -> float:
    return settings.velocity if settings.velocity is not None else 2.0 if settings.leader else 0.5


def _device(settings: TeleopSettings, moved: Robot, keys: TeleopKeys) -> Operator:
    spec: RobotSpec = moved.spec
    if settings.leader:
        driver = leader_of_profile(settings.leader)
        return Leader(LeaderReader(driver), spec, KeyClutch(keys), absolute=settings.absolute)
    velocity = bounded_velocity(spec, _velocity(settings))
    if not settings.gamepad:
        return Keyboard(spec.commands, velocity * spec.period_s, keys=keys, idle="the robot holds")
    path = settings.gamepad
    if path == "any":
        found = find_gamepads()
        if not found:
            raise OSError("no gamepad is plugged in (/dev/input/by-id/*-event-joystick); name its event device")
        path = found[0]
    return Gamepad(path, spec, velocity)


def _ask(keys: TeleopKeys, by: str, say: Callable[[str], None], text: str, seconds: float) -> Answer:
    """Wait for a verdict's key after an episode that ended by itself."""
    say(f"{text or 'how did it go?'} + success, - failure, x discard (within {seconds:.0f} s)")
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        keys.read()
        if keys.verdict is not None:
            return Answer(by, "", keys.verdict)
        time.sleep(_POLL_S)
    raise DeadlineExceeded("nobody at the terminal judged the episode", seconds, "press a key in time")
