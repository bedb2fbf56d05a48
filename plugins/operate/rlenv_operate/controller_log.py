"""Record a controller: every tick of its loop, whichever client sends commands, and also without a network."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from hal import IllegalAction, LogError, ResetFailed, Robot, RobotState, SampleSink, StopReason, StreamSpec
from hal.wrapper import RobotWrapper
from real.control.lifecycle import Lifecycle, State
from real.protocol.errors import error_to_list
from real.server.lease import RequestId
from recorder.json_data import JsonDict, JsonObject, to_json
from recorder.log.ros2 import HEADER, note
from recorder.log.rotation import Limits
from recorder.log.tail import Tail
from recorder.log.writer import LogWriter, StreamWriter, new_run
from recorder.names import EPISODE_TOPIC, FRAME_TOPIC
from rlenv_operate.controller_frames import (
    CADENCE,
    ORDER,
    AnsweredOrder,
    ControllerFrames,
    FramePacker,
    controller_layout,
    tick_stream,
)
from rlenv_robot.recording.metadata import machine_metadata
from rlenv_robot.recording.observer import NonRaisingSink
from rlenv_robot.serving.server_log import ServerLog
from rlenv_robot.tables import Options

if TYPE_CHECKING:
    from rlenv_robot.config.profile import Profile

__all__ = [
    "ControllerLog",
    "EpisodeEnd",
    "LoggedRobot",
    "ObservedServer",
    "ServerWatch",
    "TickCallback",
    "controller_log",
]

_LOG = logging.getLogger("rlenv_robot.recorder")
_LIMITS = Limits()

_FRAMES, _EPISODES = FRAME_TOPIC.encode(), EPISODE_TOPIC.encode()

_MAX_EVENTS = 256
"""Events that may wait for the writing thread, which runs 20 times a second; of any more only the number is kept."""

_MAX_WAITING = 4096
"""Ticks, and answered orders, that may wait for the writing thread: four seconds of a loop at 1000 Hz."""


class EpisodeEnd(NamedTuple):
    """The end of an episode on the server: time (monotonic, nanoseconds), reason, and more metadata."""

    at_ns: int
    reason: str
    info: JsonObject


class _PendingOrder(NamedTuple):
    """An order that is not answered yet; its command is None for a reset."""

    command: Mapping[str, np.ndarray] | None
    sent_ns: int


class ControllerLog(ServerLog):
    """Record one server in a separate run.

    The control thread queues its ticks, and packs the row of each answered order: before the answer is sent, a copy of
    the row is in shared memory (`recorder.log.tail.Tail`), where it survives if the server is killed. A second thread
    calls `write` 20 times per second, and the log's thread writes to the disk (`recorder.log.writer.LogWriter`). If
    writing fails, because the disk is full or the run has reached its limit, the robot is still served; `failure` and
    the server's status contain the reason.

    Args:
        folder: the folder of the runs, in which a new run is created.
        info: more metadata of the run, such as the profile; JSON data.
        control_hz: commands per second of a client; by default one in each period of the robot.
        required: whether resets are refused while nothing is recorded.
        limits: on the sizes of files, run and disk.
        now_ns: the monotonic clock of this machine, nanoseconds.

    Attributes:
        failure: why nothing is recorded, or None.
    """

    def __init__(
        self,
        folder: Path | str,
        info: JsonObject | None = None,
        *,
        control_hz: float | None = None,
        required: bool = False,
        limits: Limits = _LIMITS,
        key: str | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._folder, self._info = Path(folder), dict(info or {})
        self._control_hz, self._required = control_hz, required
        self._limits, self._key, self._now_ns = limits, key, now_ns
        self._writer: LogWriter | None = None
        self._frames: ControllerFrames | None = None
        self._packer: FramePacker | None = None
        self._tail: Tail | None = None
        self._streams: dict[str, StreamWriter] = {}
        self._sensors: list[tuple[str, str]] = []  # of a tick: its field, and the sensor that goes there
        self._applied: list[tuple[str, str]] = []
        self._pending: dict[tuple[int, int], _PendingOrder] = {}
        self._ticks: deque[tuple[int, int, RobotState]] = deque()  # begin, wall clock at the end, state
        self._missed = self._missed_logged = 0  # ticks for which there was no room
        self._answered: deque[AnsweredOrder] = deque()
        self._events: deque[tuple[str, JsonDict]] = deque(maxlen=_MAX_EVENTS)
        self._missed_orders = 0
        self._event_count = self._events_logged = 0
        self._reset: JsonObject = {}
        self.failure: str | None = "it is not open yet"

    # -- open and close ------------------------------------------------------------------------------------

    def wrap(self, robot: Robot) -> Robot:
        """Open the log, and wrap a robot to record it. If the log can't be opened, the robot is wrapped anyway."""
        try:
            self._open(robot)
        except LogError as error:
            self._fail(error)
        return LoggedRobot(robot, self.tick, self._before_reset, self._stopped)

    def _open(self, robot: Robot) -> None:
        source, spec, tick = RobotWrapper(robot), robot.spec, tick_stream(robot.spec)
        self._sensors = [(f"sensor_{name}", name) for name in spec.sensors.names]
        self._applied = [(f"applied_{name}", name) for name in spec.commands.names]
        metadata = {"controller": True, **machine_metadata(), "robot_spec": spec.to_dict(), **self._info}
        layout = controller_layout(spec)
        writer = LogWriter(
            new_run(self._folder), layout, metadata, limits=self._limits, tail=False, key=self._key
        ).open()
        self._packer, self._tail = FramePacker(layout), Tail(writer.folder)
        self._streams = {
            "tick": writer.stream(tick.name, tick.spec, tick.rate_hz),
            "order": writer.stream("order", ORDER, self._control_hz or spec.rate_hz),
            "cadence": writer.stream("cadence", CADENCE, 1.0),
        }
        sinks = {
            stream.name: NonRaisingSink(
                writer.stream(stream.name, stream.spec, stream.rate_hz), lambda: self.failure is None, self._fail
            )
            for stream in source.streams
        }
        self._writer, self._frames, self.failure = writer, ControllerFrames(writer), None
        source.stream_to(sinks)

    @property
    def run(self) -> Path | None:
        """The folder of the run, or None if there is no run."""
        return None if self._writer is None else self._writer.folder

    def watch(self, server: ObservedServer) -> closing[ServerWatch]:
        """Start the writing thread; the context that is returned closes the log."""
        return closing(ServerWatch(server, self).start())

    def close(self) -> None:
        """Write all queued data and close the run. Call it after the server is closed; safe to call more than once."""
        self.write([EpisodeEnd(self._now_ns(), "the server ended", {})])
        self.failure = self.failure or "it is closed"
        if self._writer is not None:
            try:
                self._writer.close()
                if self._tail is not None:
                    self._tail.remove()
            except LogError as error:
                _LOG.error("the controller's log: %s", error)

    def to_dict(self) -> JsonDict:
        """Return the log's part of the server's status: ``run`` (its folder's name), ``on``, ``why``, ``dropped``.

        ``why`` is the reason if nothing is recorded, ``dropped`` the number of rows that were lost.
        """
        run, writer = self.run, self._writer
        return {
            "run": None if run is None else run.name,
            "on": self.failure is None,
            "why": self.failure,
            "dropped": 0 if writer is None else writer.dropped,
        }

    def _fail(self, error: LogError) -> None:
        if self.failure is None or self._writer is None:
            self.failure = str(error)
            _LOG.error("the controller's log ends, its robot is still served: %s", error)

    # -- on the control thread -------------------------------------------------------------------------------

    def tick(self, began_ns: int, robot_state: RobotState) -> None:
        """Queue one period of the loop."""
        if len(self._ticks) < _MAX_WAITING:
            self._ticks.append((began_ns, time.time_ns(), robot_state))
        else:
            self._missed += 1

    def answered(self, request_id: RequestId, outcome: RobotState | Exception) -> None:
        """Queue an order with its answer, see `real.control.observer.ServerObserver.answered`."""
        order = self._pending.pop((request_id.session, request_id.sequence), None)
        if order is None or self.failure is not None:
            return
        at_ns, wall_ns, stamp_ns = self._now_ns(), time.time_ns(), 0
        row: bytes | None = None
        begun: JsonObject | None = None
        if isinstance(outcome, Exception):
            self.note("refused", {"number": request_id.sequence, **_refusal(outcome)})
        elif order.command is not None and len(self._answered) >= _MAX_WAITING:
            self._missed_orders += 1
            return
        else:
            if order.command is None:
                begun = {"source": "controller", "stamp_ns": at_ns, "reset": dict(self._reset)}
            try:
                row, stamp_ns = self._pack(order.command, outcome, wall_ns, begun), outcome.stamp_ns
            except Exception as error:  # whatever a driver put into its reading, its client is answered
                self._fail(LogError(f"a reading could not be packed: {error!r}"))
                return
        came = (request_id.sequence, order.sent_ns, request_id.came_ns)
        self._answered.append(AnsweredOrder(at_ns, wall_ns, *came, stamp_ns, row, begun))

    def _pack(
        self, command: Mapping[str, np.ndarray] | None, robot_state: RobotState, wall_ns: int, begun: JsonObject | None
    ) -> bytes | None:
        """Return the row of an answered order, and keep a copy of it; None before the first reset."""
        packer, tail = self._packer, self._tail
        if packer is None or tail is None or (command is not None and packer.episode < 0):
            return None
        row = packer.pack(command, robot_state, wall_ns)
        if begun is not None:
            tail.keep(_EPISODES, note("begin", packer.episode, to_json(begun, "a reset")), wall_ns)
        tail.keep(_FRAMES, HEADER + row, wall_ns)
        return row

    def _before_reset(self) -> None:
        self._reset = {}
        if self._required and self.failure is not None:
            raise ResetFailed(
                f"the controller can't record ({self.failure}), and serve.record_required is true; fix the cause and "
                "restart the server, or set serve.record_required to false"
            )

    # -- from any thread -------------------------------------------------------------------------------------

    def ordered(self, request_id: RequestId, command: Mapping[str, np.ndarray] | None, sent_ns: int | None) -> None:
        """Remember an order until its answer, see `real.control.observer.ServerObserver.ordered`."""
        if len(self._pending) >= _MAX_WAITING:  # their answers were lost, and will not come any more
            self._pending.clear()
        self._pending[request_id.session, request_id.sequence] = _PendingOrder(command, sent_ns or 0)

    def note(self, kind: str, detail: JsonObject) -> None:
        """Queue an event that happens now."""
        self._events.append((kind, {"stamp_ns": self._now_ns(), **detail}))
        self._event_count += 1

    def report(self, state: str, detail: str) -> None:
        """Queue the progress of a reset, as `hal.Homing` reports it. The next episode's metadata contain it, too."""
        if state == "reset":
            self._reset = json.loads(detail)
            self.note("reset", self._reset)

    def _stopped(self, reason: str) -> None:
        self.note("stop", {"reason": reason})

    # -- on the writing thread ---------------------------------------------------------------------------------

    def write(self, ended: Sequence[EpisodeEnd] = ()) -> None:
        """Write all queued data: events, ticks, answered orders as frames, and the ends of episodes between them.

        Args:
            ended: ends of episodes since the last call, oldest first.
        """
        ends, log = deque(ended), self._writer
        if log is None or self.failure is not None:
            self._ticks.clear()
            self._answered.clear()
            self._events.clear()
            return
        try:
            self._write_events(log)
            self._write_ticks(log)
            while self._answered:
                order = self._answered.popleft()
                while ends and ends[0].at_ns <= order.at_ns:
                    self._end(ends.popleft())
                self._write_order(order)
            for end in ends:
                self._end(end)
        except LogError as error:
            self._fail(error)

    def _write_events(self, log: LogWriter) -> None:
        while self._events:
            self._events_logged += 1
            log.event(*self._events.popleft())
        if self._event_count > self._events_logged:  # the queue was full
            lost, self._events_logged = self._event_count - self._events_logged, self._event_count
            log.event("unlisted", {"events": lost})

    def _write_ticks(self, log: LogWriter) -> None:
        stream = self._streams["tick"]
        while self._ticks:
            began_ns, wall_ns, robot_state = self._ticks.popleft()
            values: dict[str, ArrayLike] = {"began_ns": began_ns}
            values |= {field: robot_state.sensors[name] for field, name in self._sensors}
            values |= {field: robot_state.applied[name] for field, name in self._applied}
            stream.write(values, robot_state.stamp_ns, wall_ns)
        if self._missed_orders:
            log.event("orders_missed", {"since": self._missed_orders})
            self._missed_orders = 0
        if self._missed > self._missed_logged:
            log.event("ticks_missed", {"since": self._missed - self._missed_logged, "total": self._missed})
            self._missed_logged = self._missed

    def _write_order(self, order: AnsweredOrder) -> None:
        values = {"number": order.number, "sent_ns": order.sent_ns, "came_ns": order.came_ns}
        values["reading_ns"] = order.reading_ns
        self._streams["order"].write(values, order.at_ns, order.wall_ns)
        if self._frames is not None:
            self._frames.add(order)

    def _end(self, end: EpisodeEnd) -> None:
        if self._frames is not None:
            self._frames.end(end.reason, end.info, end.at_ns)

    def write_loop_timing(self, loop_timing: JsonObject, late_commands: int) -> None:
        """Write the regularity of the loop (`hal.clock.LoopTiming.to_dict`) and the number of late commands."""
        if self.failure is not None:
            return
        values = {name: loop_timing[name] for name in ("periods", "overruns", "counts")}
        values |= {"longest": loop_timing["longest_ms"] / 1e3, "late_commands": late_commands}
        try:
            self._streams["cadence"].write(values, self._now_ns())
        except LogError as error:
            self._fail(error)


