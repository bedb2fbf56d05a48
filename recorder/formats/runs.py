"""Convert tables to and from the form of other formats: runs of T steps with T + 1 observations, and field names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonObject
from recorder.table.memory import RowSpool
from recorder.table.table import ImageOpener, Table
from recorder.table.transitions import Transitions, columns

__all__ = [
    "NO_REWARDS", "EpisodeSpool", "Run", "field_name", "field_names", "flat", "left_out", "rows_of", "runs_of",
    "single_reward", "table_of", "uneven", "without_texts",
]  # fmt: skip


def field_name(text: str) -> str:
    """Convert text to lower case with single underscores, a letter first (``Front Cam/2`` becomes ``front_cam_2``)."""
    clean = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return clean if re.match(r"[a-z]", clean) else f"f_{clean}".rstrip("_")


def field_names(texts: Iterable[str]) -> dict[str, str]:
    """Return text -> field name; equal names are numbered (``a_b``, ``a_b_2``)."""
    names: dict[str, str] = {}
    for text in texts:
        name, number = field_name(text), 2
        while name in names.values():
            name, number = f"{field_name(text)}_{number}", number + 1
        names[text] = name
    return names


# ---- runs ----


NO_REWARDS = "no rewards were recorded, reward is NaN; give a task that computes them"
"""The note of a table without rewards; a task that computes rewards removes it."""


@dataclass(frozen=True)
class Run:
    """Hold T steps that followed one another without a break.

    Attributes:
        info: the table's info on the episode.
        observed: (T + 1,) frame rows with the observations before every step and after the last.
        came: (T,) frame rows with the action, reward and flags of each step.
        terminated: whether the task ended the run.
        truncated: whether anything else ended it; exactly one of the two is true.
        episode: the episode's index in the table.
        numbers: (T + 1,), the numbers of the rows ``observed`` in the table.
    """

    info: JsonObject
    observed: np.ndarray
    came: np.ndarray
    terminated: bool
    truncated: bool
    episode: int
    numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.came)

    def group(self, prefix: str, spec: Spec) -> dict[str, np.ndarray]:
        """Return the fields of one group: T + 1 observations or sensors, T actions or applied commands."""
        return columns(self.observed if prefix in ("observation", "sensor") else self.came, spec, prefix)

    @property
    def seconds(self) -> np.ndarray:
        """Time of each frame since the first one by the robot's clock, in seconds, (T + 1,)."""
        stamps = self.observed["stamp_ns"]
        return np.asarray((stamps - stamps[0]) / 1e9)


def runs_of(table: Table) -> tuple[list[Run], list[str]]:
    """Return all runs of a table, and a sentence for each part of the table that runs can't represent."""
    transitions = Transitions.of(table)
    facts, notes = transitions.facts, []
    ends = np.flatnonzero(facts["done"]) + 1
    runs = [_run(table, facts[start:stop]) for start, stop in zip(np.append(0, ends)[:-1], ends, strict=True)]
    usable = np.count_nonzero(transitions.lengths)
    if usable < len(table.episodes):
        notes.append(f"{len(table.episodes) - usable} episodes without a single step are left out")
    if len(runs) > usable:
        notes.append(f"{usable} episodes became {len(runs)}: they are cut where frames are missing")
    spans = zip(table.starts.tolist(), table.stops.tolist(), strict=True)
    idle = int(sum(np.count_nonzero(table.rows[a + 1 : b]["acted"] == 0) for a, b in spans))
    if idle:
        notes.append(f"{idle} frames whose action was refused, or perhaps not carried out (robot lost), are left out")
    return runs, notes


def _run(table: Table, facts: np.ndarray) -> Run:
    first = int(facts["row"][0])
    rows = np.asarray(table.rows[first : int(facts["row"][-1]) + 2])
    before = facts["row"] - first
    observed = np.append(before, before[-1] + 1)
    return Run(
        info=table.episodes[int(facts["episode"][0])],
        observed=rows.take(observed),
        came=rows.take(before + 1),
        terminated=bool(facts["terminated"][-1]),
        truncated=bool(facts["truncated"][-1]),
        episode=int(facts["episode"][0]),
        numbers=observed + first,
    )


def single_reward(table: Table, what: str) -> None:
    """Check that a table has a single reward, and not one for each of several agents.

    Raises:
        SourceError: the table has rewards of several agents.
    """
    if table.layout.agents:
        raise SourceError(
            f"{what} has one reward a step, {table.origin} has one each for {', '.join(table.layout.agents)}; "
            "write it as parquet, which keeps all of them"
        )


def flat(values: Mapping[str, np.ndarray], count: int, dtype: Any = np.float32) -> np.ndarray:
    """Flatten fields and put them side by side, (count, sum of their sizes)."""
    parts = [np.asarray(value, dtype).reshape(count, -1) for value in values.values()]
    return np.concatenate(parts, axis=1) if parts else np.zeros((count, 0), dtype)


