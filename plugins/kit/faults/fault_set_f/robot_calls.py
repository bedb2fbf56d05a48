"""Calls that show each fault of a robot in its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from plugins.kit.faults.fault_set_f import robot_faults as rf
from plugins.kit.faults.fault_set_f.plain import plain, tried
from plugins.kit.faults.fault_set_f.robots import Picker

Calls = Callable[[Callable[[], Any]], list[Any]]


class Sink:
    def __init__(self) -> None:
        self.samples: list[Any] = []

    def write(self, values: Any, stamp_ns: int) -> int:
        self.samples.append((plain(values), stamp_ns))
        return len(self.samples) - 1


def commanded(robot: Any, **values: Any) -> dict[str, Any]:
    if isinstance(robot, Picker):
        return {"joint_goal": np.array([1.0, -1.0, 0.5]), "jaw_goal": np.array(0.01), **values}
    return {"cart_speed": np.array([0.5, -0.2]), "valve": np.array(1), "lamp": np.array(2), **values}


def moved(robot: Any, steps: int = 4) -> list[Any]:
    return [plain(tried(robot.step, commanded(robot))) for _ in range(steps)]


def begun(make: Any) -> tuple[Any, Sink, list[Any]]:
    robot, sink = make(), Sink()
    if isinstance(robot, Picker):
        robot.stream_to({"weight": sink})
    return robot, sink, [plain(robot.reset({"seed": 4}))]


def episode(make: Any) -> list[Any]:
    robot, sink, answers = begun(make)
    return [*answers, *moved(robot, 16), sink.samples, plain(robot.read()), *moved(robot, 2)]


def stopped(make: Any) -> list[Any]:
    robot, _, answers = begun(make)
    answers += moved(robot)
    robot.stop("a hand")
    answers += [plain(tried(robot.read)), *moved(robot, 2)]
    for options in ({}, {"clear_stop": True}, {"clear_stop": "free", "seed": -1}, {"start": "present"}):
        answers += [plain(tried(robot.reset, options)), plain(tried(robot.read))]
    return [*answers, plain(tried(robot.reset, {"clear_stop": "free", "start": "present", "seed": 1})), *moved(robot)]


def early(make: Any) -> list[Any]:
    robot = make()
    robot.stop("before the start")
    return [plain(tried(robot.reset, {"seed": 1}))]


def refused(make: Any) -> list[Any]:
    robot, _, answers = begun(make)
    answers += moved(robot, 2)
    wrong: list[dict[str, Any]] = [{"jaw_goal": 1.0}] if isinstance(robot, Picker) else [{"cart_speed": [np.nan, 0.1]}]
    for values in wrong:
        answers += [plain(tried(robot.step, commanded(robot, **values))), plain(robot.read())]
    start = {"joint_goal": [1.0, 1.0, 1.0], "jaw_goal": 7.0} if isinstance(robot, Picker) else {"valve": 7}
    return [*answers, plain(tried(robot.reset, {"start": start})), plain(robot.read()), *moved(robot, 1)]


def resets(make: Any) -> list[Any]:
    robot, _, answers = begun(make)
    starts: tuple[Any, ...] = ("present", {"cart_speed": [0.3, 0.1]}, {"valve": 1})
    if isinstance(robot, Picker):
        starts = ("present", {"joint_goal": [1.0, 1.0, 1.0]}, {"jaw_goal": 0.02})
    for start in starts:
        options = {"seed": 4, "start": start}
        answers += [*moved(robot), plain(tried(robot.reset, options)), plain(options)]
    return answers


def kept(make: Any) -> list[Any]:
    robot, _, answers = begun(make)
    command = commanded(robot)
    state = robot.step(command)
    for value in command.values():
        value[...] = 0
    for value in state.applied.values():
        value[...] = 1
    answers.append(plain(robot.read()))
    robot.step(commanded(robot))
    return [*answers, plain(state)]


def long_reason(make: Any) -> list[Any]:
    robot, _, answers = begun(make)
    return [*answers, tried(robot.stop, "x" * 500), *moved(robot, 1)]


def closed(make: Any) -> list[Any]:
    robot, _, answers = begun(make)
    return [*answers, tried(robot.close), tried(robot.close), plain(tried(robot.reset, {}))]


def ages(make: Any) -> list[Any]:
    """Return whether a sample exceeds its greatest age, and whether equal seeds give equal states."""
    robots = [make(), make()]
    states = [[robot.reset({"seed": 1}), *(robot.step(commanded(robot)) for _ in range(20))] for robot in robots]
    limits = robots[0].spec.max_age_s
    old = [any(s.age_ns.get(name, 0) > limit * 1e9 for s in states[0]) for name, limit in limits.items()]
    return [old, plain(states[0]) == plain(states[1])]


def coasting(make: Any) -> list[Any]:
    robot, _, _ = begun(make)
    moved(robot)
    robot.stop("a hand")
    return [plain(robot.read())]


CALLS: dict[type, Calls] = {
    rf.StopRefusesOnce: stopped, rf.StopOpensJaw: stopped, rf.StopGoesToGoal: stopped, rf.ClearStopIsTruth: stopped,
    rf.WrongResetClears: stopped, rf.LegalPartOfStart: refused, rf.AppliedIsShared: kept,
    rf.AnglesAreOverwritten: kept, rf.SpeedByPeriod: episode, rf.ImageStampIsNow: episode, rf.ImageWhenNew: episode,
    rf.UsedIsOneBefore: episode, rf.StampOfTheHost: episode, rf.ClockRestarts: resets, rf.NothingIsOld: episode,
    rf.JawStaysAtStart: resets, rf.JointsBeforeJaw: refused, rf.ReadTakesTime: episode, rf.StopCoasts: coasting,
    rf.StopLightsRed: stopped, rf.StartSpeedIsLost: resets, rf.PresentRollsOn: resets, rf.EarlyStopIsLost: early,
    rf.LongReasonsAreRefused: long_reason, rf.NanIsZero: refused, rf.AxesAreSwapped: episode, rf.PingTooRare: ages,
    rf.RefusalBrakes: refused, rf.StoppedIsOutOfTurn: stopped, rf.CommandIsKept: kept, rf.SonarOfChance: ages,
    rf.StartIsTakenOut: resets, rf.ReadAfterStop: stopped, rf.SecondCloseFails: closed, rf.LampOutlivesReset: resets,
}  # fmt: skip
