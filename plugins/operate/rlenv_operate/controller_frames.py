"""Write the frames of a controller's log, and the streams beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hal import Field, RobotSpec, RobotState, Spec, StreamSpec
from hal.clock import EDGES_MS
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonObject
from recorder.log.writer import LogWriter

__all__ = [
    "CADENCE", "ORDER", "AnsweredOrder", "ControllerFrames", "FramePacker", "controller_layout", "tick_stream",
]  # fmt: skip

ORDER = Spec(
    "order",
    (
        Field("number", (), "int64", meaning="the order's, in its client's session"),
        Field("sent_ns", (), "int64", unit="ns", meaning="when its client says it left, on this clock; 0: unsaid"),
        Field("came_ns", (), "int64", unit="ns", meaning="this machine's monotonic clock when it was read"),
        Field("reading_ns", (), "int64", unit="ns", meaning="of the reading that answered it; 0: it was refused"),
    ),
)
"""The stream ``order``: each reset or command, stamped with the time of its answer."""

CADENCE = Spec(
    "cadence",
    (
        Field("periods", (), "int64", meaning="of the loop in episodes, since the server began"),
        Field("overruns", (), "int64", meaning="those longer than one and a half nominal ones"),
        Field("longest", (), "float64", unit="s", meaning="the longest of them"),
        Field(
            "counts", (len(EDGES_MS) + 1,), "int64",
            meaning=f"periods by their deviation, with these edges in ms: {', '.join(map(str, EDGES_MS))}",
        ),
        Field("late_commands", (), "int64", meaning="commands that were refused because of their age"),
    ),
)  # fmt: skip
"""The stream ``cadence``: the regularity of the loop (`hal.clock.LoopTiming`), once per second."""

_BEGAN = Field("began_ns", (), "int64", unit="ns", meaning="this machine's monotonic clock when the tick was begun")


def tick_stream(spec: RobotSpec) -> StreamSpec:
    """Return the stream ``tick``: every period of the robot's loop, with all sensors and the applied command."""
    parts = (Spec("head", (_BEGAN,)), spec.sensors.prefixed("sensor"), spec.commands.prefixed("applied"))
    return StreamSpec("tick", Spec.joined("tick", parts), spec.rate_hz)


def controller_layout(spec: RobotSpec) -> FrameLayout:
    """Return the layout of a controller's frames: one for each answered order, without a task's observations."""
    return FrameLayout(Spec("observation"), spec.commands, (), spec.commands, spec.sensors)


# -- Frames and episodes: a frame for each answered order, an episode from a reset to the next hold ----------


class AnsweredOrder(NamedTuple):
    """An order of a client, and its answer.

    Attributes:
        at_ns: time of the answer on this machine's monotonic clock.
        wall_ns: the same time on the wall clock.
        number: the number of the order, in its client's session.
        sent_ns: time at which the client sent the order, according to the client, on the monotonic clock.
        came_ns: time at which the order arrived, on the monotonic clock.
        reading_ns: stamp of the reading in the answer; 0 if the order was refused.
        row: the frame's row (`FramePacker`); None if the order was refused.
        begun: for a reset, the metadata of the episode that it begins; None for a command.
    """

    at_ns: int
    wall_ns: int
    number: int
    sent_ns: int
    came_ns: int
    reading_ns: int
    row: bytes | None
    begun: JsonObject | None


class FramePacker:
    """Pack answered orders into rows, and number episodes and frames. Only the control thread may use it.

    Args:
        layout: the layout that `controller_layout` returned.
    """

    def __init__(self, layout: FrameLayout) -> None:
        self._row = row = layout.spec.rows()
        self._sensors = [(name, row[f"sensor_{name}"]) for name in layout.sensors.names]
        self._applied = [(name, row[f"applied_{name}"]) for name in layout.applied.names]
        self._actions = [(name, row[f"action_{name}"]) for name in layout.action.names]
        heads = ("stamp_ns", "wall_ns", "frame_no", "episode", "acted")
        self._stamp, self._wall, self._frame_no, self._episode_no, self._acted = (row[name] for name in heads)
        self._episode = -1
        self._number = 0

    @property
    def episode(self) -> int:
        """The number of the newest episode; -1 before the first reset."""
        return self._episode

    def pack(self, command: Mapping[str, np.ndarray] | None, robot_state: RobotState, wall_ns: int) -> bytes:
        """Return the row of an order and the reading in its answer; a command of None is a reset."""
        if command is None:
            self._row[...] = np.zeros((), self._row.dtype)
            self._row["log_probability"] = np.nan
            self._episode, self._number = self._episode + 1, 0
            self._episode_no[...] = self._episode
        else:
            for name, place in self._actions:
                place[...] = command[name]
            self._number += 1
        self._stamp[...], self._wall[...] = robot_state.stamp_ns, wall_ns
        self._frame_no[...], self._acted[...] = self._number, command is not None
        sensors, applied = robot_state.sensors, robot_state.applied
        for name, place in self._sensors:
            place[...] = sensors[name]
        for name, place in self._applied:
            place[...] = applied[name]
        return self._row.tobytes()


class ControllerFrames:
    """Write the frames and episodes of a controller. Only one thread may use it.

    Args:
        writer: the writer of a log with the layout of `controller_layout`.
    """

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self._episode: int | None = None
        self._begun_ns = 0

    def add(self, order: AnsweredOrder) -> None:
        """Begin an episode for a reset, or write the next frame for a command.

        A refused order, or a command outside an episode, writes nothing.

        Raises:
            LogError: the log can't be written.
        """
        if order.row is None:
            return
        if order.begun is not None:
            self.end("another reset", {}, order.at_ns)
            self._episode, self._begun_ns = self._writer.begin(order.begun, order.wall_ns), order.at_ns
        if self._episode is not None:
            self._writer.frame(order.row, order.wall_ns)

    def end(self, reason: str, info: JsonObject, at_ns: int) -> None:
        """End the episode, if one is open.

        Args:
            reason: why it ended.
            info: more metadata of the episode.
            at_ns: time of the end, on the monotonic clock; an end before the beginning of the episode is ignored.

        Raises:
            LogError: the log can't be written.
        """
        if self._episode is None or at_ns < self._begun_ns:
            return
        self._episode = None
        self._writer.end({"source": "controller", "end": reason, "stamp_ns": at_ns, **info})
