"""Find measured angles that no motion of their servos explains, by the servos' data: rate and acceleration."""

from __future__ import annotations

import numpy as np

from hal.drivers.arm_table import ArmTable

__all__ = ["EncoderCheck"]

_RATE_FACTOR = 1.5
"""Multiple of the fastest rate that a load may drive a servo to."""

_SHORTEST_S = 0.015
"""Shortest time between two readings that are compared, seconds: over less, a servo's own clock is a large part."""

_STEPS = 2.0
"""Encoder steps by which rounding and noise may change a difference of two readings."""


class EncoderCheck:
    """Compare each reading with the one before. Not thread-safe.

    A speed may fall to zero within one reading, since things are hit. It may rise by no more than the strongest servo
    gives its own rotor: stall torque over armature.

    Args:
        arm: the table of joints; joints with a servo of unknown acceleration are judged by their rate alone.
        period_s: the control period, seconds; a shorter time between readings counts as one period.
    """

    def __init__(self, arm: ArmTable, period_s: float) -> None:
        models = [joint.model for joint in arm.joints]
        self._names, self._period_s, self._slack = arm.names, period_s, _STEPS * arm.step_rad
        self._rates = _RATE_FACTOR * np.array([model.max_rate for model in models]) * arm.step_rad
        self._accelerations = np.array([model.max_acceleration or np.inf for model in models]) * arm.step_rad
        self.begin()

    def begin(self) -> None:
        """Forget all readings, such as at a reset."""
        count = len(self._names)
        self._angle, self._time_s = np.full(count, np.nan), np.full(count, np.nan)
        self._speed, self._lasted_s = np.full(count, np.nan), np.full(count, np.nan)

    def check(self, angle: np.ndarray, time_s: np.ndarray) -> str | None:
        """Return why the newest reading is implausible, or None.

        Args:
            angle: measured angles, rad, (n,).
            time_s: time at which each of them was measured, seconds, (n,); an unchanged one marks an old measurement.
        """
        first = np.isnan(self._time_s)
        fresh = time_s > self._time_s + _SHORTEST_S
        passed_s = np.where(fresh, np.maximum(time_s - self._time_s, self._period_s), self._period_s)
        change = angle - self._angle
        speed, slack = change / passed_s, self._slack / passed_s
        between_s = (passed_s + np.where(np.isnan(self._lasted_s), passed_s, self._lasted_s)) / 2
        before, rise = np.nan_to_num(self._speed), self._accelerations * between_s + slack
        high = np.minimum(np.maximum(before, 0.0) + rise, self._rates + slack)
        low = np.maximum(np.minimum(before, 0.0) - rise, -self._rates - slack)
        wrong = fresh & ~np.isnan(self._speed) & ((speed > high) | (speed < low))
        if wrong.any():
            joint = int(np.argmax(wrong))
            limit = high[joint] if speed[joint] > 0 else low[joint]
            return (
                f"implausible: {self._names[joint]} changed by {np.degrees(change[joint]):+.1f} degrees in "
                f"{1000 * passed_s[joint]:.0f} ms, {speed[joint]:+.1f} rad/s after {before[joint]:+.1f}, at most "
                f"{limit:+.1f} are possible for its servo; its encoder or its cable is faulty, or something struck the arm"
            )
        moved = fresh & ~first
        self._speed = np.where(moved, speed, self._speed)
        self._lasted_s = np.where(moved, passed_s, self._lasted_s)
        self._angle, self._time_s = np.where(fresh | first, angle, self._angle), np.where(fresh | first, time_s, self._time_s)
        return None
