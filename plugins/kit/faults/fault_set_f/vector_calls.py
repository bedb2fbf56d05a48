"""Calls that show each fault of a batch in its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from plugins.kit.faults.fault_set_f import batch_faults as bf
from plugins.kit.faults.fault_set_f import riddle_faults as rf
from plugins.kit.faults.fault_set_f.batches import Floats
from plugins.kit.faults.fault_set_f.plain import plain, tried

Calls = Callable[[Callable[[int], Any]], list[Any]]


class Told:
    """A batch, and the plain answers of its calls."""

    def __init__(self, make: Any, num: int = 3) -> None:
        self.envs, self.answers = make(num), list[Any]()
        self.table: Any = self.tell(self.envs.reset, {"seed": 5})

    def tell(self, call: Any, *values: Any) -> Any:
        answer = tried(call, *values)
        text = plain(answer)
        for table in text if isinstance(text, list) else [text]:
            if isinstance(table, dict):
                table.pop("env_id", None)
        self.answers.append(text)
        return answer

    def step(self, time: int, **values: Any) -> None:
        num = self.envs.num_envs
        if isinstance(self.envs, Floats):
            usual: Any = {"winch": np.linspace(-0.5, 0.9, 2 * num).reshape(num, 2)}
        else:
            guess = (np.arange(num) * 2 + time % 6) % 12
            usual = {"guess": guess.astype(np.int32), "hint": np.array([f"hint {n}" for n in range(num)], "<U12"),
                     "plea": np.array([f"plea {n}" for n in range(num)])}  # fmt: skip
        frame = self.table["frame_no"]
        action = {"env_id": self.envs.env_ids, "frame_no": frame, "action": {**usual, **values}}
        answer = self.tell(self.envs.step, action)
        if isinstance(answer, tuple):
            self.table = answer[0]


def episodes(make: Any) -> list[Any]:
    told = Told(make)
    for time in range(30):
        told.step(time)
    return told.answers


def seeds(make: Any) -> list[Any]:
    told, other = Told(make), Told(make, 5)
    told.tell(told.envs.reset, {"seed": 5})
    return [*told.answers, np.array_equal(told.table["observation"]["depth"], other.table["observation"]["depth"][:3])]


def some(make: Any) -> list[Any]:
    told = Told(make)
    for time in range(4):
        told.step(time)
    for ids in ([1], [-1], [0, 2]):
        answer = told.tell(told.envs.reset, {"ids": ids})
        told.table = answer if "observation" in answer else told.table
        told.step(4)
    for time in range(5, 30):
        told.step(time)
    return told.answers


def refused(make: Any) -> list[Any]:
    told = Told(make)
    told.step(0)
    if isinstance(told.envs, Floats):
        told.step(1, winch=np.array([[0.1, 0.1], [5, 0], [0, -3]]))
        told.step(1, winch=np.zeros((2, 2)))
    else:
        told.step(1, guess=np.array([0, 50, 4], np.int32))
        told.step(1, guess=np.array([0, 50, 10], np.int32), hint=np.array(["far too long to pass", "b", "c"]))
        told.step(1, hint=np.array(["far too long", "b", "c"]))
    for time in range(2, 7):
        told.step(time)
    return told.answers


def waiting(make: Any) -> list[Any]:
    told = Told(make)
    for time in range(14):
        over = told.table["terminated"] | told.table["truncated"]
        told.step(time, guess=np.where(over, 77, (np.arange(3) * 2 + time % 6) % 12).astype(np.int32))
    return told.answers


def kept(make: Any) -> list[Any]:
    told = Told(make)
    table = told.table
    told.step(0)
    return [plain(table["observation"])]


def restored(make: Any) -> list[Any]:
    told = Told(make)
    told.step(0)
    snapshot = told.envs.snapshot()
    for _ in range(2):
        told.table = told.tell(told.envs.restore, snapshot)
        for time in range(1, 16):
            told.step(time)
    return told.answers


def names(make: Any) -> list[Any]:
    return [make(2).env_ids == make(2).env_ids]


def early(make: Any) -> list[Any]:
    return [list(tried(make(2).reset, {"ids": [0]}))]


CALLS: dict[type, Calls] = {
    bf.NoFinal: episodes, bf.FinalIsNewFirst: episodes, bf.OneRefusalHoldsAll: refused, bf.RefusedRowsEarn: refused,
    bf.SeedHasNumber: seeds, bf.ResetCountsAll: some, bf.IdsFromBehind: some, bf.SeedKeepsCount: seeds,
    bf.ResetZeroesFrames: some, bf.DepthIsShared: kept, bf.RefusedRowsDraw: refused, bf.ErrorsAreCounted: refused,
    bf.SnapshotWithoutWaves: restored, bf.SnapshotWithoutCount: restored, bf.LimitOfTheBatch: some,
    bf.MalformedMovesFrames: refused, bf.FlagsAreBooleans: episodes, rf.FirstStepActs: episodes,
    rf.WaitingRowsAreRefused: waiting, rf.WaitingRowsEarn: episodes, rf.NextBeginsAtOne: episodes,
    rf.RefusedMessages: refused, rf.MessagesCloseUp: refused, rf.RewardOfTheTeam: episodes, rf.MaskOfOthers: episodes,
    rf.NamesByNumber: names, rf.FirstEndAlone: episodes, rf.FirstErrorAlone: refused, rf.LongHintsAreCut: refused,
    rf.FlagsLinger: episodes, rf.RefusalCountsAsGuess: refused, rf.DrawsFromProcess: episodes,
    rf.MappingWithoutTeller: episodes, rf.LastIsCleared: episodes, rf.FirstResetOfSome: early,
}  # fmt: skip
