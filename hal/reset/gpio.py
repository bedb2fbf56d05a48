"""A push button, a foot switch or a PLC's output on a GPIO line (Linux, libgpiod)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hal.errors import DeadlineExceeded, ResetFailed
from hal.reset.confirmation import Answer, ResetRequest, VerdictRequest

__all__ = ["Gpio"]


class Gpio:
    """Confirm resets by a GPIO line that becomes active after the request.

    A line that is already active at the request does not count, like an Enter typed before the question: the button
    must be released and pressed again. A line gives no verdicts.

    Needs the extra ``gpio`` (the bindings of libgpiod 2) and a kernel with the GPIO character device.

    Args:
        chip: the device of the chip, such as ``/dev/gpiochip0``.
        line: the offset of the line on the chip.
        active_low: whether low voltage is active, as with a button to ground.
        debounce_s: a change that lasts less than this comes from a bouncing contact and is ignored, seconds.
    """

    def __init__(self, chip: str, line: int, *, active_low: bool = False, debounce_s: float = 0.02) -> None:
        self.chip, self.line = chip, line
        self._active_low, self._debounce_s = active_low, debounce_s

    def ask(self, request: ResetRequest) -> Answer:
        """Wait for the line to become active.

        Raises:
            DeadlineExceeded: the line did not become active in time.
            ResetFailed: the line can't be used, with the reason.
        """
        with self._requested() as lines:
            if not lines.wait_edge_events(timedelta(seconds=request.deadline_s)):
                hint = "one that was active before the question must be released first"
                raise DeadlineExceeded(f"{self._name} did not become active", request.deadline_s, hint)
        return Answer("gpio", f"{self.chip} line {self.line}")

    def judge(self, request: VerdictRequest) -> Answer:
        """Return no verdict, since a line can only confirm."""
        return Answer("gpio")

    @property
    def _name(self) -> str:
        return f"line {self.line} of {self.chip}"

    def _requested(self) -> Any:
        try:
            import gpiod
            from gpiod.line import Direction, Edge
        except ImportError as error:
            raise ResetFailed("a GPIO line needs libgpiod's bindings: pip install 'rlenv-robot[gpio]'") from error
        settings = gpiod.LineSettings(
            direction=Direction.INPUT,
            edge_detection=Edge.RISING,  # to active, whichever voltage that is
            active_low=self._active_low,
            debounce_period=timedelta(seconds=self._debounce_s),
        )
        try:
            return gpiod.request_lines(self.chip, consumer="rlenv-robot reset", config={self.line: settings})
        except (OSError, ValueError) as error:  # no such chip or line, in use, or not permitted
            hint = "`gpioinfo` lists chips and lines; a user needs write permission on the chip's device"
            raise ResetFailed(f"{self._name} can't be used: {error}; {hint}") from error

    def close(self) -> None:
        """Do nothing: the line is held only during a request."""
