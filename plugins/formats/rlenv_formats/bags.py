"""Read ROS bags: ROS 1 (``.bag``) and ROS 2 (MCAP, SQLite). A TOML file beside them maps topics to fields and cameras.

There is one row for each period. Row k holds the latest value of each observation at its time, and the latest value of
each action before its time, which was in force until then. A value that is too old splits the episode; no value is
invented. Without actions the rows hold only observations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from hal import SourceError
from recorder.formats.registry import Format
from recorder.formats.runs import left_out, rows_of, table_of
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonDict
from recorder.table.table import Table, no_images
from rlenv_formats.bag_files import ENDINGS, Bag, bag_paths, bags_at, is_bag, open_reader, topics_of
from rlenv_formats.bag_images import BagImages, OpenBag
from rlenv_formats.bag_mapping import FIELDS, BagMapping, Source, read_mapping
from rlenv_formats.bag_streams import Stream, read_streams, with_shapes
from rlenv_formats.foreign import listed

__all__ = ["BAGS", "is_bags", "load_bags", "mapping_places"]


def is_bags(path: Path | str) -> bool:
    """Return whether a path is a bag, a file of one, or a folder of bags."""
    return bool(bag_paths(Path(path)))


def mapping_places(root: Path) -> list[Path]:
    """Return the files in which the mapping of the bags at a path is looked for, in order.

    These are ``fields.toml`` in the folder, the file with the bag's own name (``drive.toml`` for ``drive.bag``), and
    ``fields.toml`` beside the bag.
    """
    paths = bag_paths(root)
    places = [root / FIELDS] if root.is_dir() else []
    own = [root] if paths == [root] else paths if len(paths) == 1 else []
    places += [bag.with_name(f"{bag.stem if bag.is_file() else bag.name}.toml") for bag in own]
    places += [bag.parent / FIELDS for bag in own]
    return list(dict.fromkeys(places))


def load_bags(path: Path | str, mapping: Path | str | None = None) -> Table:
    """Read bags. Each bag becomes one episode, or several where values are too old.

    Args:
        path: a bag, one ``.bag``, ``.mcap`` or ``.db3`` file, or a folder of bags.
        mapping: the file that maps the topics to fields (see `rlenv_formats.bag_mapping.EXAMPLE`); None looks for it in
            `mapping_places`.

    Raises:
        SourceError: there is no bag or no mapping, the two do not match, no row results, or rosbags is not installed.
    """
    root = Path(path)
    if not is_bags(root):
        raise SourceError(f"{root} holds no ROS bag: no metadata.yaml, .bag, .mcap or .db3 in it")
    places = mapping_places(root) if mapping is None else [Path(mapping)]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise SourceError(_unmapped(root, places))
    plain = read_mapping(file)
    bags = bags_at(root, plain.typestore)
    return _table(root, bags, with_shapes(bags, plain))


def _unmapped(root: Path, places: Sequence[Path]) -> str:
    """Return what to do about bags without a mapping."""
    topics = topics_of(bags_at(root, "ros2_humble")[0])
    looked = " or ".join(str(place) for place in places)
    return (
        f"{looked} is missing; it maps topics to fields, and the bag has "
        f"{', '.join(f'{topic} ({kind})' for topic, kind in topics.items())}; write one to start with: "
        f"rlenv-robot data fields {root} --out {places[0]}"
    )


def _table(root: Path, bags: Sequence[Bag], mapping: BagMapping) -> Table:
    layout = FrameLayout(*mapping.specs)
    episodes: list[np.ndarray] = []
    infos: list[JsonDict] = []
    notes: list[str] = [] if mapping.action else ["no action is mapped: the rows hold observations alone"]
    notes += [bag.note for bag in bags if bag.note]
    damaged: list[str] = []
    read: list[Bag] = []
    bag_of: list[int] = []
    for bag in bags:
        try:
            streams = read_streams(bag, mapping)
            pieces, tossed = _episodes(streams, mapping)
        except SourceError as error:
            damaged.append(str(error))
            continue
        missing = {source.topic: stream.missing for source, stream in zip(mapping.sources, streams, strict=True)}
        notes += [
            f"{bag.path.name}: {n} described messages of {topic} are missing" for topic, n in missing.items() if n
        ]
        if tossed:
            notes.append(f"{bag.path.name}: {tossed} of its frames are left out, a value was too old or missing there")
        for number, (ticks, values) in enumerate(pieces):
            episodes.append(_rows(layout, len(episodes), ticks, values, mapping))
            bag_of.append(len(read))
            end = "end of recording" if number == len(pieces) - 1 else "gap"
            infos.append({"episode": len(infos), "bag": bag.path.name, "part": number, "end": end})
        read.append(bag)
        if mapping.images:
            notes += _without_images(bag, mapping)
    if damaged and len(bags) == 1:
        raise SourceError(damaged[0])
    notes += left_out(root, damaged, len(read))
    if not episodes:
        raise SourceError(f"{root}: no two frames in a row have all their values; {'; '.join(notes)}")
    opener = partial(_open_images, bags=read, bag_of=bag_of, mapping=mapping) if mapping.images else no_images
    return table_of(layout, episodes, infos, str(root), notes, opener)


def _without_images(bag: Bag, mapping: BagMapping) -> list[str]:
    """Return a sentence for each camera whose topic a bag lacks."""
    topics = topics_of(bag, mapping.typestore)
    return [
        f"{bag.path.name} has no topic {topic} for the images of {camera}; it has {listed(topics)}"
        for camera, topic in mapping.images.items()
        if topic not in topics
    ]


def _open_images(path: Path, bags: Sequence[Bag], bag_of: Sequence[int], mapping: BagMapping) -> BagImages:
    openers = [partial(_open_bag, bag, mapping.typestore, mapping.header) for bag in bags]
    return BagImages(str(path), openers, np.array(bag_of, np.int64), mapping.images)


def _open_bag(bag: Bag, typestore: str, header: bool) -> OpenBag:
    """Open a bag for its images; the caller closes the reader."""
    reader = open_reader(bag, typestore)
    try:
        reader.open()
    except Exception as error:  # the library raises many kinds
        raise SourceError(f"{bag.path} can't be read: {error!r:.300}") from error
    return OpenBag(reader, header)


_Piece = tuple[np.ndarray, list[np.ndarray]]


def _episodes(streams: list[Stream], mapping: BagMapping) -> tuple[list[_Piece], int]:
    """Return the times of rows and each source's values there, run by run; and the number of rows in no run."""
    sources, observations = mapping.sources, len(mapping.observation)
    begin = max(int(stream.stamps[0]) for stream in streams[:observations])
    stop = max(int(stream.stamps[-1]) for stream in streams[:observations])
    outside = _frames_outside(streams[: observations + len(mapping.action)], begin, stop, mapping)
    ticks = np.arange(begin, stop + 1, mapping.period_ns, dtype=np.int64)
    picked = [
        _latest(stream, source, ticks, before=n >= observations)
        for n, (stream, source) in enumerate(zip(streams, sources, strict=True))
    ]
    observed = np.logical_and.reduce([fresh for _, fresh in picked[:observations]])
    acted = np.ones(len(ticks), bool)
    for _, fresh in picked[observations : observations + len(mapping.action)]:
        acted &= fresh
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
    return pieces, outside + len(ticks) - sum(len(times) for times, _ in pieces)


def _frames_outside(streams: Sequence[Stream], begin: int, stop: int, mapping: BagMapping) -> int:
    """Return how many frames before and after some times have values of only some streams; 0 within the largest age."""
    oldest = max(source.max_age_ns for source in mapping.sources)
    early = begin - min(int(stream.stamps[0]) for stream in streams)
    late = max(int(stream.stamps[-1]) for stream in streams) - stop
    return sum(span // mapping.period_ns for span in (early, late) if span > oldest)


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
    """Yield bags below a folder, or their common parent if that holds the mapping for all of them, or parts of one."""
    for bag in (mark.parent for mark in folder.rglob("metadata.yaml")):
        shared = not (bag / FIELDS).exists() and (bag.parent / FIELDS).exists()
        yield bag.parent if shared else bag
    for file in (path for suffix in ENDINGS for path in folder.rglob(f"*{suffix}")):
        if is_bag(file) and not is_bag(file.parent):
            yield file if file.with_suffix(".toml").is_file() else file.parent


BAGS = Format("bags", is_bags, load_bags, candidates=_candidates, looks="a ROS bag (metadata.yaml, .bag, .mcap, .db3)")
