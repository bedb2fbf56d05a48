"""Count the frames of an episode, and keep the commands that a client has sent ahead for the coming ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hal.errors import CommandTooOld, EpisodeError, IllegalAction, RobotError
from hal.field import JsonObject
from hal.robot import RobotState
from real.control.commands import HeldFrame, Step
from real.control.interpolation import SetpointInterpolator
from real.control.limits import MaxAge
from real.control.settings import LoopSettings

__all__ = ["FrameQueue"]

Tell = Callable[[Any, "RobotState | Exception"], None]


class FrameQueue:
    """Execute each command of an episode in the frame that its client has named, or not at all.

    A frame is a control period, numbered by the reading at its end; the reading of the reset is frame 0. The count
    begins with the first command that names a frame. A command waits until its frame begins. One that comes in the
    first half of its frame gets the rest of it; one that comes later is refused. Every frame is answered with its
    reading, and a frame without a command holds what was applied last. For the control thread; any thread may read.

    Args:
        settings: `ahead`, the number of frames beyond the present one for which commands are accepted (0 refuses all);
            and `max_command_age_s`, the greatest age of a command when its frame begins, besides the time that it may
            wait. The frame that a command names bounds its age too, unless this process was frozen.
        period_s: length of a frame, seconds.
        interpolator: follows a command over the ticks of its frame.
        tell: answers a command.
        answer: answers a frame without a command, or ends the count for a client that waits for a frame.

    Attributes:
        ahead: the setting.
        counting: whether the episode counts its frames.
        frame: number of the frame that is under way or has just ended.
        held: number of frames without a command since the server's start; those before an episode's first command do
            not count.
        late: number of commands that came after their frame.
        replaced: number of commands that a later one for the same frame replaced.
    """

    def __init__(
        self,
        settings: LoopSettings,
        period_s: float,
        interpolator: SetpointInterpolator,
        tell: Tell,
        answer: Tell,
    ) -> None:
        self.ahead, self._period_s = settings.ahead, period_s
        self._ages = MaxAge(settings.max_command_age_s, (self.ahead + 1) * period_s)
        self._interpolator, self._ticks = interpolator, interpolator.ticks
        self._tell, self._answer = tell, answer
        self._steps: dict[int, Step] = {}
        self.counting = False
        self.frame, self._tick = 0, self._ticks  # the ticks of this frame that have begun
        self._begun = self._moved = False  # whether this frame, and this episode, has had a command
        self.held = self.late = self.replaced = 0

    def to_dict(self) -> JsonObject:
        """Return the setting and the counts as plain data, for a status."""
        return {
            "ahead": self.ahead,
            "frame": self.frame if self.counting else None,
            "waiting": len(self._steps),
            "held": self.held,
            "late": self.late + self._ages.refused,
            "replaced": self.replaced,
        }

    @property
    def ready(self) -> bool:
        """Whether the command of the frame that begins next has come."""
        return self.frame + 1 in self._steps and self._tick == self._ticks

    def begin(self) -> None:
        """Begin an episode: its reset's reading is frame 0."""
        self.frame, self._tick, self._begun, self._moved = 0, self._ticks, False, False

    def add(self, step: Step, refusal: RobotError | None) -> None:
        """Keep a command until its frame, or answer it with the reason why it will not be executed.

        Args:
            step: a command with a frame.
            refusal: why no command is accepted now; or None.
        """
        refusal = refusal or self._refusal(step.frame or 0)
        if refusal is not None:
            self._tell(step.request_id, refusal)
            return
        frame = step.frame or 0
        replaced, self._steps[frame], self.counting = self._steps.get(frame), step, True
        if replaced is not None:
            self.replaced += 1
            self._tell(replaced.request_id, EpisodeError(f"not executed: a newer command came for frame {frame}"))

    def _refusal(self, frame: int) -> RobotError | None:
        present = self.frame
        if not self.ahead:
            return EpisodeError(
                "this server accepts no command that names its frame, as serve.ahead is 0; raise it there, or step "
                "without ahead"
            )
        last = present + self.ahead + (self._tick == self._ticks)
        if frame > last:
            return EpisodeError(
                f"a command for frame {frame} is too far ahead: frame {present} is the present one, and serve.ahead "
                f"is {self.ahead}, so {last} is the last one allowed"
            )
        if frame > present or (frame == present and not self._begun and self._tick <= self._ticks // 2):
            return None
        self.late += 1
        return CommandTooOld(
            (present - frame) * self._period_s,
            0.0,
            f"the command for frame {frame} came too late, frame {present} is the present one; it was not executed. "
            "The network or the client is slow; step further ahead (ahead of the client, serve.ahead of the server)",
        )

    def begin_tick(self) -> bool:
        """Begin a tick, and return whether it is the first one of a command."""
        if self._tick == self._ticks:
            self.frame, self._tick, self._begun = self.frame + 1, 0, False
        step, left = self._steps.pop(self.frame, None), self._ticks - self._tick
        self._tick += 1
        if step is None:
            return False
        refusal: RobotError | None = self._ages.refusal(step.sent_ns)
        if refusal is None:
            try:
                self._interpolator.follow(step, left)
            except IllegalAction as illegal:
                refusal = illegal
        if refusal is not None:
            self._tell(step.request_id, refusal)
            return False
        self._begun = self._moved = True
        return True

    def end_tick(self, robot_state: RobotState) -> None:
        """Answer a frame without a command that ends with this tick, by the tick's reading; only while counting."""
        if self._tick == self._ticks:
            self.held += self._moved
            self._answer(HeldFrame(self.frame), robot_state)

    def end(self, why: RobotError) -> None:
        """Stop counting, and answer everything that waits with the reason; nothing of it is executed."""
        if not self.counting:
            return
        self.counting = False
        waiting, self._steps = self._steps, {}
        for step in waiting.values():
            self._tell(step.request_id, why)
        self._answer(HeldFrame(self.frame), why)
