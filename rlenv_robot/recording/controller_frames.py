"""What a controller's own log is made of: its frames, and the streams beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hal import Field, RobotSpec, RobotState, Spec, StreamSpec
from hal.clock import EDGES_MS
from hal.frame_layout import FrameLayout
from recorder.log.writer import LogWriter

__all__ = ["CADENCE", "ORDER", "ControllerFrames", "Done", "controller_layout", "tick_stream"]

ORDER = Spec(
    "order",
    (
        Field("number", (), "int64", meaning="the order's, in its client's session"),
        Field("sent_ns", (), "int64", unit="ns", meaning="when its client says it left, on this clock; 0: unsaid"),
        Field("came_ns", (), "int64", unit="ns", meaning="this machine's monotonic clock when it was read"),
        Field("reading_ns", (), "int64", unit="ns", meaning="of the reading that answered it; 0: it was refused"),
    ),
)
"""The stream ``order``: a reset or command and its answer. Its stamp is when it was answered."""

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
"""The stream ``loop_timing``: how regular the loop is (`hal.clock`), once a second."""

_BEGAN = Field("began_ns", (), "int64", unit="ns", meaning="this machine's monotonic clock when the tick was begun")


def tick_stream(spec: RobotSpec) -> StreamSpec:
    """The stream ``tick``: every period of a robot's own, with all it measured and what was applied."""
    parts = (Spec("head", (_BEGAN,)), spec.sensors.prefixed("sensor"), spec.commands.prefixed("applied"))
    return StreamSpec("tick", Spec.joined("tick", parts), spec.rate_hz)


def controller_layout(spec: RobotSpec) -> FrameLayout:
    """Frames of a controller: one an answered order, with what was asked, applied and measured. It sees no task."""
    return FrameLayout(Spec("observation"), spec.commands, (), spec.commands, spec.sensors)


# -- The frames and episodes of a controller's own log: one frame an answered order, an episode from reset to hold --


class Done(NamedTuple):
    """An order that was answered.

    Attributes:
        at_ns: when, on this machine's monotonic clock.
        wall_ns: the same on its wall clock.
        number: of the order, in its client's session.
        sent_ns, came_ns: when it left its client, as that says, and came here, on this machine's monotonic clock.
        command: what was asked; None: a reset.
        reading: that answered it; None: it was refused.
        reset: of a reset, its record as plain data; empty where nothing is known of it.
    """

    at_ns: int
    wall_ns: int
    number: int
    sent_ns: int
    came_ns: int
    command: Mapping[str, np.ndarray] | None
    robot_state: RobotState | None
    reset: Mapping[str, Any]


class ControllerFrames:
    """Writes them. For one thread.

    Args:
        writer: of a log with `rlenv_robot.recording.controller_frames.controller_layout`.
    """

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        layout = writer.layout
        self._row = layout.spec.rows()
        self._sensors = [(f"sensor_{name}", name) for name in layout.sensors.names]
        self._applied = [(f"applied_{name}", name) for name in layout.applied.names]
        self._actions = [(f"action_{name}", name) for name in layout.action.names]
        self._episode: int | None = None
        self._number = self._begun_ns = 0

    def add(self, done: Done) -> None:
        """A reset begins an episode, a command is its next frame; what was refused, or came outside of one, is neither.

        Raises:
            LogError: the log can't be written.
        """
        row, command, robot_state = self._row, done.command, done.robot_state
        if robot_state is None or (command is not None and self._episode is None):
            return
        if command is None:
            self._begin(done)
        else:
            for field, name in self._actions:
                row[field] = command[name]
        row["stamp_ns"], row["wall_ns"] = robot_state.stamp_ns, done.wall_ns
        row["frame_no"], row["episode"], row["acted"] = self._number, self._episode, command is not None
        for field, name in self._sensors:
            row[field] = robot_state.sensors[name]
        for field, name in self._applied:
            row[field] = robot_state.applied[name]
        self._number += 1
        self._writer.frame(row)

    def _begin(self, done: Done) -> None:
        self.end("another reset", {}, done.at_ns)
        self._row[...] = np.zeros((), self._row.dtype)
        self._row["log_probability"] = np.nan
        begun = {"source": "controller", "stamp_ns": done.at_ns, "reset": dict(done.reset)}
        self._episode, self._number, self._begun_ns = self._writer.begin(begun), 0, done.at_ns

    def end(self, reason: str, info: Mapping[str, Any], at_ns: int) -> None:
        """The server's episode was over at that time of the monotonic clock; nothing, if there was none.

        Raises:
            LogError: the log can't be written.
        """
        if self._episode is None or at_ns < self._begun_ns:
            return
        self._episode = None
        self._writer.end({"source": "controller", "end": reason, "stamp_ns": at_ns, **info})
