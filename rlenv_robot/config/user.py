"""Find the name of the user of this process."""

from __future__ import annotations

import getpass

__all__ = ["user_name"]


def user_name(otherwise: str) -> str:
    """Return the user's name, or another text where the user has none on this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return otherwise
