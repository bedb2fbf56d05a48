"""Find the folders and the name of the user of this process."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

__all__ = ["cache_folder", "data_folder", "user_name"]


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


def user_name(otherwise: str) -> str:
    """Return the user's name, or another text where the user has none on this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return otherwise
