"""Keep what a source showed of each step and trajectory, and tell where a later draw shows it otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from rlenv_kit.report import Failed
from rlenv_kit.source_tables import Step, Trajectory
from rlenv_kit.tables import Unchecked, digest_of

__all__ = ["Ledger"]

_OTHERWISE = frozenset({"n_step", "stack", "chunk", "future", "goals", "length"})
"""Options with which a draw shows a step otherwise, so it is not compared."""

_OF_THE_DRAW = frozenset({"weights", "weight", "probability", "probabilities", "priority", "priorities", "chance"})
"""Entries of ``extra_info`` that tell of the draw, not of the step."""

_FACTS = frozenset({
    "index", "episode", "terminated", "truncated", "discount", "steps", "log_probability", "intervention", "agent",
    "start", "end", "length", "return", "source", "policy", "verdict", "expert", "success", "lost", "goal", "seed",
    "task",
    "end_reason",
})  # fmt: skip
"""Entries of ``extra_info`` that docs/source-data.md describes: they belong to the step or trajectory."""

_ROWS = 16
"""Rows of a batch that are kept."""

_MOST_STEPS = 4000
"""Steps of a batch of trajectories up to which they are kept."""

Place = tuple[object, str]


class Ledger:
    """Compare each draw with those before it: the same step or trajectory has the same entries, whatever was asked.

    Attributes:
        drawn: content of a step that was drawn -> the first call that showed it, in words.
    """

    def __init__(self) -> None:
        self.drawn: dict[bytes, str] = {}
        self._known: dict[Place, tuple[bytes, str]] = {}
        self._otherwise: dict[str, tuple[object, str, str]] = {}
        self._restless: set[str] = set()
        self._turn = 0

    def take_steps(self, batch: Unchecked, steps: list[Step], options: Mapping[str, object]) -> None:
        """Keep some rows of a batch.

        Args:
            batch: as the source returned it.
            steps: its steps.
            options: of the call.
        """
        if _OTHERWISE & options.keys() or not steps:
            return
        words = _words("sample_steps", options)
        self._turn += 1
        stride = max(1, len(steps) // _ROWS)
        extra = batch.get("extra_info") if isinstance(batch, Mapping) else None
        columns = dict(_columns(extra, len(steps)))
        for row in range(self._turn % stride, len(steps), stride):
            content = steps[row].content
            self.drawn.setdefault(content, words)
            for name, column in columns.items():
                self._take(content, name, column[row].tobytes(), words, is_plain=not options)

    def take_trajectories(
        self, tables: Iterable[Unchecked], read: list[Trajectory], options: Mapping[str, object]
    ) -> None:
        """Keep trajectories and their steps, as `take_steps` does."""
        if _OTHERWISE & options.keys() or sum(len(one.steps) for one in read) > _MOST_STEPS:
            return
        words = _words("sample_trajectories", options)
        for table, one in list(zip(tables, read, strict=True))[:_ROWS]:
            for name, value in one.extra_info.items():
                self._take(one.key, name, digest_of(value).encode(), words, is_plain=not options)
            key = *one.key, "steps"
            if self._known.get((key, ""), (b"", ""))[1] == words:
                continue
            contents = [step.content for step in one.steps]
            self._take(key, "", b"\2".join(contents), words, True)
            extra = table["steps_set"].get("extra_info") if isinstance(table["steps_set"], Mapping) else None
            for name, column in _columns(extra, len(contents)):
                for content, value in zip(contents, column, strict=True):
                    self._take(content, name, value.tobytes(), words, is_plain=False)

    def _take(self, key: object, name: str, value: bytes, words: str, is_plain: bool) -> None:
        if name.rpartition(".")[2] in _OF_THE_DRAW:
            return
        known, before = self._known.setdefault((key, name), (value, words))
        if known == value:
            return
        if is_plain and before == words and name and name not in _FACTS:
            self._restless.add(name)  # such as the time of the draw
        self._otherwise.setdefault(name, (key, before, words))

    def judge(self, contents: Mapping[bytes, int]) -> None:
        """Judge all draws.

        Args:
            contents: content of each step of the data -> the number of its occurrences.

        Raises:
            Failed: a step is not in the data, or a step or trajectory was shown in two ways.
        """
        for content, words in self.drawn.items():
            if content not in contents:
                env_id, frame_no = content.split(b"\0")[:2]
                raise Failed(f"{words} gave a step of env_id {env_id.decode()!r}, frame_no {frame_no.decode()} that is "
                             "in no trajectory", "options choose steps, and change none")  # fmt: skip
        for name, (key, before, words) in self._otherwise.items():
            if name in self._restless or (isinstance(key, bytes) and contents.get(key, 0) != 1):
                continue
            what = f"extra_info's {name!r}" if name else "the steps"
            of = "a step" if isinstance(key, bytes) else f"trajectory {key}"
            raise Failed(f"{what} of {of} came from {words} otherwise than from {before}",
                         "a step and a trajectory are the same in every draw")  # fmt: skip


def _words(name: str, options: Mapping[str, object]) -> str:
    return f"{name}({', '.join(f'{key}={value!r:.40}' for key, value in options.items())})"


def _columns(extra: Unchecked, count: int, where: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of ``extra_info`` with one entry for each step, by their names."""
    for name, value in extra.items() if isinstance(extra, Mapping) else ():
        place = f"{where}.{name}" if where else str(name)
        if isinstance(value, Mapping):
            yield from _columns(value, count, place)
        elif isinstance(value, np.ndarray) and value.shape[:1] == (count,) and value.dtype != object:
            yield place, value
