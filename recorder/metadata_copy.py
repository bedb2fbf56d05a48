"""Repeat a log's metadata records with a checksum, and detect damaged copies.

An MCAP metadata record has no checksum. So every record that a log can't be read without is written twice, and the copy
carries the checksum of its strings: a flipped bit in one of the two records leaves the other one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping

__all__ = ["CHECKSUM", "checked_copy", "verified"]

CHECKSUM = "checksum"
"""The key of the checksum in a copy."""


def checked_copy(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the strings with their checksum, CRC-32 of the sorted pairs as JSON."""
    return {**texts, CHECKSUM: str(_checksum(texts))}


def verified(copy: Mapping[str, str]) -> dict[str, str] | None:
    """Return the strings of a copy without their checksum, or None if the checksum is missing or wrong."""
    texts = {key: text for key, text in copy.items() if key != CHECKSUM}
    return texts if copy.get(CHECKSUM) == str(_checksum(texts)) else None


def _checksum(texts: Mapping[str, str]) -> int:
    return zlib.crc32(json.dumps(sorted(texts.items())).encode())
