"""A robot at the other end of the wire, used like one on the desk."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hal.clock_sync import ClockOffset, OffsetEstimator
from hal.errors import ConnectionLost, EpisodeError, RobotError, SpecMismatch, WireError
from hal.reset.confirmation import Answer
from hal.reset.record import ResetRecord
from hal.robot import RobotSpec, RobotState, SampleSink, StreamSpec
from real.client.connection import Connection, Delays, server_spec
from real.protocol.handshake import load_keys
from real.protocol.messages import Message, MessageKind, check_address
from real.protocol.rows import RobotStateCodec, RowCodec
from real.server.request_handler import answer_from_list
from real.telemetry.clock_stream import CLOCK, ClockStream

__all__ = ["RemoteRobot"]

_GRACE_S = 3.0
"""Longest silence during a reset: the server says every half second that it lives."""


class RemoteRobot:
    """The `Robot` that a `Server` serves. Nothing is opened before the first reset, unless ``spec`` must be asked for.

    After a lost connection every step raises until a reset has connected again.

    Args:
        address: of the server; without keys, loopback.
        expect: what the robot must be; a server with another is refused. None takes what the server has.
        connect_timeout_s, step_timeout_s: longest wait for the server to answer, seconds.
        reset_timeout_s: longest reset, person included, seconds; then the server stops the robot.
        on_event: told the progress of a reset as (state, detail).
        take: what happens where another client holds the robot: ``no`` refuses, ``ask`` asks that client, ``force``
            takes it, which needs the role ``operate`` where there are keys.
        on_wanted: asked, in the thread that steps, when another client asks for the robot, which it names; True hands
            it over, and the robot holds in between. By default the answer is no.
        keys: folder of this client's keys, as `rlenv-robot keys new` makes it. A server without keys, or with
            others than the folder's ``server.key``, is then refused.

    Attributes:
        last_reset: what the last reset was like, where the server's robot says so.

    Raises:
        WireError: the address is not understood, or is not loopback and there are no keys.
        ValueError: a timeout is not above 0, or a key is missing, damaged or readable by others.
    """

    def __init__(
        self,
        address: str,
        expect: RobotSpec | None = None,
        *,
        connect_timeout_s: float = 2.0,
        step_timeout_s: float = 1.0,
        reset_timeout_s: float = 90.0,
        on_event: Callable[[str, str], None] | None = None,
        take: Literal["no", "ask", "force"] = "no",
        on_wanted: Callable[[str], bool] = lambda name: False,
        keys: str | Path | None = None,
    ) -> None:
        self.address = check_address(address, keys=keys is not None)
        for name, value in (("connect", connect_timeout_s), ("step", step_timeout_s), ("reset", reset_timeout_s)):
            if not value > 0:  # False for NaN too
                raise ValueError(f"{name}_timeout_s is {value}, it must be above 0")
        if take not in ("no", "ask", "force"):
            raise ValueError(f"take is {take!r}, allowed are 'no', 'ask' and 'force'")
        self._keys = None if keys is None else load_keys(keys)
        self._expect = expect
        self._connect_timeout_s, self._step_timeout_s = connect_timeout_s, step_timeout_s
        self._reset_timeout_s = reset_timeout_s
        self._on_event, self._on_wanted, self._take = on_event, on_wanted, take
        self._offset, self._delays, self._clocks = OffsetEstimator(), Delays(), ClockStream()
        self.last_reset: ResetRecord | None = None
        self._connection: Connection | None = None
        self._lost: str | None = None
        self._returned: dict[str, str] | None = None
        self._sequence = 0  # of the last order before the connection was lost
        self._session = 0  # outlives its connection, to take the robot back from oneself
        self._closed = False
        self._lock = threading.Lock()

    @cached_property
    def spec(self) -> RobotSpec:
        """What is expected; if nothing is, what the server says (this connects, and asks for no right to move).

        Raises:
            ConnectionLost: nobody answers, or the server refuses this key.
        """
        if self._expect is not None:
            return self._expect
        return server_spec(self._ask_once(MessageKind.HELLO, self._introduction(move=False)))

    @property
    def clock(self) -> ClockOffset | None:
        """The server's monotonic clock beside this machine's, as of now; None before the first step.

        ``robot_state.stamp_ns - clock.offset_ns`` is a reading's capture on this machine's monotonic clock, for robots
        that stamp with their machine's clock (all but simulations that are not in real time).
        """
        return self._offset.at(time.monotonic_ns())

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """The two clocks, once a second. The server's robot's own are recorded where they are."""
        return (CLOCK,)

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """As `hal.RobotWrapper.stream_to`."""
        self._clocks.stream_to(sinks)

    @cached_property
    def _commands(self) -> RowCodec:
        return RowCodec(self.spec.commands)

    @cached_property
    def _robot_states(self) -> RobotStateCodec:
        return RobotStateCodec(self.spec)

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """As `Robot.reset`; connects, or connects again, if need be.

        An interruption (Ctrl-C) while the robot moves home stops it.

        Raises:
            ConnectionLost: nobody answers, the server refuses this key, or another client holds the robot.
            SpecMismatch: the server's robot is another than expected, with a line for every difference.
            DeadlineExceeded: the reset took too long; the robot was stopped.
            RobotError: what the server's robot raised.
        """
        with self._lock:
            self._returned = None
            connection = self._connected()
            detail = {"options": dict(options), "deadline_s": float(self._reset_timeout_s)}
            self.last_reset = None
            try:
                return self._robot_state(self._ask(connection, MessageKind.RESET, detail, (), _GRACE_S))
            except (KeyboardInterrupt, SystemExit):
                with contextlib.suppress(RobotError):
                    self.stop("its client was interrupted during a reset")
                raise

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """As `Robot.step`: send the row, wait for the reading at the period's end.

        Raises:
            IllegalAction: nothing was sent, or the server's guard refused it; nothing moved.
            ConnectionLost: no answer in time, or the robot is somebody else's by now.
            EpisodeError: no reset before, or the watchdog broke the episode.
            RobotError: what the server's robot raised.
        """
        with self._lock:
            connection = self._connection
            if connection is None:
                raise self._not_connected()
            row = self._commands.pack(self.spec.commands.validate(command, "command"))
            try:
                robot_state = self._robot_state(
                    self._ask(connection, MessageKind.STEP, None, (row,), self._step_timeout_s)
                )
                if connection.exchange is not None:
                    self._delays.add(*connection.exchange, robot_state.stamp_ns)
                return robot_state
            finally:
                if connection.wanted_by is not None:
                    self._consent(connection)

    def resume(self) -> bool:
        """After a lost connection: connect again and go on in the same episode, if its watchdog did not break it.

        Returns:
            Whether the last order before the cut had reached the robot.

        Raises:
            ConnectionLost: nobody answers, or the session has ended; the message says how.
            EpisodeError: the episode is over, with the reason; a reset begins another. Or nothing was lost.
        """
        with self._lock:
            if self._connection is not None or not self._session:
                raise EpisodeError("there is nothing to resume: no connection was lost")
            connection = self._new_link()
            try:
                message = connection.ask(
                    MessageKind.HELLO, self._introduction(move=True, resume=True), (), self._connect_timeout_s
                )
                if message.kind is not MessageKind.WELCOME:
                    raise WireError(f"the server answered with {message.kind.name}, wanted a welcome")
                done = int(message.detail["sequence"])
            except (KeyError, TypeError, ValueError) as error:
                connection.close()
                raise WireError(f"the server's welcome is damaged: {error!r}") from None
            except BaseException:
                connection.close()
                raise
            arrived = done >= self._sequence
            connection.session, connection.sequence = self._session, max(done, self._sequence)
            self._connection, self._lost = connection, None
            return arrived

    def about(self) -> dict[str, Any]:
        """How the server's robot is, and how its clock lies beside this machine's; plain data, for the log.

        Keys: ``clock`` (as `hal.clock_sync.ClockOffset`, with ``at_ns`` of this machine's monotonic clock and
        ``wall_ns``
        of its time of day), ``delays`` (of commands and readings, as `real.client.connection.Delays.to_dict`),
        ``server`` (state,
        why, holder, cadence, real_time, late_commands, recording), ``returned`` (where the last reset came after a
        lost connection: why it was ``lost``, and what had become of the ``session``, ``kept`` or how it had ended).
        What is not known is left out.
        """
        told: dict[str, Any] = {} if self._returned is None else {"returned": dict(self._returned)}
        with self._lock, contextlib.suppress(RobotError):
            if self._connection is not None:
                told["server"] = self._ask(self._connection, MessageKind.LOOK, None, (), self._step_timeout_s).detail
        clock = self.clock
        if clock is not None:
            told["delays"] = self._delays.to_dict(clock.offset_ns)
            told["clock"] = {**clock._asdict(), "at_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}
        return told

    def judge(self, message: str, deadline_s: float) -> Answer | None:
        """Ask whoever is at the robot how the episode went that has just ended; nothing moves.

        Args:
            message: the question, for a person; empty for the usual one.
            deadline_s: how long the answer may take.

        Returns:
            None without a connection, which is then not made: there was no episode on it.

        Raises:
            DeadlineExceeded: nobody answered.
            ResetFailed: nobody can be asked there, or the answer can't be understood.
            ConnectionLost: the server does not answer.
        """
        with self._lock:
            connection = self._connection
            if connection is None:
                return None
            detail = {"message": message, "deadline_s": float(deadline_s)}
            return answer_from_list(self._ask(connection, MessageKind.JUDGE, detail, (), deadline_s + _GRACE_S).detail)

    def stop(self, reason: str) -> None:
        """Stop the robot, whoever moves it. From any thread, and while another one waits in `step` or `reset`.

        Raises:
            ConnectionLost: the server did not confirm. Use the robot's own stop button.
        """
        try:
            self._ask_once(MessageKind.STOP, {"reason": str(reason)})
        except ConnectionLost as error:
            raise ConnectionLost(f"the stop was NOT confirmed, use the robot's own stop button: {error}") from None

    def look(self) -> dict[str, Any]:
        """How the server's robot is, as ``server`` in `about`; on a connection of its own, and before any reset.

        Raises:
            ConnectionLost: nobody answers, or the server refuses this key.
            WireError: the answer is damaged.
        """
        told = self._ask_once(MessageKind.LOOK, None).detail
        if not isinstance(told, dict):
            raise WireError(f"the server's word on its robot is damaged: {told!r:.80}")
        return told

    def close(self) -> None:
        """Give the robot back; a wait in another thread ends. Twice is fine."""
        self._closed = True
        connection = self._connection
        if connection is not None:
            connection.cancel()
        with self._lock:
            if self._session:
                self._give_back()
            self._drop("closed")

    # -- connection --------------------------------------------------------------------------------------

    def _connected(self) -> Connection:
        if self._closed:
            raise EpisodeError("this remote robot is closed; make a new one")
        if self._connection is None:
            connection = self._new_link()
            try:
                self._welcome(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _new_link(self) -> Connection:
        return Connection(self.address, self._heard, self._keys, self._offset)

    def _heard(self, state: str, detail: str) -> None:
        if state == "reset":
            self.last_reset = ResetRecord.from_json(detail)
        if self._on_event is not None:
            self._on_event(state, detail)

    def _consent(self, connection: Connection) -> None:
        """Somebody else wants the robot."""
        name, connection.wanted_by = str(connection.wanted_by), None
        yes = bool(self._on_wanted(name))
        if self._connection is not connection:  # lost meanwhile
            return
        self._ask(connection, MessageKind.CONSENT, {"yes": yes}, (), self._connect_timeout_s)
        if yes:
            self._session = 0
            self._drop(f"the robot was handed over to {name!r} by consent")

    def _welcome(self, connection: Connection) -> None:
        message = connection.ask(MessageKind.HELLO, self._introduction(move=True), (), self._connect_timeout_s)
        theirs = server_spec(message)
        if message.kind is MessageKind.MISMATCH:
            raise SpecMismatch(f"the robot at {self.address} is not the expected one", self.spec.difference(theirs))
        if self._lost is not None and self._session and isinstance(message.detail, dict):
            self._returned = {"lost": self._lost, "session": str(message.detail.get("before"))}
        connection.session = self._session = message.session
        self._lost = None
        self.__dict__.setdefault("spec", theirs)  # nothing was expected, and nobody asked before

    def _introduction(self, *, move: bool, resume: bool = False) -> dict[str, Any]:
        known = self.__dict__.get("spec", self._expect)
        name = f"process {os.getpid()} on {socket.gethostname()}"
        digest = known.digest if known else ""
        return {
            "digest": digest, "name": name, "move": move, "replaces": self._session, "take": self._take,
            "resume": resume,
        }  # fmt: skip

    def _ask(
        self, connection: Connection, kind: MessageKind, detail: Any, frames: tuple[bytes, ...], silence_s: float
    ) -> Message:
        try:
            return connection.ask(kind, detail, frames, silence_s)
        except (ConnectionLost, WireError) as error:  # who said what is not certain any more
            self._drop(str(error))
            raise

    def _ask_once(self, kind: MessageKind, detail: Any) -> Message:
        """Ask on a connection of its own, so that no other thread's wait is in the way."""
        connection = Connection(self.address, keys=self._keys, offset=self._offset)
        try:
            return connection.ask(kind, detail, (), self._connect_timeout_s)
        finally:
            connection.close()

    def _robot_state(self, message: Message) -> RobotState:
        if message.kind is not MessageKind.READING:
            self._drop(f"the server answered with {message.kind.name}")
            raise WireError(f"the server answered with {message.kind.name}, wanted a reading; call reset")
        robot_state = self._robot_states.decode(message.detail, message.frames)
        if self._connection is not None:
            self._clocks.tell(self._connection.exchange, self._offset, robot_state.stamp_ns)
        return robot_state

    def _not_connected(self) -> RobotError:
        if self._closed:
            return EpisodeError("this remote robot is closed; make a new one")
        if self._lost is not None:
            return ConnectionLost(f"the connection was lost ({self._lost}); call reset to connect again")
        return EpisodeError("step before reset: call reset first, it connects and reads where the robot is")

    def _give_back(self) -> None:
        connection = Connection(self.address, keys=self._keys)
        connection.session, self._session = self._session, 0
        try:
            connection.ask(MessageKind.BYE, None, (), min(0.5, self._connect_timeout_s))
        except RobotError:  # the server is gone, or the robot is somebody else's
            pass
        finally:
            connection.close()

    def _drop(self, why: str) -> None:
        if self._connection is not None:
            self._sequence = self._connection.sequence
            self._connection.close()
        self._connection, self._lost = None, why
