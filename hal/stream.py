"""Sensors that a robot samples at their own rates, whatever the control period is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hal.errors import SpecError
from hal.field import Field
from hal.spec import Spec

__all__ = ["SampleSink", "StreamSpec", "Streaming", "pass_on", "streams_of"]


@dataclass(frozen=True)
class StreamSpec:
    """One stream of samples.

    Attributes:
        name: lower case with underscores.
        spec: of a sample's values.
        rate_hz: samples a second, as the sensor promises; what was reached is in the stamps.
        used: whether readings are made from its samples, so that every frame says from which (``RobotState.used``).

    Raises:
        SpecError: the name or the rate can't be used.
    """

    name: str
    spec: Spec
    rate_hz: float
    used: bool = True

    def __post_init__(self) -> None:
        try:
            Field(self.name)
        except ValueError as error:
            raise SpecError(f"stream {self.name!r}: {error}") from error
        if not 0 < self.rate_hz < np.inf:
            raise SpecError(f"stream {self.name!r}: a rate of {self.rate_hz} Hz, wanted a number above 0")


class SampleSink(Protocol):
    """Where the samples of one stream go. A recorder gives it; it never waits and never raises."""

    def write(self, values: Mapping[str, Any], stamp_ns: int) -> int:
        """Hand over one sample; always from the same thread.

        Args:
            values: one value a field of the stream's spec.
            stamp_ns: robot's monotonic clock at capture, the clock of ``RobotState.stamp_ns``; never falling.

        Returns:
            The sample's number, for ``RobotState.used``; -1 if it is not recorded.
        """
        ...


@runtime_checkable
class Streaming(Protocol):
    """What a `hal.Robot` is besides, if it has sensors that are faster or slower than its steps.

    Its thread reads the sensor, hands every sample over with the time of its capture, and keeps the number that it
    gets back. `step` fills a sensor from the latest sample and says which one that was in ``RobotState.used``.
    """

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """What it offers; readable before anything is opened, and always the same."""
        ...

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Hand the samples of these streams over from now on, until `close`; before the first reset, and once.

        Args:
            sinks: by the streams' names; a stream without one is not handed over.
        """
        ...


def streams_of(source: object) -> tuple[StreamSpec, ...]:
    """What a robot or a world offers; nothing if it knows no streams."""
    return source.streams if isinstance(source, Streaming) else ()


def pass_on(source: object, sinks: Mapping[str, SampleSink]) -> None:
    """Have a robot hand its samples over, as what wraps it is asked to."""
    if isinstance(source, Streaming):
        source.stream_to(sinks)
