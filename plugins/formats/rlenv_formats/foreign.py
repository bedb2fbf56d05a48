"""Read the descriptions of other projects' data sets, which may be damaged, incomplete or hostile.

A description is a few kilobytes of text with the size and place of everything else. Each size is therefore checked
against the bytes on disk before memory is allocated, and each path must stay inside the data set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from string import Formatter

import numpy as np

from hal import SourceError
from recorder.git_lfs import git_lfs_advice
from recorder.json_data import JsonDict, JsonObject
from rlenv_formats.remote.mirror import fetched

__all__ = [
    "MOST_ELEMENTS", "ONE_COLUMN", "check_file", "check_memory", "checked_columns", "chosen_episodes", "fill_pattern",
    "inside", "listed", "pointer_advice", "read_mapping", "read_text", "shape_of", "stamps_of", "whole_number",
]  # fmt: skip

MOST_ELEMENTS = 1 << 24
"""Most elements in one field of one frame: four times a colour image of 1280 x 960."""
_TEXT_BYTES = 16 << 20
"""Largest description that is read. Minari's, with a bound for each pixel, is the largest in common use."""
_FREE_BYTES = 256 << 20
"""Decoded bytes of one file that are always allowed."""
_RATIO = 256
"""Beyond `_FREE_BYTES`: decoded bytes allowed for each byte on disk. Real numbers compress less than 20 times."""
_LATEST_S = 9e9
"""Largest time stamp, seconds: about what int64 nanoseconds can hold."""
ONE_COLUMN = ("reward", "terminated", "truncated", "time")
"""Our names of single columns, besides those of observations and actions."""
_FILLED = re.compile(r"0?\d{0,2}d?")


def check_file(path: Path) -> Path:
    """Return the path of a file after checking that it exists and is not a Git LFS pointer. A remote file is fetched.

    Raises:
        SourceError: the file is missing, can't be read or fetched, or is a Git LFS pointer.
    """
    fetched(path)
    if not path.is_file():
        annex = pointer_advice(b"", path)
        raise SourceError(f"{path} {annex or 'is missing; the data set is incomplete, fetch it again'}")
    try:
        with path.open("rb") as file:
            advice = pointer_advice(file.read(64), path)
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error}") from error
    if advice:
        raise SourceError(f"{path} {advice}")
    return path


def pointer_advice(head: bytes, path: Path) -> str:
    """Return a remedy for a pointer that Git LFS or git-annex left in place of a file; empty if it is none.

    Args:
        head: the file's first bytes, at least 64 of them if it has so many.
        path: the file; a link to missing content of git-annex is a pointer too.
    """
    broken = path.is_symlink() and not path.exists()
    if head.startswith(b"/annex/objects/") or (broken and "annex" in str(path.readlink())):
        return "is a pointer of git-annex in place of the file itself; run `git annex get` (or `datalad get`) on it"
    if broken:
        return f"is a link to {path.readlink()}, which does not exist"
    return git_lfs_advice(head)


def read_text(path: Path, most: int = _TEXT_BYTES) -> str:
    """Return the text of a file.

    Raises:
        SourceError: as for `check_file`; or the file is larger than ``most`` bytes, or not UTF-8.
    """
    size = check_file(path).stat().st_size
    if size > most:
        raise SourceError(f"{path} has {size} bytes, a description of at most {most} was expected; it is damaged")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} is not text ({error}); fetch it again") from error


def read_mapping(path: Path, text: str | None = None) -> JsonDict:
    """Return the mapping in a JSON file, or in ``text`` if given.

    Raises:
        SourceError: as for `read_text`; or the text is not a JSON mapping.
    """
    try:
        value = json.loads(read_text(path) if text is None else text)
    except SourceError:
        raise
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path} is not JSON: {error}; fetch it again") from error
    if not isinstance(value, dict):
        raise SourceError(f"{path} holds a {type(value).__name__}, expected a mapping")
    return value


def whole_number(value: object, what: str, low: int = 0, high: int = 2**31 - 1) -> int:
    """Check that a description's value is a whole number, and return it.

    Raises:
        SourceError: the value is not a whole number, or is out of range.
    """
    number = int(value) if isinstance(value, int) or (isinstance(value, float) and value.is_integer()) else None
    if number is None or isinstance(value, bool) or not low <= number <= high:
        raise SourceError(f"{what} is {value!r:.60}, expected a whole number from {low} to {high}")
    return number


