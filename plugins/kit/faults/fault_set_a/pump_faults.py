"""Faults of the batch of pumps."""

from __future__ import annotations

import numpy as np

import rlenv_robot as rr
from fault_set_a.pumps import Pumps, PumpsAtOnce, PumpsThen
from fault_set_a.registry import fault
from rlenv_robot.tables import StepExtra
from rlenv_robot.vector.validate import check_extra
from rlenv_robot.world import NOTHING

# -- rows ------------------------------------------------------------------------------------------------------------


@fault("contract", "rows")
class PushOfAll(Pumps):
    """The drive of a row is blended with the mean of all rows: a mean over the wrong axis."""

    def move(self, values, moved):
        drive = values["drive"]
        super().move({**values, "drive": (0.8 * drive + 0.2 * drive.mean(axis=0)).astype(np.float32)}, moved)


@fault("contract", "rows")
class RowsReversed(Pumps):
    """The actions are taken in the reverse order of rows."""

    def move(self, values, moved):
        super().move({name: value[::-1] for name, value in values.items()}, moved)


@fault("contract", "partial")
class PressureOfTheOthers(Pumps):
    """The observed pressure is sorted over the rows."""

    def observed(self):
        seen = super().observed()
        return {**seen, "pressure": np.sort(seen["pressure"])}


@fault("6.2.2.2-4", "one")
class OneIsNoBatch(Pumps):
    """A batch of one has no leading axis: the rewards are squeezed."""

    def paid(self, reward):
        return super().paid(np.squeeze(reward))


@fault("contract", "numbers")
class SeedWithTheNumber(Pumps):
    """The draws of a row depend on the number of environments."""

    def generator(self, row):
        return np.random.default_rng([self.seed + self.num_envs, row, self.episodes[row]])


@fault("contract", "numbers")
class OneGenerator(Pumps):
    """All rows draw from one generator, so the draws of one depend on those of the others."""

    def take_seed(self, seed):
        super().take_seed(seed)
        self.shared = np.random.default_rng(seed)

    def generator(self, row):
        self.shared = getattr(self, "shared", None) or np.random.default_rng(self.seed)
        return self.shared


@fault("contract", "seeds")
class EqualRows(Pumps):
    """All rows draw the same episodes, since the row is not in the seed."""

    def generator(self, row):
        return np.random.default_rng([self.seed, self.episodes[row]])


@fault("6.2.2.1-3", "seeds")
class SeedsGoOn(Pumps):
    """A seed does not restart the count of episodes, so the same seed begins otherwise the second time."""

    def take_seed(self, seed):
        self.seed = seed


@fault("6.2.2.1-3", "seeds")
class SeedOfTheFirstRow(Pumps):
    """The seed reaches the first row alone; the others draw from the operating system."""

    def generator(self, row):
        return super().generator(row) if row == 0 else np.random.default_rng()


@fault("6.2.2.1-3", "seeds")
class NoiseWithoutSeed(Pumps):
    """The noise of the steps comes from a generator that the seed does not reach, unlike the starts."""

    def move(self, values, moved):
        self.rngs = [np.random.default_rng() for _ in self.rngs]
        super().move(values, moved)


# -- refusals --------------------------------------------------------------------------------------------------------


@fault("contract", "refusals")
class OneStopsAll(Pumps):
    """No row moves in a step in which one row's action is refused."""

    def moving(self, moved, errors):
        return moved & (not errors)


@fault("contract", "refusals")
class OneRaisesForAll(Pumps):
    """An action out of range in one row raises IllegalAction for the batch."""

    def checked(self, action, over, waiting):
        values, errors = super().checked(action, over, waiting)
        for row, error in errors.items():
            if error["code"] == "range":
                raise rr.IllegalAction(rr.Violation("range", error["field"], (row,), error["message"]))
        return values, errors


@fault("6.2.1-6", "refusals")
class ClipsRows(Pumps):
    """A drive out of range is clipped and executed."""

    def checked(self, action, over, waiting):
        values = action.get("action") if isinstance(action, dict) else None
        if isinstance(values, dict) and np.asarray(values.get("drive", "")).dtype.kind == "f":
            action = {**action, "action": {**values, "drive": np.clip(values["drive"], -1, 1)}}
        return super().checked(action, over, waiting)


@fault("6.2.3.1-7", "refusals")
class ErrorsByPlace(Pumps):
    """The errors are numbered by their place among the refused rows instead of the row."""

    def table(self, extra, terminated=False, truncated=False):
        if "error" in extra:
            extra = {**extra, "error": dict(enumerate(extra["error"].values()))}
        return super().table(extra, terminated, truncated)


