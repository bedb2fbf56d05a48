"""Teleoperate with a leader arm: a second robot without torque, which a person moves by hand."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np

from hal import RobotError, RobotSpec, RobotState, SpecError
from rlenv_robot.tasks.task import Arrays

__all__ = ["Clutch", "Leader", "LeaderDriver", "LeaderReader", "LeaderSource"]

_log = logging.getLogger(__name__)

MAX_AGE_NS = 150_000_000
"""Age from which a leader's newest pose is ignored and the robot holds, in nanoseconds."""

MOTION = 0.004
"""Smallest change of a leader's pose that counts as motion, units: above two steps of an STS3215 (0.0031 rad)."""

_RETRY_S = 1.0
"""Time between two attempts to reach a leader that is lost, in seconds."""


@runtime_checkable
class LeaderDriver(Protocol):
    """A driver of a robot that can be a leader, such as `hal.drivers.bus_arm.BusArm`."""

    @property
    def spec(self) -> RobotSpec:
        """The spec of the leader."""
        ...

    def lead(self) -> RobotState:
        """Switch the torque off, and return the first reading; also reopen a lost port."""
        ...

    def read(self) -> RobotState | None:
        """Return a reading, or None if the port is closed."""
        ...

    def close(self) -> None:
        """Release the port. Safe to call more than once."""
        ...


class LeaderSource(Protocol):
    """Provide the newest readings of a leader."""

    @property
    def spec(self) -> RobotSpec:
        """The spec of the leader."""
        ...

    def open(self) -> None:
        """Start reading. Safe to call more than once."""
        ...

    def newest(self) -> RobotState:
        """Return the newest reading.

        Raises:
            OSError: the connection to the leader is lost.
        """
        ...

    def close(self) -> None:
        """Release the leader. Safe to call more than once."""
        ...


class Clutch(Protocol):
    """Connect a device with the robot, and disconnect it."""

    def engaged(self) -> bool:
        """Return whether the device moves the robot now. It is called once per control period."""
        ...

    def release(self) -> None:
        """Open the clutch, until the person closes it again."""
        ...


