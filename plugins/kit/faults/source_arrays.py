"""Source data of a point on a floor in NumPy arrays, and their planted faults.

Style: one array a column, written from the standard alone; frames lie behind one another, and a transition is the
number of its first frame. Places are multiples of 0.25 m, so that states come again.
"""

from __future__ import annotations

import time

import numpy as np

from hal import SourceError

LENGTHS, SOURCES = (6, 3, 11, 1, 8, 5, 12, 4), ("expert", "random", "mixed", "random")
FILTERS = ("episodes", "source", "min_return", "top_fraction")
DRAW = ("priority", "alpha", "beta", "replace")


def checked(options, allowed, function):
    """Return options without those that are None; refuse unknown ones."""
    if not hasattr(options, "items"):
        raise SourceError(f"{function}: options are {options!r:.60}, expected a mapping with {', '.join(allowed)}")
    for name in options:
        if name not in allowed:
            raise SourceError(f"{function}: option {name!r:.60} is unknown, allowed are {', '.join(allowed)}")
    return {name: value for name, value in options.items() if value is not None}


def whole(value, name, low=0):
    """Return a whole number of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise SourceError(f"{name} is {value!r:.60}, expected a whole number from {low}")
    return int(value)


def number(value, name, low=-np.inf, high=np.inf):
    """Return a finite number within bounds."""
    fits = isinstance(value, int | float | np.number) and not isinstance(value, bool) and np.isfinite(value)
    if not fits or not low <= value <= high:
        raise SourceError(f"{name} is {value!r:.60}, expected a number from {low} to {high}")
    return float(value)


def one_of(value, words, name):
    """Return one of some words."""
    if value not in words:
        raise SourceError(f"{name} is {value!r:.60}, allowed are {', '.join(map(str, words))}")
    return value


def moments(values):
    """Return mean, deviation and range along the first axis."""
    values = np.asarray(values, float)
    return {name: getattr(values, name)(axis=0).tolist() for name in ("mean", "std", "min", "max")}


class Columns:
    """Eight episodes of a point that is pushed about; sampling is with replacement by default."""

    episodes = LENGTHS

    def __init__(self):
        rng, count = np.random.default_rng(5), len(self.episodes)
        self.lengths = np.array(self.episodes)
        self.last = np.cumsum(self.lengths)  # of transitions, excluded
        self.first = self.last - self.lengths
        self.episode = np.repeat(np.arange(count), self.lengths)
        self.frame = np.arange(self.last[-1]) - self.first[self.episode]
        self.row = np.arange(self.last[-1]) + self.episode  # of the frame at which a transition begins
        self.push = (rng.integers(-1, 2, (self.last[-1], 2)) * 0.25).astype(np.float32)
        place, where = [], iter(self.push)
        for length in self.episodes:
            place.append(rng.integers(-2, 3, 2) * 0.25)
            for _ in range(length):
                place.append(np.clip(place[-1] + next(where), -0.5, 0.5))
        self.place = np.array(place, np.float32)
        self.reward = 1.5 - np.abs(self.place[self.row + 1]).sum(axis=1).astype(float)
        self.source = np.array([SOURCES[k % 4] for k in range(count)], object)
        self.env_id = np.array([f"floor-{k % 2}" for k in range(count)], object)
        self.returns = np.array([self.reward[a:b].sum() for a, b in zip(self.first, self.last, strict=True)])
        self.init()

    # -- the standard's functions --------------------------------------------------------------------------

    def init(self, options={}):  # noqa: B006 (the standard's signature; nothing writes to it)
        options = checked(options, ("seed", "episode", "frame"), "init")
        seed = options.get("seed")
        episode = whole(options.get("episode", 0), "episode")
        frame = whole(options.get("frame", 0), "frame")
        if episode >= len(self.lengths) or frame > self.lengths[episode]:
            raise SourceError(f"init: there is no frame {frame} of episode {episode}")
        self.rng = self.generator(None if seed is None else whole(seed, "seed"))
        self.now = (episode, frame)
        self.errors = np.full(len(self.row), np.nan)

    def sample_steps(self, batch_size, extra_info={}):  # noqa: B006
        size = self.size(batch_size, "batch_size")
        options = checked(extra_info, (*DRAW, *FILTERS), "sample_steps")
        places = self.passing(options)
        index, weights = self.drawn(places, self.scores(options)[places], size, options)
        return self.steps(index, weights)

    def sample_trajectories(self, trajectory_size, extra_info={}):  # noqa: B006
        size = self.size(trajectory_size, "trajectory_size")
        options = checked(extra_info, (*DRAW, *FILTERS), "sample_trajectories")
        one_of(options.get("priority"), (None, "return"), "priority")
        numbers = np.unique(self.episode[self.passing(options)])
        scores = self.returns if options.get("priority") else np.ones(len(self.returns))
        drawn, weights = self.drawn(numbers, scores[numbers], size, options)
        return [self.trajectory(e, w) for e, w in zip(drawn.tolist(), weights.tolist(), strict=True)]

    def get_all_actions(self, extra_info={}):  # noqa: B006
        options = checked(extra_info, ("state", "tolerance", *FILTERS), "get_all_actions")
        tolerance = number(options.get("tolerance", 0.0), "tolerance", 0.0)
        state = options.get("state") or {"place": self.place[self.row_now()]}
        if not hasattr(state, "keys") or set(state) != {"place"} or np.shape(state["place"]) != (2,):
            raise SourceError("state: expected {'place': two numbers}")
        places = self.passing(options)
        here = places[self.alike(self.place[self.row[places]], np.asarray(state["place"], float), tolerance)]
        episode, frame = self.now
        actions = self.distinct(self.push[here])
        return {"env_id": str(self.env_id[episode]), "frame_no": frame, "action": {"push": actions}}

    def statistics(self, extra_info={}):  # noqa: B006
        options = checked(extra_info, ("kind", "field", "bins", *FILTERS), "statistics")
        kind = one_of(options.get("kind", "summary"), ("summary", "returns", "histogram"), "kind")
        return getattr(self, f"{kind}_of")(self.passing(options), options)

    def update_priorities(self, index, td_error):
        index, sizes = np.asarray(index), np.abs(np.asarray(td_error, float))
        if (
            index.shape != sizes.shape
            or not np.isfinite(sizes).all()
            or not ((index >= 0) & (index < len(self.row))).all()
        ):
            raise SourceError("update_priorities: expected positions and as many finite numbers")
        self.errors[index] = sizes

    # -- parts of them -------------------------------------------------------------------------------------

    def generator(self, seed):
        return np.random.default_rng(seed)

    def size(self, value, name):
        return whole(value, name, 1)

    def row_now(self):
        episode, frame = self.now
        return self.first[episode] + episode + frame

    def passing(self, options):
        """Return the transitions that pass the filters."""
        passes = np.ones(len(self.lengths), bool)
        if "episodes" in options:
            asked = options["episodes"]
            if not isinstance(asked, slice | list | tuple | range | np.ndarray):
                raise SourceError(f"episodes is {asked!r:.60}, expected a slice or a list of numbers")
            asked = range(len(passes))[asked] if isinstance(asked, slice) else asked
            chosen = [whole(e, "episodes") for e in asked]
            if any(e >= len(passes) for e in chosen):
                raise SourceError(f"episodes: there are 0 to {len(passes) - 1}")
            passes &= np.isin(np.arange(len(passes)), self.numbered(chosen))
        if "source" in options:
            words = options["source"]
            passes &= np.isin(self.source.astype(str), [words] if isinstance(words, str) else list(words))
        if "min_return" in options:
            passes &= self.good_enough(number(options["min_return"], "min_return"))
        if "top_fraction" in options:
            share = number(options["top_fraction"], "top_fraction", 1e-9, 1.0)
            left = np.flatnonzero(passes)
            best = left[np.argsort(self.ranked(self.returns[left]), kind="stable")]
            passes = np.isin(np.arange(len(passes)), best[: max(1, int(np.ceil(share * len(best) - 1e-9)))])
        places = np.flatnonzero(passes[self.episode])
        if not len(places):
            raise SourceError(f"the filters leave nothing: {options}; the highest return is {self.returns.max():g}")
        return places

    def numbered(self, chosen):
        return chosen

    def good_enough(self, threshold):
        return self.returns >= threshold

    def ranked(self, returns):
        return -returns

    def scores(self, options):
        """Return the priority of each transition."""
        priority = one_of(options.get("priority"), (None, "return", "reward", "td_error"), "priority")
        if priority == "reward":
            return self.reward
        if priority == "return":
            to_go = np.zeros(len(self.row))
            for k in range(len(self.row) - 1, -1, -1):
                ends = k + 1 == self.last[self.episode[k]]
                to_go[k] = self.reward[k] + (0 if ends else 0.99 * to_go[k + 1])
            return to_go
        if priority == "td_error":
            known = self.errors[~np.isnan(self.errors)]
            return np.where(np.isnan(self.errors), known.max() if len(known) else 1.0, self.errors)
        return np.ones(len(self.row))

    def drawn(self, places, scores, size, options):
        """Return drawn places and their importance weights."""
        chance = scores ** number(options.get("alpha", 1.0), "alpha", 0.0)
        chance = chance / chance.sum()
        replace = one_of(options.get("replace", True), (True, False), "replace")
        if not replace and size > np.count_nonzero(chance):
            raise SourceError(f"replace is False, {size} were asked for, {len(places)} exist")
        at = self.choose(len(places), size, replace, chance)
        weights = (len(places) * chance[at]) ** -number(options.get("beta", 0.0), "beta", 0.0)
        return places[at], weights / weights.max()

    def choose(self, count, size, replace, chance):
        return self.rng.choice(count, size, replace, chance)

    def following(self, index):
        """Return the row of the next observation of each transition."""
        return self.row[index] + 1

    def ended(self, index):
        return index + 1 == self.last[self.episode[index]]

    def steps(self, index, weights):
        """Return Table 5 with a leading axis."""
        episode, ends = self.episode[index], self.ended(index)
        terminated = ends & (episode % 2 == 0)
        return {
            "env_id": self.env_id[episode],
            "frame_no": self.frame[index].astype(np.int32),
            "observation": {"place": self.place[self.row[index]]},
            "action": {"push": self.push[index]},
            "reward": self.reward[index],
            "next_observation": {"place": self.place[self.following(index)]},
            "done": ends.astype(np.int32),
            "extra_info": {
                "index": index,
                "weights": weights,
                "episode": episode,
                "terminated": terminated.astype(np.int32),
                "truncated": (ends & ~terminated).astype(np.int32),
            },
        }

    def trajectory(self, episode, weight):
        """Return an episode as Table 6."""
        first, last = int(self.first[episode]), int(self.last[episode])
        return {
            "env_id": str(self.env_id[episode]),
            "trajectory_id": episode,
            "steps_set": self.steps(np.arange(first, last), np.ones(last - first)),
            "extra_info": {
                "start": first,
                "end": last,
                "length": last - first,
                "return": float(self.returns[episode]),
                "weight": weight,
                "source": self.source[episode],
                "expert": self.source[episode] == "expert",
            },
        }

    def alike(self, places, state, tolerance):
        return (np.abs(places - state) <= tolerance).all(axis=1)

    def distinct(self, actions):
        return np.unique(actions, axis=0)

    def field(self, name, part):
        columns = {
            "observation.place": lambda: self.place[self.row[part]],
            "action.push": lambda: self.push[part],
            "reward": lambda: self.reward[part],
        }
        return columns[one_of(name, tuple(columns), "field")]()

    def summary_of(self, part, options):
        numbers = np.unique(self.episode[part])
        return {
            "kind": "summary",
            "episodes": len(numbers),
            "steps": len(part),
            "lengths": moments(self.lengths[numbers]),
            "returns": moments(self.returns[numbers]),
            "rewards": moments(self.field("reward", part)),
            "fields": {name: moments(self.field(name, part)) for name in ("observation.place", "action.push")},
        }

    def returns_of(self, part, options):
        numbers = np.unique(self.episode[part])
        returns = self.returns[numbers]
        return {"kind": "returns", "episode": numbers.tolist(), "return": returns.tolist(), **moments(returns)}

    def histogram_of(self, part, options):
        values = self.field(options.get("field", "reward"), part)
        bins = whole(options.get("bins", 10), "bins", 1)
        columns = values.reshape(len(values), -1).T
        counted = [self.counted(column, bins) for column in columns]
        return {
            "kind": "histogram",
            "field": options.get("field", "reward"),
            "counts": [counts.tolist() for counts, _ in counted],
            "edges": [edges.tolist() for _, edges in counted],
        }

    def counted(self, column, bins):
        return np.histogram(column, bins)


# -- Table 5 ------------------------------------------------------------------------------------------------------


class EnvIdOfFortyCharacters(Columns):
    """Name environments by 40 characters, where Table 5 allows 36."""

    def __init__(self):
        super().__init__()
        self.env_id = np.array([f"{name}-of-the-laboratory".ljust(40, "x") for name in self.env_id], object)


class FrameNumbersOfBatch(Columns):
    """Number the frames by their place in the batch."""

    def steps(self, index, weights):
        return {**super().steps(index, weights), "frame_no": np.arange(len(index), dtype=np.int32)}


class DoneIsEarly(Columns):
    """Mark the step before the last one as done."""

    def ended(self, index):
        return index + 2 == self.last[self.episode[index]]


class NextOfTheNextEpisode(Columns):
    """Take the next observation from the next transition, also behind the end of an episode."""

    def following(self, index):
        return self.row[(index + 1) % len(self.row)]


class NextIsTheSame(Columns):
    """Return the observation again as the next one."""

    def following(self, index):
        return self.row[index]


class ActionsOfTheNextFrame(Columns):
    """Return the action that follows the next observation."""

    def steps(self, index, weights):
        table = super().steps(index, weights)
        return {**table, "action": {"push": self.push[(index + 1) % len(self.push)]}}


class RewardsOfTheLastFrame(Columns):
    """Return the reward of the step before, and 0 in an episode's first step."""

    def steps(self, index, weights):
        table = super().steps(index, weights)
        return {**table, "reward": np.where(self.frame[index] > 0, self.reward[index - 1], 0.0)}


