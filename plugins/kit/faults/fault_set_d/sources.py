"""Source data over arrays in memory, over a mapped file, and of two agents."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from hal import SourceError
from plugins.kit.faults.fault_set_d.common import NOTHING, source_fault, source_good
from rlenv_robot.data.options import ACTIONS, INIT, STEPS, TRAJECTORIES, check_size, choice, read
from rlenv_robot.data.statistics import moments

FILTERS = ("episodes", "source", "expert", "min_return", "top_fraction")
STEP_OPTIONS = {name: STEPS[name] for name in (*FILTERS, "priority", "alpha", "beta", "replace", "n_step")}
STEP_OPTIONS["priority"] = choice("return", "reward", "td_error")
WHOLE_OPTIONS = {name: TRAJECTORIES[name] for name in (*FILTERS, "priority", "alpha", "replace", "length")}
ACTION_OPTIONS = {name: ACTIONS[name] for name in (*FILTERS, "state", "tolerance")}
KINDS = {"kind": choice("summary", "returns", "episodes"), **{name: STEPS[name] for name in FILTERS}}


def walk(lengths, seed):
    """Return the frames of random walks on seven places, where states repeat: place, push, reward."""
    rng = np.random.default_rng(seed)
    place, push, reward = [], [], []
    for length in lengths:
        x = rng.integers(-2, 3)
        for step in range(length + 1):
            place.append((x, step % 2))
            move = rng.choice((-1, 1)) if abs(x) < 3 else -np.sign(x)
            push.append([0.5 * move])
            reward.append(-0.1 * abs(x) + (1.0 if step == length - 1 and length % 2 else 0.0))
            x = x + move
    return np.array(place, np.float32), np.array(push, np.float32), np.array(reward)


class ArrayLog:
    """Nine episodes in arrays of frames; the last frame of an episode has its last observation alone."""

    discount = 0.9
    lengths = (6, 9, 1, 12, 5, 9, 7, 10, 4)

    def __init__(self):
        self.load()
        count = len(self.lengths)
        self.first = np.append(0, np.cumsum(self.lengths))
        self.of = np.repeat(np.arange(count), self.lengths)
        self.total = int(self.first[-1])
        self.ended = np.array([length % 2 == 1 for length in self.lengths])
        self.labels = [("expert", "random", "mixed")[k % 3] for k in range(count)]
        self.init()

    def load(self):
        place, push, self.rewards = walk(self.lengths, 5)
        self.seen, self.done_here = {"place": place, "aim": np.zeros((len(place), 1), np.float32)}, {"push": push}

    # -- facts of steps and episodes -----------------------------------------------------------------------

    def row(self, index):
        """Return the rows of frames of some steps: each earlier episode has one frame more than it has steps."""
        return index + self.of[index]

    def next_row(self, index):
        return self.row(index) + 1

    def take(self, columns, rows):
        return {name: values[rows] for name, values in columns.items()}

    def reward_at(self, index):
        return self.rewards[self.row(index)]

    def episode_return(self, first, stop):
        return float(self.reward_at(np.arange(first, stop)).sum())

    def returns(self):
        return np.array([self.episode_return(a, b) for a, b in zip(self.first[:-1], self.first[1:], strict=True)])

    def to_go(self):
        out, after, rewards = np.zeros(self.total), 0.0, self.single_rewards().tolist()
        for k in range(self.total - 1, -1, -1):
            after = rewards[k] + self.discount * (0.0 if k + 1 == self.first[self.of[k] + 1] else after)
            out[k] = after
        return out

    def env(self, episode):
        return f"walk-{episode % 2}"

    # -- the five functions --------------------------------------------------------------------------------

    def init(self, options=NOTHING):
        given = read(options, INIT, "init")
        episode, frame = given.get("episode", 0), given.get("frame", 0)
        if episode >= len(self.lengths) or frame > self.lengths[episode]:
            raise SourceError(f"init: there is no frame {frame} of episode {episode}")
        self.now = (int(episode), int(frame))
        self.rng = np.random.default_rng(given.get("seed"))
        self.errors = np.full(self.total, np.nan)

    def episodes_of(self, options):
        mask = np.ones(len(self.lengths), bool)
        if "episodes" in options:
            chosen, mask = options["episodes"], np.zeros(len(self.lengths), bool)
            try:
                mask[chosen if isinstance(chosen, slice) else np.asarray(chosen, int)] = True
            except IndexError:
                raise SourceError(f"episodes: there are 0 to {len(self.lengths) - 1}") from None
        if "source" in options:
            words = [options["source"]] if isinstance(options["source"], str) else options["source"]
            mask &= np.isin(self.labels, words)
        if "expert" in options:
            mask &= (np.array(self.labels) == "expert") == options["expert"]
        if "min_return" in options:
            mask &= self.returns() >= options["min_return"]
        if "top_fraction" in options:
            left = np.flatnonzero(mask)
            best = left[np.argsort(-self.returns()[left], kind="stable")]
            mask[best[max(1, int(np.ceil(round(options["top_fraction"] * len(best), 9)))) :]] = False
        if not mask.any():
            returns = np.round(np.sort(self.returns()), 3)
            have = f"there are episodes 0 to {len(mask) - 1}, sources {sorted(set(self.labels))}, returns {returns}"
            raise SourceError(f"the filters leave nothing; {have}")
        return np.flatnonzero(mask)

    def steps_of(self, options):
        return np.flatnonzero(np.isin(self.of, self.episodes_of(options)))

    def draw(self, places, size, options, score):
        """Return drawn places and their probabilities."""
        if not options.get("replace", True) and size > len(places):
            raise SourceError(f"replace is False, {size} were requested, {len(places)} exist")
        chances = None
        if score is not None:
            spread = score.max() - score.min()
            chances = (score - score.min() + (0.01 * spread or 1.0)) ** options.get("alpha", 1.0)
            chances = chances / chances.sum()
        slots = self.rng.choice(len(places), size, options.get("replace", True), chances)
        return places[slots], np.ones(size) if chances is None else len(places) * chances[slots]

    def score(self, places, options):
        name = options.get("priority")
        if name is None:
            return None
        if name == "td_error":
            sizes = np.abs(self.errors[places])
            return np.where(np.isnan(sizes), 1.0 if np.isnan(sizes).all() else np.nanmax(np.abs(self.errors)), sizes)
        return (self.to_go() if name == "return" else self.single_rewards())[places]

    def single_rewards(self):
        return self.reward_at(np.arange(self.total))

    def sample_steps(self, batch_size, extra_info=NOTHING):
        check_size(batch_size, "batch_size", "sample_steps")
        options = read(extra_info, STEP_OPTIONS, "sample_steps")
        places = self.steps_of(options)
        index, share = self.draw(places, batch_size, options, self.score(places, options))
        table = self.table(index, options.get("n_step", 1))
        weights = share ** -options.get("beta", 0.0)
        table["extra_info"]["weights"] = weights / weights.max()
        return table

    def last_of(self, index, n):
        return np.minimum(index + n, self.first[self.of[index] + 1]) - 1

    def table(self, index, n=1):
        last = self.last_of(index, n)
        steps = last - index + 1
        reward = self.reward_at(index)
        for k in range(1, n):
            later = np.minimum(index + k, last)
            reward = self.add(reward, self.reward_at(later), self.discount**k * (k < steps))
        episode = self.of[index]
        over = last + 1 == self.first[self.of[last] + 1]
        terminated, truncated = (np.int32(over & flag) for flag in (self.ended[episode], ~self.ended[episode]))
        return {
            "env_id": np.array([self.env(one) for one in episode], object),
            "frame_no": self.frames(index),
            "observation": self.take(self.seen, self.row(index)),
            "action": self.take(self.done_here, self.row(index)),
            "reward": reward,
            "next_observation": self.take(self.seen, self.next_row(last)),
            "done": np.int32(over),
            "extra_info": {
                "index": index.astype(np.int64), "weights": np.ones(len(index)), "episode": episode,
                "terminated": terminated, "truncated": truncated, "steps": steps,
                "discount": self.discount**steps * (1 - terminated),
            },
        }  # fmt: skip

    def add(self, reward, later, factor):
        return reward + factor * later

    def frames(self, index):
        return (index - self.first[self.of[index]]).astype(np.int32)

    def sample_trajectories(self, trajectory_size, extra_info=NOTHING):
        check_size(trajectory_size, "trajectory_size", "sample_trajectories")
        options = read(extra_info, WHOLE_OPTIONS, "sample_trajectories")
        numbers, length = self.episodes_of(options), options.get("length")
        if length is not None:
            starts = np.flatnonzero(np.isin(self.of, numbers))
            starts = starts[self.fits(starts, length)]
            if not len(starts):
                raise SourceError(f"length: no episode has {length} steps, the longest has {max(self.lengths)}")
            return [
                self.piece(int(one), int(one) + length) for one in self.draw(starts, trajectory_size, options, None)[0]
            ]
        score = self.returns()[numbers] if "priority" in options else None
        drawn, _ = self.draw(numbers, trajectory_size, options, score)
        return [self.piece(int(self.first[one]), int(self.first[one + 1])) for one in drawn]

    def fits(self, starts, length):
        return starts + length <= self.first[self.of[starts] + 1]

    def piece(self, first, stop):
        episode, steps = int(self.of[first]), self.table(np.arange(first, stop))
        return {
            "env_id": self.env(episode),
            "trajectory_id": episode,
            "steps_set": steps,
            "extra_info": {
                "start": first, "end": stop, "length": stop - first, "return": self.episode_return(first, stop),
                "terminated": int(steps["extra_info"]["terminated"][-1]),
                "truncated": int(steps["extra_info"]["truncated"][-1]),
                "source": self.labels[episode], "expert": self.labels[episode] == "expert", "lost": 0, "weight": 1.0,
            },
        }  # fmt: skip

    def get_all_actions(self, extra_info=NOTHING):
        options = read(extra_info, ACTION_OPTIONS, "get_all_actions")
        episode, frame = self.now
        here = int(self.first[episode]) + episode + frame
        state = options.get("state") or self.take(self.seen, here)
        allowed = options.get("tolerance", 0.0)
        places = self.steps_of({name: options[name] for name in FILTERS if name in options})
        for name, value in state.items():
            if name not in self.seen:
                raise SourceError(f"state: {name!r} is unknown, allowed are {', '.join(self.seen)}")
            gap = np.abs(self.seen[name][self.row(places)].astype(float) - np.asarray(value, float))
            limit = allowed.get(name, 0.0) if isinstance(allowed, dict) else allowed
            places = places[(gap <= limit).reshape(len(places), -1).all(1)]
        taken = np.concatenate([values[self.row(places)] for values in self.done_here.values()], 1)
        distinct = np.unique(taken, axis=0)
        parts = np.split(distinct, np.cumsum([values.shape[1] for values in self.done_here.values()])[:-1], 1)
        return {"env_id": self.env(episode), "frame_no": frame, "action": dict(zip(self.done_here, parts, strict=True))}

    def statistics(self, extra_info=NOTHING):
        options = read(extra_info, KINDS, "statistics")
        kind = options.get("kind", "summary")
        numbers = self.episodes_of(options)
        values = self.returns()[numbers]
        if kind == "returns":
            return {"kind": kind, "episode": numbers.tolist(), "return": values.tolist(), **moments(values)}
        if kind == "episodes":
            return {"kind": kind, "episodes": [self.line(int(one)) for one in numbers]}
        rows = self.row(np.flatnonzero(np.isin(self.of, numbers)))
        groups = [("observation", self.seen), ("action", self.done_here)]
        return {
            "kind": "summary", "episodes": len(numbers), "steps": len(rows),
            "lengths": self.spread(np.array(self.lengths)[numbers]), "returns": self.spread(values),
            "fields": {f"{key}.{name}": self.spread(one[rows]) for key, part in groups for name, one in part.items()},
        }  # fmt: skip

    def spread(self, values):
        return moments(values)

    def line(self, episode):
        return {"episode": episode, "length": int(self.lengths[episode]), "source": self.labels[episode],
                "return": float(self.returns()[episode]), "terminated": int(self.ended[episode])}  # fmt: skip

    def update_priorities(self, index, td_error):
        index, errors = np.asarray(index), np.asarray(td_error, float)
        if (
            index.shape != errors.shape
            or not index.size
            or not np.isfinite(errors).all()
            or index.min() < 0
            or index.max() >= self.total
        ):
            raise SourceError(f"update_priorities: index of 0 to {self.total - 1} and finite errors of one shape")
        self.errors[index] = errors


@source_fault("6.3.3.1-T5.next_observation", "the last next observation is the episode's own", "whole")
class ArrNextOfNext(ArrayLog):
    """The next observation of an episode's last step is the first one of the next episode."""

    def next_row(self, index):
        rows = super().next_row(index)
        return np.minimum(np.where(index + 1 == self.first[self.of[index] + 1], rows + 1, rows), len(self.rewards) - 1)


