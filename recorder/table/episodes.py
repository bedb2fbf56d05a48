"""Split the rows of a log into episodes without gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonObject
from recorder.read.scan import LoggedEpisode

__all__ = ["Segments", "Split", "split_copy", "split_episodes"]


class Segments(NamedTuple):
    """The content of a `Table` except its layout and origin."""

    rows: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    episodes: tuple[JsonObject, ...]
    notes: tuple[str, ...]


class _Piece(NamedTuple):
    start: int
    stop: int
    part: int  # the piece's number in its episode, from 0
    last: bool


class Split(NamedTuple):
    """The episodes in rows, and corrections that have not been applied to the rows.

    Attributes:
        starts: as in `Segments`.
        stops: as in `Segments`.
        episodes: as in `Segments`.
        notes: as in `Segments`.
        mends: index -> the row that replaces the recorded one.
    """

    starts: np.ndarray
    stops: np.ndarray
    episodes: tuple[JsonObject, ...]
    notes: tuple[str, ...]
    mends: dict[int, np.ndarray]


def split_copy(layout: FrameLayout, rows: np.ndarray, episodes: Sequence[LoggedEpisode]) -> Segments:
    """Split a copy of the rows into episodes, and apply the corrections of `split_episodes`."""
    split = split_episodes(layout, rows, {episode.number: episode for episode in episodes})
    fresh = np.array(rows)
    for index, row in split.mends.items():
        fresh[index] = row
    return Segments(fresh, *split[:4])


def split_episodes(layout: FrameLayout, rows: np.ndarray, recorded: Mapping[int, LoggedEpisode]) -> Split:
    """Find the episodes in rows, which are in the order of recording.

    Rows of an episode without its beginning in the log are left out. If frames are missing inside an episode, it is
    split there: the first part is truncated; the second part begins like an episode, without action and reward in its
    first row, and has ``part`` in its info. An episode without a flag at its end (interrupted, torn) is truncated at
    its last row. All such cases are noted.

    Args:
        layout: the layout of the rows.
        rows: shape (R,), structured.
        recorded: number -> begin and end of the episodes in the log.
    """
    notes: list[str] = []
    bounds: list[tuple[int, int]] = []
    infos: list[JsonObject] = []
    mends: dict[int, np.ndarray] = {}
    for number, pieces in _by_episode(rows):
        if number not in recorded:
            count = sum(piece.stop - piece.start for piece in pieces)
            notes.append(f"{count} frames of episode {number} are left out, its begin is not in the log")
            continue
        episode = recorded[number]
        notes += _missing(episode, rows, pieces)
        for piece in pieces:
            mends |= _mended(layout, rows, piece)
            bounds.append((piece.start, piece.stop))
            infos.append(_info(episode, piece))
    starts, stops = np.array(bounds, np.int64).reshape(-1, 2).T
    return Split(starts.copy(), stops.copy(), tuple(infos), tuple(notes), mends)


def _by_episode(rows: np.ndarray) -> Iterator[tuple[int, list[_Piece]]]:
    """Yield each episode's number and its pieces without a gap. A frame whose action was refused repeats its number."""
    if not len(rows):
        return
    numbers, frames = rows["episode"], rows["frame_no"].astype(np.int64)
    new_episode = np.flatnonzero(np.diff(numbers)) + 1
    gap = ~np.isin(np.diff(frames), (0, 1))
    for start, stop in zip((0, *new_episode), (*new_episode, len(rows)), strict=True):
        inner = start + 1 + np.flatnonzero(gap[start : stop - 1])
        edges = [int(start), *inner.tolist(), int(stop)]
        pairs = list(pairwise(edges))
        yield int(numbers[start]), [_Piece(a, b, k, b == stop) for k, (a, b) in enumerate(pairs)]


def _missing(episode: LoggedEpisode, rows: np.ndarray, pieces: list[_Piece]) -> list[str]:
    notes = []
    first = int(rows["frame_no"][pieces[0].start])
    if first:
        notes.append(f"episode {episode.number}: frames 0 to {first - 1} are missing")
    for before, after in pairwise(pieces):
        gap = (int(rows["frame_no"][before.stop - 1]) + 1, int(rows["frame_no"][after.start]) - 1)
        notes.append(f"episode {episode.number}: frames {gap[0]} to {gap[1]} are missing, it is cut in two there")
    count = pieces[-1].stop - pieces[0].start
    expected = int((episode.end or {}).get("rows", count))
    if count < expected:
        notes.append(f"episode {episode.number} has {count} of its {expected} rows")
    return notes


def _mended(layout: FrameLayout, rows: np.ndarray, piece: _Piece) -> dict[int, np.ndarray]:
    """Return the first and the last row as an episode must have them, if a piece has others: index -> row."""
    mends: dict[int, np.ndarray] = {}
    if rows["frame_no"][piece.start]:
        first = mends[piece.start] = rows[piece.start : piece.start + 1].copy().reshape(())
        for name, value in layout.without_step.items():
            first[name] = value
    end = piece.stop - 1
    last = mends.get(end, rows[end : end + 1].copy().reshape(()))
    if not (last["terminated"] or last["truncated"]):
        last["truncated"] = 1
        mends[end] = last
    return mends


def _info(episode: LoggedEpisode, piece: _Piece) -> JsonObject:
    end: JsonObject = {"end": "gap"}
    if piece.last:
        end = {"end": "torn"} if episode.end is None else episode.end
    info = {"episode": episode.number, **episode.begin, **end}
    info.pop("rows", None)
    return info | ({"part": piece.part} if piece.part else {})
