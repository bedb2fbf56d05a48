"""Source data over lists of dictionaries, and episodes that are made on demand."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from hal import SourceError
from plugins.kit.faults.fault_set_d.common import NOTHING, source_fault, source_good
from rlenv_robot.data.statistics import moments

PLACES = ("dock", "hall", "door", "yard")


def is_whole(value):
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


class DictLog:
    """A list of dictionaries, one a step, with a text that an agent reads; it takes a few options and no others."""

    filters = ("episodes", "source", "min_return")
    divisor = 0

    def __init__(self):
        self.log = []
        dice = random.Random(4)
        for number in range(6):
            place, steps = dice.randrange(3), 3 + number % 4
            for k in range(steps):
                door = dice.randrange(3)
                after = (place + door) % 4
                self.log.append({
                    "run": number, "frame": k, "place": place, "door": door, "next": after,
                    "pay": self.pay(after, k == steps - 1), "end": k == steps - 1, "won": number % 2 == 0,
                    "label": "expert" if number < 2 else "random",
                })  # fmt: skip
                place = after
        self.init()

    def pay(self, place, last):
        return 5.0 if last and place == 3 else -1.0

    def checked(self, options, names, call):
        if not isinstance(options, Mapping):
            raise SourceError(f"{call}: options are a mapping")
        for name, value in options.items():
            if name not in names:
                raise SourceError(f"{call}: option {name!r} is unknown, allowed are {', '.join(names)}")
            if name in ("seed", "episode", "frame") and (not is_whole(value) or value < 0):
                raise SourceError(f"{call}: {name} is {value!r}, allowed is a whole number from 0")
        return {name: value for name, value in options.items() if value is not None}

    def init(self, options=NOTHING):
        given = self.checked(options, ("seed", "episode", "frame"), "init")
        run, frame = given.get("episode", 0), given.get("frame", 0)
        here = [one for one in self.log if one["run"] == run]
        if frame > len(here) or not here:
            raise SourceError(f"init: there is no frame {frame} of episode {run}")
        self.here = (run, frame, here[frame]["place"] if frame < len(here) else here[-1]["next"])
        self.dice = random.Random(given.get("seed"))

    def sums(self):
        totals = {}
        for one in self.log:
            totals[one["run"]] = totals.get(one["run"], 0) + one["pay"]
        return totals

    def chosen(self, options):
        totals, rest = self.sums(), self.log
        if "episodes" in options:
            runs = (
                range(6)[options["episodes"]] if isinstance(options["episodes"], slice) else list(options["episodes"])
            )
            if not set(runs) <= set(range(6)):
                raise SourceError(f"episodes are {runs}, there are 0 to 5")
            rest = [one for one in rest if one["run"] in runs]
        if "source" in options:
            words = [options["source"]] if isinstance(options["source"], str) else options["source"]
            rest = [one for one in rest if one["label"] in words]
        if "min_return" in options:
            rest = [one for one in rest if totals[one["run"]] >= options["min_return"]]
        if not rest:
            raise SourceError(
                f"the filters leave nothing; there are episodes 0 to 5, sources expert and random, returns {totals}"
            )
        return rest

    def size(self, count, name):
        if not is_whole(count) or count < 1:
            raise SourceError(f"{name} is {count!r}, allowed is a whole number from 1")
        return count

    def batch(self, rows):
        last = [one["end"] for one in rows]
        won = [one["end"] and one["won"] for one in rows]
        return {
            "env_id": np.array(["corridor"] * len(rows), object),
            "frame_no": np.array([one["frame"] for one in rows], np.int32),
            "observation": self.seen([one["place"] for one in rows]),
            "action": {"door": np.array([one["door"] for one in rows])},
            "reward": np.array([one["pay"] for one in rows]),
            "next_observation": self.seen([one["next"] for one in rows]),
            "done": np.array(last, np.int32),
            "extra_info": {
                "index": np.array([self.log.index(one) for one in rows]),
                "episode": np.array([one["run"] for one in rows]),
                "weights": np.ones(len(rows)), "terminated": np.array(won, np.int32),
                "truncated": np.array(last, np.int32) - np.array(won, np.int32),
            },
        }  # fmt: skip

    def seen(self, places):
        return {"place": np.array(places), "hint": np.array([PLACES[one] for one in places], "<U8")}

    def sample_steps(self, batch_size, extra_info=NOTHING):
        options = self.checked(extra_info, self.filters, "sample_steps")
        return self.batch(self.dice.choices(self.chosen(options), k=self.size(batch_size, "batch_size")))

    def sample_trajectories(self, trajectory_size, extra_info=NOTHING):
        options = self.checked(extra_info, self.filters, "sample_trajectories")
        runs = sorted({one["run"] for one in self.chosen(options)})
        drawn = self.dice.choices(runs, k=self.size(trajectory_size, "trajectory_size"))
        return [self.trajectory(run) for run in drawn]

    def trajectory(self, run):
        rows = [one for one in self.log if one["run"] == run]
        first, steps = self.log.index(rows[0]), self.batch(rows)
        return {
            "env_id": "corridor", "trajectory_id": run, "steps_set": steps,
            "extra_info": {
                "start": first, "end": first + len(rows), "length": len(rows),
                "return": float(sum(one["pay"] for one in rows)),
                "terminated": int(rows[-1]["won"]), "truncated": int(not rows[-1]["won"]), "source": rows[0]["label"],
            },
        }  # fmt: skip

    def get_all_actions(self, extra_info=NOTHING):
        rows = self.chosen(self.checked(extra_info, self.filters, "get_all_actions"))
        _, frame, place = self.here
        doors = sorted({one["door"] for one in self.rows_here(rows, place)})
        return {"env_id": "corridor", "frame_no": frame, "action": {"door": np.array(doors, np.int64)}}

    def rows_here(self, rows, place):
        return [one for one in rows if one["place"] == place]

    def statistics(self, extra_info=NOTHING):
        options = dict(self.checked(extra_info, ("kind", *self.filters), "statistics"))
        kind = options.pop("kind", "returns")
        if kind not in ("returns", "lengths"):
            raise SourceError(f"statistics: kind is {kind!r}, allowed are returns and lengths")
        runs = sorted({one["run"] for one in self.chosen(options)})
        values = [self.sums()[run] if kind == "returns" else sum(one["run"] == run for one in self.log) for run in runs]
        mean = sum(values) / len(values)
        square = sum((one - mean) ** 2 for one in values) / max(1, len(values) - self.divisor)
        return {"kind": kind, "episode": runs, kind.rstrip("s"): values, "mean": mean, "std": square**0.5,
                "min": min(values), "max": max(values)}  # fmt: skip


@source_fault("6.3.2.2-2", "a batch has batch_size steps", "draws")
class DctShort(DictLog):
    """A step that is drawn twice comes once, so batches are shorter."""

    def batch(self, rows):
        return super().batch([one for k, one in enumerate(rows) if one not in rows[:k]])


@source_fault("6.3.3.2-T6.trajectory_id", "trajectory_id is unique among the trajectories", "whole")
class DctIdIsLength(DictLog):
    """The trajectory's id is the number of its steps."""

    def trajectory(self, run):
        plain = super().trajectory(run)
        return {**plain, "trajectory_id": plain["extra_info"]["length"]}


