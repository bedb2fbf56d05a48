"""Record the controller's clock beside the client's, as a stream of the client's log."""

from __future__ import annotations

from collections.abc import Mapping

from hal.clock import OffsetEstimator
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
"""The spec of the stream: one exchange of messages and the `hal.clock.ClockOffset` after it."""

_PERIOD_NS = 1_000_000_000


class ClockStream:
    """Write one sample of an exchange in each second. Not thread-safe.

    Attributes:
        wanted: whether the stream is recorded.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._sink: SampleSink | None = None
        self._next_ns = 0

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Send the samples to sinks, as `hal.RobotWrapper.stream_to` does."""
        self._sink = sinks.get(CLOCK.name)
        self.wanted = self._sink is not None

    def tell(self, exchange: tuple[int, int, int, int] | None, offset: OffsetEstimator, stamp_ns: int) -> None:
        """Write a sample for the exchange of a reading, if one is due.

        Args:
            exchange: a `real.client.connection.Connection.exchange`.
            offset: the estimator, after the exchange was added.
            stamp_ns: time stamp of the reading, nanoseconds.
        """
        if self._sink is None or exchange is None or exchange[3] < self._next_ns:
            return
        clock = offset.at(exchange[3])
        if clock is not None:
            self._next_ns = max(self._next_ns + _PERIOD_NS, exchange[3] + _PERIOD_NS // 2)
            names = ("asked_ns", "came_ns", "left_ns", "answered_ns")
            self._sink.write({**dict(zip(names, exchange, strict=True)), **clock._asdict()}, stamp_ns)
