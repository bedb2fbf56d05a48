"""Identify the content of episodes, so that copies are recognised and selections and policies can name their data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np

from recorder.frame_layout import used_field
from recorder.table.table import Table

__all__ = ["DIGEST_CHARACTERS", "episode_digest", "episode_digests", "rows_digest"]

DIGEST_CHARACTERS = 32
"""Hexadecimal digits of a digest: the first 128 bits of SHA-256."""


def episode_digest(table: Table, number: int) -> str:
    """Return the digest of an episode's rows: `DIGEST_CHARACTERS` hexadecimal digits.

    Equal rows have equal digests in every run or data set that holds them. The episode's number, its metadata and its
    labels do not count, nor do the numbers of the samples that its frames used, which a copy counts anew.

    Args:
        table: any table.
        number: the episode's index in it.
    """
    return _digest(table, number, *_prefix(table))


def episode_digests(table: Table) -> list[str]:
    """Return the digest of each episode, as `episode_digest` does."""
    prefix, uncounted = _prefix(table)
    return [_digest(table, number, prefix, uncounted) for number in range(len(table.starts))]


def rows_digest(digests: Iterable[str]) -> str:
    """Return the digest of a set of episodes from the digests of the episodes, in any order; copies count once."""
    return hashlib.sha256("".join(sorted(set(digests))).encode()).hexdigest()[:DIGEST_CHARACTERS]


def _prefix(table: Table) -> tuple[bytes, tuple[str, ...]]:
    """Return the names and types of the fields as bytes, and the fields that do not count."""
    dtype = table.layout.spec.row_dtype
    uncounted = ("episode", *map(used_field, table.layout.streams))
    return json.dumps(dtype.descr).encode(), uncounted


def _digest(table: Table, number: int, prefix: bytes, uncounted: tuple[str, ...]) -> str:
    rows = np.array(table.rows[table.starts[number] : table.stops[number]])
    for name in uncounted:
        rows[name] = 0
    return hashlib.sha256(prefix + rows.tobytes()).hexdigest()[:DIGEST_CHARACTERS]
