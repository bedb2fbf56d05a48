"""Use a robot at the other end of a network like a local one."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from hal.clock import ClockOffset, OffsetEstimator
from hal.errors import (
    CommandTooOld,
    ConnectionLost,
    EpisodeError,
    RobotError,
    RobotStopped,
    SpecMismatch,
    StopReason,
    WireError,
)
from hal.guard import check_fresh
from hal.guarding.stop_latch import StopLatch, gives_reason
from hal.reset.confirmation import Answer
from hal.reset.record import ResetRecord
from hal.robot import RobotSpec, RobotState, SampleSink, StreamSpec, check_reset_options
from hal.spec import Spec
from real.client.connection import ClientSettings, Connection, Delays, ServedManifest, server_spec
from real.client.frames import FrameStepper, check_ahead_allowed, with_advice
from real.client.stops import StopSender
from real.protocol.errors import stop_number
from real.protocol.handshake import load_keys
from real.protocol.messages import Message, MessageKind, answer_from_list, check_address
from real.protocol.rows import RobotStateCodec, RowCodec
from real.protocol.text import encodable
from real.telemetry.clock_stream import CLOCK, ClockStream

__all__ = ["ClientSettings", "RemoteRobot"]

_log = logging.getLogger(__name__)

_GRACE_S = 3.0
"""Longest silence during a reset, seconds: the server says every half second that it is alive."""


class RemoteRobot:
    """The `Robot` that a `Server` serves. It connects at the first reset, or earlier to ask for ``spec``.

    After a lost connection every step raises until a reset has connected again. The guard next to the robot's driver
    judges and limits every command; the client checks only the layout of a command. A stop by this client also holds in
    the client, whether or not the server confirmed it.

    Args:
        address: address of the server; without keys it must be loopback.
        expect: the expected description; a server with another robot is refused. None accepts any robot.
        settings: timeouts, keys, and how to proceed if another client holds the robot.
        on_event: called with the progress of a reset as (state, detail).
        on_wanted: called in the thread that steps, with the name of another client that asks for the robot; True hands
            the robot over, which holds in between. None always answers no.
        options: fields of `ClientSettings`, in place of ``settings``.

    Attributes:
        last_reset: the record of the last reset, if the server's robot keeps one.
        last_stop: number of this client's last confirmed stop; None before.

    Raises:
        WireError: the address is not understood, or is not loopback and there are no keys.
        ValueError: a setting is not allowed, or a key is missing, damaged or readable by others.
    """

    def __init__(
        self,
        address: str,
        expect: RobotSpec | None = None,
        settings: ClientSettings | None = None,
        *,
        on_event: Callable[[str, str], None] | None = None,
        on_wanted: Callable[[str], bool] | None = None,
        **options: Any,
    ) -> None:
        self.settings = settings = settings or ClientSettings(**options)
        self.address = check_address(address, keys=settings.keys is not None)
        self._keys = None if settings.keys is None else load_keys(settings.keys)
        self._expect, self._served = expect, ServedManifest(self.address, expect)
        self._on_event, self._on_wanted = on_event, on_wanted
        self._offset, self._delays, self._clocks = OffsetEstimator(), Delays(), ClockStream()
        self.last_reset: ResetRecord | None = None
        self.last_stop: int | None = None
        self._connection: Connection | None = None
        self._second: Connection | None = None  # for copies of commands ahead
        self._frames: FrameStepper | None = None
        self._lost: str | None = None
        self._returned: dict[str, str] | None = None
        self._applied: Mapping[str, np.ndarray] = {}
        self._latch = StopLatch()  # of the stops that were asked for here
        self._sequence = 0  # of the last request before the connection was lost
        self._told_stop: int | None = None  # as `Connection.stop_number` of the connection that was lost
        self._session = 0  # outlives its connection, so that this client can take the robot back from itself
        self._closed = False
        self._lock = threading.Lock()
        self._welcomed: Any = None  # detail of the newest welcome
        timeout_s = settings.connect_timeout_s
        self._stops = StopSender(self.address, self._connection_to, timeout_s, twice=settings.ahead > 0)

    def __repr__(self) -> str:
        return f"<RemoteRobot at {self.address}>"

    @cached_property
    def spec(self) -> RobotSpec:
        """The expected description; without one the server's, for which the client connects without the right to move.

        Raises:
            ConnectionLost: the server does not answer, or refuses this key.
        """
        if self._expect is not None:
            return self._expect
        return server_spec(self._ask_once(MessageKind.HELLO, self._introduction(move=False)))

    def served_spec(self) -> RobotSpec:
        """Return the server's description of its robot, with the gains and delays of this individual robot.

        Raises:
            ConnectionLost: the server does not answer, or refuses this key.
        """
        if self._served.spec is None:
            hello = {**self._introduction(move=False), "digest": ""}
            self._served.take(server_spec(self._ask_once(MessageKind.HELLO, hello)))
        return self._served.spec or self.spec

    guarded = True
    """Whether a guard limits the commands: True, since the server has one next to the robot's driver."""

    @property
    def clock(self) -> ClockOffset | None:
        """The present offset of the server's monotonic clock from this machine's; None before the first step.

        ``robot_state.stamp_ns - clock.offset_ns`` is a reading's capture time on this machine's monotonic clock, for
        robots that stamp with their machine's clock (all except simulations that are not in real time).
        """
        return self._offset.at(time.monotonic_ns())

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """A stream of the two clocks, once a second. The server's machine records the streams of the robot itself."""
        return (CLOCK,)

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Send the samples of streams to sinks, as `hal.RobotWrapper.stream_to` does."""
        self._clocks.stream_to(sinks)

    @cached_property
    def _commands(self) -> RowCodec:
        return RowCodec(self.spec.commands)

    @cached_property
    def _robot_states(self) -> RobotStateCodec:
        return RobotStateCodec(self.spec)

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Reset as `Robot.reset` does; connect first if necessary.

        An interruption (Ctrl-C) while the robot moves home stops it. A reset with ``clear_stop`` clears the stop with
        the number ``stop_number`` and those before it: pass the number known to the person who checked the robot. By
        default it is that of the last `RobotStopped` that this client raised, or of its own `stop`.

        Raises:
            RobotStopped: the robot is stopped, and the options do not clear the stop; or a stop has come that this
                client did not know of. It stays latched, and the next reset may clear it.
            ConnectionLost: the server does not answer or refuses this key, or another client holds the robot.
            SpecMismatch: the server's robot differs from the expected one, with a line for every difference.
            DeadlineExceeded: the reset took too long; the robot was stopped.
            RobotError: the server's robot raised this error.
        """
        check_reset_options(Spec("commands", ()), {"stop_number": options.get("stop_number")})
        with self._lock, self._latch.resetting(options) as clearance:
            self._returned = None
            connection = self._connected()
            passed = {name: value for name, value in options.items() if name != "stop_number"}
            detail: dict[str, Any] = {"options": passed, "deadline_s": float(self.settings.reset_timeout_s)}
            if (number := self._stop_to_clear(connection, options)) is not None:
                detail["stop_number"] = number
            self.last_reset = None
            try:
                robot_state = self._robot_state(self._ask(connection, MessageKind.RESET, detail, (), _GRACE_S))
            except (KeyboardInterrupt, SystemExit):
                with contextlib.suppress(RobotError):
                    self.stop("its client was interrupted during a reset")
                raise
            clearance.use()
            connection.stop_number = None
            self._applied = robot_state.applied
            self._frames = self._frame_stepper(connection)
            return robot_state

    def _stop_to_clear(self, connection: Connection, options: Mapping[str, Any]) -> int | None:
        """Return the number of the newest stop that a reset may clear; None where it clears none.

        Raises:
            RobotStopped: the robot is stopped, and this client was not told of it before.
        """
        if not gives_reason(options):
            return None
        if options.get("stop_number") is not None:
            return int(options["stop_number"])
        if connection.stop_number is not None:
            return connection.stop_number
        status = self._ask(connection, MessageKind.STATUS, None, (), self.settings.connect_timeout_s).detail
        number = stop_number(status)
        if number is not None and status.get("state") == "stopped":
            connection.stop_number = number  # from here on this client knows
            why = str(status.get("why"))
            stopped = RobotStopped(
                why,
                f"the robot is stopped: {why}. This client was not told so before, so the stop was not cleared. "
                f"Look at the robot, then reset again, or name the stop: stop_number {number} (--stop-number {number})",
            )
            stopped.stop_number = number
            raise stopped
        return number

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Step as `Robot.step` does: send the command, and wait for the reading at the end of the period.

        With ``settings.ahead`` = k the reading is that of the next frame, and the command is executed k frames later:
        the observation from which an action follows is k frames old when its action begins. The first k frames of an
        episode hold. A command that comes too late is not executed, and its frame holds (`about`).

        Raises:
            IllegalAction: the command does not have the spec's layout, and was not sent; or the server's guard refused
                its values. Nothing moved.
            RobotStopped: the robot is stopped.
            ConnectionLost: no answer came in time, or another client now holds the robot.
            EpisodeError: there was no reset before, or the watchdog broke the episode.
            RobotError: the server's robot raised this error.
        """
        with self._lock:
            connection = self._connection
            if connection is None:
                raise self._not_connected()
            if (stopped := self._latch.state[1]) is not None:
                raise RobotStopped(stopped)
            timeout_s, frames = self.settings.step_timeout_s, self._frames
            if frames is not None:  # its refusal by the guard would come a while after its step
                command = self.spec.commands.validate(command, "command")
            row = self._commands.pack_command(command)
            try:
                try:
                    if frames is None:
                        message = connection.step(row, timeout_s, self._hold)
                    else:
                        _, message, _, connection.exchange = frames.step(row, timeout_s)
                except (ConnectionLost, WireError) as error:  # what the robot did is not certain any more
                    self._drop(str(error))
                    raise
                except (CommandTooOld, EpisodeError) as error:
                    raise with_advice(error, connection.exchange, self.spec.period_s, self.settings.ahead) from None
                robot_state = self._robot_state(message)
                self._applied = robot_state.applied
                if connection.exchange is not None:
                    self._delays.add((connection.exchange, robot_state.stamp_ns))
                return robot_state
            finally:
                if connection.wanted_by is not None:
                    self._consent(connection)

    def _frame_stepper(self, connection: Connection, frame: int = 0) -> FrameStepper | None:
        """Return what steps the episode from a frame on with commands ahead; None without ``settings.ahead``."""
        ahead = self.settings.ahead
        if not ahead:
            return None
        second = self._second = self._second or self._connection_to(self.address)
        try:
            second.wait_until_connected(self.settings.connect_timeout_s)
        except ConnectionLost as error:
            _log.warning("steps go without copies, so a lost packet delays them: %s", error)
        return FrameStepper((connection, self._second), ahead, frame)

    def _hold(self) -> bytes:
        """Return the row of the command that was applied last, within its range."""
        held = {}
        for field in self.spec.commands:
            low, high = field.bounds
            held[field.name] = np.minimum(np.maximum(self._applied[field.name], low), high).astype(field.numpy_dtype)
        return self._commands.pack_command(held)

    def resume(self) -> bool:
        """Connect again after a lost connection, and continue the same episode if its watchdog did not break it.

        Returns:
            Whether the last request before the cut had reached the robot.

        Raises:
            ConnectionLost: the server does not answer, or the session has ended; the message says how.
            EpisodeError: the episode is over, for the reason in the message; or no connection was lost.
        """
        with self._lock:
            if self._connection is not None or not self._session:
                raise EpisodeError("there is nothing to resume: no connection was lost")
            connection = self._new_connection()
            try:
                message = connection.ask(
                    MessageKind.HELLO, self._introduction(move=True, resume=True), (), self.settings.connect_timeout_s
                )
                if message.kind is not MessageKind.WELCOME:
                    raise WireError(f"the server answered with {message.kind.name}, it must be a welcome")
                sequence = int(message.detail["sequence"])
                connection.expect_loss(message.detail)
            except (KeyError, TypeError, ValueError) as error:
                connection.close()
                raise WireError(f"the server's welcome is damaged: {error!r}") from None
            except BaseException:
                connection.close()
                raise
            arrived = sequence >= self._sequence
            connection.session, connection.sequence = self._session, max(sequence, self._sequence)
            self._connection, self._lost = connection, None
            if self._frames is not None:
                self._frames = self._frame_stepper(connection, self._frames.frame)
            return arrived

    def about(self) -> dict[str, Any]:
        """Return the status of the server's robot and the offset of its clock, as plain data for the log.

        Keys: ``sent_again`` (copies of steps on this connection), ``holds`` (steps that held the robot, as their
        commands came too late), ``ahead`` (with commands ahead: `FrameStepper.to_dict`), ``clock`` (as
        `hal.clock.ClockOffset`, with ``at_ns`` of this machine's monotonic clock and ``wall_ns`` of its time of day),
        ``delays`` (of commands and readings, `real.client.connection.Delays.to_dict`), ``server``
        (`real.server.server.Server.about`), and ``returned`` if the last reset followed a lost connection (why it was
        ``lost``, and the fate of the ``session``: ``kept``, or how it ended). Keys without a value are left out.
        """
        about: dict[str, Any] = {} if self._returned is None else {"returned": dict(self._returned)}
        with self._lock, contextlib.suppress(RobotError):
            if self._connection is not None:
                about["sent_again"], about["holds"] = self._connection.copies, self._connection.holds
                if self._frames is not None:
                    about["ahead"] = self._frames.to_dict(self.spec.period_s)
                about["server"] = self._ask(
                    self._connection, MessageKind.STATUS, None, (), self.settings.step_timeout_s
                ).detail
        clock = self.clock
        if clock is not None:
            about["delays"] = self._delays.to_dict(clock.offset_ns)
            about["clock"] = {**clock._asdict(), "at_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}
        return about

    def judge(self, message: str, deadline_s: float) -> Answer | None:
        """Ask the person at the robot for a verdict on the episode that has just ended; nothing moves.

        Args:
            message: the question; empty for the usual one.
            deadline_s: longest wait for the answer, seconds.

        Returns:
            The answer; None without a connection, since there was then no episode on it.

        Raises:
            DeadlineExceeded: nobody answered in time.
            ResetFailed: nobody can be asked, or the answer can't be understood.
            ConnectionLost: the server does not answer.
        """
        with self._lock:
            connection = self._connection
            if connection is None:
                return None
            detail = {"message": message, "deadline_s": float(deadline_s)}
            return answer_from_list(self._ask(connection, MessageKind.JUDGE, detail, (), deadline_s + _GRACE_S).detail)

    def end_episode(self, reason: str) -> None:
        """End the episode normally, as `hal.wrapper.RobotWrapper.end_episode` does, without a stop to clear.

        The robot holds the command applied last, and this client keeps the right to move it. A server of an earlier
        version that does not know this message holds by its watchdog instead.

        Raises:
            ConnectionLost: the server does not answer, or another client now holds the robot.
        """
        with self._lock:
            connection = self._connection
            if connection is None:
                return
            detail = {"reason": encodable(reason, 1000)}
            try:
                connection.ask(MessageKind.END, detail, (), self.settings.step_timeout_s)
            except ConnectionLost as error:
                self._drop(str(error))
                raise
            except WireError as error:
                _log.info("the server was not told that the episode is over: %s", error)

    def stand_by(self) -> None:
        """Connect for `stop` in advance, so that a stop needs no new connection; `reset` does this too.

        A stop button calls this when it is switched on: a server that has run out of descriptors accepts no new
        connection, but continues to serve existing ones. Safe to call more than once.

        Raises:
            ConnectionLost: the server does not answer, or refuses this key.
            EpisodeError: this remote robot is closed.
        """
        self._stops.stand_by(lambda: self._ask_once(MessageKind.STATUS, None).detail)

    def stop(self, reason: str | StopReason) -> None:
        """Stop the robot, whichever client moves it. From any thread, even while another waits in a step or reset.

        The stop uses the connection of `stand_by` or `reset` to the server's endpoint for stops. If no answer comes, it
        uses a new connection to the control socket.

        Raises:
            ConnectionLost: the server did not confirm. Use the robot's own stop button.
            RobotError: the server sends no more commands, but its driver did not confirm: also use that button. Or the
                stop is not in the file that keeps it, and would be lost if the server were killed or lost power.
        """
        stop, connection = StopReason.of(reason), self._connection
        self._latch.stop(stop)
        try:
            detail = {"reason": encodable(stop.text, 1000), "orderly": stop.orderly, "numbered": True}
            done = self._stops.ask(detail).detail
        except ConnectionLost as error:
            raise ConnectionLost(f"the stop was NOT confirmed, use the robot's own stop button: {error}") from None
        trouble = done.get("trouble") if isinstance(done, Mapping) else done
        self.last_stop = number = stop_number(done)
        told = self._told_stop if connection is None else connection.stop_number
        # A stop that came between is one that nobody here has seen.
        if number is not None and (done.get("first") or (told is not None and number == told + 1)):
            if connection is None:
                self._told_stop = number  # for the connection that the next reset makes
            else:
                connection.stop_number = number
        if trouble is not None:
            raise RobotError(f"the stop is latched, and nothing is commanded any more, but {trouble}")

    def status(self) -> dict[str, Any]:
        """Return the status of the server's robot, as ``server`` in `about`, over a separate connection.

        Raises:
            ConnectionLost: the server does not answer, or refuses this key.
            WireError: the answer is damaged.
        """
        status = self._ask_once(MessageKind.STATUS, None).detail
        if not isinstance(status, dict):
            raise WireError(f"the server's status is damaged, got {status!r:.80}, it must be a mapping")
        return status

    def hold(self) -> None:
        """Make the robot hold its position: take it from its holder, as ``settings.take`` allows, and release it.

        The holder's episode or reset ends, and so does this client's session; no stop is latched. From any thread.

        Raises:
            ConnectionLost: another client holds the robot and keeps it, or the server does not answer.
        """
        timeout_s = self.settings.connect_timeout_s
        with contextlib.closing(self._connection_to(self.address)) as connection:
            hello = {**self._introduction(move=True), "digest": ""}
            connection.session = connection.ask(MessageKind.HELLO, hello, (), timeout_s).session
            connection.ask(MessageKind.RELEASE, None, (), timeout_s)

    def close(self) -> None:
        """Release the robot, and end a wait in another thread. Safe to call more than once."""
        self._closed = True
        connection = self._connection
        if connection is not None:
            connection.cancel()
        with self._lock:
            if self._session:
                self._release()
            self._drop("closed")
        self._stops.close()

    # -- connection --------------------------------------------------------------------------------------

    def _connected(self) -> Connection:
        if self._closed:
            raise EpisodeError("this remote robot is closed; make a new one")
        if self._connection is None:
            connection = self._new_connection()
            try:
                announced = self._welcome(connection)
            except BaseException:
                connection.close()
                raise
            self._connection, self._welcomed = connection, announced
        self._stops.prepare(self._welcomed)
        return self._connection

    def _connection_to(self, address: str) -> Connection:
        return Connection(address, keys=self._keys, offset=self._offset)

    def _new_connection(self) -> Connection:
        connection = Connection(self.address, self._take_event, self._keys, self._offset)
        connection.stop_number = self._told_stop
        return connection

    def _take_event(self, state: str, detail: str) -> None:
        if state == "reset":
            self.last_reset = ResetRecord.from_json(detail)
        if self._on_event is not None:
            self._on_event(state, detail)

    def _consent(self, connection: Connection) -> None:
        """Answer another client that asks for the robot."""
        name, connection.wanted_by = str(connection.wanted_by), None
        yes = self._on_wanted is not None and bool(self._on_wanted(name))
        if self._connection is not connection:  # lost meanwhile
            return
        self._ask(connection, MessageKind.CONSENT, {"yes": yes}, (), self.settings.connect_timeout_s)
        if yes:
            self._session = 0
            self._drop(f"the robot was handed over to {name!r} by consent")

    def _welcome(self, connection: Connection) -> Any:
        """Introduce this client, take up the server's welcome, and return its detail."""
        message = connection.ask(MessageKind.HELLO, self._introduction(move=True), (), self.settings.connect_timeout_s)
        theirs = server_spec(message)
        if message.kind is MessageKind.MISMATCH:
            raise SpecMismatch(f"the robot at {self.address} is not the expected one", self.spec.difference(theirs))
        check_ahead_allowed(connection, message, self.settings)
        self._served.take(theirs)
        if self._lost is not None and self._session and isinstance(message.detail, dict) and "before" in message.detail:
            self._returned = {"lost": self._lost, "session": str(message.detail.get("before"))}
        connection.session = self._session = message.session
        self._lost = None
        connection.expect_loss(message.detail)
        self.__dict__.setdefault("spec", theirs)  # fills the cached property where no robot was expected
        return message.detail

    def _introduction(self, *, move: bool, resume: bool = False) -> dict[str, Any]:
        spec = self.__dict__.get("spec", self._expect)
        name = self.settings.client or f"process {os.getpid()} on {socket.gethostname()}"
        digest = spec.digest if spec else ""
        return {
            "digest": digest, "name": name, "move": move, "replaces": self._session, "take": self.settings.take,
            "resume": resume,
        }  # fmt: skip

    def _ask(
        self, connection: Connection, kind: MessageKind, detail: Any, frames: tuple[bytes, ...], silence_s: float
    ) -> Message:
        try:
            return connection.ask(kind, detail, frames, silence_s)
        except (ConnectionLost, WireError) as error:  # what the robot did is not certain any more
            self._drop(str(error))
            raise

    def _ask_once(self, kind: MessageKind, detail: Any) -> Message:
        """Ask on a connection of its own, so that no other thread's wait is in the way."""
        with contextlib.closing(self._connection_to(self.address)) as connection:
            return connection.ask(kind, detail, (), self.settings.connect_timeout_s)

    def _robot_state(self, message: Message) -> RobotState:
        if message.kind is not MessageKind.READING:
            self._drop(f"the server answered with {message.kind.name}")
            raise WireError(f"the server answered with {message.kind.name}, it must be a reading; call reset")
        robot_state = self._robot_states.decode(message.detail, message.frames)
        if robot_state.age_ns:
            check_fresh(self.spec, robot_state)
        if self._clocks.wanted and self._connection is not None:
            self._clocks.tell(self._connection.exchange, self._offset, robot_state.stamp_ns)
        return robot_state

    def _not_connected(self) -> RobotError:
        if self._closed:
            return EpisodeError("this remote robot is closed; make a new one")
        if (stopped := self._latch.reason) is not None:
            return RobotStopped(stopped)
        if self._lost is not None:
            return ConnectionLost(f"the connection was lost ({self._lost}); call reset to connect again")
        return EpisodeError("step before reset: call reset first, it connects and reads where the robot is")

    def _release(self) -> None:
        connection = Connection(self.address, keys=self._keys)
        connection.session, self._session = self._session, 0
        try:
            connection.ask(MessageKind.RELEASE, None, (), min(0.5, self.settings.connect_timeout_s))
        except RobotError:  # the server is gone, or another client holds the robot
            pass
        finally:
            connection.close()

    def _drop(self, why: str) -> None:
        if self._connection is not None:
            self._sequence, self._told_stop = self._connection.sequence, self._connection.stop_number
            self._connection.close()
        if self._second is not None:
            self._second.close()
        self._connection, self._second, self._lost = None, None, why