@source_fault("B.2.2.3-2", "trajectories have a label of their source", "whole")
class DctNoSource(DictLog):
    """No trajectory says its source, though a filter goes by it."""

    def trajectory(self, run):
        plain = super().trajectory(run)
        del plain["extra_info"]["source"]
        return plain


@source_fault("6.3.2.4-1", "all actions of the present state", "inits")
class DctOwnAction(DictLog):
    """Only the action of the present frame is returned, not those in equal states."""

    def rows_here(self, rows, place):
        return [one for one in rows if (one["run"], one["frame"]) == self.here[:2]]


@source_fault("6.3.2.4-3", "get_all_actions returns Table 2", "inits")
class DctBareActions(DictLog):
    """The actions come as a bare list."""

    def get_all_actions(self, extra_info=NOTHING):
        return super().get_all_actions(extra_info)["action"]["door"].tolist()


@source_fault("contract", "std divides by the number of values", "figures")
class DctSampleDeviation(DictLog):
    """Std divides by one less than the number of values."""

    divisor = 1


@source_fault("6.3.3.2-T6.steps_set", "a trajectory's steps along time", "whole")
class DctBackwards(DictLog):
    """The steps of a trajectory come from the last to the first."""

    def trajectory(self, run):
        self.log.reverse()
        backwards = self.batch([one for one in self.log if one["run"] == run])
        self.log.reverse()
        return {**super().trajectory(run), "steps_set": backwards}


@source_fault("contract", "unknown and wrong options are refused", "wrong")
class DctPassesOver(DictLog):
    """An option that is not known is passed over in silence."""

    def checked(self, options, names, call):
        return super().checked({name: value for name, value in options.items() if name in names}, names, call)


