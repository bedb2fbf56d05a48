"""Send commands for coming frames, and return the readings of an episode frame by frame."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import NamedTuple

import zmq

from hal.errors import CommandTooOld, EpisodeError, RobotError, WireError
from real.client.connection import ClientSettings, Connection
from real.control.settings import MOST_AHEAD
from real.protocol import messages as wire
from real.protocol.errors import error_from_list
from real.protocol.messages import Message, MessageKind, receive_frames

__all__ = ["FrameReading", "FrameStepper", "check_ahead_allowed", "with_advice"]

_SLICE_MS = 100
"""Longest time until a wait notices its cancellation, in milliseconds."""


class FrameReading(NamedTuple):
    """The reading at the end of one frame.

    Attributes:
        frame: number of the frame.
        message: a READING as for a step without a frame.
        is_held: whether the frame was without a command.
        exchange: as `Connection.exchange`; None for a frame without a command.
    """

    frame: int
    message: Message
    is_held: bool
    exchange: tuple[int, int, int, int] | None


class FrameStepper:
    """Step one episode with commands ahead: each command is for the frame ``ahead`` frames after the next one.

    A step returns the reading of the next frame, whether or not its command came in time, so that the robot's rate is
    kept while a round trip takes less than ``ahead`` - 1 periods. The first ``ahead`` frames of an episode hold. Each
    message goes on two connections in both directions: where one of them waits for a lost packet to be sent again, the
    other delivers. For one thread.

    Args:
        paths: the connection with the session, and further connections for copies.
        ahead: number of frames, at least 1.
        frame: frame of the last reading: that of the reset, or where an episode goes on after a lost connection.

    Attributes:
        frame: frame of the reading that the last step returned.
        holds: number of frames that held for lack of a command, after the first command; `Connection.holds` has those
            of all episodes.
        skipped: number of frames whose readings came so late that they were not returned.
        late: number of commands that came too late.
    """

    def __init__(self, paths: tuple[Connection, ...], ahead: int, frame: int = 0) -> None:
        self._paths, self._ahead = paths, ahead
        self._poller = zmq.Poller()
        for path in paths:
            self._poller.register(path.socket, zmq.POLLIN)
        self._first, self._last = paths[0].sequence + 1, 0  # sequences of this episode's commands
        self._errors: deque[RobotError] = deque()  # that came while another request waited
        paths[0].on_other = self._take_early
        self._sent: dict[int, tuple[int, int]] = {}  # frame and time of commands without an answer, by sequence
        self._raised: set[tuple[int, str]] = set()  # sequence and code of errors, which come on each connection
        self._readings: deque[FrameReading] = deque()
        self._is_late = False
        self.frame = self._newest = frame
        self.holds = self.skipped = self.late = 0

    def step(self, row: bytes, silence_s: float) -> FrameReading:
        """Send a command for a coming frame, and return the reading of the next frame.

        Args:
            row: the command (`real.protocol.rows.RowCodec`).
            silence_s: longest wait for any message of the server, seconds.

        Raises:
            ConnectionLost: the server sent nothing for that time.
            RobotError: the server refused an earlier command for this reason, or the episode is over.
        """
        self._receive(0)
        if self._errors:
            raise self._errors.popleft()
        frame = self.frame + self._ahead + 1
        if self._newest < frame:
            self._send(frame, row)
        else:  # its frame is over, as the readings that came at once show
            self._is_late = True
        end_s = time.monotonic() + silence_s
        while not self._readings:
            if self._receive(_SLICE_MS):
                end_s = time.monotonic() + silence_s
            else:
                self._paths[0].check_wait(MessageKind.STEP, end_s, silence_s)
        if self._is_late:  # the next command has a chance only if it follows from the newest reading
            self._is_late = False
            while len(self._readings) > 1:
                self._count(self._readings.popleft())
                self.skipped += 1
        reading = self._readings.popleft()
        self._count(reading)
        self.frame = reading.frame
        return reading

    def to_dict(self, period_s: float) -> dict[str, float]:
        """Return the delay of this episode's commands and its counts as plain data, for the log.

        Args:
            period_s: length of a frame, seconds.

        Returns:
            ``frames`` and ``delay_s``, the age of an observation when the action that follows from it begins, as a
            number of frames and in seconds, ``held``, ``skipped`` and ``late`` (`FrameStepper`).
        """
        counts = {"held": self.holds, "skipped": self.skipped, "late": self.late}
        return {"frames": self._ahead, "delay_s": self._ahead * period_s, **counts}

    def _count(self, reading: FrameReading) -> None:
        is_hold = reading.is_held and reading.frame > self._ahead
        self.holds += is_hold
        self._paths[0].holds += is_hold

    def _send(self, frame: int, row: bytes) -> None:
        main = self._paths[0]
        main.sequence += 1
        self._last = main.sequence
        sent_ns = time.monotonic_ns()
        self._sent = {number: sent for number, sent in self._sent.items() if sent[0] != frame}  # it replaces these
        self._sent[main.sequence] = frame, sent_ns
        detail, stamp_ns = {"frame": frame}, main.server_time_ns(sent_ns)
        parts = wire.encode(MessageKind.STEP, main.session, main.sequence, detail, (row,), stamp_ns)
        for path in self._paths:
            path.send(parts, is_copy=path is not main)

    def _receive(self, wait_ms: int) -> bool:
        """Take all messages that have come, or come within the time; return whether one of them was the server's."""
        has_come = False
        while ready := self._poller.poll(wait_ms):
            for socket, _ in ready:
                path = next(path for path in self._paths if path.socket is socket)
                self._take(path, wire.decode(receive_frames(path.socket, wire.MAX_FRAMES)))
            has_come, wait_ms = True, 0
        return has_come

    def _take_early(self, message: Message) -> None:
        """Take a message that comes while another request waits for its answer; keep an error for the next step."""
        try:
            self._take(self._paths[0], message)
        except RobotError as error:
            self._errors.append(error)

    def _take(self, path: Connection, message: Message) -> None:
        """Take one message; those of an earlier episode, and copies, are ignored.

        Raises:
            RobotError: the server refused a command, or the episode is over.
        """
        if message.sequence == 0:
            if path is self._paths[0] or message.kind is MessageKind.EVENT:
                self._paths[0].take_unasked(message)
        elif message.sequence >= self._first and message.session == self._paths[0].session:
            if message.kind is MessageKind.READING:
                self._take_reading(message)
            elif message.kind is MessageKind.ERROR:
                self._take_error(message)

    def _take_reading(self, message: Message) -> None:
        match message.detail:
            case [*detail, int(frame), bool(is_held)] if len(detail) == 4:
                pass
            case _:
                raise WireError("the reading of a step with a frame tells no frame")
        exchange, now_ns = None, time.monotonic_ns()
        if not is_held and (sent := self._sent.pop(message.sequence, None)) is not None:
            exchange = self._paths[0].note_exchange(sent[1], message.times, now_ns)
        if frame > self._newest:
            self._newest = frame
            message = message._replace(detail=detail)
            self._readings.append(FrameReading(frame, message, is_held, exchange))

    def _take_error(self, message: Message) -> None:
        is_new = self._sent.pop(message.sequence, None) is not None
        error = error_from_list(message.detail)
        told = message.sequence, type(error).__name__
        if told in self._raised or not (is_new or message.sequence == self._last):
            return  # a copy, or about a command that another one has replaced
        self._raised.add(told)
        if isinstance(error, CommandTooOld):
            self.late += 1
            self._is_late = True
            return
        if error.stop_number is not None:
            self._paths[0].stop_number = error.stop_number
        raise error