@fault("6.2.1-7", "refusals")
class FirstErrorAlone(Pumps):
    """Of several refused rows only the first one is told."""

    def table(self, extra, terminated=False, truncated=False):
        if "error" in extra:
            extra = {**extra, "error": dict(list(extra["error"].items())[:1])}
        return super().table(extra, terminated, truncated)


@fault("6.2.1-7", "refusals")
class SilentRefusals(Pumps):
    """A row that is refused does not move, and nothing says so."""

    def table(self, extra, terminated=False, truncated=False):
        return super().table({key: value for key, value in extra.items() if key != "error"}, terminated, truncated)


@fault("6.2.1-6", "refusals")
class RefusedRowsCount(Pumps):
    """frame_no of a refused row goes on."""

    def moving(self, moved, errors):
        self.frame[[row for row, error in errors.items() if error["code"] == "range"]] += 1
        return moved


@fault("contract", "refusals")
class RefusedRowsEarn(Pumps):
    """A refused row gets the reward of its state instead of 0."""

    def reward(self, moved):
        return super().reward(np.ones(self.num_envs, bool))


@fault("6.2.1-6", "refusals")
class RefusedRowsDraw(Pumps):
    """A refused row draws the noise of a step, so its later steps differ."""

    def moving(self, moved, errors):
        for row in errors:
            self.rngs[row].normal(0, 0.02, 2)
        return moved


@fault("6.2.1-6", "refusals")
class RefusedRowsRoll(Pumps):
    """The wheels of a refused row slow down, so the refused action changes its state."""

    def moving(self, moved, errors):
        self.speed[list(errors)] *= 0.5
        return moved


@fault("6.2.1-6", "refusals")
class StaleRows(Pumps):
    """A row with an old frame_no is executed."""

    def checked(self, action, over, waiting):
        sent = action.get("frame_no") if isinstance(action, dict) else None
        if isinstance(sent, np.ndarray) and sent.shape == self.frame.shape:
            action = {**action, "frame_no": self.frame.copy()}
        return super().checked(action, over, waiting)


@fault("6.2.1-6", "refusals")
class NanRows(Pumps):
    """A drive of NaN is executed as 0, since it is neither below nor above its range."""

    def checked(self, action, over, waiting):
        values = action.get("action") if isinstance(action, dict) else None
        if isinstance(values, dict) and np.asarray(values.get("drive", "")).dtype.kind == "f":
            action = {**action, "action": {**values, "drive": np.where(np.isnan(values["drive"]), 0, values["drive"])}}
        return super().checked(action, over, waiting)


@fault("contract", "malformed")
class MissingRowsAreFilled(Pumps):
    """A batch of one action is broadcast to all rows instead of refused as malformed."""

    def checked(self, action, over, waiting):
        values = action.get("action") if isinstance(action, dict) else None
        if isinstance(values, dict) and np.shape(values.get("drive")) == (1, 2) and "gear" in values:
            wide = {
                "drive": np.repeat(values["drive"], self.num_envs, 0),
                "gear": np.repeat(values["gear"], self.num_envs),
            }
            action = {**action, "action": wide}
        return super().checked(action, over, waiting)


@fault("contract", "malformed")
class AnyBatch(Pumps):
    """Actions with the ids of another batch are executed."""

    def checked(self, action, over, waiting):
        known = isinstance(action, dict) and "env_id" in action
        return super().checked({**action, "env_id": self.env_ids} if known else action, over, waiting)


@fault("contract", "malformed")
class ExtraTooLate(Pumps):
    """A batch with a wrong extra_info is refused after its rows have moved."""

    def step(self, action, extra_info=NOTHING, *, refused=None):
        answer = super().step(action, refused=refused)
        check_extra(StepExtra(), extra_info, self.num_envs)
        return answer


# -- resets of some --------------------------------------------------------------------------------------------------


@fault("contract", "partial")
class SomeIsAll(Pumps):
    """A reset of some rows resets all."""

    def rows(self, ids):
        rows = super().rows(ids)
        return np.arange(self.num_envs) if len(rows) else rows


@fault("contract", "partial")
class TableOfSome(Pumps):
    """A reset of some rows returns the observation of those rows alone."""

    def reset(self, options=NOTHING):
        table, ids = super().reset(options), options.get("ids")
        if ids is None:
            return table
        rows = np.asarray(ids, int)
        return {**table, "observation": {name: value[rows] for name, value in table["observation"].items()}}


