"""Find ROS 1 and ROS 2 bags, renamed and split ones too, and open them. `rosbags` is imported on use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from hal import SourceError
from recorder.names import LOG_NAME
from rlenv_formats.foreign import check_file, listed
from rlenv_formats.remote.mirror import fetch_below

__all__ = ["ENDINGS", "Bag", "bag_paths", "bags_at", "is_bag", "open_reader", "opened_bag", "topics_of"]

ENDINGS = (".mcap", ".db3", ".bag")
_INFO = "metadata.yaml"
_NUMBERED = re.compile(r"(.+)_(\d{1,6})")
_SEAM_NS = 10**9
"""Longest time between two parts of a split bag."""


@dataclass(frozen=True)
class Bag:
    """A bag.

    Attributes:
        path: its folder or file; of a split bag without a description the first file.
        parts: what `rosbags` reads: the folder, or files.
        note: a sentence if its description does not fit its files, or a file before it is missing; empty otherwise.
    """

    path: Path
    parts: tuple[Path, ...]
    note: str = ""


def is_bag(path: Path) -> bool:
    """Return whether a path is a bag or a file of one. A log of this project is not a bag."""
    if path.is_file():
        return path.suffix in ENDINGS and not (path.parent / LOG_NAME).is_file()
    about = path / _INFO
    return about.is_file() and "rosbag2_bagfile_information" in about.read_text(errors="replace")


def bag_paths(root: Path) -> list[Path]:
    """Return the bags at a path: itself, or those directly in a folder, sorted."""
    if is_bag(root):
        return [root]
    return sorted(child for child in root.iterdir() if is_bag(child)) if root.is_dir() else []


def bags_at(root: Path, typestore: str) -> list[Bag]:
    """Return the bags at a path; files of a split bag are one.

    Raises:
        SourceError: a description names files that are missing, or rosbags is not installed.
    """
    paths = bag_paths(root)
    bags = [_described(path) for path in paths if path.is_dir()]
    loose = [path for path in paths if not path.is_dir()]
    return sorted([*bags, *_joined(loose, typestore)], key=lambda bag: bag.path)


def _described(folder: Path) -> Bag:
    """Return the bag in a folder; files with other names than in its description are read by themselves."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        about = YAML(typ="safe").load((folder / _INFO).read_text())["rosbag2_bagfile_information"]
        names = [PurePath(str(name)).name for name in about["relative_file_paths"]]
        packed = str(about.get("compression_mode") or "none").lower()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, YAMLError):
        return Bag(folder, (folder,))  # the library says what is wrong
    lost = [name for name in names if not (folder / name).exists()]
    if not lost:
        return Bag(folder, (folder,))
    files = tuple(sorted(one for one in folder.iterdir() if one.suffix in ENDINGS))
    if not files or packed != "none":
        there = listed(sorted(one.name for one in folder.iterdir() if one.name != _INFO)) or "nothing else"
        raise SourceError(
            f"{folder}: {_INFO} names {listed(lost)}, and the folder has {there}; fetch the file, or give it that name"
        )
    read = listed(one.name for one in files)
    return Bag(folder, files, f"{folder.name}: {_INFO} names {listed(lost)}, which is missing; {read} was read")


def _joined(files: list[Path], typestore: str) -> list[Bag]:
    """Return the bags of files without a description: numbered ones that follow one another in time are one."""
    stems: dict[tuple[str, str], list[tuple[int, Path]]] = {}
    bags: list[Bag] = []
    for file in files:
        match = _NUMBERED.fullmatch(file.stem)
        if match is None:
            bags.append(Bag(file, (file,)))
        else:
            stems.setdefault((match[1], file.suffix), []).append((int(match[2]), file))
    for numbered in stems.values():
        parts = [file for _, file in sorted(numbered)]
        spans = [_span(file, typestore) for file in parts] if len(parts) > 1 else []
        chains: list[list[Path]] = [[parts[0]]]
        for place, file in enumerate(parts[1:]):
            before, after = spans[place], spans[place + 1]
            follows = before is not None and after is not None and abs(after[0] - before[1]) <= _SEAM_NS
            if follows:
                chains[-1].append(file)
            else:
                chains.append([file])
        bags += [Bag(chain[0], tuple(chain), _note_on(chain)) for chain in chains]
    return bags


def _note_on(chain: list[Path]) -> str:
    """Return that files were joined, and that the file before them is missing, as ROS 2 counts files from 0."""
    names = listed(file.name for file in chain)
    notes = [f"{names} are one split bag"] if len(chain) > 1 else []
    first = int(chain[0].stem.rpartition("_")[2])
    before = chain[0].with_stem(f"{chain[0].stem.rpartition('_')[0]}_{first - 1}")
    if first and before.suffix != ".bag" and not before.exists():
        notes.append(f"{names}: {before.name} is not there; if they are one split bag, its messages are missing")
    if chain[0].suffix != ".bag":
        notes.append(f"{names}: without {_INFO} nothing tells whether parts after it are missing")
    return "; ".join(notes)


def _span(file: Path, typestore: str) -> tuple[int, int] | None:
    """Return the first and last time in a file, nanoseconds; None if it can't be read."""
    try:
        with opened_bag(Bag(file, (file,)), typestore) as reader:
            return int(reader.start_time), int(reader.end_time)
    except SourceError:
        return None


def open_reader(bag: Bag, typestore: str) -> Any:
    """Return rosbags' reader of a bag, which is not open yet.

    Args:
        bag: the bag.
        typestore: the message definitions for bags that contain none, such as ``ros2_humble``.

    Raises:
        SourceError: a file is missing, the definitions are unknown, or rosbags is not installed.
    """
    try:
        from rosbags.highlevel import AnyReader
        from rosbags.typesys import Stores, get_typestore
    except ImportError:
        raise SourceError(f"{bag.path} needs rosbags: pip install 'rlenv-robot[bags]'") from None
    try:
        store = get_typestore(Stores(typestore))
    except ValueError:
        stores = ", ".join(one.value for one in Stores)
        raise SourceError(f"typestore is {typestore!r}, allowed are {stores}") from None
    for part in bag.parts:
        fetch_below(part)
        if not part.is_dir():
            check_file(part)
    try:
        return AnyReader(list(bag.parts), default_typestore=store)
    except Exception as error:  # the library raises many kinds
        raise _unreadable(bag, error) from error


@contextmanager
def opened_bag(bag: Bag, typestore: str) -> Iterator[Any]:
    """Open a bag, and close it at the end of the block.

    Raises:
        SourceError: as for `open_reader`, or the bag is damaged, which the library may notice inside the block.
    """
    try:
        with open_reader(bag, typestore) as reader:
            yield reader
    except SourceError:
        raise
    except Exception as error:  # the library raises many kinds
        raise _unreadable(bag, error) from error


def _unreadable(bag: Bag, error: Exception) -> SourceError:
    """Return the library's error with what to do about it."""
    advice = "; run `rosbag reindex` on it" if "not indexed" in str(error) else ""
    return SourceError(f"{bag.path} can't be read: {error!r:.300}{advice}")


def topics_of(bag: Bag, typestore: str = "ros2_humble") -> dict[str, str]:
    """Return the message type of each topic, topic -> type.

    Raises:
        SourceError: the bag can't be read, or rosbags is missing.
    """
    with opened_bag(bag, typestore) as reader:
        return {connection.topic: connection.msgtype for connection in reader.connections}
