"""Add neighbouring frames and actions to transitions, with masks at the ends of an episode."""

from __future__ import annotations

import numpy as np

from recorder.frame_layout import BEHAVIOUR_PREFIX
from recorder.table.training_rows import TrainingRows
from recorder.table.transitions import Transitions
from rlenv_robot.data.options import CheckedOptions
from rlenv_robot.tables import StepTable

__all__ = ["WINDOWS", "Windows"]

WINDOWS = ("stack", "chunk", "future")
"""The options that request a window."""


class Windows:
    """Windows around transitions, which never cross the end of an episode or a lost frame.

    Args:
        transitions: the recorded transitions.
        rows: the rows from which values are gathered.
    """

    def __init__(self, transitions: Transitions, rows: TrainingRows) -> None:
        self._transitions, self._rows = transitions, rows
        self._layout = transitions.table.layout

    def add(self, table: StepTable, options: CheckedOptions) -> None:
        """Add windows to the fields of a batch.

        * ``stack`` = k: ``observation`` and ``next_observation`` become (B, k, ...), oldest first, the present frame
        last; before the first frame of an episode that frame is repeated. ``extra_info``: ``stack_mask`` and
        ``next_stack_mask``, (B, k) bool, True for a real frame.
        * ``chunk`` = h: ``action`` becomes (B, h, ...), the present action first; after the last action of an episode
        that action is repeated. ``extra_info``: ``chunk_mask`` (B, h); and if parameters of the actions' distributions
        are recorded, ``behaviour_chunk``, name -> (B, h, ...), those of the same actions.
        * ``future`` = f: ``extra_info`` gets ``future_observation``, name -> (B, f, ...), the frames after the present
        one, with the last repeated, and ``future_mask`` (B, f).
        """
        extra = table["extra_info"]
        index = extra["index"]
        begin, stop = self._transitions.spans(index)
        if "stack" in options:
            self._stack(table, options["stack"], begin, stop, options.get("n_step", 1) == 1)
        if "chunk" in options:
            rows = self._rows.chunks(index, stop, options["chunk"])
            table["action"] = {name: rows[f"action_{name}"] for name in self._layout.action.names}
            if len(self._layout.behaviour):
                extra["behaviour_chunk"] = self._behaviour(index, stop, options["chunk"])
            extra["chunk_mask"] = np.arange(options["chunk"]) < (stop - index)[:, None]
        if "future" in options:
            ahead = index[:, None] + np.arange(1, options["future"] + 1)
            extra["future_observation"], extra["future_mask"] = self._frames(ahead, begin, stop)

    def _behaviour(self, index: np.ndarray, stop: np.ndarray, width: int) -> dict[str, np.ndarray]:
        inside = np.minimum(index[:, None] + np.arange(width), stop[:, None] - 1)
        rows = self._rows.rows(self._transitions.row(inside.reshape(-1)).reshape(inside.shape) + 1)
        return {name: rows[f"{BEHAVIOUR_PREFIX}_{name}"] for name in self._layout.behaviour.names}

    def _stack(self, table: StepTable, size: int, begin: np.ndarray, stop: np.ndarray, single: bool) -> None:
        """Widen both observations; those of single steps have all frames but one in common."""
        extra, back = table["extra_info"], np.arange(1 - size, 1)
        index = extra["index"][:, None]
        if not single:
            table["observation"], extra["stack_mask"] = self._frames(index + back, begin, stop)
            following = index + extra["steps"][:, None] + back
            table["next_observation"], extra["next_stack_mask"] = self._frames(following, begin, stop)
            return
        frames, exist = self._frames(index + np.arange(1 - size, 2), begin, stop)
        table["observation"] = {name: frame[:, :-1] for name, frame in frames.items()}
        table["next_observation"] = {name: frame[:, 1:] for name, frame in frames.items()}
        extra["stack_mask"], extra["next_stack_mask"] = exist[:, :-1], exist[:, 1:]

    def before(self, index: np.ndarray, count: int, ahead: int | np.ndarray = 0) -> np.ndarray:
        """Return the row numbers of stacks, (B, count): frames up to that of a transition, oldest first.

        Args:
            index: positions of transitions, (B,).
            count: number of frames in a stack.
            ahead: number of frames from a transition's first frame to the end of its stack, (B,) or one for all.
        """
        last = (index + ahead)[:, None]
        return self._numbers(last + np.arange(1 - count, 1), *self._transitions.spans(index))[0]

    def after(self, index: np.ndarray, count: int) -> np.ndarray:
        """Return the row numbers of the ``count`` frames after the first frame of each transition, (B, count)."""
        return self._numbers(index[:, None] + np.arange(1, count + 1), *self._transitions.spans(index))[0]

    def _frames(
        self, frame: np.ndarray, begin: np.ndarray, stop: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the observations of frames (B, W), and which of the frames exist.

        The frame of a number is where the transition at that position begins; the last one, ``stop``, is where
        the transition before it ends.
        """
        numbers, exist = self._numbers(frame, begin, stop)
        rows = self._rows.rows(numbers)
        fields = {name: rows[f"observation_{name}"] for name in self._layout.observation.names}
        return fields, exist

    def _numbers(self, frame: np.ndarray, begin: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the frames' row numbers, (B, W), of the nearest frame where one is missing; and which exist."""
        low, high = begin[:, None], stop[:, None]
        inside = np.clip(frame, low, high)
        at = np.minimum(inside, high - 1)
        return self._transitions.row(at.reshape(-1)).reshape(at.shape) + (inside - at), inside == frame
