"""List the files of a data set, to notice when it has changed and to recognise it at another place."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from recorder.names import ANNOTATIONS, SIGNATURES, TABLE_FOLDER, log_files

__all__ = ["DataFile", "data_files", "set_identity", "set_stamp"]

_LEFT_OUT = frozenset((*ANNOTATIONS, SIGNATURES, TABLE_FOLDER, "videos", "images"))
"""Names in a data set that change no row: annotations, what can be made again, and images."""
_ENDINGS = (".md", *(f".{name}" for name in ANNOTATIONS))
"""Ends of the names of pages, and of annotations beside files."""
_HEADS = 32
"""Files whose first bytes count for the identity."""
_HEAD_BYTES = 4096


class DataFile(NamedTuple):
    """A file of a data set: its path relative to the set, its size in bytes, and its time of change in ns."""

    name: str
    size: int
    changed_ns: int


def data_files(path: Path) -> list[DataFile]:
    """Return the files that hold a data set's rows and descriptions, sorted by name.

    Hidden files, pages (``*.md``), annotations, cached tables, videos and images are left out.

    Raises:
        OSError: the path can't be read.
    """
    if path.is_dir():
        if logs := log_files(path):
            return [_file(log, log.name) for log in logs.values()]
        return sorted(_walk(path, ""))
    return [_file(path, path.name)]


def set_stamp(path: Path) -> str:
    """Return a text that differs once a file of `data_files` has changed.

    Raises:
        OSError: the path can't be read.
    """
    return hashlib.sha256(repr([tuple(file) for file in data_files(path)]).encode()).hexdigest()[:32]


def set_identity(path: Path) -> str:
    """Return a text that a data set keeps when it is copied or moved; 32 hexadecimal digits.

    Names and sizes of the files count, and the first 4 kB of the first 32 of them; of a single file its size and these
    bytes.

    Raises:
        OSError: the path can't be read.
    """
    files = data_files(path)
    digest = hashlib.sha256()
    for number, file in enumerate(files):
        digest.update(f"{file.name if path.is_dir() else ''}\0{file.size}\0".encode())
        if number < _HEADS:
            with (path / file.name if path.is_dir() else path).open("rb") as stream:
                digest.update(stream.read(_HEAD_BYTES))
    return digest.hexdigest()[:32]


def _file(path: Path, name: str) -> DataFile:
    status = path.stat()
    return DataFile(name, status.st_size, status.st_mtime_ns)


def _walk(folder: Path, prefix: str) -> Iterator[DataFile]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in _LEFT_OUT or entry.name.startswith(".") or entry.name.endswith(_ENDINGS):
                continue
            if entry.is_dir():
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")
            else:
                status = entry.stat()
                yield DataFile(f"{prefix}{entry.name}", status.st_size, status.st_mtime_ns)
