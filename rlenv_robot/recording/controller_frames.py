"""What a controller's own log is made of: its frames, and the streams beside them."""

from __future__ import annotations

from hal import Field, RobotSpec, Spec, StreamSpec
from hal.cadence import EDGES_MS
from recorder.frames import FrameLayout

__all__ = ["CADENCE", "ORDER", "controller_layout", "tick_stream"]

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
"""The stream ``loop_timing``: how regular the loop is (`hal.cadence`), once a second."""

_BEGAN = Field("began_ns", (), "int64", unit="ns", meaning="this machine's monotonic clock when the tick was begun")


def tick_stream(spec: RobotSpec) -> StreamSpec:
    """The stream ``tick``: every period of a robot's own, with all it measured and what was applied."""
    parts = (Spec("head", (_BEGAN,)), spec.sensors.prefixed("sensor"), spec.commands.prefixed("applied"))
    return StreamSpec("tick", Spec.joined("tick", parts), spec.rate_hz)


def controller_layout(spec: RobotSpec) -> FrameLayout:
    """Frames of a controller: one an answered order, with what was asked, applied and measured. It sees no task."""
    return FrameLayout(Spec("observation"), spec.commands, (), spec.commands, spec.sensors)