class RewardsAsColumn(Columns):
    """Return rewards of shape (B, 1)."""

    def steps(self, index, weights):
        table = super().steps(index, weights)
        return {**table, "reward": table["reward"][:, None]}


class BatchAxisLast(Columns):
    """Return observations with the batch as their last axis."""

    def steps(self, index, weights):
        table = super().steps(index, weights)
        return {**table, "observation": {"place": table["observation"]["place"].T}}


class BatchOfOneLosesItsAxis(Columns):
    """Return a batch of one step without its leading axis."""

    def steps(self, index, weights):
        table = super().steps(index, weights)
        for group in ("observation", "action", "next_observation"):
            table[group] = {name: value.squeeze() for name, value in table[group].items()}
        return table


# -- draws --------------------------------------------------------------------------------------------------------


class LastEpisodeIsNeverDrawn(Columns):
    """Never draw the last transition and the last episode, by an end that is excluded twice."""

    def choose(self, count, size, replace, chance):
        kept = max(count - 1, 1)
        return super().choose(kept, size, replace, chance[:kept] / chance[:kept].sum())


class GlobalGenerator(Columns):
    """Draw from NumPy's global generator, so that the draws of others change these."""

    def generator(self, seed):
        np.random.seed(seed)
        return np.random


class SameBatchAlways(Columns):
    """Make the generator anew from the seed in each draw, so that all batches are equal."""

    def generator(self, seed):
        self.seed = seed if seed is not None else 0
        return super().generator(seed)

    def choose(self, count, size, replace, chance):
        self.rng = np.random.default_rng(self.seed)
        return super().choose(count, size, replace, chance)