@fault("contract", "partial")
class FrameAfterPartialReset(Pumps):
    """A reset of some rows leaves their frame_no."""

    def reset(self, options=NOTHING):
        before = self.frame.copy()
        table = super().reset(options)
        if options.get("ids") is None:
            return table
        self.frame = before
        return self.table({})


@fault("contract", "partial")
class FlagAfterPartialReset(Pumps):
    """A reset of some rows leaves their flags in the table that it returns."""

    def reset(self, options=NOTHING):
        flags = self.table({})
        kept = {} if options.get("ids") is None else {name: flags[name] for name in ("terminated", "truncated")}
        return {**super().reset(options), **kept}


@fault("contract", "partial")
class LastRowByMinusOne(Pumps):
    """ids may be negative and in any order, as NumPy's indices may."""

    def rows(self, ids):
        return super().rows(None) if ids is None else np.unique(np.arange(self.num_envs)[np.asarray(ids, int)])


@fault("contract", "order")
class SomeBeforeAll(Pumps):
    """A reset of some rows before the first reset of all is accepted, and the other rows move from a state of zeros."""

    def rows(self, ids):
        self.begun, self.over[:] = True, self.over & self.begun
        return super().rows(ids)


# -- ends ------------------------------------------------------------------------------------------------------------


@fault("contract", "ends")
class FlagOnce(Pumps):
    """With autoreset disabled the flag of an ended row is there in its last step alone."""

    def table(self, extra, terminated=False, truncated=False):
        ends = {"terminated": terminated, "truncated": truncated}
        now = {name: (np.zeros(self.num_envs, bool) | flag).astype(np.int32) for name, flag in ends.items()}
        return {**super().table(extra, terminated, truncated), **now}


@fault("contract", "ends")
class EndedRowsMove(Pumps):
    """With autoreset disabled a row goes on moving after its end."""

    def checked(self, action, over, waiting):
        return super().checked(action, np.zeros(self.num_envs, bool), waiting)


@fault("contract", "ends")
class EndedRowsAreSilent(Pumps):
    """With autoreset disabled an action for an ended row is not executed, and no error tells it."""

    def checked(self, action, over, waiting):
        values, errors = super().checked(action, over, waiting)
        self.quiet = over.copy()
        return values, {row: error for row, error in errors.items() if error["code"] != "ended"}

    def moving(self, moved, errors):
        return moved & ~self.quiet


@fault("contract", "ends")
class OneEndsAll(Pumps):
    """Where one row ends, all rows end."""

    def ended(self, terminated, truncated):
        if terminated.any():
            terminated |= True
        return super().ended(terminated, truncated)


@fault("contract", "ends")
class NoFinal(PumpsAtOnce):
    """The true last observation of an episode is nowhere."""

    def ended(self, terminated, truncated):
        super().ended(terminated, truncated)
        return {}


@fault("contract", "ends")
class FinalOfTheNext(PumpsAtOnce):
    """final has the first observation of the next episode, since it is taken after the reset."""

    def ended(self, terminated, truncated):
        extra = super().ended(terminated, truncated)
        if extra:
            rows = extra["final"]["index"]
            extra["final"]["observation"] = {name: value[rows] for name, value in self.observed().items()}
        return extra


@fault("contract", "ends")
class FinalByMask(PumpsAtOnce):
    """final's index is a mask of all rows instead of the numbers of the ended ones."""

    def final(self, rows):
        return {**super().final(rows), "index": np.isin(np.arange(self.num_envs), rows).astype(np.int32)}


@fault("contract", "ends")
class FinalOfAll(PumpsAtOnce):
    """final has the observations of all rows, not of the ended ones that index names."""

    def final(self, rows):
        return {**super().final(rows), "observation": self.observed()}


@fault("contract", "ends")
class FrameGoesOn(PumpsAtOnce):
    """frame_no counts on where the task has ended an episode and the next one has begun within the step."""

    def ended(self, terminated, truncated):
        frame = self.frame.copy()
        extra = super().ended(terminated, truncated)
        self.frame = np.where(terminated, frame, self.frame)
        return extra


@fault("contract", "ends")
class FlagsAreLost(PumpsAtOnce):
    """The flags of an ended row are 0, as the next episode has begun."""

    def table(self, extra, terminated=False, truncated=False):
        return super().table(extra)


@fault("contract", "ends")
class AlwaysTheFirstEpisode(PumpsAtOnce):
    """Each later episode of a row is drawn as its first one."""

    def generator(self, row):
        return np.random.default_rng([self.seed, row, 0])


