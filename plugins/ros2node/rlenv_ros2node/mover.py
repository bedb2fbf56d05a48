"""Move a served robot as one of its clients: hold its lease, begin episodes, send the newest setpoint."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hal import Field, RobotError, RobotSpec
from real import RemoteRobot
from rlenv_ros2node.setpoints import CommandRefused, Setpoint

__all__ = ["Mover", "Start"]

_log = logging.getLogger(__name__)

Start = Literal["home", "here"]
"""The place at which an episode begins: the robot's home, to which it moves, or the pose in which it stands."""

_END_S = 5.0
"""Longest time that `Mover.release` waits for the moving thread, seconds."""


class Mover:
    """Carry out setpoints on a served robot while an episode runs.

    The episode begins with `begin` and ends with `release`, with a stop, or with an error of the robot. Without a
    setpoint the robot holds the command that was applied last.

    Args:
        address: address of the robot's server.
        keys: folder of this machine's keys; their role must be at least ``move``.
        measured: returns the newest values of the robot's sensors; empty before the first.
        start: where an episode begins.
        clearing: the options ``clear_stop`` and ``stop_number`` of the first reset, from a person at a terminal;
            empty clears nothing. They are used once.
    """

    def __init__(
        self,
        address: str,
        keys: str | Path | None,
        measured: Callable[[], Mapping[str, np.ndarray]],
        start: Start = "home",
        clearing: Mapping[str, Any] | None = None,
    ) -> None:
        self._address, self._keys, self._measured, self._start = address, keys, measured, start
        self._clearing = dict(clearing or {})
        self._lock, self._beginning = threading.Lock(), threading.Lock()
        self._remote: RemoteRobot | None = None
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._setpoint: Setpoint | None = None
        self._applied: Mapping[str, np.ndarray] | None = None
        self._spec: RobotSpec | None = None
        self.ended = "no episode has begun: call the service ~/reset"

    @property
    def running(self) -> bool:
        """Whether an episode runs, so that commands are accepted."""
        return self._applied is not None

    def begin(self) -> str:
        """Take the robot's lease, reset it, and begin an episode; return a message.

        Raises:
            RobotError: another client holds the robot, it is stopped, or the reset failed.
        """
        with self._beginning:
            self.release("an episode begins anew")
            remote = RemoteRobot(self._address, keys=self._keys)
            self._remote = remote
            try:
                options: dict[str, Any] = dict(self._clearing)
                if self._start == "here":
                    options["start"] = self._standing(remote.spec)
                state = remote.reset(options)
            except BaseException:
                self._remote = None
                remote.close()
                raise
            self._clearing = {}
            with self._lock:
                self._spec, self._setpoint, self._applied = remote.spec, None, state.applied
                self._over = threading.Event()
            self._thread = threading.Thread(
                target=self._move, args=(remote, self._over), name="rlenv-robot ROS 2 mover"
            )
            self._thread.start()
            return f"an episode of {remote.spec.name} has begun; commands are accepted"

    def release(self, why: str = "released by the service ~/release") -> str:
        """End the episode, and give the lease back; the robot holds. Calling it without an episode is allowed."""
        self._finish(why)
        remote, self._remote = self._remote, None
        self._over.set()
        if remote is not None:
            remote.close()  # ends a wait in the thread
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_END_S)
        return "the episode is over; the robot holds" if remote is not None else "there was no episode"

    def accept(self, make: Callable[[RobotSpec, Mapping[str, np.ndarray], float], Setpoint]) -> None:
        """Replace the setpoint.

        Args:
            make: makes the setpoint from the robot's description, the command that was applied last, and the monotonic
                clock in seconds.

        Raises:
            CommandRefused: no episode runs, or ``make`` refuses the command. The setpoint before stays.
        """
        with self._lock:
            spec, applied = self._spec, self._applied
        if applied is None or spec is None:
            raise CommandRefused(f"no command is accepted: {self.ended}")
        setpoint = make(spec, applied, time.monotonic())  # without the lock, so that the robot's steps go on
        with self._lock:
            if self._applied is None:
                raise CommandRefused(f"no command is accepted: {self.ended}")
            self._setpoint = setpoint

    def _standing(self, spec: RobotSpec) -> dict[str, np.ndarray]:
        """Return the command at which the robot stands: its measured positions within the commands' ranges."""
        sensors = self._measured()
        start = {}
        for command, sensor in spec.measured_by.items():
            if sensor not in sensors:
                raise RobotError("the robot was not measured yet, so it can't start where it stands: use --start home")
            start[command] = _in_range(spec.commands[command], sensors[sensor])
        return start

    def _finish(self, why: str) -> None:
        with self._lock:
            if self._applied is not None:
                self.ended, self._applied, self._setpoint = f"the episode is over ({why})", None, None

    def _move(self, remote: RemoteRobot, over: threading.Event) -> None:
        """Step until the episode ends. The server keeps the rate; a step is one control period."""
        try:
            while not over.is_set():
                with self._lock:
                    applied, setpoint = self._applied, self._setpoint
                if applied is None:
                    return
                command = dict(applied)
                if setpoint is not None:
                    command |= setpoint.at(time.monotonic(), applied)
                commands = remote.spec.commands
                state = remote.step({field.name: _in_range(field, command[field.name]) for field in commands})
                with self._lock:
                    if self._applied is not None:
                        self._applied = state.applied
        except RobotError as error:
            if not over.is_set():
                _log.warning("the episode is over: %s", error)
                self._finish(str(error))
                remote.close()


def _in_range(field: Field, values: np.ndarray) -> np.ndarray:
    """Return measured or applied values as a legal command: they may lie beyond their range by a little."""
    return np.clip(values, *field.bounds).astype(field.numpy_dtype)
