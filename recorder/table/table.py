"""Packed frame rows and an episode index: what training reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hal.frame_layout import FrameLayout
from recorder.json_data import JsonObject
from recorder.table.image_source import ImageOpener

__all__ = ["Table"]


@dataclass(frozen=True)
class Table:
    """All frames of a data set, episode after episode.

    Attributes:
        layout: what a row is made of; ``layout.spec.row_dtype`` is the rows' dtype.
        rows: shape (R,), structured, perhaps memory-mapped; read-only by convention.
        starts, stops: shape (E,), int64: episode e is ``rows[starts[e]:stops[e]]``, T + 1 frames.
        episodes: one mapping of plain data for each episode: ``env_id``, ``goal`` (name -> list), ``seed``, ``task``,
            ``policy``, ``source`` (expert, random, ...), ``end`` (why it ended), ``verdict``, ... where known.
        origin: the path that the table was read from, for messages and to find its images.
        notes: what was lost or repaired while reading, a sentence each.
        open_images: opens the images at ``origin``; None if the images are in logs of ours, at the path that an
            episode calls ``run``, or else at ``origin``.
    """

    layout: FrameLayout
    rows: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    episodes: tuple[JsonObject, ...]
    origin: str = "memory"
    notes: tuple[str, ...] = ()
    open_images: ImageOpener | None = None