@source_fault("6.3.1-2", "all recorded episodes are in reach", "draws")
class ArrLastLost(ArrayLog):
    """The last episode is counted and never drawn."""

    def draw(self, places, size, options, score):
        kept = places[places < (self.first[-2] if places.max() >= len(self.lengths) else len(self.lengths) - 1)]
        kept = kept if len(kept) else places
        return super().draw(kept, size, options, None if score is None else score[: len(kept)])


@source_fault("contract", "the seed determines all sampling", "seeds")
class ArrSeedUnused(ArrayLog):
    """The seed of init is not used."""

    def init(self, options=NOTHING):
        super().init(options)
        self.rng = np.random.default_rng()


@source_fault("contract", "the seed determines all sampling", "seeds")
class ArrTrajectoriesUnseeded(ArrayLog):
    """Trajectories are drawn by a generator that init does not seed."""

    other = np.random.default_rng(9)

    def sample_trajectories(self, trajectory_size, extra_info=NOTHING):
        self.rng, kept = ArrTrajectoriesUnseeded.other, self.rng
        try:
            return super().sample_trajectories(trajectory_size, extra_info)
        finally:
            self.rng = kept


@source_fault("contract", "replace False draws each at most once", "unique")
class ArrReplaces(ArrayLog):
    """Replace False is accepted, and steps come twice."""

    def draw(self, places, size, options, score):
        return super().draw(places, size, {**options, "replace": True}, score)


