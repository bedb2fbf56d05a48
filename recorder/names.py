"""Define the names that writers and readers share: of files, topics and metadata records, and the user's folders."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

__all__ = [
    "ANNOTATIONS", "CAMERA_TOPIC", "CHAIN", "COPY", "DESCRIPTION", "EPISODE_TOPIC", "EVENT_TOPIC", "FILE", "FORMAT",
    "FRAME_TOPIC", "JOINT_TOPIC", "LABELS", "LOG_NAME", "PREFERENCES", "SENSOR_TOPIC", "SIGNATURES", "STREAM",
    "TABLE_FOLDER", "TAIL_NAME", "TORN_SUFFIX", "cache_folder", "data_folder", "file_stamps", "files_of", "log_files",
    "segment_name",
]  # fmt: skip

FORMAT = 1
"""Version of the log's layout; a reader refuses a version that it doesn't know."""

LOG_NAME = "log.mcap"
"""The log's file in a run's folder: the first one, if the log has several."""
LABELS = "labels.jsonl"
"""The file beside the log with labels that people gave to episodes afterwards."""
PREFERENCES = "preferences.jsonl"
"""The file with people's preferences between two episodes, beside the log of the left episode."""
ANNOTATIONS = (LABELS, PREFERENCES)
"""The files beside the log that people write afterwards; they affect the rewards and choices of a training."""
SIGNATURES = "signatures.jsonl"
"""The file of signatures over the annotations, beside them."""
CHAIN = "chain.jsonl"
"""The file beside the log with digests, which reveal later changes of the log."""
TORN_SUFFIX = ".torn"
"""Suffix of the original of a torn file, after a recovery has written the repaired one under the old name."""
TAIL_NAME = "log.tail"
"""A link to the shared memory with the newest messages, while the log is written and after the process was killed."""
TABLE_FOLDER = "table"
"""The folder beside the log for everything that is made from the log and can be made again."""

FRAME_TOPIC, EPISODE_TOPIC, EVENT_TOPIC = "/frame", "/episode", "/event"
JOINT_TOPIC = "/joint_states"
CAMERA_TOPIC, SENSOR_TOPIC = "/camera/", "/sensor/"
"""Prefixes of topics; the name of the camera or of the stream follows."""

DESCRIPTION = "rlenv_robot"
"""The metadata record that describes the run."""
FILE = "rlenv_robot_file"
"""The metadata record with the file's number and its run's identifier."""
COPY = "rlenv_robot_copy:"
"""Prefix of the name of a metadata record that repeats another one with a checksum; the other's name follows."""
STREAM = "rlenv_robot_stream:"
"""Prefix of the name of a metadata record that describes a stream; the stream's name follows."""

_SEGMENT = re.compile(r"log-(\d{4,})\.mcap")


def segment_name(number: int) -> str:
    """Return the name of a log's file by its number: ``log.mcap``, ``log-0001.mcap``, ..."""
    return LOG_NAME if number == 0 else f"log-{number:04d}.mcap"


def log_files(folder: Path) -> dict[int, Path]:
    """Return the files of a run's log by number, in order. A missing file leaves a gap in the numbers."""
    files = {0: folder / LOG_NAME} if (folder / LOG_NAME).is_file() else {}
    for path in folder.glob("log-*.mcap"):
        match = _SEGMENT.fullmatch(path.name)
        if match and path.name == segment_name(int(match[1])):  # no second file has the same number
            files[int(match[1])] = path
    return dict(sorted(files.items()))


def files_of(path: Path) -> dict[int, Path]:
    """Return all files of a log by its first file; for any other file, only this file."""
    files = log_files(path.parent)
    return files if files.get(0) == path else {0: path}


def file_stamps(files: Mapping[int, Path]) -> dict[str, list[int]]:
    """Return file number -> size (bytes) and time of change (ns), which differ once the log has changed."""
    stats = ((number, path.stat()) for number, path in files.items())
    return {str(number): [status.st_size, status.st_mtime_ns] for number, status in stats}


def cache_folder() -> Path:
    """Return this project's folder in the user's cache (XDG Base Directory Specification), which may not exist yet.

    Raises:
        RuntimeError: the user has no home folder.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlenv-robot"


def data_folder() -> Path:
    """Return this project's folder in the user's data (XDG Base Directory Specification), which may not exist yet.

    Raises:
        RuntimeError: the user has no home folder.
    """
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "rlenv-robot"
