"""Publish and receive telemetry of a served robot at a chosen rate, without waiting for slow listeners."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import msgpack
import numpy as np
import zmq

from hal.errors import DeadlineExceeded, Fault, RobotError, WireError
from hal.robot import RobotSpec, RobotState
from real.protocol import messages as wire
from real.protocol.handshake import Handshake, load_keys
from real.protocol.messages import check_address
from real.protocol.rows import RobotStateCodec, faults_to_list
from real.protocol.sockets import notice_vanished_peers

__all__ = ["Publisher", "Snapshot", "Watcher"]

_log = logging.getLogger(__name__)

_SLICE_S = 0.05


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One message of telemetry.

    Attributes:
        state: state of the robot's lifecycle (`real.control.lifecycle.State`).
        why: the reason for that state.
        holder: name of the client that holds the lease, or None.
        loop_timing: timing of the control loop, as `hal.clock.LoopTiming.to_dict`.
        real_time: the priority that the scheduler granted the loop, as a sentence.
        late_commands: number of commands that were refused because of their age.
        sent_ns: the server's monotonic clock when the message was sent, nanoseconds.
        sensors: values of the newest reading, by sensor; empty before the first reading.
        applied: values of the newest applied command, by field; empty before the first reading.
        stamp_ns: time stamp of the newest reading, nanoseconds of the server's monotonic clock; 0 before the first.
        faults: faults of the newest reading.
        age_ns: sensor name -> age of its sample at ``stamp_ns``, nanoseconds; a sensor that isn't listed is fresh.
        status: the server's whole status (`real.server.server.Server.about`), plain data.
    """

    state: str
    why: str
    holder: str | None
    loop_timing: Mapping[str, Any]
    real_time: str
    late_commands: int
    sent_ns: int
    sensors: Mapping[str, np.ndarray]
    applied: Mapping[str, np.ndarray]
    stamp_ns: int
    faults: tuple[Fault, ...]
    age_ns: Mapping[str, int] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)


class Publisher:
    """Send status and newest reading at a chosen rate, on a separate thread.

    Args:
        socket: the bound PUB socket, which this object closes.
        spec: the robot's description.
        look: returns plain data about the robot and its newest reading, or None for the latter.
        rate_hz: messages a second.

    Raises:
        ValueError: the rate is not above 0.
    """

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        spec: RobotSpec,
        look: Callable[[], tuple[dict[str, Any], RobotState | None]],
        rate_hz: float,
    ) -> None:
        self._socket, self._look, self._period_s = socket, look, 1.0 / rate_hz
        self._codec = RobotStateCodec(spec)
        self._fails = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot telemetry", daemon=True)

    def start(self) -> None:
        """Start the thread that sends."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the socket. Safe to call more than once."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        with self._socket as socket:
            while not self._over.wait(self._period_s):
                try:
                    socket.send(self._message(), zmq.NOBLOCK)
                    self._fails = False
                except Exception:  # a strange reading must not end the telemetry that would tell of it
                    if not self._fails:
                        _log.exception("messages of telemetry can't be made")
                    self._fails = True

    def _message(self) -> bytes:
        about, robot_state = self._look()
        row: bytes | None = None
        if robot_state is not None:
            _, (row, *_) = self._codec.encode(robot_state._replace(images={}))
            about = {**about, "stamp_ns": robot_state.stamp_ns, "faults": faults_to_list(robot_state.faults)}
            if robot_state.age_ns:
                about["ages"] = {name: int(age_ns) for name, age_ns in robot_state.age_ns.items()}
        packed: bytes = msgpack.packb(
            [wire.VERSION, time.monotonic_ns(), about, row], unicode_errors="backslashreplace"
        )
        return packed


class Watcher:
    """Receive a robot's telemetry. Of several received messages, `next` returns the newest.

    Args:
        address: the endpoint of the telemetry, not that of the control socket.
        spec: the robot's description, such as ``RemoteRobot(...).spec``.
        keys: folder of this client's keys; its role must be watch or move.

    Raises:
        WireError: the address is not understood, or is not loopback and there are no keys.
        ValueError: a key is missing, damaged or readable by others.
    """

    def __init__(self, address: str, spec: RobotSpec, keys: str | Path | None = None) -> None:
        self.address = check_address(address, keys=keys is not None)
        self._codec = RobotStateCodec(spec)
        own = None if keys is None else load_keys(keys)
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.CONFLATE, 1)
        notice_vanished_peers(self._socket)
        self._socket.setsockopt(zmq.MAXMSGSIZE, wire.MAX_HEADER_BYTES)
        self._socket.subscribe(b"")
        if own is not None:
            own.secure(self._socket)
        self._handshake = Handshake(self._socket, own)
        self._socket.connect(self.address)

    def next(self, timeout_s: float = 2.0) -> Snapshot:
        """Wait for a message that was not returned yet, and return the newest.

        Raises:
            DeadlineExceeded: no message came in time, or can't come because the server refuses this key.
            WireError: a received message is not telemetry of this robot.
        """
        end = time.monotonic() + timeout_s
        while not self._socket.poll(int(_SLICE_S * 1000)):
            self._handshake.update()
            hopeless = self._handshake.hopeless
            if hopeless is not None or time.monotonic() > end:
                raise DeadlineExceeded(f"no telemetry from {self.address}", timeout_s, hopeless or self._handshake.last)
        return self._snapshot(self._socket.recv())

    def _snapshot(self, frame: bytes) -> Snapshot:
        try:
            version, sent_ns, about, row = wire.unpack_data(frame, "telemetry")
            if version != wire.VERSION:
                raise WireError(f"the telemetry's version is {version!r} there and {wire.VERSION} here")
            detail = [about.get("stamp_ns"), about.get("ages"), about.get("faults"), None]
            robot_state = self._codec.decode(detail, [row]) if row else None
            return Snapshot(
                str(about["state"]), str(about["why"]), about["holder"], about["cadence"],
                str(about["real_time"]), int(about["late_commands"]), int(sent_ns),
                robot_state.sensors if robot_state else {}, robot_state.applied if robot_state else {},
                robot_state.stamp_ns if robot_state else 0, robot_state.faults if robot_state else (),
                robot_state.age_ns if robot_state else {}, about,
            )  # fmt: skip
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            if isinstance(error, RobotError):
                raise
            raise WireError(f"this is no telemetry: {error!r}") from None

    def close(self) -> None:
        """Stop listening. Safe to call more than once."""
        self._handshake.close()
        self._socket.close()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