@source_fault("contract", "a truncated end bootstraps", "whole")
class ArrNoBootstrap(ArrayLog):
    """The discount is 0 at truncated ends too."""

    def table(self, index, n=1):
        table = super().table(index, n)
        table["extra_info"]["discount"] = table["extra_info"]["discount"] * (1 - table["done"])
        return table


@source_fault("6.3.3.1-T5.done", "done is 1 at each end", "whole")
class ArrDoneTerminated(ArrayLog):
    """Done is 0 where an episode was truncated."""

    def table(self, index, n=1):
        table = super().table(index, n)
        return {**table, "done": table["extra_info"]["terminated"].copy()}


@source_fault("B.2.2.1-2", "a trajectory's return and a threshold of it", "whole")
class ArrDiscountedReturn(ArrayLog):
    """The return of a trajectory is discounted."""

    def episode_return(self, first, stop):
        return float((self.reward_at(np.arange(first, stop)) * self.discount ** np.arange(stop - first)).sum())

    def returns(self):
        return np.array([super(ArrDiscountedReturn, self).episode_return(a, b)
                         for a, b in zip(self.first[:-1], self.first[1:], strict=True)])  # fmt: skip


@source_fault("B.2.2.1-2", "a trajectory's return and a threshold of it", "filters")
class ArrMinReturnTurned(ArrayLog):
    """Min_return keeps the episodes below it."""

    def episodes_of(self, options):
        numbers = super().episodes_of({name: value for name, value in options.items() if name != "min_return"})
        return numbers[self.returns()[numbers] <= options["min_return"]] if "min_return" in options else numbers


