"""Convert plain data about runs, episodes and events to JSON and back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hal import LogError
from hal.field import JsonDict, JsonObject

__all__ = [
    "JsonDict", "JsonObject", "append_lines", "count_lines", "from_json", "is_plain", "parse_lines", "read_content",
    "read_lines", "to_json",
]  # fmt: skip


def to_json(value: Any, what: str) -> str:
    """Convert plain data to JSON. Numpy arrays and numbers become lists and numbers, tuples become lists.

    Args:
        value: mappings with string keys, sequences, strings, numbers, None, numpy arrays.
        what: a name for the data, for the message.

    Raises:
        LogError: the value holds anything else.
    """
    try:
        return json.dumps(value, default=_numpy)
    except (TypeError, ValueError, RecursionError) as error:
        raise LogError(
            f"{what} can't be recorded: {error}; allowed are mappings, lists, texts, numbers, None and numpy arrays"
        ) from error


def _numpy(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufU":
        return value.tolist()
    raise TypeError(f"a value of type {type(value).__name__}")


def is_plain(value: Any) -> bool:
    """Return whether `to_json` can convert a value."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biufU"
    return value is None or isinstance(value, str | int | float)


def from_json(text: str, what: str) -> Any:
    """Convert JSON to plain data.

    Raises:
        LogError: the text is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LogError(f"{what} is not JSON: {error}") from error


def append_lines(path: Path, entries: Iterable[JsonObject]) -> None:
    """Append plain data to a file with one JSON object a line; it is on the disk when this returns.

    A line that a crash left unfinished is ended first, so that it does not swallow the next one.

    Raises:
        LogError: the file can't be written.
    """
    try:
        with path.open("a+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write("".join(json.dumps(entry) + "\n" for entry in entries).encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise LogError(f"{path} can't be written: {error}") from error


def read_lines(path: Path) -> list[JsonDict]:
    """Return the JSON objects in a file, one a line; an empty list if the file does not exist.

    A line that can't be read, such as after a crash, is skipped.

    Raises:
        LogError: the file exists and can't be opened.
    """
    return parse_lines(read_content(path))


def read_content(path: Path) -> bytes:
    """Return the content of a file, which is empty if the file does not exist.

    Raises:
        LogError: the file exists and can't be opened.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise LogError(f"{path} can't be read: {error}") from error


def count_lines(content: bytes) -> int:
    """Return the number of lines that are not blank: the objects of `parse_lines`, unless some are damaged."""
    return sum(not line.isspace() for line in content.decode(errors="replace").splitlines(keepends=True))


def parse_lines(content: bytes) -> list[JsonDict]:
    """Return the JSON objects in the content of a file, as `read_lines` does."""
    entries = []
    for line in content.decode(errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries
