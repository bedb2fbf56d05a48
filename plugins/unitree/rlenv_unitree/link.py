"""Exchange low-level messages with one robot: states in, commands out, and other programs' commands noticed."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from hal import ConnectionLost, DeadlineExceeded, RobotError
from rlenv_unitree.channel import Channel, Reader, Writer, wait_until
from rlenv_unitree.crc import is_valid, sign
from rlenv_unitree.messages import (
    GO_LOW_CMD,
    GO_LOW_STATE,
    HG_LOW_CMD,
    HG_LOW_STATE,
    TOPIC_LOW_CMD,
    TOPIC_LOW_STATE,
    Record,
    go_command,
    hg_command,
)
from rlenv_unitree.motors import MotorTable
from rlenv_unitree.rpc import CHECK_MODE, MOTION_SWITCHER, RELEASE_MODE, Client

__all__ = ["LISTEN_S", "OtherWriter", "RobotLink", "State"]

LISTEN_S = 1.0
"""Time in which to listen for another program's commands before the first own one, seconds."""

_FIRST_STATE_S = 2.0
"""Longest wait for a state, seconds; the robot sends 500 a second."""

_FRESH_NS = 20_000_000
"""Age up to which a state has just arrived, ns."""

_JOIN_S = 10.0
"""Longest time to load the library and to join the network, seconds."""

_RELEASE_S = 5.0
"""Longest wait until the robot's own program has released the motors, seconds."""

_ATTEMPTS = 4
"""Number of times that the motion switcher is asked, a second each."""

_MESSAGES = {"go": (GO_LOW_CMD, GO_LOW_STATE), "hg": (HG_LOW_CMD, HG_LOW_STATE)}


class State(NamedTuple):
    """A state of the robot, and its arrival on this machine's monotonic clock, ns."""

    record: Record
    arrived_ns: int


class OtherWriter(NamedTuple):
    """Another program that commands the motors: its identity in DDS, and its newest command's arrival, ns."""

    identity: str
    arrived_ns: int


class RobotLink:
    """The connection to one robot.

    Args:
        table: the robot's motors.
        interface: the network interface to the robot, such as ``eth0``.
        domain: the DDS domain; the robots use 0.

    Attributes:
        wrong_checksums: number of states that were discarded since their checksum was wrong.
    """

    def __init__(self, table: MotorTable, interface: str, domain: int) -> None:
        self._table, self._channel = table, Channel(interface, domain)
        self._readers: tuple[Reader, Reader] | None = None  # of states, and of other programs' commands
        self._writer: Writer | None = None
        self._state: State | None = None
        self._reading = threading.Lock()
        self._pool = ThreadPoolExecutor(1, "rlenv-unitree join")
        self._joining: Future[None] | None = None
        self.wrong_checksums = 0

    # -- states ----------------------------------------------------------------------------------------------

    def joined(self, timeout_s: float) -> bool:
        """Join the network on a thread of its own, and return whether that is done within the time; writes nothing.

        To load the library and to join takes longer than a control loop waits for a reading.

        Raises:
            RobotError: as for `rlenv_unitree.channel.Channel.open`; the next call tries again.
        """
        if self._joining is None:
            self._joining = self._pool.submit(self._join)
        try:
            self._joining.result(timeout_s)
        except TimeoutError:
            return False
        except RobotError:
            self._joining = None
            raise
        return True

    def _join(self) -> None:
        self._channel.open()
        command, state = _MESSAGES[self._table.messages]
        self._readers = (
            self._channel.reader(TOPIC_LOW_STATE, state, depth=8),
            self._channel.reader(TOPIC_LOW_CMD, command, others_only=True),
        )

    def open(self, timeout_s: float = _FIRST_STATE_S) -> State:
        """Join the network and return a state that has just arrived; nothing is written. Calling it twice is allowed.

        Args:
            timeout_s: longest wait for the state, seconds.

        Raises:
            ConnectionLost: no state with a right checksum came in time.
            DeadlineExceeded: the network could not be joined within 10 s.
            RobotError: as for `rlenv_unitree.channel.Channel.open`.
        """
        if not self.joined(_JOIN_S):
            raise DeadlineExceeded(f"DDS on {self._channel.interface} could not be joined", _JOIN_S)
        if not wait_until(self._is_fresh, timeout_s):
            raise ConnectionLost(
                f"no {TOPIC_LOW_STATE} came within {timeout_s:g} s on {self._channel.interface}, DDS domain "
                f"{self._channel.domain} ({self.wrong_checksums} had a wrong checksum): is the robot on, is this the "
                "interface of its network (192.168.123.x), and its domain?"
            )
        newest = self.newest()
        assert newest is not None
        return newest

    def _is_fresh(self) -> bool:
        state = self.newest()
        return state is not None and time.monotonic_ns() - state.arrived_ns < _FRESH_NS

    def newest(self) -> State | None:
        """Return the newest state with a right checksum, without waiting; None before the first. From any thread."""
        with self._reading:
            if self._readers is not None:
                for sample in reversed(self._readers[0].take()):
                    if is_valid(sample.record):
                        self._state = State(sample.record, sample.arrived_ns)
                        break
                    self.wrong_checksums += 1
            return self._state

    # -- other programs --------------------------------------------------------------------------------------

    def other_writer(self) -> OtherWriter | None:
        """Return another program whose commands came since the last call; None for none."""
        if self._readers is None:
            return None
        samples = self._readers[1].take()
        return OtherWriter(self._readers[1].describe(samples[-1].writer), samples[-1].arrived_ns) if samples else None

    def take_over(self, release: bool) -> None:
        """Make sure that nobody else commands the motors; the first call makes the writer.

        Args:
            release: whether the robot's own program is made to release the motors, if it controls them.

        Raises:
            RobotError: another program commands the motors; the message has its identity. Nothing was written.
            ConnectionLost: the robot's motion switcher does not answer.
        """
        self._release_motors(release)
        self.other_writer()  # what came earlier does not count
        end = time.monotonic() + LISTEN_S
        while time.monotonic() < end:
            other = self.other_writer()
            if other is not None:
                raise RobotError(
                    f"another program commands the motors on {TOPIC_LOW_CMD}: {other.identity}; end it first, since a "
                    "robot with two programs falls. Nothing was written"
                )
            time.sleep(0.01)
        if self._writer is None:
            self._writer = self._channel.writer(TOPIC_LOW_CMD, _MESSAGES[self._table.messages][0])
            if not self._writer.wait_for_reader(_FIRST_STATE_S):
                self._writer = None
                raise ConnectionLost(f"nothing on this network reads {TOPIC_LOW_CMD}: is this the robot's network?")

    def _release_motors(self, allowed: bool) -> None:
        """Refuse while the robot's own program controls the motors; make it release them if that is allowed."""
        client = Client(self._channel, MOTION_SWITCHER)
        mode = _mode(client)
        if not mode:
            return
        if not allowed:
            raise RobotError(
                f"the robot's own program {mode!r} controls the motors: lay the robot down with its remote control, "
                "then set release = true, which makes that program release them"
            )
        status, _ = _call(client, RELEASE_MODE)
        if status != 0 or not wait_until(lambda: not _mode(client), _RELEASE_S):
            raise RobotError(
                f"the robot's own program {mode!r} did not release the motors within {_RELEASE_S:g} s (status "
                f"{status}); switch it off with the remote control or the maker's app"
            )

    # -- commands --------------------------------------------------------------------------------------------

    def write(self, goal: np.ndarray | None, kp: np.ndarray | float, kd: np.ndarray | float) -> None:
        """Send one command.

        Args:
            goal: joint angles, rad; None lets the motors give way under kd alone.
            kp: N m/rad.
            kd: N m s/rad.

        Raises:
            RobotError: DDS refused it, or `take_over` has not succeeded.
        """
        if self._writer is None or self._state is None:
            raise RobotError("no command was sent: the motors were not taken over")
        is_go, count = self._table.messages == "go", len(self._table.joints)
        command = go_command() if is_go else hg_command(int(self._state.record["mode_machine"]))
        motors: Any = command["motor_cmd"]
        motors["dq"][:count], motors["kd"][:count] = 0.0, kd
        if goal is not None:
            motors["q"][:count], motors["kp"][:count] = goal, kp
        sign(command)
        self._writer.write(command)

    def close(self) -> None:
        """Leave the network. Calling it twice is allowed."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._readers = self._writer = None
        self._channel.close()


def _mode(client: Client) -> str:
    """Return the name of the robot's program that controls the motors, such as ``normal``; empty for none.

    Raises:
        RobotError: the motion switcher does not answer, or not as expected.
    """
    status, text = _call(client, CHECK_MODE)
    try:
        name = json.loads(text)["name"]
    except (ValueError, KeyError, TypeError):
        raise RobotError(
            f"the robot's motion switcher answered with status {status} and {text!r:.100}, expected JSON with 'name'; "
            "compare its firmware with docs/unitree.md"
        ) from None
    return str(name or "")


def _call(client: Client, number: int) -> tuple[int, str]:
    """Call the motion switcher; ask again after a second, since the first answer is lost if DDS has not matched both.

    Asking twice is harmless: both calls have the same effect when repeated.
    """
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(RobotError):
            return client.call(number, timeout_s=1.0)
    return client.call(number, timeout_s=1.0)