@source_fault("contract", "a filter holds for its own call alone", "after")
class ArrFilterStays(ArrayLog):
    """A filter of episodes stays for later calls."""

    kept = None

    def episodes_of(self, options):
        self.kept = options.get("episodes", self.kept)
        return super().episodes_of(options if self.kept is None else {"episodes": self.kept, **options})


@source_fault("contract", "tables are the caller's", "write")
class ArrViews(ArrayLog):
    """Trajectories are views of the data, and can be written to."""

    def take(self, columns, rows):
        rows = np.asarray(rows)
        if rows.ndim and len(rows) and (np.diff(rows) == 1).all():
            return {name: values[rows[0] : rows[-1] + 1] for name, values in columns.items()}
        return super().take(columns, rows)


@source_fault("contract", "no window crosses an episode's end", "nstep")
class ArrLongSums(ArrayLog):
    """N-step sums go on into the next episode."""

    def last_of(self, index, n):
        return np.minimum(index + n, self.total) - 1


@source_good
class ArrOneStep(ArrayLog):
    """One episode of one step."""

    lengths = (1,)


@source_good
class ArrAlike(ArrayLog):
    """No episode ends by its task, all rewards are whole numbers, and half of the frames are the same."""

    lengths = (4, 4, 6, 4)

    def load(self):
        super().load()
        self.rewards = np.floor(self.rewards)
        self.seen = {name: values // 2 for name, values in self.seen.items()}


# -- a mapped file ----------------------------------------------------------------------------------------------

ROW = np.dtype(
    [
        ("image", "u1", (4, 4, 3)),
        ("speed", "<f4", (1,)),
        ("torque", "<f4", (2,)),
        ("gear", "<i4", (1,)),
        ("reward", "<f8"),
    ]
)


class MappedLog(ArrayLog):
    """Rows of a mapped file, with small images, two fields of the action, and frame numbers as they were recorded."""

    discount = 0.95
    lengths = (5, 8, 8, 3, 11, 2, 6)
    begin = 100

    def load(self):
        count = sum(self.lengths) + len(self.lengths)
        with tempfile.TemporaryDirectory() as folder:  # the map outlives the file's name
            np.zeros(count, ROW).tofile(Path(folder) / "rows.bin")
            self.rows = rows = np.memmap(Path(folder) / "rows.bin", ROW, "r+")
        rng = np.random.default_rng(2)
        rows["image"] = rng.integers(0, 4, count)[:, None, None, None] * 60
        rows["speed"] = rng.integers(0, 3, (count, 1)) / 2
        rows["torque"] = rng.integers(-2, 3, (count, 2))
        rows["gear"] = rng.integers(1, 4, (count, 1))
        rows["reward"] = np.round(rng.normal(size=count), 2)
        self.seen = {name: self.rows[name] for name in ("image", "speed")}
        self.done_here = {name: self.rows[name] for name in ("torque", "gear")}
        self.rewards = self.rows["reward"]

    def take(self, columns, rows):
        return {name: np.array(values[rows]) for name, values in columns.items()}

    def frames(self, index):
        return (super().frames(index) + self.begin).astype(np.int32)

    def get_all_actions(self, extra_info=NOTHING):
        table = super().get_all_actions(extra_info)
        action = {name: values.astype(ROW[name].base) for name, values in table["action"].items()}
        return {**table, "frame_no": table["frame_no"] + self.begin, "action": action}

    def reward_at(self, index):
        return np.array(super().reward_at(index))


@source_fault("contract", "a field has one type and shape", "whole")
class MapTwoTypes(MappedLog):
    """Batches have float32 speeds, and trajectories float64."""

    def piece(self, first, stop):
        plain = super().piece(first, stop)
        plain["steps_set"]["observation"]["speed"] = plain["steps_set"]["observation"]["speed"].astype(float)
        return plain


@source_fault("contract", "an index stands for one step", "whole")
class MapLocalIndex(MappedLog):
    """The index of a trajectory's steps counts from its own beginning."""

    def piece(self, first, stop):
        plain = super().piece(first, stop)
        plain["steps_set"]["extra_info"]["index"] = np.arange(stop - first)
        return plain


@source_fault("contract", "a trajectory's facts agree with its steps", "whole")
class MapEndInside(MappedLog):
    """End is the position of the last step, and not the one after it."""

    def piece(self, first, stop):
        plain = super().piece(first, stop)
        plain["extra_info"]["end"] = stop - 1
        return plain


@source_fault("6.3.2.3-1", "trajectories are whole", "whole")
class MapFirstMissing(MappedLog):
    """The first step of an episode is missing in its trajectory, for episodes of more than four steps."""

    def piece(self, first, stop):
        return super().piece(first + (stop - first > 4 and first in self.first), stop)


@source_fault("6.3.2.3-1", "trajectories are whole", "whole")
class MapMerged(MappedLog):
    """An episode that was truncated and the next one come as one trajectory."""

    def piece(self, first, stop):
        episode = self.of[first]
        merges = (
            stop < self.total
            and not self.ended[episode]
            and stop == self.first[episode + 1]
            and first == self.first[episode]
        )
        return super().piece(first, int(self.first[episode + 2]) if merges else stop)


@source_fault("6.3.3.1-T5.frame_no", "frame_no is an int32, as recorded", "whole")
class MapTicks(MappedLog):
    """Frame numbers are clock ticks beyond an int32."""

    def frames(self, index):
        return super().frames(index).astype(np.int64) * 40_000_000


@source_fault("6.3.2.1-1", "init sets the first or the given state", "inits")
class MapKeepsState(MappedLog):
    """Init without options keeps the state of the call before."""

    def init(self, options=NOTHING):
        before = getattr(self, "now", (0, 0))
        super().init(options)
        self.now = self.now if {"episode", "frame"} & set(options) else before


@source_fault("contract", "no window crosses an episode's end", "pieces")
class MapPiecesCross(MappedLog):
    """Pieces of a length may begin near an end and go on into the next episode."""

    def fits(self, starts, length):
        return starts + length <= self.total


@source_fault("contract", "TD errors become priorities", "td")
class MapErrorsIgnored(MappedLog):
    """Update_priorities is accepted, and draws stay as they were."""

    def update_priorities(self, index, td_error):
        kept = self.errors.copy()
        super().update_priorities(index, td_error)
        self.errors = kept


@source_good
class MapHuge(MappedLog):
    """A hundred thousand steps in a mapped file, in episodes of very different lengths."""

    lengths = (60_000, 1, 39_000, 2, 997)
    begin = -50
