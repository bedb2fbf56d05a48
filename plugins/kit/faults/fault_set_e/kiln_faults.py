"""Faults of the kilns."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlenv_robot as rr

from .common import NOTHING, fault
from .kilns import Kilns, KilnsThatWait

# -- Seeds and generators


@fault("vector", "contract", "an environment's episodes don't depend on the number of environments")
class GustsFromOneStream(Kilns):
    """All rows draw their gusts from row 0's generator."""

    def begin(self, ids: Any) -> None:
        super().begin(ids)
        self.rngs = [self.rngs[0]] * self.num_envs


@fault("vector", "contract", "environment i draws its episodes from (seed, i, episode)")
class EveryEpisodeTheSame(Kilns):
    """The count of episodes does not enter the seed, so a row repeats its first episode."""

    def generator(self, i: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, i])


@fault("vector", "contract", "environment i draws its episodes from (seed, i, episode)")
class NeighbouringSeedsMeet(Kilns):
    """Seed, row and episode are added, so row 1's first episode is row 0's second one."""

    def generator(self, i: int) -> np.random.Generator:
        return np.random.default_rng(self.seed + i + int(self.episode[i]))


@fault("vector", "contract", "seed restarts the count of episodes of all")
class SeedKeepsTheCount(Kilns):
    """A seed does not restart the count of episodes, so the same seed begins other episodes the second time."""

    def restart(self) -> None:
        pass


@fault("vector", "6.2.2.1-3", "seed fixes the randomness of the initial state")
class SeedZeroIsNone(Kilns):
    """The seed 0 counts as no seed."""

    def reset(self, options: Any = NOTHING) -> dict[str, Any]:
        given = dict(options)
        if not given.get("seed", True) and type(given["seed"]) is int:
            del given["seed"]
        return super().reset(given)


@fault("vector", "contract", "nor the process's generators change its episodes")
class GustsOfTheProcess(Kilns):
    """Gusts come from NumPy's global generator."""

    def move(self, moves: np.ndarray, heat: np.ndarray, vent: np.ndarray) -> None:
        kept = self.rngs
        self.rngs = [np.random] * self.num_envs  # type: ignore[list-item]
        super().move(moves, heat, vent)
        self.rngs = kept


@fault("vector", "contract", "an illegal action leaves no trace in the later episode")
class RefusedGusts(Kilns):
    """A refused row draws its gust all the same, so what follows differs."""

    def move(self, moves: np.ndarray, heat: np.ndarray, vent: np.ndarray) -> None:
        for i in self.error:
            self.rngs[i].normal(0, 2, 2)
        super().move(moves, heat, vent)


# -- Actions


@fault("vector", "6.2.1-6", "the adapter does not execute an illegal action")
class SecondBurnerUnchecked(Kilns):
    """Only the first burner's share is compared with its range."""

    def violation(self, i: int, heat: np.ndarray, vent: Any, frame_no: Any) -> Any:
        error = super().violation(i, heat, vent, frame_no)
        return None if error and error[:3] == ("range", "action.heat", [1]) else error


@fault("vector", "6.2.1-6", "the adapter does not execute an illegal action")
class VentOfFour(Kilns):
    """Four vents are let through, where three exist."""

    def violation(self, i: int, heat: np.ndarray, vent: Any, frame_no: Any) -> Any:
        return super().violation(i, heat, vent if vent != 4 else 3, frame_no)


@fault("vector", "6.2.1-6", "an environment with an illegal action (not finite) does not move")
class NanIsNoHeat(Kilns):
    """A share that is NaN burns as 0."""

    def read(self, action: Any, extra_info: Any) -> Any:
        heat, vent, frame_no = super().read(action, extra_info)
        return np.where(np.isnan(heat.astype(float)), 0, heat), vent, frame_no


@fault("vector", "contract", "a stale frame_no is illegal")
class OldFramesAccepted(Kilns):
    """Only a frame number of the future is refused, not a stale one."""

    def violation(self, i: int, heat: np.ndarray, vent: Any, frame_no: Any) -> Any:
        return super().violation(i, heat, vent, max(int(frame_no), int(self.frame_no[i])))


