"""The watch over an arm's servos while they work: blocked joints, heat, alarms and a sagging supply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hal.drivers import feetech
from hal.drivers.sts3215 import Feedback
from hal.errors import Fault

__all__ = ["HealthSettings", "HealthWatch"]


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """The limits from which on a servo counts as blocked or hot.

    Attributes:
        stall_s: how long it may push without moving, seconds.
        stall_load: share of its torque limit from which on it pushes.
        stall_steps: smallest distance to its goal at which a standstill counts, steps; 35 are 3 degrees.
        standstill: speed below which it stands, steps a second; the servo reports multiples of 50.
        max_temperature: degrees Celsius at which it is stopped. The servo's own limit is 70, at which it drops the arm.
        warm_s: how far ahead the temperature is predicted, seconds.
    """

    stall_s: float = 0.35
    stall_load: float = 0.85
    stall_steps: int = 35
    standstill: int = 60
    max_temperature: int = 65
    warm_s: float = 20.0


class HealthWatch:
    """Judge the measurements of each control period. The first reason to stop stays until `clear`.

    Args:
        settings: the limits.

    Attributes:
        verdict: why the arm must stop, with the joint's name; or None.
    """

    def __init__(self, settings: HealthSettings | None = None) -> None:
        self._settings = settings or HealthSettings()
        self.clear()

    def clear(self) -> None:
        """Forget everything: somebody looked at the arm."""
        self.verdict: str | None = None
        self._pushing: dict[str, float] = {}  # joint -> since when
        self._warming: dict[str, tuple[float, float]] = {}  # joint -> when, and how warm it was then

    def look(self, now_s: float, feedback: Mapping[str, Feedback], limits: Mapping[str, float]) -> tuple[Fault, ...]:
        """Judge measurements.

        Args:
            now_s: monotonic time of the measurements, seconds.
            feedback: by joint; only fresh ones.
            limits: torque limit of each joint, 0 to 1.

        Returns:
            A fault for each alarm that is on, and one for the verdict.
        """
        faults = []
        for joint, measured in feedback.items():
            if measured.alarms:
                names = ", ".join(feetech.alarm_names(measured.alarms))
                faults.append(Fault("servo_alarm", joint, f"{joint}: the servo's alarm is on: {names}"))
            reason = self._stall(now_s, joint, measured, limits[joint]) or self._heat(now_s, joint, measured)
            self.verdict = self.verdict or reason
        if self.verdict is not None:
            faults.append(Fault("servo", self.verdict.partition(" ")[0], self.verdict))
        return tuple(faults)

    def _stall(self, now_s: float, joint: str, measured: Feedback, limit: float) -> str | None:
        settings = self._settings
        pushes = (
            abs(measured.load) >= settings.stall_load * limit
            and abs(measured.speed) <= settings.standstill
            and abs(measured.goal - measured.position) >= settings.stall_steps
        )
        if not pushes:
            self._pushing.pop(joint, None)
            return None
        since_s = self._pushing.setdefault(joint, now_s)
        if now_s - since_s < settings.stall_s:
            return None
        return (
            f"{joint} is blocked: it has pushed with {abs(measured.load):.0%} duty and {abs(measured.current):.2f} A "
            f"for {now_s - since_s:.1f} s without moving; look what is in its way"
        )

    def _heat(self, now_s: float, joint: str, measured: Feedback) -> str | None:
        limit = self._settings.max_temperature
        begin_s, begin = self._warming.setdefault(joint, (now_s, float(measured.temperature)))
        rate = 0.0
        if now_s - begin_s > 10.0:  # the sensor has whole degrees, so a shorter time shows no slope
            rate = max((measured.temperature - begin) / (now_s - begin_s), 0.0)
        if now_s - begin_s > 60.0:
            self._warming[joint] = (now_s, float(measured.temperature))
        expected = measured.temperature + rate * self._settings.warm_s
        if expected < limit:
            return None
        return (
            f"{joint} is hot: {measured.temperature} degrees, {expected:.0f} expected in {self._settings.warm_s:g} s, "
            f"allowed are {limit}; let it cool, and look what loads it"
        )