def rows_of(
    layout: FrameLayout,
    number: int,
    observation: Mapping[str, np.ndarray],
    action: Mapping[str, np.ndarray],
    reward: np.ndarray,
    ends: tuple[bool, bool],
    stamp_ns: np.ndarray,
) -> np.ndarray:
    """Make the frame rows of one run; the inverse of a `Run`.

    Args:
        layout: the layout of the rows.
        number: the episode's number.
        observation: name -> (T + 1, ...).
        action: name -> (T, ...).
        reward: (T,), NaN where unknown.
        ends: whether the run was terminated, and truncated.
        stamp_ns: (T + 1,), the robot's clock.

    Returns:
        (T + 1,) rows, without applied commands and sensors.
    """
    rows = layout.spec.rows(len(stamp_ns))
    for name, value in observation.items():
        rows[f"observation_{name}"] = value
    for name, value in action.items():
        rows[f"action_{name}"][1:] = value
    rows["stamp_ns"], rows["frame_no"], rows["episode"] = stamp_ns, np.arange(len(rows)), number
    rows["reward"][1:] = reward
    rows["acted"][1:] = 1
    rows["log_probability"] = np.nan
    rows["terminated"][-1], rows["truncated"][-1] = ends
    return rows


def left_out(origin: Path | str, damaged: Sequence[str], read: int) -> list[str]:
    """Return a note on the episodes that could not be read; empty if all could.

    Args:
        origin: the data set.
        damaged: a problem for each unreadable episode.
        read: the number of episodes that could be read.

    Raises:
        SourceError: no episode could be read.
    """
    if not read:
        raise SourceError(f"{origin}: none of its episodes can be read{'; ' if damaged else ''}{''.join(damaged[:1])}")
    if not damaged:
        return []
    count = len(damaged)
    return [f"{count} of {count + read} episodes are damaged or missing and left out; the first: {damaged[0]}"]


_FACTS = ("task", "goal", "seed", "success")
"""Facts of episodes that all of a data set have, or none."""


def uneven(infos: Sequence[JsonObject]) -> list[str]:
    """Return a sentence for each of the task, goal, seed and success that only some of the episodes have."""
    notes = []
    for name in _FACTS:
        without = sum(name not in info for info in infos)
        if 0 < without < len(infos):
            notes.append(f"{without} of {len(infos)} episodes have no {name}, as the others have")
    return notes


class EpisodeSpool:
    """Collect episodes one after another into a table; a large one lies in a file (`recorder.table.memory`).

    Args:
        layout: the layout of the rows.
    """

    def __init__(self, layout: FrameLayout) -> None:
        self._layout, self._spool = layout, RowSpool(layout.spec.row_dtype)
        self._stops: list[int] = []
        self._rewarded = False

    def add(self, rows: np.ndarray) -> None:
        """Append the rows of one episode."""
        self._spool.add(rows)
        self._stops.append(self._spool.count)
        self._rewarded = self._rewarded or bool(self._layout.agents) or not np.isnan(rows["reward"][1:]).all()

    def table(
        self, infos: Sequence[JsonObject], origin: str, notes: Sequence[str], open_images: ImageOpener | None = None
    ) -> Table:
        """Return the table of all episodes; a note says so if no reward is known.

        Args:
            infos: the infos of the episodes, in their order.
            origin: as in `Table`.
            notes: as in `Table`.
            open_images: as in `Table`.
        """
        if self._stops and not self._rewarded:
            notes = [*notes, NO_REWARDS]
        notes = [*notes, *uneven(infos)]
        stops = np.array(self._stops, np.int64)
        starts = np.concatenate([[0], stops[:-1]])[: len(stops)].astype(np.int64)
        return Table(self._layout, self._spool.rows(), starts, stops, tuple(infos), origin, tuple(notes), open_images)


def table_of(
    layout: FrameLayout,
    episodes: Iterable[np.ndarray],
    infos: Sequence[JsonObject],
    origin: str,
    notes: Sequence[str] = (),
    open_images: ImageOpener | None = None,
) -> Table:
    """Make a table of episodes, each given as its rows; see `EpisodeSpool`."""
    spool = EpisodeSpool(layout)
    for rows in episodes:
        spool.add(rows)
    return spool.table(infos, origin, notes, open_images)


def without_texts(table: Table) -> tuple[Table, list[str]]:
    """Return a table without its fields of texts, and the names of these fields.

    A table without texts is returned itself.
    """
    texts = [field.name for field in table.layout.spec if field.is_text]
    if not texts:
        return table, []

    def numbers(spec: Spec) -> Spec:
        return Spec(spec.name, tuple(field for field in spec if not field.is_text))

    whole = table.layout
    layout = replace(
        whole, observation=numbers(whole.observation), action=numbers(whole.action), applied=numbers(whole.applied),
        sensors=numbers(whole.sensors), policy=numbers(whole.policy), extra=numbers(whole.extra),
    )  # fmt: skip
    rows = np.empty(len(table.rows), layout.spec.row_dtype)
    for name in rows.dtype.names or ():
        rows[name] = table.rows[name]
    return replace(table, layout=layout, rows=rows), texts