@fault("contract", "ends")
class ActsWhileItBegins(PumpsThen):
    """The step that begins the next episode executes the action, so its frame_no is 1."""

    def step(self, action, extra_info=NOTHING, *, refused=None):
        waiting = self.over.copy()
        table, reward = super().step(action, extra_info, refused=refused)
        if waiting.any():
            self.move({name: np.asarray(value) for name, value in action["action"].items()}, waiting)
            self.frame[waiting] += 1
        table = self.table(table["extra_info"], table["terminated"] > 0, table["truncated"] > 0)
        return table, self.paid(reward["reward"])


@fault("contract", "ends")
class EarnsWhileItBegins(PumpsThen):
    """The step that begins the next episode has the reward of the ended one again."""

    def reward(self, moved):
        return super().reward(moved | self.over)


@fault("contract", "ends")
class ChecksWhileItBegins(PumpsThen):
    """An action out of range is refused in the step that ignores it, and the next episode does not begin."""

    def judged(self, action, extra_info):
        values, errors = super().checked(action, np.zeros(self.num_envs, bool), None)
        check_extra(StepExtra(), extra_info, self.num_envs)
        return values, errors, self.over & ~np.isin(np.arange(self.num_envs), list(errors))


@fault("contract", "ends")
class AllBeginTogether(PumpsThen):
    """Where one row begins its next episode, all rows do."""

    def begin(self, rows):
        super().begin(np.arange(self.num_envs))


@fault("contract", "ends")
class FlagWhileItBegins(PumpsThen):
    """The first frame of the next episode still has the flag of the ended one."""

    def step(self, action, extra_info=NOTHING, *, refused=None):
        over = self.over & self.by_task
        table, reward = super().step(action, extra_info, refused=refused)
        return {**table, "terminated": table["terminated"] | over.astype(np.int32)}, reward


# -- tables ----------------------------------------------------------------------------------------------------------


@fault("6.2.3.1-T1.frame_no", "reset")
class FramesOfFloats(Pumps):
    """frame_no is an array of float64."""

    def table(self, extra, terminated=False, truncated=False):
        return {**super().table(extra, terminated, truncated), "frame_no": self.frame.astype(float)}


@fault("6.2.3.1-T1.terminated", "reset")
class FlagsOfBools(Pumps):
    """terminated and truncated are arrays of bool."""

    def table(self, extra, terminated=False, truncated=False):
        table = super().table(extra, terminated, truncated)
        return {**table, "terminated": table["terminated"] > 0, "truncated": table["truncated"] > 0}


@fault("6.2.3.3-T3.reward", "steps")
class RewardsInColumns(Pumps):
    """The rewards have the shape (N, 1) instead of (N,)."""

    def paid(self, reward):
        return super().paid(reward[:, None])


@fault("6.2.3.1-T1.env_id", "reset")
class RowsOfOneName(Pumps):
    """All rows have the same env_id."""

    def new_id(self):
        return f"pumps-{id(self):x}"


@fault("6.4-b", "reset")
class PressureInDouble(Pumps):
    """pressure is float64 and described as float32."""

    def observed(self):
        return {**super().observed(), "pressure": self.pressure.copy()}


@fault("6.4-b", "reset")
class Transposed(Pumps):
    """speed has the shape (2, N) instead of (N, 2)."""

    def observed(self):
        seen = super().observed()
        return {**seen, "speed": seen["speed"].T.copy()}


@fault("6.2.3.1-T1.frame_no", "steps")
class FrameIsLive(Pumps):
    """frame_no is the batch's own array, so a table that was returned earlier counts on."""

    def table(self, extra, terminated=False, truncated=False):
        return {**super().table(extra, terminated, truncated), "frame_no": self.frame}


@fault("6.2.3.1-T1.observation", "steps")
class ClockIsLive(Pumps):
    """clock is the batch's own array, so observations that were returned earlier change."""

    def observed(self):
        return {**super().observed(), "clock": self.frame}


@fault("contract", "caller")
class ScalesInPlace(Pumps):
    """step scales the drive in the caller's array."""

    def move(self, values, moved):
        values["drive"] *= np.float32(0.9)
        super().move(values, moved)


class PumpsInInference(Pumps):
    """Make the correct subject for inference."""

    mode = "inference"


@fault("6.2.3.1-5", "reset", of=PumpsInInference)
class WearInInference(PumpsInInference):
    """In inference the hidden wear is still in the state of extra_info."""

    def table(self, extra, terminated=False, truncated=False):
        return super().table({**extra, "state": {"wear": self.wear.copy()}}, terminated, truncated)