@fault("vector", "contract", "an environment with an illegal action does not move; the others do")
class OneRefusedStopsAll(Kilns):
    """While a row is refused, no row moves."""

    def violations(self, *args: Any) -> dict[int, dict[str, Any]]:
        found = super().violations(*args)
        self.blocked = bool(found)
        return found

    def move(self, moves: np.ndarray, heat: np.ndarray, vent: np.ndarray) -> None:
        if self.blocked:
            moves[:] = False
        super().move(moves, heat, vent)


@fault("vector", "contract", "its frame_no stays")
class RefusedFrameCounts(Kilns):
    """A refused row's frame number goes on."""

    def move(self, moves: np.ndarray, heat: np.ndarray, vent: np.ndarray) -> None:
        self.frame_no[list(self.error)] += 1
        super().move(moves, heat, vent)


@fault("vector", "contract", "a refused row's reward is 0")
class RewardsMoveUp(Kilns):
    """The rewards of the rows that moved fill the first places, so a refused row gets another one's."""

    def reward_table(self, table: dict[str, Any], reward: np.ndarray) -> dict[str, Any]:
        moved = [i for i in range(self.num_envs) if i not in self.error]
        packed = np.zeros_like(reward)
        packed[: len(moved)] = reward[moved]
        return super().reward_table(table, packed)


@fault("vector", "contract", "error maps its number to {code, field, index, message}")
class ErrorsByOrder(Kilns):
    """Errors are numbered from 0 in the order of their rows, not by the rows' numbers."""

    def extra(self) -> dict[str, Any]:
        extra = super().extra()
        if "error" in extra:
            extra["error"] = dict(enumerate(extra["error"].values()))
        return extra


@fault("vector", "6.2.3.1-7", "after an illegal action, extra_info contains an error message; of this step alone")
class ErrorsStay(Kilns):
    """An error is shown until the next reset of all."""

    def violations(self, *args: Any) -> dict[int, dict[str, Any]]:
        found = super().violations(*args)
        self.shown = getattr(self, "shown", {}) | found
        return found

    def reset(self, options: Any = NOTHING) -> dict[str, Any]:
        self.shown: dict[int, Any] = {}
        return super().reset(options)

    def extra(self) -> dict[str, Any]:
        return super().extra() | ({"error": dict(self.shown)} if self.shown else {})


@fault("vector", "contract", "Table 2 of the caller is not changed")
class HeatInPercent(Kilns):
    """The caller's array of shares is scaled in place."""

    def read(self, action: Any, extra_info: Any) -> Any:
        read = super().read(action, extra_info)
        heat = action["action"]["heat"]
        if isinstance(heat, np.ndarray) and heat.flags.writeable:
            heat *= 100
        return read


@fault("vector", "contract", "a malformed batch moves nobody")
class MalformedCountsAFrame(Kilns):
    """The frame numbers have gone on before a malformed batch is refused."""

    def read(self, action: Any, extra_info: Any) -> Any:
        try:
            return super().read(action, extra_info)
        except rr.IllegalAction:
            self.frame_no += 1
            raise


@fault("vector", "contract", "its behaviour does not depend on the other environments")
class HeatFromTheNeighbour(Kilns):
    """A kiln's wall is warmed by the row before it."""

    def move(self, moves: np.ndarray, heat: np.ndarray, vent: np.ndarray) -> None:
        super().move(moves, heat, vent)
        warm = self.zones.mean(1)
        for i in np.flatnonzero(moves)[1:]:
            self.wall[i] += 0.01 * (warm[i - 1] - self.wall[i])


# -- Ends


@fault("vector", "contract", "its behaviour does not depend on the other environments")
class LimitOfTheBatch(Kilns):
    """The time limit counts steps of the batch since its reset, not frames of the row's episode."""

    ticks = 0

    def begin(self, ids: Any) -> None:
        super().begin(ids)
        if len(ids) == self.num_envs:
            self.ticks = 0

    def judge(self, moves: np.ndarray) -> None:
        self.ticks += 1
        super().judge(moves)
        self.truncated[moves & (self.terminated == 0)] = int(self.ticks % self.limit == 0)


@fault("vector", "contract", "the true last observation is in final")
class FinalOfTheNext(Kilns):
    """The next episode has begun before the last observation is kept."""

    def last(self, ended: np.ndarray, reason: str) -> dict[str, Any]:
        final = super().last(ended, reason)
        kept = self.terminated.copy(), self.truncated.copy()
        self.begin(np.flatnonzero(ended))
        self.episode[ended] -= 1
        final["observation"] = {name: value[ended] for name, value in self.seen().items()}
        self.terminated, self.truncated = kept
        return final


