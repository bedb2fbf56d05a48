"""The controller's own log: what its loop did at every tick, whoever commanded, whatever became of the network."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from hal import LogError, ResetFailed, Robot, RobotState, SampleSink, StopReason, StreamSpec
from hal.wrapper import RobotWrapper, pass_on, streams_of
from real.control.lifecycle import Lifecycle, State
from real.protocol.errors import to_dict as failure_to_plain
from real.server.lease import RequestId
from recorder.log.rotation import Limits
from recorder.log.writer import LogWriter, StreamWriter, new_run
from rlenv_robot.recording.controller_frames import (
    CADENCE,
    ORDER,
    ControllerFrames,
    Done,
    controller_layout,
    tick_stream,
)
from rlenv_robot.recording.metadata import about_machine

__all__ = ["ControllerLog", "Ended", "LoggedRobot", "ServerWatch", "Ticks", "Watched"]

_LOG = logging.getLogger("rlenv_robot.recorder")
_LIMITS = Limits()

_NOTES = 256
"""Events that may wait for the thread that writes them, which looks 20 times a second; of more the number is told."""

_WAITING = 4096
"""Ticks, and answered orders, that may wait for it: four seconds of a loop at 1000 Hz."""


class Ended(NamedTuple):
    """An episode of the server's was over: when (monotonic, nanoseconds), why, and what else is known by then."""

    at_ns: int
    reason: str
    info: Mapping[str, Any]


class _Order(NamedTuple):
    """One that is not answered yet; without a command it is a reset."""

    command: Mapping[str, np.ndarray] | None
    sent_ns: int


