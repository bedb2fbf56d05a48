"""Faults of `Floats`, each one change."""

from __future__ import annotations

from typing import Any

import numpy as np

from hal import IllegalAction
from plugins.kit.faults.fault_set_f.batches import Arrays, Floats
from plugins.kit.faults.fault_set_f.common import fault

PART = "vector"


@fault(PART, "contract", "with same_step the true last observation is in extra_info")
class NoFinal(Floats):
    """The flag alone shows that a row has ended; no table has its last observation."""

    def finish(self, ended: np.ndarray) -> dict[str, Any]:
        super().finish(ended)
        return {}


@fault(PART, "contract", "the last observation of an episode is what its last action led to")
class FinalIsNewFirst(Floats):
    """The last observation is read after the next episode has begun."""

    def finish(self, ended: np.ndarray) -> dict[str, Any]:
        finished = super().finish(ended)
        if finished:
            ids = finished["final"]["index"]
            finished["final"]["observation"] = {name: value[ids] for name, value in self.seen().items()}
        return finished


@fault(PART, "6.2.1-6", "a refused row does not move, and the others do")
class OneRefusalHoldsAll(Floats):
    """An illegal action in one row holds all rows."""

    def act(self, moved: np.ndarray, values: Arrays) -> Any:
        moved[:] = moved.all()
        return super().act(moved, values)


@fault(PART, "contract", "a refused row has reward 0")
class RefusedRowsEarn(Floats):
    """A refused row gets the reward of the state in which it stays."""

    def act(self, moved: np.ndarray, values: Arrays) -> Any:
        super().act(moved, values)
        return -np.abs(self.depth).sum(axis=1)


@fault(PART, "contract", "a row does not depend on the number of rows")
class SeedHasNumber(Floats):
    """The generator of a row takes the number of environments too."""

    def generator(self, row: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, row, int(self.episodes[row]), self.num_envs])


@fault(PART, "contract", "a reset of some begins these rows alone")
class ResetCountsAll(Floats):
    """An episode that begins in some rows is counted in all rows, so that the others skip one later."""

    def begin(self, rows: np.ndarray) -> None:
        super().begin(rows)
        self.episodes[:] = self.episodes.max()


@fault(PART, "contract", "ids are numbers from 0 to N - 1")
class IdsFromBehind(Floats):
    """A negative number in ids counts from the last environment."""

    def chosen(self, ids: Any) -> np.ndarray:
        array = np.asarray(ids)
        near = array.dtype.kind == "i" and array.ndim == 1 and (array >= -self.num_envs).all()
        return super().chosen(np.unique(array % self.num_envs) if near and (array < 0).any() else ids)


@fault(PART, "6.2.2.1-3", "equal seeds give equal episodes")
class SeedKeepsCount(Floats):
    """A seed does not restart the count of episodes, so that the same seed gives others the second time."""

    def restart(self, seed: int) -> None:
        self.seed = seed


@fault(PART, "6.2.3.1-T1.frame_no", "a reset of some leaves the frame numbers of the others")
class ResetZeroesFrames(Floats):
    """A reset of some rows sets the frame numbers of all rows to 0."""

    def begin(self, rows: np.ndarray) -> None:
        super().begin(rows)
        self.frame[:] = 0


@fault(PART, "contract", "tables belong to their receiver")
class DepthIsShared(Floats):
    """The observed depths are the array of the batch, which later steps overwrite."""

    def seen(self) -> Arrays:
        return {**super().seen(), "depth": self.depth}


@fault(PART, "6.2.1-6", "a refused action changes nothing that follows")
class RefusedRowsDraw(Floats):
    """Waves are drawn for all rows, also for those that are refused, whose later waves differ."""

    def waves(self, moved: np.ndarray) -> np.ndarray:
        drawn = super().waves(np.ones_like(moved))
        return np.where(moved, drawn, self.wave)


@fault(PART, "6.2.3.1-7", "errors are reported by the row's number")
class ErrorsAreCounted(Floats):
    """Errors have the numbers 0, 1, ... in their order, in place of the numbers of their rows."""

    def step(self, action: Any, *extra: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        table, reward = super().step(action, *extra)
        if "error" in table["extra_info"]:
            table["extra_info"]["error"] = dict(enumerate(table["extra_info"]["error"].values()))
        return table, reward


@fault(PART, "contract", "from a snapshot all goes on as it did")
class SnapshotWithoutWaves(Floats):
    """A snapshot does not hold the generators, so that other waves come after it."""

    def load(self, row: int, saved: Any) -> None:
        super().load(row, (*saved[:3], self.rngs[row]))


@fault(PART, "contract", "from a snapshot all goes on as it did, over the ends of episodes too")
class SnapshotWithoutCount(Floats):
    """A snapshot does not hold the count of episodes, so that other episodes follow the one in it."""

    def restore(self, snapshot: list[Any], ids: Any = None) -> dict[str, Any]:
        episodes = self.episodes.copy()
        table = super().restore(snapshot, ids)
        self.episodes[:] = episodes
        return table


@fault(PART, "contract", "the time limit goes by the row's own frames")
class LimitOfTheBatch(Floats):
    """The limit counts the steps of the batch since its last reset, also for rows that began later."""

    count = 0

    def act(self, moved: np.ndarray, values: Arrays) -> Any:
        self.count += 1
        return super().act(moved, values)

    def ended(self) -> np.ndarray:
        lost = (self.depth > 4).any(axis=1)
        return np.array([lost, ~lost & (self.count % 12 == 0)])

    def reset(self, *options: Any) -> dict[str, Any]:
        table = super().reset(*options)
        self.count = 0 if "ids" not in dict(*options) else self.count
        return table


@fault(PART, "contract", "a malformed batch moves nobody")
class MalformedMovesFrames(Floats):
    """The frame numbers rise before the batch is found to be malformed."""

    def checked(self, action: Any, waiting: np.ndarray) -> tuple[Arrays, dict[int, Any]]:
        try:
            return super().checked(action, waiting)
        except IllegalAction:
            self.frame += 1
            raise


@fault(PART, "6.2.3.1-T1.truncated", "terminated and truncated are int32 of 0 or 1")
class FlagsAreBooleans(Floats):
    """The flags of a step are arrays of truth values."""

    def table(self, flags: np.ndarray, extra: dict[str, Any]) -> dict[str, Any]:
        return {**super().table(flags, extra), "terminated": flags[0].copy(), "truncated": flags[1].copy()}