@fault("vector", "contract", "index names the environments that ended")
class FinalFromTheFront(Kilns):
    """The index of the ended rows counts from 0."""

    def last(self, ended: np.ndarray, reason: str) -> dict[str, Any]:
        return super().last(ended, reason) | {"index": np.arange(ended.sum())}


@fault("vector", "contract", "final names the environments that ended in this step")
class FinalStays(Kilns):
    """The newest ends are shown again in each table until others follow."""

    def extra(self) -> dict[str, Any]:
        if self.final is None:
            self.final = getattr(self, "ended_before", None)
        self.ended_before = self.final
        return super().extra()


@fault("vector", "contract", "in same_step the observation is the new episode's first and frame_no 0")
class FrameGoesOn(Kilns):
    """The frame number of a row that ended is shown with the next episode's first observation."""

    def after(self, ended: np.ndarray, begins: np.ndarray, reason: str = "") -> Any:
        before = self.frame_no.copy()
        flags = super().after(ended, begins, reason)
        self.frame_no[ended] = before[ended]
        return flags


@fault("vector", "contract", "hidden state is that of the same frame as the observation")
class StateOfTheEnded(Kilns):
    """Of a row that ended, the hidden state is the old episode's beside the new one's observation."""

    def after(self, ended: np.ndarray, begins: np.ndarray, reason: str = "") -> Any:
        self.walls = self.wall.copy()
        return super().after(ended, begins, reason)

    def step(self, action: Any, extra_info: Any = NOTHING) -> Any:
        table, reward = super().step(action, extra_info)
        table["extra_info"]["state"] = {"wall_temperature": self.walls.copy()}
        return table, reward


@fault("vector", "contract", "a disabled environment stays in its last state until its reset")
class WaitingKilnsGoOn(KilnsThatWait):
    """A row that ended goes on with each legal action."""

    def violation(self, i: int, heat: np.ndarray, vent: Any, frame_no: Any) -> Any:
        kept = self.terminated[i], self.truncated[i]
        self.terminated[i] = self.truncated[i] = 0
        error = super().violation(i, heat, vent, frame_no)
        self.terminated[i], self.truncated[i] = kept
        return error


@fault("vector", "contract", "every table until then has its flag")
class WaitingFlagsFall(KilnsThatWait):
    """The flag of a row that ended is shown once, and 0 afterwards, though its actions are refused."""

    def step(self, action: Any, extra_info: Any = NOTHING) -> Any:
        over = (self.terminated | self.truncated) == 1
        table, reward = super().step(action, extra_info)
        table["terminated"][over] = table["truncated"][over] = 0
        return table, reward


@fault("vector", "contract", "reset begins an episode in options['ids'] alone")
class ResetOfSomeFreesAll(KilnsThatWait):
    """A reset of some takes the flags of all rows away."""

    def begin(self, ids: Any) -> None:
        super().begin(ids)
        self.terminated[:] = self.truncated[:] = 0


# -- Resets, snapshots, close


@fault("vector", "contract", "an empty list of ids begins none")
class EmptyIdsMeanAll(Kilns):
    """A reset of no rows begins all."""

    def read_options(self, options: Any) -> np.ndarray:
        rows = super().read_options(options)
        return rows if len(rows) else np.arange(self.num_envs)


@fault("vector", "contract", "reset begins an episode in options['ids'] alone")
class IdsAsABlock(Kilns):
    """All rows between the first and the last id are reset."""

    def read_ids(self, ids: Any) -> np.ndarray:
        rows = super().read_ids(ids)
        return np.arange(rows[0], rows[-1] + 1) if len(rows) else rows


@fault("vector", "contract", "ids are numbers from 0 to N - 1")
class NegativeIds(Kilns):
    """A negative id counts from the end."""

    def read_ids(self, ids: Any) -> np.ndarray:
        if isinstance(ids, list) and len(ids) == 1 and type(ids[0]) is int and -self.num_envs <= ids[0] < 0:
            ids = [ids[0] + self.num_envs]
        return super().read_ids(ids)


