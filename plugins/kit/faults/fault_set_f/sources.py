"""The draws, filters and states of both source data of this set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hal import Field, SourceError, Spec
from plugins.kit.faults.fault_set_f.common import NOTHING

DISCOUNT = 0.9
Options = Mapping[str, Any]


class Step(NamedTuple):
    """One transition."""

    episode: int
    frame: int
    observation: dict[str, Any]
    action: dict[str, Any]
    reward: float
    next_observation: dict[str, Any]
    terminated: int
    truncated: int
    log_probability: float


def is_whole(value: Any, low: int = 0) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= low


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


TESTS: dict[str, Callable[[Any], bool]] = {
    "episodes": lambda v: isinstance(v, list | slice) and (isinstance(v, slice) or all(is_whole(n) for n in v)),
    "source": lambda v: isinstance(v, str) or (isinstance(v, list) and all(isinstance(word, str) for word in v)),
    "expert": lambda v: isinstance(v, bool),
    "success": lambda v: isinstance(v, bool),
    "min_return": is_number,
    "top_fraction": lambda v: is_number(v) and 0 < v <= 1,
    "min_steps": is_whole,
    "max_steps": is_whole,
    "alpha": lambda v: is_number(v) and v >= 0,
    "beta": lambda v: is_number(v) and 0 <= v <= 1,
    "replace": lambda v: isinstance(v, bool),
    "n_step": lambda v: is_whole(v, 1),
    "stack": lambda v: is_whole(v, 1),
    "chunk": lambda v: is_whole(v, 1),
    "future": lambda v: is_whole(v, 1),
    "min_margin": lambda v: is_number(v) and v >= 0,
    "bins": lambda v: is_whole(v, 1),
    "seed": is_whole,
    "episode": is_whole,
    "frame": is_whole,
    "state": lambda v: isinstance(v, Mapping),
    "tolerance": lambda v: is_number(v) and v >= 0,
}
FILTERS = ("episodes", "source", "expert", "success", "min_return", "min_steps", "max_steps", "top_fraction")
DRAW = (*FILTERS, "priority", "alpha", "beta", "replace")


class Records:
    """The draws, filters and states of both; a subclass brings the records and the form of its tables."""

    title: str
    observation: Spec
    action: Spec
    windows: tuple[str, ...] = ()
    priorities: tuple[str, ...] = ("return", "reward", "td_error")
    kinds: tuple[str, ...] = ("summary", "returns")

    def __init__(self) -> None:
        self.steps, self.info = self.record()
        self.first = [next(p for p, s in enumerate(self.steps) if s.episode == e) for e in range(len(self.info))]
        self.stop = [*self.first[1:], len(self.steps)]
        self.returns = [sum(s.reward for s in self.steps[a:b]) for a, b in zip(self.first, self.stop, strict=True)]
        self.init()

    # -- what a subclass brings ------------------------------------------------------------------------

    def record(self) -> tuple[list[Step], list[dict[str, Any]]]:
        raise NotImplementedError

    def stacked(self, field: Field | None, values: list[Any]) -> Any:
        """Return the values of a batch in the form of these data."""
        raise NotImplementedError

    # -- init and options ------------------------------------------------------------------------------

    def init(self, options: Options = NOTHING) -> None:
        checked = self.read(options, ("seed", "episode", "frame"), "init")
        episode, frame = self.given(checked)
        if episode >= len(self.info) or frame >= self.stop[episode] - self.first[episode]:
            raise SourceError(f"init: there is no frame {frame} of an episode {episode}")
        self.current = (episode, frame)
        self.rng = np.random.default_rng(checked.get("seed"))
        self.forget()

    def given(self, options: Options) -> tuple[int, int]:
        return options.get("episode", 0), options.get("frame", 0)

    def forget(self) -> None:
        self.errors: np.ndarray | None = None

    def read(self, options: Any, allowed: tuple[str, ...], call: str) -> dict[str, Any]:
        if not isinstance(options, Mapping):
            raise SourceError(f"{call} got {options!r:.60}, expected a mapping of options")
        choices = {"priority": self.priorities, "kind": self.kinds}
        for name, value in options.items():
            if name not in allowed:
                raise SourceError(f"{call}: option {name!r} is unknown, allowed are {', '.join(allowed)}")
            if not (value in choices[name] if name in choices else TESTS.get(name, lambda _: True)(value)):
                raise SourceError(f"{call}: option {name!r} is {value!r:.60}, which is not allowed")
        return dict(options)

    def check_size(self, size: Any, call: str) -> None:
        if not is_whole(size, 1):
            raise SourceError(f"{call}: the size is {size!r:.60}, it must be a whole number from 1")

    # -- filters and draws -----------------------------------------------------------------------------

    def select(self, options: Options) -> list[int]:
        """Return the episodes that pass the filters, at least one."""
        left = list(range(len(self.info)))
        for name in FILTERS:
            if name in options:
                left = self.passing(name, options[name], left)
                if not left:
                    raise SourceError(f"{name}={options[name]!r} leaves nothing")
        return left

    def passing(self, name: str, value: Any, left: list[int]) -> list[int]:
        if name == "episodes":
            asked = range(len(self.info))[value] if isinstance(value, slice) else value
            if any(e >= len(self.info) for e in asked):
                raise SourceError(f"episodes={value!r}: there are 0 to {len(self.info) - 1}")
            return [e for e in left if e in asked]
        if name == "top_fraction":
            best = sorted(left, key=lambda e: -self.returns[e])[: max(1, round(value * len(left)))]
            return sorted(best)
        tests: dict[str, Callable[[int], bool]] = {
            "source": lambda e: self.info[e]["source"] in ([value] if isinstance(value, str) else value),
            "expert": lambda e: (self.info[e]["source"] == "expert") is value,
            "success": lambda e: self.info[e]["success"] is value,
            "min_return": lambda e: self.returns[e] >= value,
            "min_steps": lambda e: self.stop[e] - self.first[e] >= value,
            "max_steps": lambda e: self.stop[e] - self.first[e] <= value,
        }
        return [e for e in left if tests[name](e)]

    def positions(self, options: Options) -> list[int]:
        return [p for e in self.select(options) for p in range(self.first[e], self.stop[e])]

    def to_go(self, position: int) -> float:
        """Return the discounted sum of the rewards from a step on."""
        stop = self.stop[self.steps[position].episode]
        return sum(DISCOUNT ** (p - position) * self.steps[p].reward for p in range(position, stop))

    def scores(self, positions: list[int], priority: str) -> np.ndarray:
        """Return the priorities of steps, all above 0."""
        if priority == "td_error":
            return self.error_sizes()[positions] + 1e-6
        worth = [self.to_go(p) if priority == "return" else self.steps[p].reward for p in positions]
        return self.raised(np.array(worth))

    def raised(self, worth: np.ndarray) -> np.ndarray:
        return worth - worth.min() + (0.01 * (worth.max() - worth.min()) or 1.0)

    def error_sizes(self) -> np.ndarray:
        if self.errors is None:
            return np.ones(len(self.steps))
        largest = np.nanmax(np.abs(self.errors))
        return np.where(np.isnan(self.errors), largest, np.abs(self.errors))

    def update_priorities(self, index: Any, td_error: Any) -> None:
        places, errors = np.asarray(index), np.asarray(td_error, float)
        if places.shape != errors.shape or not np.isfinite(errors).all() or places.dtype.kind not in "iu":
            raise SourceError("update_priorities takes as many finite errors as positions")
        if ((places < 0) | (places >= len(self.steps))).any():
            raise SourceError(f"update_priorities: positions are 0 to {len(self.steps) - 1}")
        if self.errors is None:
            self.errors = np.full(len(self.steps), np.nan)
        self.errors[places] = errors

    def draw(self, count: int, size: int, scores: np.ndarray | None, options: Options) -> tuple[Any, Any]:
        """Return drawn numbers below ``count`` and their weights."""
        chances = np.ones(count) if scores is None else scores ** options.get("alpha", 1.0)
        chances = chances / chances.sum()
        replace = options.get("replace", True)
        if not replace and size > count:
            raise SourceError(f"{size} are more than the {count} that are left, and replace is False")
        drawn = self.rng.choice(count, size, replace=replace, p=chances)
        return drawn, self.weights(chances, options.get("beta", 0.0))[drawn]

    def weights(self, chances: np.ndarray, beta: float) -> np.ndarray:
        weights = (len(chances) * chances) ** -beta
        return weights / weights.max()

    # -- the standard's functions ----------------------------------------------------------------------

    def sample_steps(self, batch_size: int, extra_info: Options = NOTHING) -> dict[str, Any]:
        self.check_size(batch_size, "sample_steps")
        options = self.read(extra_info, (*DRAW, *self.windows), "sample_steps")
        positions = self.positions(options)
        scores = self.scores(positions, options["priority"]) if "priority" in options else None
        drawn, weights = self.draw(len(positions), batch_size, scores, options)
        return self.table([positions[n] for n in drawn.tolist()], weights, options)

    def sample_trajectories(self, trajectory_size: int, extra_info: Options = NOTHING) -> list[dict[str, Any]]:
        self.check_size(trajectory_size, "sample_trajectories")
        options = self.read(extra_info, DRAW, "sample_trajectories")
        episodes = self.select(options)
        if options.get("priority", "return") != "return":
            raise SourceError("sample_trajectories: priority is 'return'")
        worth = np.array([self.returns[e] for e in episodes])
        drawn, weights = self.draw(
            len(episodes), trajectory_size, self.raised(worth) if "priority" in options else None, options
        )
        return [self.trajectory(episodes[n], w) for n, w in zip(drawn.tolist(), weights.tolist(), strict=True)]

    def trajectory(self, episode: int, weight: float) -> dict[str, Any]:
        positions = self.along(episode)
        last = self.steps[positions[-1]]
        return {
            "env_id": self.name(episode),
            "trajectory_id": episode,
            "steps_set": self.table(positions, np.ones(len(positions)), {}),
            "extra_info": {
                "start": self.first[episode],
                "end": self.stop[episode],
                "length": self.stop[episode] - self.first[episode],
                "return": self.returns[episode],
                "terminated": last.terminated,
                "truncated": last.truncated,
                "weight": weight,
                **self.labels(episode),
            },
        }

    def along(self, episode: int) -> list[int]:
        return list(range(self.first[episode], self.stop[episode]))

    def labels(self, episode: int) -> dict[str, Any]:
        return {"source": self.info[episode]["source"], "success": self.info[episode]["success"]}

    def name(self, episode: int) -> str:
        return f"{self.title}-{episode % 2}"

    def last(self, position: int, n: int) -> int:
        """Return the last step of n steps from a position on."""
        return min(position + n, self.stop[self.steps[position].episode]) - 1

    def summed(self, position: int, last: int) -> float:
        return sum(DISCOUNT ** (p - position) * self.steps[p].reward for p in range(position, last + 1))

    def table(self, positions: list[int], weights: np.ndarray, options: Options) -> dict[str, Any]:
        """Return Table 5 of steps at positions."""
        lasts = [self.last(p, options.get("n_step", 1)) for p in positions]
        here, ends = [self.steps[p] for p in positions], [self.steps[p] for p in lasts]
        counts = [b - a + 1 for a, b in zip(positions, lasts, strict=True)]
        numbers: dict[str, list[Any]] = {
            "index": list(positions),
            "weights": weights.tolist(),
            "episode": [s.episode for s in here],
            "steps": counts,
            "terminated": [s.terminated for s in ends],
            "truncated": [s.truncated for s in ends],
            "discount": [self.factor(s, n) for s, n in zip(ends, counts, strict=True)],
            "log_probability": [self.steps[p].log_probability for p in positions],
        }
        return {
            "env_id": self.stacked(None, [self.name(s.episode) for s in here]),
            "frame_no": self.stacked(Field("frame_no", (), "int32"), [s.frame for s in here]),
            "observation": self.fields(self.observation, [s.observation for s in here]),
            "action": self.fields(self.action, [s.action for s in here]),
            "reward": self.stacked(None, [self.summed(a, b) for a, b in zip(positions, lasts, strict=True)]),
            "next_observation": self.fields(self.observation, [self.following(p) for p in lasts]),
            "done": self.stacked(Field("done", (), "int32"), [self.is_done(s) for s in ends]),
            "extra_info": {name: self.stacked(None, values) for name, values in numbers.items()},
        }

    def following(self, position: int) -> dict[str, Any]:
        return self.steps[position].next_observation

    def is_done(self, step: Step) -> int:
        return max(step.terminated, step.truncated)

    def factor(self, step: Step, count: int) -> float:
        return 0.0 if step.terminated else DISCOUNT**count

    def fields(self, spec: Spec, values: list[dict[str, Any]]) -> dict[str, Any]:
        return {field.name: self.stacked(field, [value[field.name] for value in values]) for field in spec}

    def get_all_actions(self, extra_info: Options = NOTHING) -> dict[str, Any]:
        options = self.read(extra_info, (*FILTERS, "state", "tolerance"), "get_all_actions")
        episode, frame = self.current
        step = self.steps[self.first[episode] + frame]
        state = options.get("state", step.observation)
        if set(state) != set(self.observation.names):
            raise SourceError(f"get_all_actions: a state has {', '.join(self.observation.names)}")
        near = [self.steps[p] for p in self.among(options)]
        near = [s for s in near if self.is_near(s.observation, state, options.get("tolerance", 0.0))]
        taken = self.fields(self.action, self.distinct([s.action for s in near]))
        return {"env_id": self.name(episode), "frame_no": step.frame, "action": taken}

    def among(self, options: Options) -> list[int]:
        return self.positions(options)

    def distinct(self, actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return list({repr(action): action for action in actions}.values())

    def is_near(self, one: Options, other: Options, tolerance: float) -> bool:
        for name, value in one.items():
            given = np.asarray(other[name])
            if isinstance(value, str):
                if value != str(given):
                    return False
            elif given.shape != np.shape(value) or (np.abs(np.asarray(value, float) - given) > tolerance).any():
                return False
        return True

    def statistics(self, extra_info: Options = NOTHING) -> dict[str, Any]:
        options = self.read(extra_info, (*FILTERS, "kind", "field", "bins"), "statistics")
        episodes = self.described(options)
        steps = [s for s in self.steps if s.episode in episodes]
        kind = options.get("kind", "summary")
        if kind == "returns":
            return {"returns": self.moments([self.returns[e] for e in episodes])}
        if kind == "histogram":
            return self.histogram(options, steps)
        return {
            "episodes": len(episodes),
            "steps": len(steps),
            "reward": self.moments([s.reward for s in steps]),
            **self.summary(steps),
        }

    def described(self, options: Options) -> list[int]:
        return self.select(options)

    def summary(self, steps: list[Step]) -> dict[str, Any]:
        return {}

    def moments(self, values: list[float]) -> dict[str, float]:
        array = np.array(values, float)
        ends = {"min": float(array.min()), "max": float(array.max())}
        return {"mean": float(array.mean()), "std": self.spread(array), **ends}

    def spread(self, array: np.ndarray) -> float:
        return float(array.std())

    def histogram(self, options: Options, steps: list[Step]) -> dict[str, Any]:
        raise SourceError("statistics: kind 'histogram' is not offered here")
