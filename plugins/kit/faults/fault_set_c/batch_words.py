"""Words to spell: texts in and out, in every row one; rows begin anew at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import rlenv_robot as rr
from fault_set_c.batch_shell import SEED, Batch, Values
from fault_set_c.registry import fault, original
from rlenv_robot.world import NOTHING

F = rr.Field
WORDS = ("ox", "lantern", "hippopotamus", "Straße", "机器人", "rhododendron", "ibis", "kiwi")


@original
class Words(Batch):
    style = "own class, texts in and out, same_step"
    steps = 4
    observation = rr.Spec("words_observation", (
        F("word", (), "text", meaning="to spell", characters=16), F("done", (), "int32", 0, 4, "1", "words so far"),
    ))  # fmt: skip
    action = rr.Spec("words_action", (F("spelling", (), "text", meaning="of the word", characters=16),))
    description = rr.EnvDescription(
        "Spell four words.",
        F("reward", (), "float64", 0, 1, "1", "1 for a right spelling"),
        {"seed": SEED, "ids": "ascending numbers of the rows to reset"},
        extra_info={"final": "of the rows that ended", "error": "row -> error"},
    )

    def build(self) -> None:
        self.words = [""] * self.num_envs

    def start(self, row: int) -> None:
        self.words[row] = WORDS[int(self.rngs[row].integers(len(WORDS)))]

    def advance(self, values: Values, extra: Values, moved: np.ndarray):
        reward = (np.array(self.words) == values["spelling"]).astype(float)
        for row in np.flatnonzero(moved).tolist():
            self.start(row)
        return reward

    def observe(self) -> Values:
        return {"word": np.array(self.words, "<U16"), "done": self.frame.copy()}


@fault("6.2.2.1-2", "subtle", "a reset of some rows draws other words in the rows that are not named")
class WordsDrawsOthers(Words):
    def begin(self, rows: np.ndarray) -> None:
        super().begin(rows)
        for row in np.setdiff1d(np.arange(self.num_envs), rows).tolist():
            self.start(row)


@fault("6.2.3.2-T2.frame_no", "ordinary", "frame numbers of the actions are not compared")
class WordsAnyFrame(Words):
    def read(self, action, over: np.ndarray, waiting: np.ndarray) -> tuple[Values, dict[int, Any]]:
        if isinstance(action, Mapping) and np.shape(action.get("frame_no")) == self.frame.shape:
            action = {**action, "frame_no": self.frame}
        return super().read(action, over, waiting)


@fault("6.2.3.2-T2.env_id", "ordinary", "the ids in Table 2 are not compared: another batch's actions are executed")
class WordsAnyBatch(Words):
    def read(self, action, over: np.ndarray, waiting: np.ndarray) -> tuple[Values, dict[int, Any]]:
        named = isinstance(action, Mapping) and "env_id" in action
        return super().read({**action, "env_id": self.env_ids} if named else action, over, waiting)


@fault("6.2.3.2-T2.action", "ordinary", "one text without the axis of rows is taken for all rows")
class WordsBroadcasts(Words):
    def read(self, action, over: np.ndarray, waiting: np.ndarray) -> tuple[Values, dict[int, Any]]:
        said = action["action"].get("spelling") if isinstance(action, Mapping) and "action" in action else None
        if isinstance(said, str) or (np.shape(said) == () and isinstance(said, np.ndarray)):
            action = {**action, "action": {"spelling": np.broadcast_to(said, self.num_envs)}}
        return super().read(action, over, waiting)


@fault("6.2.1-7", "obvious", "a batch without an action is a KeyError")
class WordsKeyError(Words):
    def read(self, action, over: np.ndarray, waiting: np.ndarray) -> tuple[Values, dict[int, Any]]:
        action["action"]["spelling"]
        return super().read(action, over, waiting)


@fault("6.2.2.1-3", "ordinary", "a seed does not restart the count of episodes, so that the same seed gives others")
class WordsCountsOn(Words):
    def take_seed(self, seed: int) -> None:
        self.seed = seed


@fault("6.2.1-2", "obvious", "a step before the first reset is a TypeError")
class WordsTypeError(Words):
    def step(self, action, extra_info: Mapping[str, Any] = NOTHING):
        if not self.began:
            raise TypeError("'NoneType' object is not subscriptable")
        return super().step(action, extra_info)


@fault("6.2.3.3-T3.env_id", "obvious", "Table 3 has the number of rows in place of their ids")
class WordsNumber(Words):
    def paid(self, reward) -> dict[str, Any]:
        return {**super().paid(reward), "env_id": self.num_envs}