@fault("vector", "contract", "a reset that is refused leaves the running episode alone, or ends it")
class RefusedResetCounts(Kilns):
    """The count of episodes has gone on when wrong ids are refused, so the next episodes are others."""

    def read_ids(self, ids: Any) -> np.ndarray:
        try:
            return super().read_ids(ids)
        except ValueError:
            self.episode += 1
            raise


@fault("vector", "contract", "an option that is unknown is refused, and begins no other episode")
class UnknownOptionBegins(Kilns):
    """All rows have begun anew when an unknown option is refused."""

    def read_options(self, options: Any) -> np.ndarray:
        if self.started and set(options) - {"seed", "ids"}:
            self.begin(range(self.num_envs))
        return super().read_options(options)


@fault("vector", "6.2.3.1-T1.env_id", "env_id is unique among instances of environments")
class NamesOfTheRowAlone(Kilns):
    """Two batches have the same names."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.env_ids = [f"kiln-{row}" for row in range(num_envs)]


@fault("vector", "6.2.3.1-T1.observation", "tables belong to their receiver")
class ZonesAreShown(Kilns):
    """Tables hold the batch's own array of temperatures, so a kept table changes with the next step."""

    def seen(self) -> dict[str, np.ndarray]:
        return super().seen() | {"zone_temperature": self.zones}


@fault("vector", "contract", "tables belong to their receiver")
class GoalIsShared(Kilns):
    """What a receiver writes into the goals of a table becomes the goals of the kilns."""

    def seen(self) -> dict[str, np.ndarray]:
        return super().seen() | {"goal": self.goal}


@fault("vector", "6.4-b", "an observation stays in its range")
class FuelOnCredit(Kilns):
    """The fuel sinks below 0."""

    def move(self, moves: np.ndarray, heat: np.ndarray, vent: np.ndarray) -> None:
        before = self.fuel.copy()
        super().move(moves, heat, vent)
        self.fuel[moves] = np.where(self.fuel[moves] == 0, before[moves] - 0.4 * heat[moves].sum(1), self.fuel[moves])

    def judge(self, moves: np.ndarray) -> None:
        empty = moves & (self.fuel <= 0)
        super().judge(moves)
        self.terminated[empty] = 1
        self.truncated[empty] = 0


@fault("vector", "6.2.3.3-T3.frame_no", "Tables 1 and 3 have the same frame_no")
class RewardOfTheFrameBefore(Kilns):
    """Table 3 has the frame numbers of before the step."""

    def step(self, action: Any, extra_info: Any = NOTHING) -> Any:
        before = self.frame_no.copy()
        table, reward = super().step(action, extra_info)
        return table, reward | {"frame_no": before}


@fault("vector", "contract", "after a restore everything is repeated bit for bit")
class SnapshotWithoutWalls(Kilns):
    """A snapshot leaves out the walls' temperatures."""

    def row(self, i: int) -> dict[str, Any]:
        row = super().row(i)
        del row["wall"]
        return row


@fault("vector", "contract", "after a restore everything is repeated bit for bit")
class SnapshotOfLiveGenerators(Kilns):
    """A snapshot refers to the generators of the kilns, which go on."""

    def snapshot(self, ids: Any = None) -> dict[str, Any]:
        kept = super().snapshot(ids)
        rows = range(self.num_envs) if ids is None else ids
        for i, row in zip(rows, kept["rows"], strict=True):
            row["rngs"] = self.rngs[i]
        return kept


@fault("vector", "contract", "an end that is refused changes nothing")
class RefusedEndEndsSome(KilnsThatWait):
    """An end that names a running row before one that has ended ends the running one, and is refused."""

    def end(self, reason: str, ids: Any = None) -> dict[str, Any]:
        if ids is not None and self.started and not self.closed:
            rows = self.read_ids(ids)
            for i in rows:
                if self.terminated[i] or self.truncated[i]:
                    raise rr.EpisodeError(f"the episode of {i} has ended already")
                self.truncated[i] = 1
            self.truncated[rows] = 0
        return super().end(reason, ids)


@fault("vector", "contract", "close is safe to call more than once")
class CloseOnce(Kilns):
    """A second close fails."""

    def close(self) -> None:
        self.check_open()
        super().close()


@fault("vector", "contract", "a call after close is refused")
class ClosedKilnsReset(Kilns):
    """A reset opens a closed batch again."""

    def reset(self, options: Any = NOTHING) -> dict[str, Any]:
        self.closed = False
        return super().reset(options)
