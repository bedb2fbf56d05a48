"""Limit the memory that a policy's file may take, whoever wrote the file."""

from __future__ import annotations

import os
from pathlib import Path

from hal import RobotError, Spec

__all__ = ["HEADER_BYTES", "MEBIBYTES", "VARIABLE", "budget_bytes", "check_specs", "over_budget", "read_within"]

VARIABLE = "RLENV_ROBOT_POLICY_MIB"
"""The environment variable that sets another budget."""
MEBIBYTES = 1024
"""The budget without it: ten times the largest policy of our pages."""
HEADER_BYTES = 4 << 20
"""Bytes of a description (JSON) in or beside a policy's file; a parsed one takes up to 30 times as much."""


def budget_bytes() -> int:
    """Return the bytes that a policy's file may have, and that its arrays may take.

    Raises:
        RobotError: the environment variable holds no whole number above 0.
    """
    text = os.environ.get(VARIABLE, str(MEBIBYTES))
    if not text.isdecimal() or not int(text):
        raise RobotError(f"{VARIABLE} is {text!r:.40}, expected a whole number of MiB above 0")
    return int(text) << 20


def over_budget(path: str | Path, what: str, size: int | None = None) -> RobotError:
    """Return the error for a file that needs more than the budget.

    Args:
        path: of the file.
        what: the part that needs them, such as ``its arrays``.
        size: bytes that it needs; None: unknown, more than the budget.
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
        RobotError: it is larger than the budget, or no regular file.
        OSError: it can't be read.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise RobotError(f"{path}: is no regular file, so no policy")
    size = path.stat().st_size
    if size > budget_bytes():
        raise over_budget(path, "the file", size)
    with path.open("rb") as file:
        return file.read(size)  # no more, if it grows meanwhile


def check_specs(path: str | Path, *specs: Spec) -> None:
    """Refuse a policy one of whose observations or actions alone is larger than the budget.

    Raises:
        RobotError: a spec's fields are larger.
    """
    for spec in specs:
        size = sum(field.size * field.numpy_dtype.itemsize for field in spec)
        if size > budget_bytes():
            raise over_budget(path, f"one row of the spec {spec.name!r}", size)
