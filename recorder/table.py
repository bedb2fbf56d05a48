"""Packed frame rows and an episode index: what training reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recorder.frames import FrameLayout

__all__ = ["Table"]


@dataclass(frozen=True)
class Table:
    """All frames of a data set, episode after episode.

    Attributes:
        layout: what a row is made of; ``layout.spec.row_dtype`` is the rows' dtype.
        rows: shape (R,), structured, perhaps memory-mapped; read-only by convention.
        starts, stops: shape (E,), int64: episode e is ``rows[starts[e]:stops[e]]``, T + 1 frames.
        episodes: one mapping of plain data an episode: ``env_id``, ``goal`` (name -> list), ``seed``, ``task``,
            ``policy``, ``source`` (expert, random, ...), ``end`` (why it ended), ``verdict``, ... where known.
        origin: where it came from, for messages.
        notes: what was lost or repaired on the way here, a sentence each.
    """

    layout: FrameLayout
    rows: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    episodes: tuple[Mapping[str, Any], ...]
    origin: str = "memory"
    notes: tuple[str, ...] = ()