_KEPT_VALUES = {
    "CommandTooOld": "age_s", "DeadlineExceeded": "seconds", "RobotStopped": "reason",
}  # fmt: skip
"""Class of an error -> the one of its values that the log keeps as ``value``."""


def _refusal(error: Exception) -> JsonDict:
    """Return an error as the log's keys: ``type``, ``message``, ``value``."""
    code, subject, message, values = error_to_list(error)
    if isinstance(error, IllegalAction):
        return {"type": code, "message": message, "value": error.violation.to_dict()}
    value = subject if code == "StaleReading" else values.get(_KEPT_VALUES.get(code))
    return {"type": code, "message": message, "value": value}


# -- The wrapper that sees every tick ------------------------------------------------------------------------


TickCallback = Callable[[int, RobotState], None]
"""Take the start of a tick (monotonic, nanoseconds) and its state. It must neither block nor raise."""


class LoggedRobot(RobotWrapper):
    """Report every step of a robot, with the state at its end.

    It belongs inside the guard, ``Guard(LoggedRobot(robot, ...))``. Then ``applied`` is what the robot itself reports,
    and every motion is seen: commanded, held, homing or parking. The robot's own streams end here, because their
    samples go to the same log.

    Args:
        robot: any.
        on_tick: called after each step.
        before_reset: called before each reset; may refuse it by raising.
        on_stop: called with the reason for each stop, from any thread.
    """

    def __init__(
        self, robot: Robot, on_tick: TickCallback, before_reset: Callable[[], None], on_stop: Callable[[str], None]
    ) -> None:
        super().__init__(robot)
        self._on_tick, self._before_reset, self._on_stop = on_tick, before_reset, on_stop

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """An empty tuple, since the samples go to this log."""
        return ()

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Do nothing: the samples go to this log."""

    def reset(self, options: Options) -> RobotState:
        """Reset the inner robot, unless `before_reset` refuses."""
        self._before_reset()
        return self._robot.reset(options)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Step the inner robot and report the tick."""
        began_ns = time.monotonic_ns()
        robot_state = self._robot.step(command)
        self._on_tick(began_ns, robot_state)
        return robot_state

    def stop(self, reason: str | StopReason) -> None:
        """Stop the inner robot, then record the stop."""
        try:
            super().stop(reason)
        finally:
            self._on_stop(str(reason))