def shape_of(value: object, what: str) -> tuple[int, ...]:
    """Return the shape of one frame's value from a description.

    Raises:
        SourceError: the value is not a list of numbers from 1, or has more than `MOST_ELEMENTS` elements.
    """
    if not isinstance(value, list | tuple) or len(value) > 8:
        raise SourceError(f"{what} has shape {value!r:.60}, expected a list of at most 8 whole numbers")
    shape, size = tuple(whole_number(one, f"{what}: a size in its shape", 1) for one in value), 1
    for one in shape:
        size *= one
    if size > MOST_ELEMENTS:
        raise SourceError(f"{what} has shape {shape}: {size} numbers a frame, at most {MOST_ELEMENTS} are read")
    return shape


def check_memory(path: Path | str, decoded: int, stored: int) -> None:
    """Check that content does not take implausibly more memory than it takes on disk.

    Args:
        path: the file and its part, for errors.
        decoded: bytes in memory.
        stored: bytes on disk.

    Raises:
        SourceError: the decoded content is larger than both 256 MiB and 256 times its bytes on disk.
    """
    if decoded > max(_FREE_BYTES, _RATIO * stored):
        raise SourceError(
            f"{path}: {stored} bytes claim to hold {decoded} bytes of numbers; it is damaged or made to use up memory"
        )


def inside(root: Path, name: object, where: str) -> Path:
    """Return the path, inside the data set, of a file that a description names.

    Raises:
        SourceError: the name is not a relative path, or leads out of the data set.
    """
    if not isinstance(name, str) or not name or len(name) > 1000 or "\0" in name:
        raise SourceError(f"{where} names the file {name!r:.60}, expected a relative path")
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name):
        raise SourceError(f"{where} names the file {name!r:.60}, which lies outside of the data set; it is not read")
    return root / path


def fill_pattern(root: Path, pattern: object, where: str, values: JsonObject) -> Path:
    """Fill values into a pattern such as ``data/chunk-{chunk_index:03d}``, and return the path inside the data set.

    Raises:
        SourceError: the pattern has other names or formats, or the path leads out of the data set.
    """
    if not isinstance(pattern, str):
        raise SourceError(f"{where} is {pattern!r:.80}, expected a text")
    try:
        parts = list(Formatter().parse(pattern))
    except ValueError as error:
        raise SourceError(f"{where} is {pattern!r:.80}: {error}") from error
    for _, name, form, convert in parts:
        plain = name is None or (name in values and not convert and _FILLED.fullmatch(form or ""))
        if not plain:
            raise SourceError(
                f"{where} is {pattern!r:.80}, allowed in braces are {', '.join(values)}, with a width such as :03d"
            )
    try:
        return inside(root, pattern.format(**values), where)
    except (ValueError, TypeError) as error:  # a text where the pattern wants a number
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{where} is {pattern!r:.80}: {error}") from error


def listed(items: Iterable[object], most: int = 5) -> str:
    """Return the first items of a list as text, with dots for the rest."""
    words = [str(item) for item in items]
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")


def chosen_episodes(origin: Path, episodes: Sequence[int] | None, count: int) -> Sequence[int] | set[int]:
    """Return the numbers of the episodes to read: those that were asked for, or all.

    Raises:
        SourceError: there is no such episode.
    """
    chosen = range(count) if episodes is None else set(episodes)
    if unknown := set(chosen) - set(range(count)):
        raise SourceError(f"{origin} has no episode {min(unknown)}, it has 0 to {count - 1}")
    return chosen


def checked_columns(
    origin: Path, columns: Mapping[str, str | Sequence[str]], existing: Iterable[str]
) -> dict[str, list[str]]:
    """Return the user's mapping from our names to lists of a data set's names.

    Raises:
        SourceError: one of our names is not known, or one of the data set's does not exist.
    """
    theirs = list(existing)
    names = {ours: [some] if isinstance(some, str) else list(some) for ours, some in columns.items()}
    for ours, some in names.items():
        if ours not in ("action", *ONE_COLUMN) and not re.match(r"(observation|action)\..", ours):
            raise SourceError(
                f"{origin}: columns has the name {ours!r}, allowed are observation.<name>, action, action.<name>, "
                f"{', '.join(ONE_COLUMN)}"
            )
        if not some or (ours in ONE_COLUMN and len(some) != 1):
            raise SourceError(f"{origin}: columns names {len(some)} for {ours!r}, expected one")
        if missing := [one for one in some if one not in theirs]:
            raise SourceError(f"{origin} has no numbers {listed(map(repr, missing))}, it has {listed(theirs, 30)}")
    return names


def stamps_of(seconds: np.ndarray) -> np.ndarray:
    """Return an episode's time stamps in nanoseconds, from seconds.

    Raises:
        SourceError: they do not rise, or can't be seconds.
    """
    seconds = seconds.astype(np.float64)
    if not (np.isfinite(seconds).all() and np.abs(seconds).max() < _LATEST_S and (np.diff(seconds) > 0).all()):
        raise SourceError("time does not rise, or is not in seconds")
    return np.asarray(np.round(seconds * 1e9).astype(np.int64))