class InitGoesOn(Columns):
    """Keep the generator over an init with the seed that it has."""

    def generator(self, seed):
        self.made = getattr(self, "made", {})
        return self.made.setdefault(seed, super().generator(seed))


class InitReturnsItself(Columns):
    """Return the data from init, where the standard says nothing."""

    def init(self, options={}):  # noqa: B006
        super().init(options)
        return self


class InitKeepsTheState(Columns):
    """Leave the present state where it is in an init without one."""

    def init(self, options={}):  # noqa: B006
        before = getattr(self, "now", (0, 0))
        super().init(options)
        if "episode" not in options and "frame" not in options:
            self.now = before


class PriorityIgnored(Columns):
    """Draw evenly whatever the priority."""

    def choose(self, count, size, replace, chance):
        return super().choose(count, size, replace, np.full(count, 1 / count))


class DuplicatesWithoutReplacement(Columns):
    """Draw with replacement where ``replace`` is False."""

    def choose(self, count, size, replace, chance):
        return super().choose(count, size, True, chance)


class TdErrorsIgnored(Columns):
    """Forget the TD errors that `update_priorities` gets."""

    def update_priorities(self, index, td_error):
        super().update_priorities(index, td_error)
        self.errors[:] = np.nan


class EmptyBatches(Columns):
    """Accept 0 as a batch size."""

    def size(self, value, name):
        return whole(value, name, 0)

    def drawn(self, places, scores, size, options):
        return (places[:0], scores[:0]) if size == 0 else super().drawn(places, scores, size, options)


class UnknownOptionsPass(Columns):
    """Ignore unknown options, so that a misspelt one changes nothing."""

    def sample_steps(self, batch_size, extra_info={}):  # noqa: B006
        return super().sample_steps(batch_size, {k: v for k, v in extra_info.items() if k in (*DRAW, *FILTERS)})


class FiltersStick(Columns):
    """Keep a filter for the calls after it, by a default that is written to."""

    def sample_steps(self, batch_size, extra_info={}, kept={}):  # noqa: B006 (the fault)
        kept.update(extra_info)
        return super().sample_steps(batch_size, dict(kept))


class TakesOptionsOut(Columns):
    """Take ``priority`` out of the caller's own options."""

    def sample_steps(self, batch_size, extra_info={}):  # noqa: B006
        priority = extra_info.pop("priority", None) if extra_info else None
        return super().sample_steps(batch_size, {**extra_info, "priority": priority})


# -- filters ------------------------------------------------------------------------------------------------------


class TopFractionIsLowest(Columns):
    """Keep the episodes with the lowest returns for ``top_fraction``."""

    def ranked(self, returns):
        return returns


class EpisodesFromOne(Columns):
    """Count the episodes of the filter from 1."""

    def numbered(self, chosen):
        return [max(e - 1, 0) for e in chosen]


