"""Two correct source data, crossings of a ferry as arrays and lessons as lists of texts, and two unusual ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from hal import Field, SourceError, Spec
from plugins.kit.faults.fault_set_f.common import NOTHING, good
from plugins.kit.faults.fault_set_f.sources import DRAW, FILTERS, Options, Records, Step

SOURCES = ("expert", "random", "mixed", "expert", "mixed", "random")


def labels(count: int) -> list[dict[str, Any]]:
    return [{"source": SOURCES[e % 6], "success": (True, False, None)[e % 3]} for e in range(count)]


@good("source")
class Crossings(Records):
    """Crossings of a ferry: numbers in arrays, with windows, n-step returns and histograms."""

    title = "ferry"
    observation = Spec(
        "crossing_seen",
        (
            Field("place", (2,), "float32", -4, 4, "m", "of the ferry from the middle", ("along", "across")),
            Field("tide", (), "int32", -1, 1, "1", "direction of the tide"),
        ),
    )
    action = Spec(
        "crossing_done",
        (
            Field("rudder", (2,), "float32", -1, 1, "1", "of bow and stern", ("bow", "stern")),
            Field("sail", (), "int32", 0, 2, "1", "reefs"),
        ),
    )
    windows = ("n_step", "stack", "chunk", "future")
    kinds = ("summary", "returns", "histogram")

    def record(self) -> tuple[list[Step], list[dict[str, Any]]]:
        rng, steps, lengths = np.random.default_rng(11), list[Step](), (5, 8, 3, 6, 4, 7)
        for e, length in enumerate(lengths):
            seen = [self.observed(rng, f) for f in range(length + 1)]
            for f in range(length):
                action = {"rudder": rng.integers(-4, 5, 2) / 4, "sail": int(rng.integers(0, 3))}
                reward, end = float(rng.integers(-4, 9)) / 4, f == length - 1
                chance = float(-rng.integers(1, 9)) / 8
                ends = (int(end and e % 2 == 0), int(end and e % 2 == 1))
                steps.append(Step(e, f, seen[f], action, reward, seen[f + 1], *ends, chance))
        return steps, labels(len(lengths))

    def observed(self, rng: np.random.Generator, frame: int) -> dict[str, Any]:
        place = np.array([frame / 2 - 1.5, float(rng.integers(0, 2))], np.float32)
        return {"place": place, "tide": int(rng.integers(0, 2)) if frame else 0}

    def stacked(self, field: Field | None, values: list[Any]) -> Any:
        return np.array(values) if field is None else np.array(values, field.numpy_dtype).reshape(-1, *field.shape)

    def table(self, positions: list[int], weights: np.ndarray, options: Options) -> dict[str, Any]:
        table = super().table(positions, weights, options)
        extra = table["extra_info"]
        if "stack" in options:
            back = np.arange(1 - options["stack"], 1)
            table["observation"], extra["stack_mask"] = self.frames(positions, back)
            following = [p + n for p, n in zip(positions, extra["steps"].tolist(), strict=True)]
            table["next_observation"], extra["next_stack_mask"] = self.frames(positions, back, following)
        if "chunk" in options:
            table["action"], extra["chunk_mask"] = self.chunks(positions, options["chunk"])
        if "future" in options:
            ahead = self.ahead(options["future"])
            extra["future_observation"], extra["future_mask"] = self.frames(positions, ahead)
        return table

    def ahead(self, count: int) -> np.ndarray:
        return np.arange(1, count + 1)

    def span(self, position: int) -> tuple[int, int]:
        """Return the positions between which the frames of a step's episode lie, both included."""
        episode = self.steps[position].episode
        return self.first[episode], self.stop[episode]

    def frames(self, positions: list[int], offsets: np.ndarray, of: list[int] | None = None) -> tuple[Any, np.ndarray]:
        """Return the observations around steps (B, W), and which of them exist."""
        wide, mask = [], []
        for p, middle in zip(positions, of or positions, strict=True):
            low, high = self.span(p)
            asked = (middle + offsets).tolist()
            inside = [min(max(n, low), high) for n in asked]
            seen = [self.steps[n].observation if n < high else self.steps[n - 1].next_observation for n in inside]
            wide.append(self.fields(self.observation, seen))
            mask.append([a == b for a, b in zip(asked, inside, strict=True)])
        return {name: np.stack([w[name] for w in wide]) for name in self.observation.names}, self.exists(mask)

    def exists(self, mask: list[list[bool]]) -> np.ndarray:
        return np.array(mask)

    def chunks(self, positions: list[int], size: int) -> tuple[Any, np.ndarray]:
        inside = [[min(p + n, self.span(p)[1] - 1) for n in range(size)] for p in positions]
        wide = [self.fields(self.action, [self.steps[n].action for n in row]) for row in inside]
        mask = [[row[0] + n == place for n, place in enumerate(row)] for row in inside]
        return {name: np.stack([w[name] for w in wide]) for name in self.action.names}, np.array(mask)

    def summary(self, steps: list[Step]) -> dict[str, Any]:
        place = np.array([s.observation["place"] for s in steps], float)
        sail = np.bincount([s.action["sail"] for s in steps], minlength=3)
        return {"place": [self.moments(list(column)) for column in place.T], "sail": sail.tolist()}

    def histogram(self, options: Options, steps: list[Step]) -> dict[str, Any]:
        """Describe the elements of one field."""
        part, _, name = options.get("field", "reward").partition(".")
        spec = {"observation": self.observation, "action": self.action}.get(part, ())
        if part != "reward" and name not in [field.name for field in spec]:
            raise SourceError(f"histogram: field is {options.get('field')!r}, such as 'observation.place' or 'reward'")
        values = [s.reward if part == "reward" else getattr(s, part)[name] for s in steps]
        columns = np.array(values, float).reshape(len(steps), -1).T
        counts, edges = zip(*(self.counted(column, options.get("bins", 5)) for column in columns), strict=True)
        return {"counts": [c.tolist() for c in counts], "edges": [e.tolist() for e in edges]}

    def counted(self, column: np.ndarray, bins: int) -> Any:
        return np.histogram(column, bins)


