"""Find measured angles that no motion of their servos explains, by the servos' data: rate and acceleration."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hal.drivers.arm_table import ArmTable

__all__ = ["EncoderCheck"]

_RATE_FACTOR = 1.5
"""Multiple of the fastest rate that a load may drive a servo to."""

_SHORTEST_S = 0.015
"""Shortest time between two readings that are compared, seconds: over less, a servo's own clock is a large part."""

_STEPS = 2.0
"""Encoder steps by which rounding and noise may change a difference of two readings."""


class _Joint:
    """The limits and the newest compared reading of one joint; `speed` is None before the second one."""

    __slots__ = ("acceleration", "angle", "lasted_s", "name", "rate", "slack", "speed", "time_s")

    def __init__(self, name: str, rate: float, acceleration: float, slack: float) -> None:
        self.name, self.rate, self.acceleration, self.slack = name, rate, acceleration, slack
        self.begin()

    def begin(self) -> None:
        self.angle, self.time_s, self.lasted_s = 0.0, math.nan, 0.0
        self.speed: float | None = None


class EncoderCheck:
    """Compare each reading with the one before. Not thread-safe.

    A speed may fall to zero within one reading, since things are hit. It may rise by no more than the strongest servo
    gives its own rotor: stall torque over armature.

    Args:
        arm: the table of joints; joints with a servo of unknown acceleration are judged by their rate alone.
        period_s: the control period, seconds; a shorter time between readings counts as one period.
    """

    def __init__(self, arm: ArmTable, period_s: float) -> None:
        self._period_s = period_s
        self._joints = [
            _Joint(
                joint.name, _RATE_FACTOR * joint.model.max_rate * joint.step_rad,
                (joint.model.max_acceleration or math.inf) * joint.step_rad, _STEPS * joint.step_rad,
            )
            for joint in arm.joints
        ]  # fmt: skip

    def begin(self) -> None:
        """Forget all readings, such as at a reset."""
        for joint in self._joints:
            joint.begin()

    def check(self, angles: Sequence[float], times_s: Sequence[float]) -> str | None:
        """Return why the newest reading is implausible, or None.

        Args:
            angles: measured angles, rad, one for each joint.
            times_s: time at which each of them was measured, seconds; an unchanged one marks an old measurement.
        """
        for joint, angle, time_s in zip(self._joints, angles, times_s, strict=True):
            if math.isnan(joint.time_s):
                joint.angle, joint.time_s = angle, time_s
                continue
            if time_s <= joint.time_s + _SHORTEST_S:
                continue
            passed_s = max(time_s - joint.time_s, self._period_s)
            change, slack = angle - joint.angle, joint.slack / passed_s
            speed, before = change / passed_s, joint.speed
            if before is not None:
                rise = joint.acceleration * (passed_s + joint.lasted_s) / 2 + slack
                high = min(max(before, 0.0) + rise, joint.rate + slack)
                low = max(min(before, 0.0) - rise, -joint.rate - slack)
                if not low <= speed <= high:
                    return (
                        f"implausible: {joint.name} changed by {math.degrees(change):+.1f} degrees in "
                        f"{1000 * passed_s:.0f} ms, {speed:+.1f} rad/s after {before:+.1f}, at most "
                        f"{high if speed > 0 else low:+.1f} are possible for its servo; its encoder or its cable is "
                        "faulty, or something struck the arm"
                    )
            joint.angle, joint.time_s, joint.speed, joint.lasted_s = angle, time_s, speed, passed_s
        return None