# -- The writing thread: it also polls the server for its lifecycle and its holder ---------------------------


POLL_S = 0.05
"""Period of polling, in seconds. Lifecycle transitions have exact time stamps; a new holder has that of the poll."""

_POLLS_PER_TIMING = 20
"""The loop's timing is written once in so many polls: once a second."""

_EPISODE = frozenset({State.READY, State.RUNNING})


class ObservedServer(Protocol):
    """The part of `real.server.server.Server` that `ServerWatch` polls."""

    @property
    def lifecycle(self) -> Lifecycle:
        """The robot's state and the last transitions."""
        ...

    def about(self) -> JsonDict:
        """Return the status of the server."""
        ...


class ServerWatch:
    """Run the writing thread of a controller's log, and log the transitions and holders of its server.

    Args:
        server: the server to poll.
        log: the log to write.
    """

    def __init__(self, server: ObservedServer, log: ControllerLog) -> None:
        self._server, self._log = server, log
        self._last_change_ns = 0
        self._holder: str | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot log", daemon=True)

    def start(self) -> ServerWatch:
        """Start the thread."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Poll for the last time and close the log. Call it after the server is closed; safe to call more than once."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._poll(True)
        self._log.close()

    def _run(self) -> None:
        polls = 0
        while not self._closing.wait(POLL_S):
            polls += 1
            try:
                self._poll(polls % _POLLS_PER_TIMING == 0)
            except Exception:  # the robot matters more than its log
                _LOG.exception("the server could not be polled for its log")

    def _poll(self, loop_timing: bool) -> None:
        log, status = self._log, self._server.about()
        if status["holder"] != self._holder:
            self._holder = status["holder"]
            log.note("holder", {"name": self._holder})
        ended = []
        for change in self._server.lifecycle.history:
            if change.stamp_ns <= self._last_change_ns:
                continue
            self._last_change_ns = change.stamp_ns
            states = {"before": str(change.before), "after": str(change.after), "why": change.why}
            log.note("life", {**states, "stamp_ns": change.stamp_ns})
            if change.before in _EPISODE and change.after not in _EPISODE:
                ended.append(EpisodeEnd(change.stamp_ns, change.why, {"cadence": status["cadence"]}))
        log.write(ended)
        if loop_timing:
            log.write_loop_timing(status["cadence"], status["late_commands"])


def controller_log(profile: Profile, control_hz: float | None) -> ControllerLog:
    """Return the log that a profile asks for; see `rlenv_robot.serving.server_log.open_server_log`."""
    section = profile.serve
    limits = Limits(run_bytes=section.record_mib << 20) if section.record_mib else Limits()
    return ControllerLog(
        section.record,
        {"profile": profile.to_dict()},
        control_hz=control_hz,
        required=section.record_required,
        limits=limits,
        key=profile.record.key or None,
    )