QUESTIONS = ("What is 2 + 3?", "Name a prime.", "Spell ‘rhythm’. ", "三加四等于几？")
ANSWERS = ("five", "seven", "r-h-y-t-h-m", "七", " I don't know ")


@good("source")
class Lessons(Records):
    """Lessons of a tutor: texts and numbers in lists, with pairs of lessons of which one is better."""

    title = "school"
    observation = Spec(
        "lesson_seen",
        (
            Field("question", (), "text", meaning="of the tutor", characters=40),
            Field("mood", (), "int32", 0, 1, "1", "1 if the pupil is awake"),
        ),
    )
    action = Spec(
        "lesson_done",
        (
            Field("answer", (), "text", meaning="of the pupil", characters=20),
            Field("pause", (), "float64", 0, 10, "s", "before the answer"),
        ),
    )
    windows = ("n_step",)

    def record(self) -> tuple[list[Step], list[dict[str, Any]]]:
        rng, steps, lengths = np.random.default_rng(23), list[Step](), (4, 2, 6, 3, 5, 7, 3)
        for e, length in enumerate(lengths):
            drawn = rng.integers(0, (4, 2), (length + 1, 2)).tolist()
            seen = [{"question": QUESTIONS[n], "mood": m} for n, m in drawn]
            seen[0] = {"question": QUESTIONS[0], "mood": 1}
            for f in range(length):
                action = {"answer": ANSWERS[int(rng.integers(0, 5))], "pause": float(rng.integers(0, 3))}
                reward, end = float(rng.integers(-1, 4)), f == length - 1
                chance = float(-rng.integers(1, 9)) / 8
                ends = (int(end and e % 3 != 1), int(end and e % 3 == 1))
                steps.append(Step(e, f, seen[f], action, reward, seen[f + 1], *ends, chance))
        return steps, labels(len(lengths))

    def stacked(self, field: Field | None, values: list[Any]) -> Any:
        return list(values)

    def summary(self, steps: list[Step]) -> dict[str, Any]:
        asked = [s.observation["question"] for s in steps]
        return {"question": {text: asked.count(text) for text in sorted(set(asked))}}

    def sample_pairs(self, pair_size: int, extra_info: Options = NOTHING) -> list[dict[str, Any]]:
        """Draw pairs of lessons with different returns."""
        self.check_size(pair_size, "sample_pairs")
        options = self.read(extra_info, (*FILTERS, "min_margin"), "sample_pairs")
        least = options.get("min_margin", 0.0)
        pairs = [(a, b) for a in self.compared(options) for b in self.compared(options) if self.margin(a, b) > 0]
        pairs = [(a, b) for a, b in pairs if self.margin(a, b) >= least]
        if not pairs:
            self.select({"min_return": np.inf})  # raises
        drawn = [pairs[n] for n in self.rng.integers(0, len(pairs), pair_size).tolist()]
        return [self.pair(a, b) for a, b in drawn]

    def compared(self, options: Options) -> list[int]:
        return self.select(options)

    def margin(self, one: int, other: int) -> float:
        return self.returns[one] - self.returns[other]

    def pair(self, better: int, worse: int) -> dict[str, Any]:
        margin = self.margin(better, worse)
        return {"chosen": self.trajectory(better, 1.0), "rejected": self.trajectory(worse, 1.0), "margin": margin}


@good("source")
class SingleCrossings(Crossings):
    """Crossings of one step each, all ended by a limit, with read-only arrays and returns that are all equal."""

    def record(self) -> tuple[list[Step], list[dict[str, Any]]]:
        steps, info = super().record()
        ones = [next(s for s in steps if s.episode == e) for e in range(len(info))]
        return [s._replace(reward=1.0, terminated=0, truncated=1) for s in ones], info

    def stacked(self, field: Field | None, values: list[Any]) -> Any:
        array = super().stacked(field, values)
        array.setflags(write=False)
        return array


@good("source")
class PlainLessons(Lessons):
    """Lessons with neither optional part of Table 5, without priorities, that take no filter but `min_return`."""

    priorities = ()

    def read(self, options: Any, allowed: tuple[str, ...], call: str) -> dict[str, Any]:
        refused = {*FILTERS, *DRAW, *self.windows} - {"min_return"}
        return super().read(options, tuple(name for name in allowed if name not in refused), call)

    def table(self, positions: list[int], weights: np.ndarray, options: Options) -> dict[str, Any]:
        table = super().table(positions, weights, options)
        for name in ("next_observation", "done", "extra_info"):
            del table[name]
        return table
