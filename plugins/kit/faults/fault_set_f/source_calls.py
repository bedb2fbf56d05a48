"""Calls that show each fault of source data in its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from plugins.kit.faults.fault_set_f import crossing_faults as cf
from plugins.kit.faults.fault_set_f import lesson_faults as lf
from plugins.kit.faults.fault_set_f.plain import plain, tried

Calls = Callable[[Callable[[], Any]], list[Any]]


def steps(make: Any, *options: dict[str, Any], size: int = 60) -> list[Any]:
    """Return batches that are drawn with each of some options."""
    data = make()
    data.init({"seed": 9})
    return [*(plain(tried(data.sample_steps, size, extra)) for extra in options)]


def draws(make: Any) -> list[Any]:
    return steps(make, {}, {"priority": "return"}, {"priority": "return", "beta": 1.0}, {"priority": "reward"})


def windows(make: Any) -> list[Any]:
    return steps(make, {"n_step": 3}, {"stack": 3}, {"future": 3}, {"chunk": 3})


def filters(make: Any) -> list[Any]:
    exact = make().sample_trajectories(1, {"episodes": [1]})[0]["extra_info"]["return"]
    best = ({"source": source, "top_fraction": 0.34} for source in ("expert", "random", "mixed"))
    several = (*best, {"min_return": exact}, {"source": "expert"}, {})
    return steps(make, *several, {"success": False}, {"source": "nobody"}, {}, {"replace": False})


def few(make: Any) -> list[Any]:
    return steps(make, {"replace": False}, size=20) + steps(make, {}, size=0) + steps(make, {}, size=200)


def errors(make: Any) -> list[Any]:
    data = make()
    data.init({"seed": 9})
    data.update_priorities(np.arange(5), np.array([-8.0, 4.0, 1.0, 2.0, 3.0]))
    return [plain(data.sample_steps(80, {"priority": "td_error"}))]


def trajectories(make: Any) -> list[Any]:
    data = make()
    data.init({"seed": 9})
    extras: tuple[Any, ...] = ({}, {"priority": "return"}, {"min_return": 3.0})
    return [plain(tried(data.sample_trajectories, 30, extra)) for extra in extras]


def states(make: Any) -> list[Any]:
    data, answers = make(), list[Any]()
    asked: list[Any] = [{}, {"tolerance": 1.0}]
    state = data.sample_trajectories(1, {"episodes": [2]})[0]["steps_set"]["observation"]
    asked.append({"state": {name: value[-1] for name, value in state.items()}})
    second = {"episode": 1, "frame": 1}
    for options in (second, {"episode": 2}, second, {}, {"episode": 1, "frame": 40}):
        answers.append(plain(tried(data.init, options)))
        answers += [plain(tried(data.get_all_actions, extra)) for extra in (*asked, {})]
    return answers


def figures(make: Any) -> list[Any]:
    data = make()
    data.init({"seed": 9})
    extras: tuple[Any, ...] = ({}, {"kind": "returns"}, {"source": "expert"}, {"source": "nobody"})
    return [*(plain(tried(data.statistics, extra)) for extra in extras), plain(data.sample_steps(20))]


def pairs(make: Any) -> list[Any]:
    data = make()
    data.init({"seed": 9})
    return [plain(tried(data.sample_pairs, 9, extra)) for extra in ({}, {"success": True}, {"min_margin": 4})]


def kept(make: Any) -> list[Any]:
    data = make()
    for _ in range(60):
        field = data.sample_steps(1)["observation"]["place"]
        field[...] = 0
    return [plain(data.sample_trajectories(1, {"episodes": [e]})) for e in range(6)]


def returned(make: Any) -> list[Any]:
    return [make().init({"seed": 1}) is None]


CALLS: dict[type, Calls] = {
    cf.NextIsPresent: draws, cf.NextIsNextRow: draws, cf.DoneIsTerminated: draws, cf.TruncatedIsNothing: draws,
    cf.SumWithoutDiscount: windows, cf.StepsCrossEnds: windows, cf.NextOfFirstStep: windows,
    cf.WeightsOfRanks: draws, cf.ReturnIsReward: draws, cf.ReturnAboveThreshold: filters, cf.FilterStays: filters,
    cf.NegativeErrorsAreSmall: errors, cf.NewErrorsAreSmall: errors, cf.RefusedCallsDraw: filters,
    cf.TrajectoriesOfChance: trajectories, cf.StatisticsDraw: figures, cf.StackCrossesBegin: windows,
    cf.MaskIsTrue: windows, cf.FutureBeginsNow: windows, cf.ChunkBeginsLater: windows, cf.ReplaceIsIgnored: few,
    cf.TopOfAll: filters, cf.PlacesAreShared: kept, lf.LessonsRunBack: trajectories, lf.LongLessonsAreCut: trajectories,
    lf.ReturnIsMean: trajectories, lf.ActionsAreRepeated: states, lf.ActionsOfOneLesson: states, lf.FrameStays: states,
    lf.InitKeepsState: states, lf.LaterFramesAreLast: states, lf.AskedStateStays: states, lf.StatisticsOfAll: figures,
    lf.SpreadOfSample: figures, lf.NothingIsAll: figures, lf.PairsAreSwapped: pairs, lf.PairsOfAll: pairs,
    lf.LabelsByDraw: trajectories, lf.IdsByDraw: trajectories, lf.NoStepsAreGiven: few, lf.NoMoreThanThere: few,
    lf.TextsAreStripped: draws, lf.UnknownIsFailure: filters, lf.InitReturnsSelf: returned,
    lf.LastIsNeverDrawn: trajectories, lf.ThresholdOfStepsAlone: trajectories, lf.PauseOfStepBefore: draws,
}  # fmt: skip
