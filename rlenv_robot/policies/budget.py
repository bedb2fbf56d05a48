"""Limit the memory that loading a policy's file may take."""

from __future__ import annotations

import os
from pathlib import Path

from hal import RobotError, Spec

__all__ = ["HEADER_BYTES", "MEBIBYTES", "VARIABLE", "budget_bytes", "check_specs", "over_budget", "read_within"]

VARIABLE = "RLENV_ROBOT_POLICY_MIB"
"""Environment variable that overrides the budget, MiB."""
MEBIBYTES = 1024
"""Default budget, MiB: ten times the largest policy of the documentation."""
HEADER_BYTES = 4 << 20
"""Maximum size of the JSON description in or beside a policy's file, bytes; parsed, it takes up to 30 times as much.
"""


def budget_bytes() -> int:
    """Return the maximum size of a policy's file, and of its arrays in memory, bytes.

    Raises:
        RobotError: the environment variable is not a whole number above 0.
    """
    text = os.environ.get(VARIABLE, str(MEBIBYTES))
    if not text.isdecimal() or not int(text):
        raise RobotError(f"{VARIABLE} is {text!r:.40}, expected a whole number of MiB above 0")
    return int(text) << 20


def over_budget(path: str | Path, what: str, size: int | None = None) -> RobotError:
    """Return the error for a file that exceeds the budget.

    Args:
        path: the path of the file.
        what: the part that needs the memory, such as ``its arrays``.
        size: required memory, bytes; None if unknown.
    """
    most = budget_bytes() >> 20
    needed = f"more than {most}" if size is None else str(-(-size >> 20))
    return RobotError(
        f"{path}: {needed} MiB are needed for {what}; a policy may take {most} MiB. If you trust its author, set the "
        f"environment variable {VARIABLE} to more"
    )


def read_within(path: Path) -> bytes:
    """Return a file's content.

    Raises:
        RobotError: the file is larger than the budget, or not a regular file.
        OSError: the file can't be read.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise RobotError(f"{path}: is not a regular file")
    size = path.stat().st_size
    if size > budget_bytes():
        raise over_budget(path, "the file", size)
    with path.open("rb") as file:
        return file.read(size)  # no more, if it grows meanwhile


def check_specs(path: str | Path, *specs: Spec) -> None:
    """Refuse a policy with a single observation or action that is larger than the budget.

    Raises:
        RobotError: the fields of a spec are larger.
    """
    for spec in specs:
        size = sum(field.size * field.numpy_dtype.itemsize for field in spec)
        if size > budget_bytes():
            raise over_budget(path, f"one row of the spec {spec.name!r}", size)
