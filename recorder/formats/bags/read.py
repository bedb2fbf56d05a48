"""Read ROS 2 bags (MCAP or SQLite). A file beside them maps topics to fields.

A row is made every period. Row k holds the latest value of each observation at its time, and the latest value of each
action before its time, which was in force until then. If a value is too old, the episode is split; no value is
invented.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hal import SourceError
from hal.frame_layout import FrameLayout
from recorder.formats.bags.mapping import EXAMPLE, BagMapping, Source, read_mapping
from recorder.formats.bags.messages import Stream, is_bag, read_streams, topics_of
from recorder.formats.registry import Format
from recorder.formats.runs import rows_of, table_of
from recorder.json_data import JsonDict
from recorder.table.table import Table

__all__ = ["BAGS", "FIELDS", "is_bags", "load_bags"]

FIELDS = "fields.toml"
"""The mapping's file in the folder that is opened."""


def is_bags(path: Path | str) -> bool:
    """Return whether a folder is a ROS 2 bag, or has bags in it."""
    return bool(_bags(Path(path)))


def _bags(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return [root] if is_bag(root) else sorted(child for child in root.iterdir() if is_bag(child))


def load_bags(path: Path | str, mapping: Path | str | None = None) -> Table:
    """Read bags; each becomes an episode, or several where values are too old.

    Args:
        path: a bag, or a folder with bags in it.
        mapping: the file that maps the topics to fields (see `recorder.formats.bags.mapping.EXAMPLE`);
            ``fields.toml`` in ``path`` by default.

    Raises:
        SourceError: there is no bag or no mapping, they don't fit, no row can be made, or rosbags is missing.
    """
    root = Path(path)
    bags = _bags(root)
    if not bags:
        raise SourceError(f"{root} holds no ROS 2 bag: there is no metadata.yaml in it or one folder below")
    file = root / FIELDS if mapping is None else Path(mapping)
    if not file.is_file():
        topics = ", ".join(f"{topic} ({kind})" for topic, kind in topics_of(bags[0]).items())
        raise SourceError(
            f"{file} is missing; it says what becomes of {topics}; docs/formats.md shows such a file\n\n{EXAMPLE}"
        )
    wanted = read_mapping(file)
    observation, action = wanted.specs
    layout = FrameLayout(observation, action)
    episodes: list[np.ndarray] = []
    infos: list[JsonDict] = []
    notes: list[str] = []
    for bag in bags:
        pieces, tossed = _episodes(read_streams(bag, wanted), wanted)
        if tossed:
            notes.append(f"{bag.name}: {tossed} of its frames are left out, a value was too old or missing there")
        for number, (ticks, values) in enumerate(pieces):
            episodes.append(_rows(layout, len(episodes), ticks, values, wanted))
            end = "end of recording" if number == len(pieces) - 1 else "gap"
            infos.append({"episode": len(infos), "bag": bag.name, "part": number, "end": end})
    if not episodes:
        raise SourceError(f"{root}: no two frames in a row have all their values; {'; '.join(notes)}")
    return table_of(layout, episodes, infos, str(root), notes)


_Piece = tuple[np.ndarray, list[np.ndarray]]


def _episodes(streams: list[Stream], mapping: BagMapping) -> tuple[list[_Piece], int]:
    """Return the times of rows and each source's values there, run by run; and the number of rows in no run."""
    sources, observations = mapping.sources, len(mapping.observation)
    begin = max(int(stream.stamps[0]) for stream in streams[:observations])
    stop = max(int(stream.stamps[-1]) for stream in streams[:observations])
    ticks = np.arange(begin, stop + 1, mapping.period_ns, dtype=np.int64)
    picked = [
        _latest(stream, source, ticks, before=n >= observations)
        for n, (stream, source) in enumerate(zip(streams, sources, strict=True))
    ]
    observed = np.logical_and.reduce([fresh for _, fresh in picked[:observations]])
    acted = np.logical_and.reduce([fresh for _, fresh in picked[observations : observations + len(mapping.action)]])
    linked = observed[:-1] & observed[1:] & acted[1:]  # whether a step leads from each row to the next
    edges = np.flatnonzero(np.diff(np.concatenate([[0], linked.astype(np.int8), [0]])))
    pieces = [
        (
            ticks[first : last + 1],
            [stream.values[index[first : last + 1]] for stream, (index, _) in zip(streams, picked, strict=True)],
        )
        for first, last in zip(edges[::2], edges[1::2], strict=True)
    ]
    if mapping.reward:
        fresh = picked[-1][1]
        for (first, last), (_, values) in zip(zip(edges[::2], edges[1::2], strict=True), pieces, strict=True):
            values[-1] = np.where(fresh[first : last + 1], values[-1], np.nan)
    return pieces, len(ticks) - sum(len(times) for times, _ in pieces)


def _latest(stream: Stream, source: Source, ticks: np.ndarray, before: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the latest value at (or before) each time, and whether it exists and is not too old."""
    place = np.searchsorted(stream.stamps, ticks, "left" if before else "right") - 1
    index = np.maximum(place, 0)
    return index, (place >= 0) & (ticks - stream.stamps[index] <= source.max_age_ns)


def _rows(
    layout: FrameLayout, number: int, ticks: np.ndarray, values: list[np.ndarray], mapping: BagMapping
) -> np.ndarray:
    observations, acted = len(mapping.observation), len(mapping.action)
    observation = {source.field.name: value for source, value in zip(mapping.observation, values, strict=False)}
    action = {
        source.field.name: value[1:]
        for source, value in zip(mapping.action, values[observations : observations + acted], strict=True)
    }
    reward = values[-1][1:] if mapping.reward else np.full(len(ticks) - 1, np.nan)
    rows = rows_of(layout, number, observation, action, reward, (False, True), ticks)
    rows["wall_ns"] = ticks
    return rows


def _candidates(folder: Path) -> Iterator[Path]:
    """Yield bags below a folder, or their common parent if that holds the mapping for all of them."""
    for bag in (mark.parent for mark in folder.rglob("metadata.yaml")):
        shared = not (bag / FIELDS).exists() and (bag.parent / FIELDS).exists()
        yield bag.parent if shared else bag


BAGS = Format("bags", is_bags, load_bags, candidates=_candidates)