@source_fault("6.3.2.1-3", "init returns nothing", "inits")
class DctChains(DictLog):
    """Init returns the source itself."""

    def init(self, options=NOTHING):
        super().init(options)
        return self


@source_fault("6.3.2.3-2", "as many trajectories as asked for", "draws")
class DctCapped(DictLog):
    """At most as many trajectories come as there are episodes."""

    def sample_trajectories(self, trajectory_size, extra_info=NOTHING):
        return super().sample_trajectories(trajectory_size, extra_info)[: len(self.sums())]


@source_good
class DctWhole(DictLog):
    """Rewards are whole numbers of int64, and a text is observed."""

    def pay(self, place, last):
        return 5 if last and place == 3 else -1


# -- episodes that are made when they are asked for ---------------------------------------------------------------


class GrownLog:
    """Thirty episodes of a spring, each computed from its number when it is drawn; its one option is episodes."""

    count, steps, dt = 30, 20, 0.1

    def __init__(self):
        self.starts = np.cumsum([0, *(self.length(one) for one in range(self.count))])
        self.init()

    def init(self, options=NOTHING):
        given = self.known(options, ("seed", "episode", "frame"))
        episode, frame = given.get("episode", 0), given.get("frame", 0)
        for value, top in ((given.get("seed", 0), 1 << 64), (episode, self.count - 1), (frame, self.length(episode))):
            if not is_whole(value) or not 0 <= value <= top:
                raise SourceError(f"init: {value!r} is not allowed, it is from 0 to {top}")
        self.state = (episode, frame)
        self.random = np.random.default_rng(given.get("seed"))

    def known(self, options, names):
        if not isinstance(options, Mapping) or set(options) - set(names):
            raise SourceError(f"options are {options!r}, allowed are {', '.join(names)}")
        return options

    def length(self, episode):
        return self.steps - (episode % 5 if is_whole(episode) else 0)

    def grow(self, episode):
        """Return place and speed (T + 1, 2), force (T, 1) and reward (T,) of an episode."""
        rng, length = np.random.default_rng(self.noise(episode)), self.length(episode)
        x = np.zeros((length + 1, 2))
        x[0] = rng.uniform(-1, 1, 2)
        force = np.round(rng.normal(size=(length, 1)), 2)
        for k in range(length):
            x[k + 1] = x[k] + self.dt * np.array([x[k, 1], force[k, 0] - x[k, 0]])
        return x, force, -np.square(x[1:, 0])

    def noise(self, episode):
        return 1000 + episode

    def numbers(self, options):
        given = self.known(options, ("episodes",))
        chosen = given.get("episodes", slice(None))
        numbers = np.arange(self.count)[chosen] if isinstance(chosen, slice) else np.asarray(chosen, int)
        if not len(numbers) or numbers.min() < 0 or numbers.max() >= self.count:
            raise SourceError(f"episodes are {chosen!r}, there are 0 to {self.count - 1}, and one must be left")
        return np.unique(numbers)

    def whole(self, size):
        if not is_whole(size) or size < 1:
            raise SourceError(f"the size is {size!r}, allowed is a whole number from 1")

    def sample_steps(self, batch_size, extra_info=NOTHING):
        self.whole(batch_size)
        numbers = self.numbers(extra_info)
        lengths = np.array([self.length(one) for one in numbers])
        slots = self.random.integers(0, lengths.sum(), batch_size)
        which = np.searchsorted(np.cumsum(lengths), slots, side="right")
        places = slots - (np.cumsum(lengths) - lengths)[which]
        return self.rows([(int(numbers[w]), int(k)) for w, k in zip(which, places, strict=True)])

    def rows(self, pairs):
        grown = {episode: self.grow(episode) for episode, _ in pairs}
        parts = [(grown[e][0][k], grown[e][1][k], grown[e][2][k], grown[e][0][k + 1]) for e, k in pairs]
        place, force, reward, after = (np.array(part) for part in zip(*parts, strict=True))
        over = np.array([k == self.length(e) - 1 for e, k in pairs], np.int32)
        return {
            "env_id": np.array(["spring"] * len(pairs), object), "frame_no": np.array([k for _, k in pairs], np.int32),
            "observation": {"spring": place}, "action": {"force": force}, "reward": reward,
            "next_observation": {"spring": after}, "done": over,
            "extra_info": {
                "index": np.array([self.starts[e] + k for e, k in pairs]), "episode": np.array([e for e, _ in pairs]),
                "terminated": np.zeros(len(pairs), np.int32), "truncated": over.copy(), "weights": np.ones(len(pairs)),
            },
        }  # fmt: skip

    def sample_trajectories(self, trajectory_size, extra_info=NOTHING):
        self.whole(trajectory_size)
        numbers = self.numbers(extra_info)
        return [self.tale(int(one)) for one in self.random.choice(numbers, trajectory_size)]

    def tale(self, episode):
        length = self.length(episode)
        steps = self.rows([(episode, k) for k in range(length)])
        return {
            "env_id": "spring", "trajectory_id": episode, "steps_set": steps,
            "extra_info": {"length": length, "return": float(steps["reward"].sum()), "terminated": 0, "truncated": 1,
                           "start": int(self.starts[episode]), "end": int(self.starts[episode + 1]),
                           "source": "random"},
        }  # fmt: skip

    def get_all_actions(self, extra_info=NOTHING):
        self.numbers(extra_info)
        episode, frame = self.state
        force = self.grow(episode)[1][frame : frame + 1]
        return {"env_id": "spring", "frame_no": frame, "action": {"force": force}}

    def statistics(self, extra_info=NOTHING):
        given = dict(self.known(extra_info, ("kind", "episodes")))
        if given.pop("kind", "returns") != "returns":
            raise SourceError("kind: allowed is returns")
        numbers = self.counted(self.numbers(given))
        values = np.array([self.grow(int(one))[2].sum() for one in numbers])
        return {"kind": "returns", "episode": numbers.tolist(), "return": values.tolist(), **moments(values)}

    def counted(self, numbers):
        return numbers


