"""How a controller's clock lies beside its client's, as a stream for the client's log."""

from __future__ import annotations

from collections.abc import Mapping

from hal.clock_sync import OffsetEstimator
from hal.field import Field
from hal.robot import SampleSink, StreamSpec
from hal.spec import Spec

__all__ = ["CLOCK", "ClockStream"]

CLOCK = StreamSpec(
    "clock",
    Spec(
        "clock",
        (
            Field("asked_ns", (), "int64", unit="ns", meaning="a request left, on this machine's monotonic clock"),
            Field("came_ns", (), "int64", unit="ns", meaning="it came, on the controller's"),
            Field("left_ns", (), "int64", unit="ns", meaning="its answer left, on the controller's"),
            Field("answered_ns", (), "int64", unit="ns", meaning="the answer came, on this machine's"),
            Field("offset_ns", (), "int64", unit="ns", meaning="their clock minus ours, when the answer came"),
            Field("error_ns", (), "int64", 0, unit="ns", meaning="the true offset lies at most so far from it"),
            Field("drift_ppm", (), "float64", meaning="how fast their clock gains on ours"),
            Field("drift_error_ppm", (), "float64", 0, meaning="the true drift lies at most so far from it"),
            Field("restarts", (), "int32", 0, meaning="how often a clock had jumped, and all began anew"),
        ),
    ),
    rate_hz=1.0,
    used=False,
)
"""See `hal.clock_sync.ClockOffset`. The first four are the exchange by which it was written."""

_PERIOD_NS = 1_000_000_000


class ClockStream:
    """Writes a sample a second, of whatever exchange comes next. For one thread."""

    def __init__(self) -> None:
        self._sink: SampleSink | None = None
        self._next_ns = 0

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """As `hal.RobotWrapper.stream_to`."""
        self._sink = sinks.get(CLOCK.name)

    def tell(self, exchange: tuple[int, int, int, int] | None, offset: OffsetEstimator, stamp_ns: int) -> None:
        """A reading came.

        Args:
            exchange: the newest, as `real.client.connection.Connection.exchange`.
            offset: that has learned from it.
            stamp_ns: of the reading.
        """
        if self._sink is None or exchange is None or exchange[3] < self._next_ns:
            return
        known = offset.at(exchange[3])
        if known is not None:
            self._next_ns = max(self._next_ns + _PERIOD_NS, exchange[3] + _PERIOD_NS // 2)
            names = ("asked_ns", "came_ns", "left_ns", "answered_ns")
            self._sink.write({**dict(zip(names, exchange, strict=True)), **known._asdict()}, stamp_ns)
