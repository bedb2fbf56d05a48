"""Names from elsewhere as names of fields."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["field_name", "field_names"]


def field_name(text: str) -> str:
    """In lower case, with single underscores, a letter first (``Front Cam/2`` becomes ``front_cam_2``)."""
    clean = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return clean if re.match(r"[a-z]", clean) else f"f_{clean}".rstrip("_")


def field_names(texts: Iterable[str]) -> dict[str, str]:
    """Each text's name; those that would be alike are numbered (``a_b``, ``a_b_2``)."""
    found: dict[str, str] = {}
    for text in texts:
        name, number = field_name(text), 2
        while name in found.values():
            name, number = f"{field_name(text)}_{number}", number + 1
        found[text] = name
    return found
