"""Choose the action of each step of an environment whose agent sends chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hal import IllegalAction, Violation
from rlenv_robot.action_limiter import limiter_of
from rlenv_robot.chunk_queue import ChunkQueue, hold_limit
from rlenv_robot.tables import ExtraInfo, check_action_table, check_chunk_table
from rlenv_robot.world import World

__all__ = ["ChunkSteps"]


class ChunkSteps:
    """Take the tables of one episode from its first chunk on, and return the action of each step.

    Args:
        env_id: the id of the environment.
        world: the world; its robot is held where no action is due, and stopped if that lasts too long.
        hold_frames: most successive frames for which the robot is held; None for `rlenv_robot.chunk_queue.HOLD_S`.
    """

    def __init__(self, env_id: str, world: World, hold_frames: int | None = None) -> None:
        limiter = limiter_of(world)
        self._env_id, self._world, self._action = env_id, world, world.action
        self._queue = ChunkQueue(world.action, limiter)
        self._hold_frames, self._period_s, self._left, self._newest = 0, 0.0, 0, -1
        if limiter is not None:
            self._hold_frames = hold_limit(limiter.robot) if hold_frames is None else hold_frames
            self._period_s = limiter.robot.period_s

    @property
    def answers(self) -> int:
        """Frame number of the observation that the newest action answers; -1 if the robot was held."""
        return self._queue.answers

    def action(self, table: Any, frame_no: int) -> dict[str, np.ndarray]:
        """Return the action of the next frame.

        An ordinary Table 2 discards the queue and is executed itself. If its action is empty, the queue's is executed.

        Args:
            table: Table 2, for one action or for a chunk.
            frame_no: the present frame.

        Raises:
            IllegalAction: the table, an action or a frame number is illegal, and the queue is unchanged; or no action
                is due and the robot can't be held. Nothing moves.
        """
        chunk = self._chunk(table, frame_no)
        if chunk is not None:
            action, answers, first_frame = chunk
            self._queue.merge(action, answers=answers, first_frame=first_frame, frame=frame_no + 1)
            self._newest = answers
        elif table["action"]:
            values = self._action.validate(table["action"], "action")
            self._queue.replace(values, frame_no)
            self._left = 0
            return values
        return self._next(frame_no + 1)

    def _chunk(self, table: Any, frame_no: int) -> tuple[Mapping[str, Any], int, int] | None:
        """Return the actions of a chunk, the frame that it answers and its first frame; None for another table."""
        if not isinstance(table, Mapping) or "first_frame" not in table:
            action = check_action_table(table, self._env_id, frame_no)
        else:
            answers, first_frame, action = check_chunk_table(table, self._env_id)
            if not isinstance(action, Mapping) or action:
                return action, answers, first_frame
            check_action_table({"env_id": self._env_id, "frame_no": answers, "action": action}, self._env_id, frame_no)
        if not isinstance(action, Mapping):
            self._action.validate(action, "action")  # raises
        return None

    def _next(self, frame: int) -> dict[str, np.ndarray]:
        action = self._queue.next(frame) or self._queue.hold()
        if action is None:
            message = (
                f"no action is queued for frame {frame}, and there is none before it that could be repeated to hold a "
                "robot: send a chunk whose actions lead to this frame"
            )
            raise IllegalAction(Violation("missing", "action", (), message))
        self._left = self._queue.left(frame + 1)
        if self._queue.held > self._hold_frames:
            seconds = self._hold_frames * self._period_s
            self._world.stop(
                f"the policy was silent: it gave no action in {self._hold_frames} frames ({seconds:g} s), for which "
                f"the robot was held; its newest chunk answers frame {self._newest}"
            )
        return action

    def report(self) -> ExtraInfo:
        """Return ``extra_info["chunk"]``.

        ``answers`` and ``index`` are the frame number of the observation that the executed action answers and the
        action's number in its chunk, -1 where the robot was held; ``queued`` is the number of actions that are left.
        ``passed``, ``held`` and ``limited`` count, in the episode, the actions that came after their frames, the frames
        in which the robot was held, and those in which the change was brought within the guard's step.
        """
        counts = self._queue.counts
        return {
            "answers": self._queue.answers, "index": self._queue.index, "queued": self._left,
            "passed": counts.passed, "held": counts.held, "limited": counts.limited,
        }  # fmt: skip