# -- Table 6 ------------------------------------------------------------------------------------------------------


class TimeRunsBackwards(Columns):
    """Return the steps of a trajectory from the last to the first."""

    def trajectory(self, episode, weight):
        table = super().trajectory(episode, weight)
        back = np.arange(self.first[episode], self.last[episode])[::-1]
        return {**table, "steps_set": self.steps(back, np.ones(len(back)))}


class LastStepIsLost(Columns):
    """Leave the last step out of each trajectory."""

    def trajectory(self, episode, weight):
        table = super().trajectory(episode, weight)
        part = np.arange(self.first[episode], max(self.last[episode] - 1, self.first[episode] + 1))
        return {**table, "steps_set": self.steps(part, np.ones(len(part)))}


class TrajectoryIdsOfTheDraw(Columns):
    """Number trajectories by their place in the answer, so that one number means several."""

    def sample_trajectories(self, trajectory_size, extra_info={}):  # noqa: B006
        drawn = super().sample_trajectories(trajectory_size, extra_info)
        return [{**table, "trajectory_id": k} for k, table in enumerate(drawn)]


class SourceIsAlwaysExpert(Columns):
    """Label every trajectory as an expert's, whatever the filter says."""

    def trajectory(self, episode, weight):
        table = super().trajectory(episode, weight)
        return {**table, "extra_info": {**table["extra_info"], "source": "expert", "expert": True}}


class AllTrajectories(Columns):
    """Return every trajectory that passes, whatever number was asked for."""

    def sample_trajectories(self, trajectory_size, extra_info={}):  # noqa: B006
        self.size(trajectory_size, "trajectory_size")
        options = {name: value for name, value in extra_info.items() if name in FILTERS}
        return [self.trajectory(e, 1.0) for e in np.unique(self.episode[self.passing(options)]).tolist()]


# -- actions and statistics ---------------------------------------------------------------------------------------


class ToleranceExcluded(Columns):
    """Look for states nearer than the tolerance, so that 0 finds none."""

    def alike(self, places, state, tolerance):
        return (np.abs(places - state) < tolerance).all(axis=1)


class ActionsOfFrameZero(Columns):
    """Return 0 as the frame of the present state."""

    def get_all_actions(self, extra_info={}):  # noqa: B006
        return {**super().get_all_actions(extra_info), "frame_no": 0}


class HistogramLosesTheEnd(Columns):
    """Leave values at the upper end out of a histogram."""

    def counted(self, column, bins):
        edges = np.linspace(column.min(), column.max(), bins + 1)
        at = np.searchsorted(edges, column, "right") - 1
        return np.bincount(at[at < bins], minlength=bins), edges


class SharesItsMemory(Columns):
    """Return whole trajectories as views of the data, which the caller's writes change."""

    def trajectory(self, episode, weight):
        table = super().trajectory(episode, weight)
        rows = slice(self.row[self.first[episode]], self.row[self.last[episode] - 1] + 1)
        part = slice(self.first[episode], self.last[episode])
        shared = {"observation": {"place": self.place[rows]}, "reward": self.reward[part]}
        return {**table, "steps_set": {**table["steps_set"], **shared}}


# -- correct and unusual ------------------------------------------------------------------------------------------


class EpisodesOfOneStep(Columns):
    """Have episodes of one step alone."""

    episodes = (1,) * 12


class OneHugeEpisode(Columns):
    """Have a single episode of 20,000 steps."""

    episodes = (20_000,)


class SlowColumns(Columns):
    """Take 50 ms for each draw."""

    def drawn(self, places, scores, size, options):
        time.sleep(0.05)
        return super().drawn(places, scores, size, options)


class WrongRequest(SourceError, LookupError):
    """A refusal in these data's own words."""


class OwnErrors(Columns):
    """Refuse sizes and filters by a subclass of the contract's error."""

    def size(self, value, name):
        try:
            return super().size(value, name)
        except SourceError as error:
            raise WrongRequest(str(error)) from error

    def passing(self, options):
        try:
            return super().passing(options)
        except SourceError as error:
            raise WrongRequest(str(error)) from error
