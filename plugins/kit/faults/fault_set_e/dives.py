"""Correct source data: dives of a glider, as arrays over all steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import rlenv_robot as rr

from .common import NOTHING, good

FILTERS = {
    "episodes",
    "source",
    "policy",
    "verdict",
    "expert",
    "success",
    "min_return",
    "top_fraction",
    "min_steps",
    "max_steps",
}
DRAWS = {"priority", "alpha", "beta", "replace"}
LABELS = ("source", "policy", "verdict", "expert", "success", "end_reason", "seed")


def _number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: object, low: int = 1) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= low


def _wrong(option: str, value: object, expected: str) -> rr.SourceError:
    return rr.SourceError(f"{option} is {value!r}, expected {expected}")


@good("source")
class Dives:
    """Ten dives of a glider, all options of the page; arrays over all steps."""

    discount = 0.9

    def __init__(self) -> None:
        self.record(np.random.default_rng(417))
        self.rng = np.random.default_rng()
        self.state = 0, 0
        self.errors = np.full(self.count, np.nan)

    # -- The data

    def record(self, rng: np.random.Generator) -> None:
        """Make the recorded dives: rows of observations, each episode with one more than its steps."""
        lengths = [4, 7, 3, 9, 5, 7, 6, 4, 8, 5]
        depth, speed, pump, gear, reward, labels = [], [], [], [], [], []
        for number, length in enumerate(lengths):
            d, v = 10.0 * (number % 3), np.zeros(2)
            depth.append(d)
            speed.append(v)
            for step in range(length):
                p, m = rng.integers(-2, 3) / 4, int(rng.integers(3))
                v = np.round(0.5 * v + [p, 0.25 * m], 3)
                d = float(np.clip(d + 8 * v[0] + 2, 0, 80))
                pump.append([p, p / 2 + 0.1 * (step % 2)])
                gear.append(m)
                reward.append(round(0.05 + d / 100 + 0.1 * m, 4))
                depth.append(d)
                speed.append(v)
            terminated = number % 3 != 1
            labels.append({
                "source": ("expert", "random", "mixed")[number % 3], "policy": f"p{number % 4}",
                "verdict": (None, "success", "failure")[number % 3 if number < 7 else 0], "expert": number % 3 == 0,
                "success": number % 2 == 0, "end_reason": "surface" if terminated else "time", "seed": 50 + number,
                "terminated": int(terminated),
            })  # fmt: skip
        self.lengths, self.labels = np.array(lengths), labels
        self.starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        self.count, self.number = int(sum(lengths)), len(lengths)
        self.depth, self.speed = np.array(depth, np.float32), np.array(speed, np.float32)
        self.pump, self.gear = np.array(pump, np.float32), np.array(gear, np.int32)
        self.reward = np.array(reward, np.float64)
        self.episode = np.repeat(np.arange(self.number), lengths)
        self.frame = np.concatenate([np.arange(length) for length in lengths])
        self.row = np.arange(self.count) + self.episode
        self.names = np.array([f"glider-{number % 2}" for number in range(self.number)], object)

    def __len__(self) -> int:
        return self.count

    def returns(self) -> np.ndarray:
        return np.array([self.reward[self.part(e)].sum() for e in range(self.number)])

    def part(self, e: int) -> slice:
        return slice(int(self.starts[e]), int(self.starts[e] + self.lengths[e]))

    def to_go(self) -> np.ndarray:
        """Return each step's discounted return to the episode's end."""
        sums = np.zeros(self.count)
        for e in range(self.number):
            total = 0.0
            for position in reversed(range(self.count)[self.part(e)]):
                total = self.reward[position] + self.discount * total
                sums[position] = total
        return sums

    # -- The five functions

    def init(self, options: Any = NOTHING) -> None:
        self.known(options, {"seed", "episode", "frame"})
        seed, e, frame = options.get("seed"), options.get("episode", 0), options.get("frame", 0)
        if seed is not None and not _whole(seed, 0):
            raise _wrong("seed", seed, "a whole number from 0")
        if not _whole(e, 0) or e >= self.number:
            raise _wrong("episode", e, f"a number from 0 to {self.number - 1}")
        if not _whole(frame, 0) or frame >= self.lengths[e]:
            raise _wrong("frame", frame, f"a number from 0 to {self.lengths[e] - 1}")
        self.state = int(e), int(frame)
        self.errors[:] = np.nan
        self.seeded(seed)

    def seeded(self, seed: Any) -> None:
        self.rng = np.random.default_rng(seed)

    def sample_steps(self, batch_size: int, extra_info: Any = NOTHING) -> dict[str, Any]:
        self.known(extra_info, FILTERS | DRAWS | {"n_step", "stack"})
        self.sized(batch_size)
        positions = self.select(extra_info)
        chances = self.chances(positions, extra_info)
        chosen = self.draw(len(positions), batch_size, chances, extra_info)
        weights = self.weights(chances, extra_info)[chosen]
        return self.steps(positions[chosen], weights, extra_info)

    def sample_trajectories(self, trajectory_size: int, extra_info: Any = NOTHING) -> list[dict[str, Any]]:
        self.known(extra_info, FILTERS | DRAWS | {"length"})
        self.sized(trajectory_size)
        episodes = np.unique(self.episode[self.select(extra_info)])
        if extra_info.get("priority") not in (None, "return"):
            raise _wrong("priority", extra_info["priority"], "return")
        length = extra_info.get("length")
        if length is not None:
            return self.pieces(trajectory_size, length, extra_info)
        chances = self.powers(self.returns()[episodes] if "priority" in extra_info else None, len(episodes), extra_info)
        chosen = self.draw(len(episodes), trajectory_size, chances, extra_info)
        weights = self.weights(chances, extra_info)
        return [self.trajectory(int(episodes[i]), weights[i]) for i in chosen]

    def get_all_actions(self, extra_info: Any = NOTHING) -> dict[str, Any]:
        self.known(extra_info, FILTERS | {"tolerance", "state"})
        e, frame = self.state
        row = self.row[self.starts[e] + frame]
        here = {"depth": self.depth[row], "speed": self.speed[row]} | dict(extra_info.get("state", {}))
        tolerance = extra_info.get("tolerance", 0)
        if not _number(tolerance) or tolerance < 0:
            raise _wrong("tolerance", tolerance, "a number from 0")
        positions = self.select(extra_info)
        near = self.near(positions, here, float(tolerance))
        both = np.column_stack([self.pump[positions[near]], self.gear[positions[near]]]).reshape(-1, 3)
        kinds = np.unique(both, axis=0)
        return {
            "env_id": str(self.names[e]), "frame_no": int(frame),
            "action": {"pump": kinds[:, :2].astype(np.float32), "mode": kinds[:, 2].astype(np.int32)},
        }  # fmt: skip

    def near(self, positions: np.ndarray, here: dict[str, Any], tolerance: float) -> np.ndarray:
        rows = self.row[positions]
        gap = np.abs(self.depth[rows] - here["depth"])
        gaps = np.abs(self.speed[rows] - here["speed"]).max(1)
        return (gap <= tolerance) & (gaps <= tolerance)

    def statistics(self, extra_info: Any = NOTHING) -> dict[str, Any]:
        kind = extra_info.get("kind", "summary")
        self.known(extra_info, FILTERS | {"kind"} | ({"field", "bins"} if kind == "histogram" else set()))
        positions = self.select(extra_info)
        episodes = np.unique(self.episode[positions])
        totals = self.returns()[episodes]
        if kind == "summary":
            fields = {name: self.moments(values) for name, values in self.columns(positions).items()}
            return {"kind": kind, "episodes": len(episodes), "steps": len(positions),
                    "lengths": self.moments(self.lengths[episodes]), "returns": self.moments(totals),
                    "rewards": self.moments(self.reward[positions]), "fields": fields}  # fmt: skip
        if kind == "returns":
            return {"kind": kind, "episode": episodes.tolist(), "return": totals.tolist(), **self.moments(totals)}
        if kind == "episodes":
            rows = [{"episode": int(e), "length": int(self.lengths[e]), "return": float(total), **self.labels[e]}
                    for e, total in zip(episodes, totals, strict=True)]  # fmt: skip
            return {"kind": kind, "episodes": rows}
        if kind == "histogram":
            return self.histogram(positions, extra_info)
        raise _wrong("kind", kind, "summary, returns, episodes or histogram")

    def histogram(self, positions: np.ndarray, extra_info: Any) -> dict[str, Any]:
        columns = {"reward": self.reward[positions]} | self.columns(positions)
        field, bins = extra_info.get("field"), extra_info.get("bins", 10)
        if field not in columns or not _whole(bins):
            raise _wrong("field or bins", (field, bins), f"one of {sorted(columns)} and a number from 1")
        values = columns[field].reshape(len(positions), -1)
        drawn = [np.histogram(values[:, k].astype(float), bins) for k in range(values.shape[1])]
        return {"kind": "histogram", "field": field, "counts": [counts.tolist() for counts, _ in drawn],
                "edges": [edges.tolist() for _, edges in drawn]}  # fmt: skip

    def columns(self, positions: np.ndarray) -> dict[str, np.ndarray]:
        rows = self.row[positions]
        return {"observation.depth": self.depth[rows], "observation.speed": self.speed[rows],
                "action.pump": self.pump[positions], "action.mode": self.gear[positions]}  # fmt: skip

    @staticmethod
    def moments(values: np.ndarray) -> dict[str, Any]:
        values = values.astype(np.float64)
        return {"mean": values.mean(0).tolist(), "std": values.std(0).tolist(),
                "min": values.min(0).tolist(), "max": values.max(0).tolist()}  # fmt: skip

    def sample_pairs(self, pair_size: int, extra_info: Any = NOTHING) -> list[dict[str, Any]]:
        """Draw pairs of dives, the better one first."""
        self.known(extra_info, FILTERS | {"by", "min_margin"})
        self.sized(pair_size)
        by, least = extra_info.get("by", "return"), extra_info.get("min_margin", 0)
        if by not in ("return", "success") or not _number(least) or least < 0:
            raise _wrong("by or min_margin", (by, least), "return or success, and a number from 0")
        episodes = np.unique(self.episode[self.select(extra_info)])
        scores = self.returns() if by == "return" else self.successes()
        pairs = [
            (a, b) for a in episodes for b in episodes if scores[a] - scores[b] > 0 and scores[a] - scores[b] >= least
        ]
        if not pairs:
            raise rr.SourceError("no two dives differ by so much")
        drawn = [pairs[i] for i in self.rng.integers(len(pairs), size=pair_size)]
        return [{"chosen": self.trajectory(int(a), 1.0), "rejected": self.trajectory(int(b), 1.0),
                 "margin": float(scores[a] - scores[b])} for a, b in drawn]  # fmt: skip

    def successes(self) -> np.ndarray:
        known = {"success": 1.0, "failure": 0.0, None: np.nan}
        return np.array([known[labels["verdict"]] for labels in self.labels])

    def update_priorities(self, index: Any, td_error: Any) -> None:
        """Set the TD errors of steps."""
        index, sizes = np.asarray(index), np.abs(np.asarray(td_error, np.float64))
        if index.shape != sizes.shape or index.ndim != 1 or (len(index) and index.dtype.kind not in "iu"):
            raise rr.SourceError("index and td_error must have the same shape (B,)")
        if (len(index) and not (index.min() >= 0 and index.max() < self.count)) or not np.isfinite(sizes).all():
            raise rr.SourceError("an index is out of range, or an error is not finite")
        self.errors[index] = sizes

    def positions(self, extra_info: Any = NOTHING) -> np.ndarray:
        """Return the positions of the steps that pass the filters."""
        self.known(extra_info, FILTERS)
        return self.select(extra_info)

    def steps_at(self, index: Any, extra_info: Any = NOTHING) -> dict[str, Any]:
        """Return the steps at given positions."""
        self.known(extra_info, {"n_step", "stack"})
        index = np.asarray(index, np.int64)
        if len(index) and not (index.min() >= 0 and index.max() < self.count):
            raise rr.SourceError("a position is out of range")
        return self.steps(index, np.ones(len(index)), extra_info)

    # -- Options

    @staticmethod
    def known(options: Any, names: set[str]) -> None:
        unknown = set(options) - names
        if unknown:
            raise rr.SourceError(f"options {sorted(map(str, unknown))} are unknown, allowed are {sorted(names)}")

    @staticmethod
    def sized(size: object) -> None:
        if not _whole(size):
            raise _wrong("the size", size, "a whole number from 1")

    def select(self, options: Any) -> np.ndarray:
        """Return the positions that pass the filters, in order."""
        left = np.ones(self.number, bool)
        if "episodes" in options:
            left &= self.listed(options["episodes"])
        for name in ("source", "policy", "verdict"):
            if name in options:
                left &= self.labelled(name, options[name])
        for name in ("expert", "success"):
            if name in options:
                if not isinstance(options[name], bool | np.bool_):
                    raise _wrong(name, options[name], "True or False")
                left &= np.array([labels[name] == options[name] for labels in self.labels])
        left &= self.bounded(options)
        if "top_fraction" in options:
            left &= self.top(left, options["top_fraction"])
        positions = np.flatnonzero(left[self.episode])
        if not len(positions):
            raise rr.SourceError(f"the filters {sorted(options)} leave nothing")
        return positions

    def listed(self, episodes: Any) -> np.ndarray:
        numbers = range(self.number)[episodes] if isinstance(episodes, slice) else list(episodes)
        if not all(_whole(e, 0) and e < self.number for e in numbers):
            raise _wrong("episodes", episodes, f"numbers from 0 to {self.number - 1}")
        return np.isin(np.arange(self.number), list(numbers))

    def labelled(self, name: str, wanted: Any) -> np.ndarray:
        values = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
        return np.array([labels[name] in values for labels in self.labels])

    def bounded(self, options: Any) -> np.ndarray:
        for name in ("min_return", "min_steps", "max_steps"):
            if name in options and not _number(options[name]):
                raise _wrong(name, options[name], "a number")
        left = self.returns() >= options.get("min_return", -np.inf)
        left &= self.lengths >= options.get("min_steps", 0)
        return left & (self.lengths <= options.get("max_steps", np.inf))

    def top(self, left: np.ndarray, fraction: Any) -> np.ndarray:
        if not _number(fraction) or not 0 < fraction <= 1:
            raise _wrong("top_fraction", fraction, "a number above 0, up to 1")
        episodes = np.flatnonzero(left)
        best = episodes[np.argsort(-self.returns()[episodes], kind="stable")][: math.ceil(fraction * len(episodes))]
        return np.isin(np.arange(self.number), best)

    # -- Chances

    def chances(self, positions: np.ndarray, options: Any) -> np.ndarray:
        kind = options.get("priority")
        if kind is None:
            return self.powers(None, len(positions), options)
        if kind == "td_error":
            return self.powers(self.sizes()[positions], len(positions), options)
        if kind == "advantage":
            return self.powers(self.advantages()[positions], len(positions), options)
        if kind not in ("return", "reward"):
            raise _wrong("priority", kind, "return, reward, advantage or td_error")
        return self.powers((self.to_go() if kind == "return" else self.reward)[positions], len(positions), options)

    def sizes(self) -> np.ndarray:
        largest = np.nanmax(self.errors) if not np.isnan(self.errors).all() else 1.0
        return np.where(np.isnan(self.errors), largest, self.errors)

    def advantages(self) -> np.ndarray:
        to_go = self.to_go()
        mean = np.array([to_go[self.frame == frame].mean() for frame in range(int(self.frame.max()) + 1)])
        return np.maximum(to_go - mean[self.frame], 0)

    @staticmethod
    def powers(priorities: np.ndarray | None, n: int, options: Any) -> np.ndarray:
        for name, high in (("alpha", np.inf), ("beta", 1)):
            if name in options and not (_number(options[name]) and 0 <= options[name] <= high):
                raise _wrong(name, options[name], f"a number from 0 to {high}")
        if priorities is None or not priorities.any():
            return np.full(n, 1 / n)
        powers = np.where(priorities > 0, np.maximum(priorities, 1e-300) ** options.get("alpha", 1), 0.0)
        return powers / powers.sum()

    @staticmethod
    def weights(chances: np.ndarray, options: Any) -> np.ndarray:
        least = chances[chances > 0].min()
        return (np.maximum(chances, least) / least) ** -float(options.get("beta", 0))

    def draw(self, n: int, size: int, chances: np.ndarray, options: Any) -> np.ndarray:
        replace = options.get("replace", True)
        if not isinstance(replace, bool):
            raise _wrong("replace", replace, "True or False")
        if not replace and size > np.count_nonzero(chances):
            raise _wrong("the size", size, f"at most {np.count_nonzero(chances)} without replacement")
        return self.rng.choice(n, size, replace, chances)

    # -- Tables

    def steps(self, index: np.ndarray, weights: np.ndarray, options: Any) -> dict[str, Any]:
        n, stack = options.get("n_step", 1), options.get("stack")
        if not _whole(n) or (stack is not None and not _whole(stack)):
            raise _wrong("n_step or stack", (n, stack), "a number from 1")
        e = self.episode[index]
        ends = self.starts[e] + self.lengths[e]
        last = np.minimum(index + n, ends) - 1
        spans = last - index + 1
        reward = np.array(
            [sum(self.reward[i + k] * self.discount**k for k in range(m)) for i, m in zip(index, spans, strict=True)]
        )
        done = (last == ends - 1).astype(np.int32)
        ended = np.array([self.labels[k]["terminated"] for k in e], np.int32).reshape(len(index))
        terminated = done * ended
        extra = {
            "index": index.copy(), "weights": weights.copy(),
            "episode": e.astype(np.int32), "steps": spans.astype(np.int64),
            "terminated": terminated, "truncated": done - terminated,
            "discount": np.where(terminated == 1, 0.0, self.discount**spans),
        }  # fmt: skip
        rows, observation = self.row[index], {}
        if stack is None:
            observation = {"depth": self.depth[rows], "speed": self.speed[rows]}
        else:
            back = np.arange(stack)[::-1]
            wanted = rows[:, None] - back
            first = (self.starts[e] + e)[:, None]
            extra["stack_mask"] = wanted >= first
            frames = np.maximum(wanted, first)
            observation = {"depth": self.depth[frames], "speed": self.speed[frames]}
        following = self.row[last] + 1
        return {
            "env_id": self.names[e], "frame_no": self.frame[index].astype(np.int32), "observation": observation,
            "action": {"pump": self.pump[index], "mode": self.gear[index]}, "reward": reward.reshape(len(index)),
            "next_observation": {"depth": self.depth[following], "speed": self.speed[following]}
            if stack is None else self.stacked(following, e, stack),
            "done": done, "extra_info": extra,
        }  # fmt: skip

    def stacked(self, rows: np.ndarray, e: np.ndarray, stack: int) -> dict[str, np.ndarray]:
        frames = np.maximum(rows[:, None] - np.arange(stack)[::-1], (self.starts[e] + e)[:, None])
        return {"depth": self.depth[frames], "speed": self.speed[frames]}

    def trajectory(self, e: int, weight: float, part: slice | None = None) -> dict[str, Any]:
        part = part or self.part(e)
        index = np.arange(part.start, part.stop)
        steps = self.steps(index, np.full(len(index), 1.0), NOTHING)
        extra = {
            "start": part.start, "end": part.stop, "length": len(index), "return": float(self.reward[part].sum()),
            "terminated": int(steps["extra_info"]["terminated"][-1]),
            "truncated": int(steps["extra_info"]["truncated"][-1]),
            "lost": 0, "weight": float(weight), **{name: self.labels[e][name] for name in LABELS},
        }  # fmt: skip
        return {"env_id": str(self.names[e]), "trajectory_id": e, "steps_set": steps, "extra_info": extra}

    def pieces(self, size: int, length: Any, options: Any) -> list[dict[str, Any]]:
        if not _whole(length):
            raise _wrong("length", length, "a number from 1")
        positions = self.select(options)
        ends = self.starts[self.episode[positions]] + self.lengths[self.episode[positions]]
        firsts = positions[positions + length <= ends]
        if not len(firsts):
            raise rr.SourceError(f"no dive has {length} steps")
        sums = np.array([self.reward[i : i + length].sum() for i in firsts])
        chances = self.powers(sums if "priority" in options else None, len(firsts), options)
        chosen, weights = self.draw(len(firsts), size, chances, options), self.weights(chances, options)
        return [
            self.trajectory(int(self.episode[firsts[i]]), weights[i], slice(int(firsts[i]), int(firsts[i]) + length))
            for i in chosen
        ]