class LeaderReader:
    """Read a leader on a thread at a separate rate, so that a slow bus does not delay the robot's commands.

    A lost leader is reconnected to once per second.

    Args:
        driver: the driver of the leader.
        rate_hz: readings per second.
        now_ns: the monotonic clock of the readings' stamps, nanoseconds; by default the driver's ``now_ns``, or this
            machine's if it has none.
    """

    def __init__(self, driver: LeaderDriver, rate_hz: float = 60.0, now_ns: Callable[[], int] | None = None) -> None:
        self._driver, self._period_s = driver, 1.0 / rate_hz
        clock: Callable[[], int] = getattr(driver, "now_ns", time.monotonic_ns)
        self._now_ns = now_ns or clock
        self._newest: RobotState | None = None
        self._trouble = "it was not opened yet"
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot leader", daemon=True)

    @property
    def spec(self) -> RobotSpec:
        """The spec of the leader."""
        return self._driver.spec

    def open(self) -> None:
        """Switch the leader's torque off, and start reading. Safe to call more than once.

        Raises:
            RobotError: the leader can't be opened, or its torque is still on.
        """
        if self._thread.is_alive() or self._closing.is_set():
            return
        self._newest, self._trouble = self._driver.lead(), ""
        self._thread.start()

    def newest(self) -> RobotState:
        """Return the newest reading.

        Raises:
            OSError: the connection to the leader is lost, or its newest position is older than 0.15 s.
        """
        newest, trouble = self._newest, self._trouble
        if trouble or newest is None:
            raise OSError(f"the leader is lost: {trouble}")
        age_ns = self._now_ns() - newest.stamp_ns + max(newest.age_ns.values(), default=0)
        if age_ns > MAX_AGE_NS:
            raise OSError(f"the leader's newest position is {age_ns / 1e6:.0f} ms old")
        return newest

    def close(self) -> None:
        """End the thread, and release the leader. Safe to call more than once."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._driver.close()

    def _run(self) -> None:
        wait_s = 0.0
        while not self._closing.wait(wait_s):
            began_s = time.monotonic()
            try:
                reading = self._driver.lead() if self._trouble else self._driver.read()
                if reading is None:
                    raise RobotError("its port is closed")
                self._newest, self._trouble = reading, ""
                wait_s = max(0.0, self._period_s - (time.monotonic() - began_s))
            except (RobotError, OSError) as error:
                if not self._trouble:
                    _log.warning("the leader is lost, so the robot holds: %s", error)
                self._trouble, wait_s = str(error), _RETRY_S


class Leader:
    """Move a robot by a leader arm (an `rlenv_robot.robot_env.intervention.Operator`).

    Each engagement maps the leader's present pose to the robot's present command, so engaging moves nothing, wherever
    the leader is. With ``absolute`` the robot goes to the leader's pose instead, as fast as the user of this device
    allows (`rlenv_robot.robot_env.intervention.ActionBlender`).

    Args:
        source: the source of the leader's readings.
        spec: the spec of the robot that follows; its commands have the leader's names and sizes.
        clutch: connects the two. It is opened when the leader is lost.
        absolute: whether the robot takes the leader's pose.

    Attributes:
        input_ns: stamp of the first reading since `mark` with another pose than at `mark`, nanoseconds on the leader's
            monotonic clock; 0 if there was none.

    Raises:
        SpecError: the leader has no sensor for one of the robot's commands.
    """

    def __init__(self, source: LeaderSource, spec: RobotSpec, clutch: Clutch, *, absolute: bool = False) -> None:
        leader = source.spec
        for field in spec.commands:
            sensor = leader.measured_by.get(field.name)
            if sensor is None or leader.commands[field.name].size != field.size:
                raise SpecError(
                    f"the leader {leader.name!r} measures nothing for the command {field.name!r} of {spec.name!r}; "
                    f"its commands are {', '.join(leader.commands.names)}"
                )
        self._source, self._spec, self._clutch, self._absolute = source, spec, clutch, absolute
        self._anchor: dict[str, np.ndarray] | None = None
        self._marked: dict[str, np.ndarray] | None = None
        self.input_ns = 0

    def mark(self) -> None:
        """Start waiting for the leader's first motion, whose time `input_ns` will hold."""
        self._marked, self.input_ns = None, 0

    def open(self) -> None:
        """Switch the leader's torque off, and start reading. Safe to call more than once."""
        self._source.open()

    def poll(self, present: Arrays) -> Arrays | None:
        """Return the target for this period, or None while the clutch is open.

        Args:
            present: the command that was applied last.

        Raises:
            OSError: the connection to the leader is lost. The clutch stays open until the person closes it again.
        """
        try:
            reading = self._source.newest()
        except OSError:
            self._clutch.engaged()  # keys that were pressed meanwhile engage nothing later
            self.release()
            raise
        if not self._clutch.engaged():
            self._anchor = None
            return None
        pose = {
            name: np.asarray(reading.sensors[self._source.spec.measured_by[name]], np.float64)
            for name in self._spec.commands.names
        }
        if self._marked is None:
            self._marked = pose
        if not self.input_ns and any(np.max(np.abs(pose[key] - self._marked[key])) > MOTION for key in pose):
            self.input_ns = reading.stamp_ns
        if self._anchor is None:
            self._anchor = {
                name: np.zeros_like(value) if self._absolute else np.asarray(present[name], np.float64) - value
                for name, value in pose.items()
            }
        return {name: value + self._anchor[name] for name, value in pose.items()}

    def release(self) -> None:
        """Open the clutch, until the person closes it again."""
        self._clutch.release()
        self._anchor = None

    def close(self) -> None:
        """Release the leader. Safe to call more than once."""
        self._source.close()
