"""Refuse a Gymnasium that is too old for batches, by the version that is needed."""

from __future__ import annotations

import re

__all__ = ["check_version"]

_OLDEST = (1, 1)
"""The oldest version of Gymnasium with the modes of `AutoresetMode`."""


def check_version(version: str) -> None:
    """Refuse a Gymnasium that is too old for batches.

    Raises:
        ImportError: naming the version that is needed.
    """
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < _OLDEST:
        needed = ".".join(map(str, _OLDEST))
        raise ImportError(
            f"a batch needs gymnasium {needed} or later, and {version} is installed: pip install "
            f"'gymnasium>={needed},<2'"
        )