def check_ahead_allowed(connection: Connection, welcome: Message, settings: ClientSettings) -> None:
    """Give the robot back to a server that does not keep commands for as many frames as this client sends ahead.

    Args:
        connection: the connection that was welcomed.
        welcome: the server's answer.
        settings: the client's settings.

    Raises:
        EpisodeError: saying both numbers.
    """
    detail = welcome.detail
    allowed = detail.get("ahead", 0) if isinstance(detail, dict) else 0
    if settings.ahead <= (allowed if type(allowed) is int else 0):
        return
    connection.session = welcome.session
    connection.ask(MessageKind.RELEASE, None, (), settings.connect_timeout_s)
    raise EpisodeError(
        f"this client steps {settings.ahead} frames ahead (ahead), and the server at {connection.address} allows "
        f"{allowed} (serve.ahead): raise it there, or lower it here"
    )


def with_advice(
    error: RobotError, exchange: tuple[int, int, int, int] | None, period_s: float, ahead: int
) -> RobotError:
    """Return the error of a step; if a slow link explains it, with the round trip and the remedy added to its message.

    Args:
        error: the server's refusal of a command.
        exchange: the newest `Connection.exchange` on this link.
        period_s: the control period, seconds.
        ahead: the client's setting.
    """
    is_late = isinstance(error, CommandTooOld) or (isinstance(error, EpisodeError) and "no valid command" in str(error))
    if exchange is None or not is_late:
        return error
    asked, came, left, answered = exchange
    round_trip_s = (answered - asked - (left - came)) / 1e9
    enough = math.ceil(round_trip_s / period_s) + 2
    if round_trip_s < period_s / 2 or ahead >= enough:
        return error
    if enough <= MOST_AHEAD:
        remedy = f"set ahead to {enough} here, and serve.ahead to at least {enough} there"
    else:
        remedy = f"even ahead {MOST_AHEAD} would be too little: command at a lower rate, or run the policy nearer"
    error.args = (
        f"{error}. A round trip takes {round_trip_s * 1e3:.0f} ms of a control period of {period_s * 1e3:.0f} ms, and "
        f"commands go {ahead} frames ahead: {remedy} (docs/bridge.md#a-slow-network)",
    )
    return error
