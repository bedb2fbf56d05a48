"""The states that a served robot can be in, and the transitions between them. Drawn in docs/bridge.md."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from hal.errors import EpisodeError, StopReason

__all__ = ["WAYS", "Lifecycle", "State", "Transition"]

_log = logging.getLogger(__name__)

_REMEMBERED = 64


class State(StrEnum):
    """A state of a served robot."""

    DISARMED = "disarmed"  # the server runs and has not touched the robot
    ARMING = "arming"  # the first reset opens the robot and reads it
    READY = "ready"  # at its start; no command has come yet
    RUNNING = "running"  # an episode: commands come
    HOLDING = "holding"  # nobody commands; what was applied last is held
    RESETTING = "resetting"  # the scene is asked for and the robot goes home, slowly
    STOPPED = "stopped"  # a stop is latched


_ANYWHERE = frozenset({State.STOPPED})  # a stop is legal from everywhere

WAYS: Mapping[State, frozenset[State]] = {
    State.DISARMED: _ANYWHERE | {State.ARMING},
    State.ARMING: _ANYWHERE | {State.RESETTING, State.READY, State.DISARMED},
    State.READY: _ANYWHERE | {State.RUNNING, State.HOLDING, State.RESETTING},
    State.RUNNING: _ANYWHERE | {State.HOLDING, State.RESETTING},
    State.HOLDING: _ANYWHERE | {State.RESETTING},
    State.RESETTING: _ANYWHERE | {State.READY, State.HOLDING},
    State.STOPPED: frozenset({State.ARMING, State.RESETTING}),
}
"""From each state, the states that it can go to."""


class Transition(NamedTuple):
    """One change of state: when (monotonic clock, nanoseconds), from which, to which, and why."""

    stamp_ns: int
    before: State
    after: State
    why: str


class Lifecycle:
    """Keep the state of one robot. `go` and `stop` are for any thread, and so is reading.

    Args:
        name: of the robot, for the log.
        now_ns: monotonic clock, nanoseconds.

    Attributes:
        state: the state now.
        why: why the robot is in it.
        armed: whether the robot was opened: once it was ready, resets no longer begin with arming.
    """

    def __init__(self, name: str, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._name, self._now_ns = name, now_ns
        self._lock = threading.Lock()
        self.state = State.DISARMED
        self.why = "the server was started"
        self.armed = False
        self._history: deque[Transition] = deque(maxlen=_REMEMBERED)

    @property
    def history(self) -> tuple[Transition, ...]:
        """The last transitions, oldest first."""
        with self._lock:
            return tuple(self._history)

    def go(self, state: State, why: str) -> None:
        """Make one transition, and log it.

        Raises:
            EpisodeError: there is no such transition; nothing changed.
        """
        with self._lock:
            self._go(state, why)

    def go_unless_stopped(self, state: State, why: str) -> None:
        """Make a transition that a stop may have overtaken; then the stop counts and nothing changes."""
        with contextlib.suppress(EpisodeError):
            self.go(state, why)

    @property
    def episode_over(self) -> str | None:
        """Why there is no episode that a client could go on with, or None."""
        return None if self.state in (State.READY, State.RUNNING) else f"the robot is {self.state}: {self.why}"

    def stop(self, reason: str | StopReason) -> None:
        """Go to STOPPED; where it is already, the first reason stays."""
        reason = StopReason.of(reason)
        with self._lock:
            if self.state is not State.STOPPED:
                self._go(State.STOPPED, reason.text, logging.INFO if reason.orderly else logging.WARNING)

    def _go(self, state: State, why: str, level: int = logging.INFO) -> None:
        before = self.state
        if state not in WAYS[before]:
            ways = ", ".join(sorted(WAYS[before]))
            raise EpisodeError(
                f"{self._name} is {before} ({self.why}) and can't be {state} next ({why}); "
                f"from {before} it can only be {ways}"
            )
        self._history.append(Transition(self._now_ns(), before, state, why))
        self.state, self.why = state, why
        self.armed = self.armed or state in (State.READY, State.RESETTING)
        _log.log(level, "%s: %s -> %s: %s", self._name, before, state, why)
