"""The states of a served robot, and the transitions between them. docs/bridge.md has the diagram."""

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
from hal.guarding.stop_latch import StopLatch
from real.protocol.text import printable

__all__ = ["WAYS", "Lifecycle", "State", "Transition"]

_log = logging.getLogger(__name__)

_LONGEST_WHY = 8000
"""Characters of a reason that are kept."""

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
"""State -> the states to which it may change."""

_CLEARING = frozenset({State.ARMING, State.RESETTING})
"""The states of a reset, which may clear a stop that came before it."""


_EPISODE = frozenset({State.READY, State.RUNNING})
"""The states of an episode that a client can continue."""


class Transition(NamedTuple):
    """One change of state: time (monotonic clock, nanoseconds), state before, state after, and reason."""

    stamp_ns: int
    before: State
    after: State
    why: str


class Lifecycle:
    """Keep the state of one robot. Thread-safe.

    Only the stop latch decides whether the robot is stopped: while a stop is latched the state is STOPPED, whoever
    stopped the robot, except during the reset that is about to clear this stop.

    Args:
        name: name of the robot, for the log.
        now_ns: monotonic clock, nanoseconds.
        latch: the latch of the robot's stop; None makes one.

    Attributes:
        armed: whether the robot has been opened: after it was ready once, resets no longer begin with arming.
        ended: whether `end_episode` led to the present state.
    """

    def __init__(
        self, name: str, now_ns: Callable[[], int] = time.monotonic_ns, latch: StopLatch | None = None
    ) -> None:
        self._name, self._now_ns = name, now_ns
        self._latch = latch or StopLatch()
        self._lock = threading.RLock()
        self._state, self._why = State.DISARMED, "the server was started"
        self._clears = -1  # the newest stop that the reset under way knows of
        self.armed = self.ended = False
        self._history: deque[Transition] = deque(maxlen=_REMEMBERED)

    @property
    def state(self) -> State:
        """The present state."""
        if self._latch.state.reason is None:  # as nearly always; asked in every step
            return self._state
        return self._state if self._latched() is None else State.STOPPED

    @property
    def why(self) -> str:
        """The reason for the robot's present state."""
        latched = self._latched()
        return self._why if latched is None else latched.text

    def _latched(self) -> StopReason | None:
        """Return the latched stop, unless the reset in progress is about to clear it."""
        number, latched = self._latch.state
        if latched is not None and self._state in _CLEARING and number == self._clears:
            return None
        return latched

    @property
    def history(self) -> tuple[Transition, ...]:
        """The last transitions, oldest first."""
        with self._lock:
            return tuple(self._history)

    def go(self, state: State, why: str, clears: int | None = None) -> None:
        """Make one transition, and log it.

        Args:
            state: the next state.
            why: the reason.
            clears: for a reset, the number of the newest stop that it knows of (`StopLatch.number`).

        Raises:
            EpisodeError: the transition is not allowed, or a stop is latched that it does not clear; nothing
                changed.
        """
        with self._lock:
            number, latched = self._latch.state
            clears = self._clears if clears is None else clears
            if latched is not None and (state not in _CLEARING or number != clears):
                raise self._impossible(state, why)
            transition = self._go(state, why)
            self._clears = clears if state in _CLEARING else -1
        self._log(transition)

    def go_unless_stopped(self, state: State, why: str) -> None:
        """Make a transition; if a stop has overtaken it, keep the stop and change nothing."""
        with contextlib.suppress(EpisodeError):
            self.go(state, why)

    def end_episode(self, why: str) -> None:
        """Go to HOLDING if clients can continue an episode, else change nothing.

        Args:
            why: the reason.
        """
        with self._lock:
            if self._state not in _EPISODE or self._latched() is not None:
                return
            transition = self._go(State.HOLDING, why)
            self.ended = True
        self._log(transition)

    @property
    def episode_over(self) -> str | None:
        """The reason why no client can continue an episode, or None."""
        return None if self.state in _EPISODE else f"the robot is {self.state}: {self.why}"

    def stop(self, reason: str | StopReason) -> None:
        """Go to STOPPED, after the latch has the stop. If the robot is already stopped, the first reason stays."""
        reason = StopReason.of(reason)
        with self._lock:
            if self._state is State.STOPPED:
                return
            transition = self._go(State.STOPPED, reason.text)
        self._log(transition, logging.INFO if reason.orderly else logging.WARNING)

    def _go(self, state: State, why: str) -> Transition:
        if state not in WAYS[self._state]:
            raise self._impossible(state, why)
        why = printable(why, _LONGEST_WHY)  # it goes to the log, where a line break could forge a line
        transition = Transition(self._now_ns(), self._state, state, why)
        self._history.append(transition)
        self._state, self._why, self.ended = state, why, False
        self.armed = self.armed or state in (State.READY, State.RESETTING)
        return transition

    def _impossible(self, state: State, why: str) -> EpisodeError:
        before = self.state
        ways = ", ".join(sorted(WAYS[before]))
        return EpisodeError(
            f"{self._name} is {before} ({self.why}) and can't be {state} next ({why}); "
            f"from {before} it can only be {ways}"
        )

    def _log(self, transition: Transition, level: int = logging.INFO) -> None:
        """Log a transition; without the lock, so that a slow log delays nobody's stop."""
        _log.log(level, "%s: %s -> %s: %s", self._name, transition.before, transition.after, transition.why)
