"""Queue the actions of chunks by the frames to which they lead, and merge chunks that arrive late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from hal import IllegalAction, RobotSpec, Spec, Violation
from rlenv_robot.action_limiter import ActionLimiter

__all__ = ["CHUNK_MAX", "HOLD_S", "ChunkCounts", "ChunkQueue", "hold_limit"]

CHUNK_MAX = 1000
"""Most actions in a chunk, and most frames from an observation to the first action of its chunk."""

HOLD_S = 2.0
"""Default time for which a robot is held without an action of its policy before it is stopped, seconds."""

Arrays = Mapping[str, np.ndarray]


class _Queued(NamedTuple):
    action: dict[str, np.ndarray]
    answers: int  # frame number of the observation
    place: int  # its number in its chunk
    chunk: int  # the chunk's number in the episode


@dataclass(slots=True)
class ChunkCounts:
    """The counts of one episode.

    Attributes:
        chunks: number of merged chunks.
        passed: number of actions that were dropped because their frames had passed.
        held: number of frames in which no action was due, so that the robot was held.
        limited: number of frames in which the action was brought within the guard's step after a seam.
        seam: largest change of the executed action at a seam, in guard's steps.
        jump: the same before the limit: the change that the chunks asked for.
    """

    chunks: int = 0
    passed: int = 0
    held: int = 0
    limited: int = 0
    seam: float = 0.0
    jump: float = 0.0

    def add(self, other: ChunkCounts) -> None:
        """Add the counts of another episode; of ``seam`` and ``jump`` the larger one stays."""
        self.chunks += other.chunks
        self.passed += other.passed
        self.held += other.held
        self.limited += other.limited
        self.seam, self.jump = max(self.seam, other.seam), max(self.jump, other.jump)

    def __str__(self) -> str:
        return (
            f"{self.chunks} chunks, {self.passed} actions dropped as their frames had passed, {self.held} frames held, "
            f"largest seam {self.seam:.2f} guard steps ({self.jump:.2f} before the limit, which acted in "
            f"{self.limited} frames)"
        )


def hold_limit(robot: RobotSpec) -> int:
    """Return the number of successive frames for which a robot may be held, `HOLD_S` in frames."""
    return max(1, round(HOLD_S * robot.rate_hz))


class ChunkQueue:
    """Queue the actions of one episode by frame number.

    Frames are counted, and no latency is estimated: an action has the number of the frame to which it leads. When a
    chunk is merged,

    - actions for frames that have passed are dropped;
    - for a frame that two chunks contain, the newer chunk's action is taken, blended with the older one's over the
      first ``blend`` frames;
    - what the older chunk holds beyond the end of the newer one is discarded. A chunk whose frames have all passed
      changes nothing.

    At a seam, where the action of another chunk follows, or an action after a hold, the change of the action is at most
    one guard's step. The action then approaches the chunk's by one step a frame until it has reached it; no frame is
    skipped. Other changes are left to the guard, as in any policy's actions.

    Args:
        action: the spec of one action.
        limiter: limits the change at seams, and gives the action that holds the robot. None does neither.
        blend: number of frames over which two chunks are blended, at least 0.

    Attributes:
        counts: of this episode.
        answers: frame number of the observation that the newest action answers; -1 for none.
        index: the newest action's number in its chunk, from 0; -1 for none.
        held: number of successive frames without an action, up to the newest one.

    Raises:
        ValueError: ``blend`` is negative.
    """

    def __init__(self, action: Spec, limiter: ActionLimiter | None = None, blend: int = 0) -> None:
        if blend < 0:
            raise ValueError(f"blend is {blend}, it must be a number of frames, at least 0")
        self._action, self._limiter, self._blend = action, limiter, blend
        self.clear()

    def clear(self) -> None:
        """Discard all actions and counts, at the beginning of an episode."""
        self.counts = ChunkCounts()
        self.answers = self.index = -1
        self.held = 0
        self._queue: dict[int, _Queued] = {}  # frame -> action
        self._newest = -1  # the observation that the newest merged chunk answers
        self._length = 0
        self._executed: dict[str, np.ndarray] | None = None
        self._chunk = 0  # the number of the chunk from which the newest action is
        self._approaching = False  # whether the actions are still limited after a seam

    @property
    def length(self) -> int:
        """Number of actions in the newest merged chunk; 0 before the first."""
        return self._length

    def left(self, frame: int) -> int:
        """Return the number of actions that are queued for ``frame`` and the following frames."""
        return sum(1 for number in self._queue if number >= frame)

    def queued(self, frame: int) -> dict[str, np.ndarray]:
        """Return the actions for ``frame`` and those that follow without a gap: field -> (n, *field shape)."""
        rows = []
        while frame in self._queue:
            rows.append(self._queue[frame].action)
            frame += 1
        return {
            field.name: np.array([row[field.name] for row in rows], field.numpy_dtype).reshape(-1, *field.shape)
            for field in self._action
        }

    def merge(self, chunk: Mapping[str, ArrayLike], *, answers: int, first_frame: int, frame: int) -> int:
        """Merge a chunk; a chunk that is refused changes nothing.

        Args:
            chunk: field -> actions of shape (K, *field shape), K from 1 to `CHUNK_MAX`.
            answers: frame number of the observation that the chunk answers.
            first_frame: the frame to which its first action leads, after ``answers``.
            frame: the frame that is executed next. Earlier frames have passed.

        Returns:
            The number of actions that were dropped because their frames had passed.

        Raises:
            IllegalAction: an action breaks its spec, the fields have different numbers of actions, a number is wrong,
                or a chunk that answers a newer observation has been merged already.
        """
        self._check_frames(answers, first_frame, frame)
        rows = self._rows(chunk)
        passed = min(max(frame - first_frame, 0), len(rows))
        self.counts.chunks += 1
        self.counts.passed += passed
        self._newest, self._length = answers, len(rows)
        if passed == len(rows):
            return passed
        queued = [_Queued(row, answers, place, self.counts.chunks) for place, row in enumerate(rows)]
        new = {first_frame + one.place: one for one in queued[passed:]}
        self._blend_into(new)
        begin = first_frame + passed
        self._queue = {number: queued for number, queued in self._queue.items() if frame <= number < begin} | new
        return passed

    def _check_frames(self, answers: int, first_frame: int, frame: int) -> None:
        if not 0 <= answers < frame:
            message = f"frame_no is {answers}, allowed are 0 to {frame - 1}: the number of the observation answered"
            raise _illegal("frame_no", "frame_no", message)
        if answers < self._newest:
            message = (
                f"frame_no is {answers}, but a chunk that answers frame {self._newest} is in use: a chunk that answers "
                "an older observation is not merged; send one that answers a newer observation"
            )
            raise _illegal("frame_no", "frame_no", message)
        if not answers < first_frame <= answers + CHUNK_MAX:
            message = (
                f"first_frame is {first_frame}, allowed are {answers + 1} to {answers + CHUNK_MAX}: the frame to "
                f"which the first action leads, after the observation's frame {answers}"
            )
            raise _illegal("frame_no", "first_frame", message)

    def _rows(self, chunk: Mapping[str, ArrayLike]) -> list[dict[str, np.ndarray]]:
        """Return the actions of a chunk, checked and copied."""
        if not isinstance(chunk, Mapping):
            raise _illegal("dtype", "action", f"action is a {type(chunk).__name__}, expected a mapping by field")
        lengths = {}
        for name, value in chunk.items():
            try:
                lengths[name] = len(cast("Sequence[ArrayLike]", value))  # a number has none
            except TypeError:
                message = f"action.{name} has no leading axis: a chunk has K actions, shape (K, *field shape)"
                raise _illegal("shape", f"action.{name}", message) from None
        count = next(iter(lengths.values()), 0)
        for name, length in lengths.items():
            if length != count:
                first = next(iter(lengths))
                message = f"action.{name} has {length} actions, action.{first} has {count}: all fields need as many"
                raise _illegal("shape", f"action.{name}", message)
        if not 1 <= count <= CHUNK_MAX:
            raise _illegal("shape", "action", f"the chunk has {count} actions, allowed are 1 to {CHUNK_MAX}")
        return [self._row(chunk, place) for place in range(count)]

    def _row(self, chunk: Mapping[str, ArrayLike], place: int) -> dict[str, np.ndarray]:
        try:
            values = {name: cast("Sequence[ArrayLike]", value)[place] for name, value in chunk.items()}
            row = self._action.validate(values, "action")
        except IllegalAction as refused:
            found = refused.violation
            message = f"action {place} of the chunk: {found.message}"
            raise IllegalAction(Violation(found.code, found.field, (place, *found.index), message)) from refused
        return {name: value.copy() for name, value in row.items()}

    def _blend_into(self, new: dict[int, _Queued]) -> None:
        """Blend the first frames of a new chunk with the older chunk's actions for the same frames."""
        for place, frame in enumerate(sorted(new)[: self._blend]):
            old, action = self._queue.get(frame), new[frame].action
            if old is None:
                return
            share = (place + 1) / (self._blend + 1)
            for name, value in action.items():
                if value.dtype.kind == "f":
                    before = old.action[name].astype(np.float64)
                    action[name] = (before + share * (value - before)).astype(value.dtype)

    def next(self, frame: int) -> dict[str, np.ndarray] | None:
        """Return the action that leads to a frame; None if none is queued for it.

        Args:
            frame: the frame after the present one. Actions for earlier frames are discarded.
        """
        queued = self._queue.pop(frame, None)
        for number in [number for number in self._queue if number < frame]:
            del self._queue[number]
        if queued is None:
            self._approaching = True
            return None
        action = self._limited(queued)
        self._executed, self.held = action, 0
        _, self.answers, self.index, self._chunk = queued
        return action

    def _limited(self, queued: _Queued) -> dict[str, np.ndarray]:
        seam = self._approaching or queued.chunk != self._chunk
        if self._executed is None or self._limiter is None or not seam:
            return queued.action
        action, change = self._limiter.limited(queued.action, self._executed)
        self.counts.jump = max(self.counts.jump, change)
        self.counts.seam = max(self.counts.seam, self._limiter.change(action, self._executed))
        self._approaching = action is not queued.action
        self.counts.limited += self._approaching
        return dict(action)

    def replace(self, action: dict[str, np.ndarray], answers: int) -> None:
        """Discard what is queued: another action, which answers the observation of a frame, is executed instead."""
        self._queue = {}
        self._executed = {name: value.copy() for name, value in action.items()}
        self.answers, self.index, self.held, self._approaching = answers, 0, 0, True

    def hold(self) -> dict[str, np.ndarray] | None:
        """Return the action that holds the robot in a frame without a queued action, and count the frame.

        Returns:
            None if it is unknown how to hold: before the first action of the episode, and in a world without a robot.
        """
        if self._executed is None or self._limiter is None:
            return None
        self.held += 1
        self.counts.held += 1
        self.answers = self.index = -1
        self._executed = self._limiter.hold(self._executed)
        return self._executed


def _illegal(code: str, field: str, message: str) -> IllegalAction:
    return IllegalAction(Violation(code, field, (), message))
