"""Sensors of a simulated robot at the rate of its physics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal.robot import RobotSpec
from hal.spec import Spec
from hal.stream import SampleSink, StreamSpec

__all__ = ["Sampler"]


class Sampler:
    """Hands over what some sensors showed after every step of the physics.

    Args:
        spec: the robot's.
        names: of sensors; each is a stream of its own, with the sensor as its only field.
        substeps: of the physics in a control period.

    Raises:
        SpecError: the robot has no such sensor.
    """

    def __init__(self, spec: RobotSpec, names: tuple[str, ...], substeps: int) -> None:
        rate_hz = spec.rate_hz * substeps
        self.streams = tuple(StreamSpec(name, Spec(name, (spec.sensors[name],)), rate_hz) for name in names)
        self._sinks: Mapping[str, SampleSink] = {}
        self._held: list[Mapping[str, np.ndarray]] = []
        self._before_ns = 0

    @property
    def active(self) -> bool:
        """Whether anybody takes samples."""
        return bool(self._sinks)

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """As `hal.stream.Streaming.stream_to`."""
        self._sinks = {stream.name: sinks[stream.name] for stream in self.streams if stream.name in sinks}

    def hold(self, sensors: Mapping[str, np.ndarray]) -> None:
        """Keep what the sensors show now until `hand_over`, which knows the time."""
        self._held.append(sensors)

    def restart(self, stamp_ns: int) -> None:
        """An episode begins: the next samples follow this moment."""
        self._held.clear()
        self._before_ns = stamp_ns

    def hand_over(self, stamp_ns: int) -> dict[str, int]:
        """Hand over what is held, evenly spread over the time since the last call, the last one at ``stamp_ns``.

        In real time a period's physics are computed at once and then waited for: the stamps are the moments that the
        samples stand for, not those of their computation.

        Returns:
            The number of each stream's last sample.
        """
        before, count = self._before_ns, len(self._held)
        used: dict[str, int] = {}
        for number, sensors in enumerate(self._held, 1):
            at = before + (stamp_ns - before) * number // count
            for name, sink in self._sinks.items():
                used[name] = sink.write({name: sensors[name]}, at)
        self.restart(stamp_ns)
        return used
