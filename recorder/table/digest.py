"""Identify the content of episodes, so that copies are recognised and selections and policies can name their data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

import numpy as np

from recorder.frame_layout import used_field
from recorder.table.table import Table

__all__ = ["DIGEST_CHARACTERS", "episode_digest", "episode_digests", "rows_digest"]

DIGEST_CHARACTERS = 32
"""Hexadecimal digits of a digest: the first 128 bits of SHA-256."""


def episode_digest(table: Table, number: int) -> str:
    """Return the digest of an episode's rows: `DIGEST_CHARACTERS` hexadecimal digits.

    Equal rows have equal digests in every run or data set that holds them. The episode's number, its metadata and its
    labels do not count, nor do the numbers of the samples that its frames used, which a copy counts anew. The row that
    ``keep_last`` adds to a truncated episode does not count either, so that a policy that was trained with it names
    the same episodes.

    Args:
        table: any table.
        number: the episode's index in it.
    """
    return episode_digests(table, [number])[0]


def episode_digests(table: Table, numbers: Sequence[int] | None = None) -> list[str]:
    """Return the digests of episodes, as `episode_digest` does.

    Args:
        table: any table.
        numbers: the episodes' indices in it; None for all.
    """
    prefix = json.dumps(table.layout.spec.row_dtype.descr).encode()
    uncounted = ("episode", *map(used_field, table.layout.streams))
    digests = []
    for number in range(len(table.starts)) if numbers is None else numbers:
        rows = np.array(table.rows[table.starts[number] : table.stops[number]])
        if table.episodes[number].get("last_observation") == "repeated" and rows["truncated"][-1]:
            rows = rows[:-1]
            rows["truncated"][-1] = True
        for name in uncounted:
            rows[name] = 0
        digests.append(hashlib.sha256(prefix + rows.tobytes()).hexdigest()[:DIGEST_CHARACTERS])
    return digests


def rows_digest(digests: Iterable[str]) -> str:
    """Return the digest of a set of episodes from the digests of the episodes, in any order; copies count once."""
    return hashlib.sha256("".join(sorted(set(digests))).encode()).hexdigest()[:DIGEST_CHARACTERS]
