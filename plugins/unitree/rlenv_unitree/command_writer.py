"""Write the newest joint goals to the robot 500 times a second, and let it give way when something is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

from hal import LoopTiming, Rate, RobotError, RobotStopped
from real.control.realtime import ask_real_time
from rlenv_unitree.link import OtherWriter, RobotLink
from rlenv_unitree.motors import DAMPING_GAIN, MotorTable

__all__ = ["RAMP_S", "STALE_S", "WRITE_HZ", "CommandWriter"]

WRITE_HZ = 500.0
"""Commands a second, as in the maker's examples (``dt = 0.002``)."""

STALE_S = 0.02
"""Age of the newest state from which on the robot is damped, seconds: ten of its periods."""

RAMP_S = 1.0
"""Time in which the gains rise after the motors gave way, seconds."""

_OTHER_S = 1.0
"""A stop by another program may be cleared once it has been silent for so long, seconds."""


class CommandWriter:
    """Write one command each 2 ms on a thread of its own: the newest goal again and again, or damping.

    Within a control period the goal stays, as in simulation and in training. The motors give way (`DAMPING_GAIN`, no
    stiffness) at the beginning, after `damp`, when the robot's state is older than `STALE_S`, when another program
    commands the motors, and when a command can't be sent. They keep on doing so until `release`.

    Args:
        link: the connection, with the motors taken over.
        table: the motors.
        stale_s: as `STALE_S`.
        priority: real-time priority of the thread, 1 to 99; 0 for an ordinary thread.
        on_trouble: called once with the reason when the thread itself lets the motors give way; from that thread.

    Attributes:
        timing: the thread's periods.
        real_time: the system's answer to the request for a priority.
    """

    def __init__(
        self,
        link: RobotLink,
        table: MotorTable,
        stale_s: float,
        priority: int,
        on_trouble: Callable[[str], None],
    ) -> None:
        self._link, self._stale_s, self._priority, self._on_trouble = link, stale_s, priority, on_trouble
        self._kp, self._kd = np.array(table.stiffness, np.float32), np.array(table.damping, np.float32)
        self._changing = threading.Lock()
        self._damped: str | None = "no goal yet"
        self._goal: np.ndarray | None = None
        self._rising_s = 0.0  # when the gains began to rise
        self._other: OtherWriter | None = None
        self._over = threading.Event()
        self.timing, self.real_time = LoopTiming(1.0 / WRITE_HZ), "not asked for"
        self._thread = threading.Thread(target=self._run, name="rlenv-unitree commands", daemon=True)

    # -- from any thread -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to write, at first damping."""
        self._thread.start()

    def release(self) -> None:
        """Let the next goal be followed, with gains that rise from none.

        Raises:
            RobotError: another program commanded the motors within the last second.
        """
        other = self._other
        if other is not None and time.monotonic_ns() - other.arrived_ns < _OTHER_S * 1e9:
            raise RobotError(f"another program still commands the motors: {other.identity}; end it first")
        with self._changing:
            if self._damped is not None:
                self._damped, self._goal = None, None

    def follow(self, goal: np.ndarray) -> None:
        """Hold these joint angles, rad, from the next period on.

        Raises:
            RobotStopped: the motors give way, and `release` was not called.
        """
        with self._changing:
            if self._damped is not None:
                raise RobotStopped(self._damped)
            if self._goal is None:
                self._rising_s = time.monotonic()
            self._goal = goal.copy()

    def damp(self, why: str) -> None:
        """Let the motors give way from the next period on, until `release`; the first reason stays."""
        with self._changing:
            self._goal = None
            self._damped = self._damped or why

    @property
    def goal(self) -> np.ndarray | None:
        """The goal that the motors hold, rad; None while they give way."""
        return self._goal

    def end(self) -> None:
        """Stop writing. Calling it twice is allowed."""
        self._over.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    # -- on its thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        if self._priority:
            self.real_time = ask_real_time(self._priority).message
        rate = Rate(WRITE_HZ)
        while not self._over.is_set():
            self.timing.tick()
            try:
                self._write_one()
            except Exception as error:  # whatever it is, the thread must go on and try to let the motors give way
                self._trouble(f"a command could not be sent: {type(error).__name__}: {error}")
            rate.wait()

    def _write_one(self) -> None:
        state, now_ns = self._link.newest(), time.monotonic_ns()
        other = self._link.other_writer()
        if other is not None:
            self._other = other
            self._trouble(f"another program commands the motors: {other.identity}")
        if state is None or now_ns - state.arrived_ns > self._stale_s * 1e9:
            age = "none" if state is None else f"the newest is {(now_ns - state.arrived_ns) / 1e6:.0f} ms old"
            self._trouble(f"the robot's states stay away ({age}; {self._link.wrong_checksums} had a wrong checksum)")
        with self._changing:
            goal, rising_s = self._goal, self._rising_s
        if goal is None:
            self._link.write(None, 0.0, DAMPING_GAIN)
        else:
            share = min(1.0, (time.monotonic() - rising_s) / RAMP_S)
            self._link.write(goal, share * self._kp, share * self._kd + (1.0 - share) * DAMPING_GAIN)

    def _trouble(self, why: str) -> None:
        with self._changing:
            first, self._goal = self._damped is None, None
            self._damped = self._damped or why
        if first:
            self._on_trouble(why)