class ControllerLog:
    """Keeps the log of one server: a run of its own, beside whatever its clients record. It is a
    `real.server.observer.ServerObserver`.

    The control thread only queues. A thread that calls `write` 20 times a second packs
    (`rlenv_robot.recording.controller_log`),
    and the log's own writes to the disk (`recorder.log.writer.LogWriter`). When nothing can be written any more,
    because the
    disk is full or the run has its budget, the robot goes on; `failure` says why, and so does the server to who asks.

    Args:
        folder: of the runs; a new one is made in it.
        info: what else the run's description says, such as the profile; plain data.
        control_hz: commands a second that clients give; by default one a period of the robot's own.
        required: refuse resets while nothing is recorded.
        limits: of the sizes of files, run and disk.
        now_ns: the monotonic clock of this machine, nanoseconds.

    Attributes:
        failure: why nothing is recorded, or None.
    """

    def __init__(
        self,
        folder: Path | str,
        info: Mapping[str, Any] | None = None,
        *,
        control_hz: float | None = None,
        required: bool = False,
        limits: Limits = _LIMITS,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._folder, self._info = Path(folder), dict(info or {})
        self._control_hz, self._required = control_hz, required
        self._limits, self._now_ns = limits, now_ns
        self._writer: LogWriter | None = None
        self._frames: ControllerFrames | None = None
        self._streams: dict[str, StreamWriter] = {}
        self._sensors: list[tuple[str, str]] = []  # of a tick: its field, and the sensor that goes there
        self._applied: list[tuple[str, str]] = []
        self._orders: dict[tuple[int, int], _Order] = {}
        self._ticks: deque[tuple[int, int, RobotState]] = deque()  # when begun, the wall clock at its end, what it read
        self._missed = self._told = 0  # ticks for which there was no room
        self._done: deque[Done] = deque(maxlen=_WAITING)
        self._notes: deque[tuple[str, dict[str, Any]]] = deque(maxlen=_NOTES)
        self._noted = self._written = 0
        self._reset: Mapping[str, Any] = {}
        self.failure: str | None = "it was not opened yet"

    # -- life ----------------------------------------------------------------------------------------------

    def around(self, robot: Robot) -> Robot:
        """The robot, recorded. Opens the log; where that fails, the robot is served all the same (`failure`)."""
        try:
            self._open(robot)
        except LogError as error:
            self._fail(error)
        return LoggedRobot(robot, self.tick, self._before_reset, self._stopped)

    def _open(self, robot: Robot) -> None:
        spec, own, tick = robot.spec, streams_of(robot), tick_stream(robot.spec)
        self._sensors = [(f"sensor_{name}", name) for name in spec.sensors.names]
        self._applied = [(f"applied_{name}", name) for name in spec.commands.names]
        described = {"controller": True, **about_machine(), "robot_spec": spec.to_dict(), **self._info}
        writer = LogWriter(new_run(self._folder), controller_layout(spec), described, limits=self._limits).open()
        self._streams = {
            "tick": writer.stream(tick.name, tick.spec, tick.rate_hz),
            "order": writer.stream("order", ORDER, self._control_hz or spec.rate_hz),
            "cadence": writer.stream("cadence", CADENCE, 1.0),
        }
        sinks = {each.name: _Careful(writer.stream(each.name, each.spec, each.rate_hz), self) for each in own}
        self._writer, self._frames, self.failure = writer, ControllerFrames(writer), None
        pass_on(robot, sinks)

    @property
    def run(self) -> Path | None:
        """Folder of the run; None where there is none."""
        return None if self._writer is None else self._writer.folder

    def close(self) -> None:
        """Write what waits and close the run. After the server was closed; twice is fine."""
        self.write([Ended(self._now_ns(), "the server ended", {})])
        self.failure = self.failure or "it was closed"
        if self._writer is not None:
            try:
                self._writer.close()
            except LogError as error:
                _LOG.error("the controller's log: %s", error)

    def to_dict(self) -> dict[str, Any]:
        """As `real.server.observer.ServerObserver.to_dict`: ``run`` (its folder's name), ``on``, ``why`` not,
        ``dropped`` rows."""
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
            _LOG.error("the controller records nothing any more, its robot goes on: %s", error)

    # -- on the control thread -------------------------------------------------------------------------------

    def tick(self, began_ns: int, robot_state: RobotState) -> None:
        """One period of the loop."""
        if len(self._ticks) < _WAITING:
            self._ticks.append((began_ns, time.time_ns(), robot_state))
        else:
            self._missed += 1

    def answered(self, request_id: RequestId, outcome: RobotState | Exception) -> None:
        """As `real.server.observer.ServerObserver.answered`."""
        order = self._orders.pop((request_id.session, request_id.sequence), None)
        if order is None or self.failure is not None:
            return
        robot_state = outcome if isinstance(outcome, RobotState) else None
        if isinstance(outcome, Exception):
            self.note("refused", {"number": request_id.sequence, **failure_to_plain(outcome)})
        came = (request_id.sequence, order.sent_ns, request_id.came_ns)
        self._done.append(Done(self._now_ns(), time.time_ns(), *came, order.command, robot_state, self._reset))

    def _before_reset(self) -> None:
        self._reset = {}
        if self._required and self.failure is not None:
            raise ResetFailed(
                f"the controller can't record ({self.failure}), and serve.record_required is true; mend that and "
                "start the server anew, or set it to false"
            )

    # -- from any thread -------------------------------------------------------------------------------------

    def ordered(self, request_id: RequestId, command: Mapping[str, np.ndarray] | None, sent_ns: int | None) -> None:
        """As `real.server.observer.ServerObserver.ordered`."""
        if len(self._orders) >= _WAITING:  # answers were lost; whose orders these were does not matter any more
            self._orders.clear()
        self._orders[request_id.session, request_id.sequence] = _Order(command, sent_ns or 0)

    def note(self, kind: str, detail: Mapping[str, Any]) -> None:
        """Something that happened now, for the next `write`."""
        self._notes.append((kind, {"stamp_ns": self._now_ns(), **detail}))
        self._noted += 1

    def report(self, state: str, detail: str) -> None:
        """How a reset goes, as `hal.Homing` tells it; its record is also in the episode that begins with it."""
        if state == "reset":
            self._reset = json.loads(detail)
            self.note("reset", self._reset)

    def _stopped(self, reason: str) -> None:
        self.note("stop", {"reason": reason})

    # -- on one thread beside --------------------------------------------------------------------------------

    def write(self, ended: Sequence[Ended] = ()) -> None:
        """Hand over what waits: events, answered orders as frames, and the ends of episodes between them.

        Args:
            ended: the ends since the last call, oldest first.
        """
        ends, log = deque(ended), self._writer
        if log is None or self.failure is not None:
            self._ticks.clear()
            self._done.clear()
            self._notes.clear()
            return
        try:
            self._write_events(log)
            self._write_ticks(log)
            while self._done:
                done = self._done.popleft()
                while ends and ends[0].at_ns <= done.at_ns:
                    self._end(ends.popleft())
                self._write_order(done)
            for end in ends:
                self._end(end)
        except LogError as error:
            self._fail(error)

    def _write_events(self, log: LogWriter) -> None:
        while self._notes:
            self._written += 1
            log.event(*self._notes.popleft())
        if self._noted > self._written:  # there was no room for them
            lost, self._written = self._noted - self._written, self._noted
            log.event("unlisted", {"events": lost})

    def _write_ticks(self, log: LogWriter) -> None:
        stream = self._streams["tick"]
        while self._ticks:
            began_ns, wall_ns, robot_state = self._ticks.popleft()
            values: dict[str, Any] = {"began_ns": began_ns}
            values |= {field: robot_state.sensors[name] for field, name in self._sensors}
            values |= {field: robot_state.applied[name] for field, name in self._applied}
            stream.write(values, robot_state.stamp_ns, wall_ns)
        if self._missed > self._told:
            log.event("ticks_missed", {"since": self._missed - self._told, "total": self._missed})
            self._told = self._missed

    def _write_order(self, done: Done) -> None:
        taken_ns = 0 if done.robot_state is None else done.robot_state.stamp_ns
        values = {"number": done.number, "sent_ns": done.sent_ns, "came_ns": done.came_ns, "reading_ns": taken_ns}
        self._streams["order"].write(values, done.at_ns, done.wall_ns)
        if self._frames is not None:
            self._frames.add(done)

    def _end(self, ended: Ended) -> None:
        if self._frames is not None:
            self._frames.end(ended.reason, ended.info, ended.at_ns)

    def regular(self, loop_timing: Mapping[str, Any], late_commands: int) -> None:
        """How regular the loop is by now (`hal.clock.LoopTiming.to_dict`)."""
        if self.failure is not None:
            return
        values = {name: loop_timing[name] for name in ("periods", "overruns", "counts")}
        values |= {"longest": loop_timing["longest_ms"] / 1e3, "late_commands": late_commands}
        try:
            self._streams["cadence"].write(values, self._now_ns())
        except LogError as error:
            self._fail(error)


class _Careful:
    """A stream of the robot's own that never raises."""

    def __init__(self, sink: SampleSink, log: ControllerLog) -> None:
        self._sink, self._log = sink, log

    def write(self, values: Mapping[str, Any], stamp_ns: int) -> int:
        """As `hal.SampleSink.write`."""
        if self._log.failure is not None:
            return -1
        try:
            return self._sink.write(values, stamp_ns)
        except LogError as error:
            self._log._fail(error)
            return -1


# -- A robot whose every tick is written down on the machine that moves it -----------------------------------


Ticks = Callable[[int, RobotState], None]
"""Given when a tick began (monotonic, nanoseconds) and its reading; never waits, never raises."""


class LoggedRobot(RobotWrapper):
    """A robot around a robot: each step and what was measured at its end is handed on.

    It belongs inside of the guard, ``Guard(LoggedRobot(robot, ...))``: then ``applied`` is what the robot itself says,
    and no motion passes it by, be it commanded, held, on the way home or lowered at the end. The robot's own streams
    end here: their samples go to the same log.

    Args:
        robot: any.
        ticks: takes each tick.
        before_reset: called before each reset; may refuse it by raising.
        stopped: told every stop's reason, from whatever thread.
    """

    def __init__(
        self, robot: Robot, ticks: Ticks, before_reset: Callable[[], None], stopped: Callable[[str], None]
    ) -> None:
        super().__init__(robot)
        self._ticks, self._before_reset, self._stopped = ticks, before_reset, stopped

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """None: the inner robot's samples go to this log."""
        return ()

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Nothing is handed over."""

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """The inner robot's reset, unless it is refused before."""
        self._before_reset()
        return self._robot.reset(options)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """The inner robot's step, written down."""
        began_ns = time.monotonic_ns()
        robot_state = self._robot.step(command)
        self._ticks(began_ns, robot_state)
        return robot_state

    def stop(self, reason: str | StopReason) -> None:
        """Stop the inner robot, then record the stop."""
        try:
            super().stop(reason)
        finally:
            self._stopped(str(reason))


# -- The thread that looks at a server for its log: how its life went on, who holds the robot ----------------


LOOK_S = 0.05
"""How often; a change of the life has the stamp of its own moment all the same, a holder that of the look."""

_CADENCE_LOOKS = 20
"""The cadence is written every so many looks: once a second."""

_EPISODE = frozenset({State.READY, State.RUNNING})


class Watched(Protocol):
    """What is looked at; `real.server.server.Server` is one."""

    @property
    def lifecycle(self) -> Lifecycle:
        """The robot's state and the last transitions."""
        ...

    def about(self) -> dict[str, Any]:
        """As `real.server.server.Server.about`."""
        ...


class ServerWatch:
    """Writes into a controller's log what no order tells. ``with`` it around the server, or `start` and `close`.

    Args:
        server: is looked at.
        log: is written.
    """

    def __init__(self, server: Watched, log: ControllerLog) -> None:
        self._server, self._log = server, log
        self._seen_ns = 0
        self._holder: str | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot log", daemon=True)

    def start(self) -> ServerWatch:
        """Begin."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Look for the last time, and close the log. Call it after the server was closed; twice is fine."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._look(True)
        self._log.close()

    def _run(self) -> None:
        looks = 0
        while not self._over.wait(LOOK_S):
            looks += 1
            try:
                self._look(looks % _CADENCE_LOOKS == 0)
            except Exception:  # the log is of less worth than the robot that it is of
                _LOG.exception("the server could not be looked at for its log")

    def _look(self, loop_timing: bool) -> None:
        log, about = self._log, self._server.about()
        if about["holder"] != self._holder:
            self._holder = about["holder"]
            log.note("holder", {"name": self._holder})
        ended = []
        for change in self._server.lifecycle.history:
            if change.stamp_ns <= self._seen_ns:
                continue
            self._seen_ns = change.stamp_ns
            states = {"before": str(change.before), "after": str(change.after), "why": change.why}
            log.note("life", {**states, "stamp_ns": change.stamp_ns})
            if change.before in _EPISODE and change.after not in _EPISODE:
                ended.append(Ended(change.stamp_ns, change.why, {"cadence": about["cadence"]}))
        log.write(ended)
        if loop_timing:
            log.regular(about["cadence"], about["late_commands"])
