"""Predict chunks: the actions of several frames at once, which may arrive after some of these frames have passed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from hal import Spec

__all__ = ["ChunkContext", "ChunkPredictor", "HasChunkPredictor"]


class ChunkContext(NamedTuple):
    """The frames that pass while a predictor predicts, for real-time chunking.

    Attributes:
        frame_no: number of the observation's frame in its episode.
        queued: field -> actions of shape (n, *field shape) that are queued for the frames after ``frame_no``, the
            nearest first; n is 0 where nothing is queued. They come from earlier chunks, and are executed until the
            new chunk arrives.
        delay: number of frames that are expected to pass before the new chunk arrives: the largest of the last answers.
    """

    frame_no: int
    queued: Mapping[str, np.ndarray]
    delay: int


@runtime_checkable
class ChunkPredictor(Protocol):
    """An object that predicts chunks of actions, perhaps slowly, such as the client of a policy server.

    Every method is called by one thread at a time; `close` may be called by any thread.
    """

    @property
    def length(self) -> int:
        """The largest number of actions in a chunk, at least 1."""
        ...

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse specs of observations or actions that the predictor can't use.

        Raises:
            SpecMismatch: the error lists every difference.
            ConnectionLost: the predictor's server can't be reached.
        """
        ...

    def reset(self) -> None:
        """Discard the state of the last episode."""
        ...

    def predict(self, observation: Mapping[str, np.ndarray], context: ChunkContext) -> Mapping[str, np.ndarray]:
        """Return a chunk: field -> actions of shape (K, *field shape), K from 1 to `length`.

        The first action leads from the observation's frame to the next one.

        Args:
            observation: one observation, without leading axes.
            context: the frames that pass meanwhile.

        Raises:
            DeadlineExceeded: no answer came in time. The session was closed, so that a late answer can't be taken for a
                fresh one; the next call opens another.
            ConnectionLost: the server has ended the session, or can't be reached.
            RobotError: the server has refused the observation, or its answer is not a chunk of the action's spec.
        """
        ...

    def close(self) -> None:
        """Close the session, and end a wait of another thread in `predict`. Safe to call more than once."""
        ...


@runtime_checkable
class HasChunkPredictor(Protocol):
    """A policy that executes chunks itself, and can hand its network out as a predictor."""

    def chunk_predictor(self) -> ChunkPredictor | None:
        """Return the predictor of the policy's chunks; None if the policy has no chunks.

        Raises:
            RobotError: the network can't predict from one observation.
        """
        ...