@source_fault("contract", "an index stands for one step", "whole")
class GrnOtherNoise(GrownLog):
    """An episode is made with other noise each time that it is drawn."""

    calls = 0

    def noise(self, episode):
        self.calls += 1
        return 1000 + episode + 100 * self.calls


@source_fault("contract", "a filter selects what it names", "filters")
class GrnFromOne(GrownLog):
    """Numbers of episodes count from 1 in the filter and from 0 elsewhere."""

    def numbers(self, options):
        numbers = super().numbers(options)
        return np.maximum(numbers - 1, 0) if "episodes" in options else numbers


@source_fault("contract", "a filter that leaves nothing is an error", "wrong")
class GrnEmptyIsAll(GrownLog):
    """A filter that leaves nothing is dropped, and all episodes are drawn."""

    def numbers(self, options):
        chosen = options.get("episodes", [0])
        return super().numbers({} if not isinstance(chosen, slice) and not len(chosen) else options)


@source_fault("contract", "a trajectory's facts agree with its steps", "whole")
class GrnEndsDiffer(GrownLog):
    """The last step says that it was terminated, and its trajectory that it was truncated."""

    def rows(self, pairs):
        table = super().rows(pairs)
        extra = table["extra_info"]
        extra["terminated"], extra["truncated"] = extra["truncated"], extra["terminated"]
        return table


@source_fault("6.3.2.5-1", "statistics describe the data that are asked for", "figures")
class GrnTenOnly(GrownLog):
    """Statistics describe the first ten episodes, to save time."""

    def counted(self, numbers):
        return numbers[:10]


@source_fault("contract", "tables are the caller's", "twice")
class GrnOneBuffer(GrownLog):
    """The observations of all batches of a size lie in the same memory."""

    def rows(self, pairs):
        table, self.pool = super().rows(pairs), getattr(self, "pool", {})
        values = table["observation"]["spring"]
        buffer = self.pool.setdefault(values.shape, np.empty_like(values))
        buffer[:] = values
        return {**table, "observation": {"spring": buffer}}


@source_good
class GrnMany(GrownLog):
    """Three thousand episodes that no memory holds at once."""

    count, steps = 3_000, 6


@source_good
class GrnLongNames(GrownLog):
    """Each episode is of an instance of its own, whose name has 36 characters of Chinese and Latin."""

    def rows(self, pairs):
        names = [self.name(episode) for episode, _ in pairs]
        return {**super().rows(pairs), "env_id": np.array(names, object)}

    def name(self, episode):
        return f"弹簧-{episode:02d}".ljust(36, "x")

    def tale(self, episode):
        return {**super().tale(episode), "env_id": self.name(episode)}

    def get_all_actions(self, extra_info=NOTHING):
        return {**super().get_all_actions(extra_info), "env_id": self.name(self.state[0])}
