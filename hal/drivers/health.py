"""Watch an arm's servos while they work: blocked joints, grips, heat, alarms and a sagging supply."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from hal.drivers.registers import Feedback
from hal.drivers.servo_family import ServoFamily
from hal.drivers.sts3215 import FEETECH_STS
from hal.errors import Fault

__all__ = ["HealthSettings", "HealthWatch"]


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """The limits at which a servo counts as blocked, gripping or hot.

    Attributes:
        stall_s: longest time for which a servo may push without moving, seconds.
        stall_load: share of the torque limit above which a servo counts as pushing.
        stall_steps: smallest distance to the goal at which a standstill counts, steps; 35 are 3 degrees.
        standstill: speed below which a servo counts as standing still, steps a second; it reports multiples of 50.
        max_temperature: temperature at which the arm is stopped, degrees Celsius. At the servo's own limit of 70 it
            drops the arm.
        warm_s: how far ahead the temperature is predicted, seconds.
        resistance: resistance of the motor's winding, ohm. Source: Rhoban's BAM.
        heating: rise of the case's temperature for each joule of heat, degrees; an estimate from users' reports
            (`sim.servo_bus.feetech_servo`).
        gripping: joints that hold objects by closing on them; a standstill there is a grip.
        grip_lead: farthest that the goal of a joint lies beyond its position while it holds an object with a lowered
            torque, steps; 326 are 0.5 rad, enough for that torque.
        grip_load: duty from which on such a joint grips, if that is less than its pushing: what it may push for long.
    """

    stall_s: float = 0.3
    stall_load: float = 0.85
    stall_steps: int = 35
    standstill: int = 60
    max_temperature: int = 65
    warm_s: float = 20.0
    resistance: float = 2.676
    heating: float = 0.012
    gripping: frozenset[str] = frozenset({"gripper"})
    grip_load: float = 1.0
    grip_lead: int = 326


class HealthWatch:
    """Judge the measurements of each control period. The first reason to stop stays until `clear`.

    Args:
        settings: the limits.
        family: the servos' family.

    Attributes:
        verdict: why the arm must stop, with the joint's name; or None.
        grips: joint that holds an object -> time at which the grip began, seconds. A grip lasts until a goal opens
            the joint: until the goal is no longer beyond the position at which the grip began. Measurements never
            end a grip, since a springy object moves a gripper with a lowered torque.
        gripped_at: joint that holds an object -> position at which the grip began, steps.
    """

    def __init__(self, settings: HealthSettings | None = None, family: ServoFamily = FEETECH_STS) -> None:
        self._settings, self._family = settings or HealthSettings(), family
        self.release()
        self.clear()

    def release(self) -> None:
        """Forget the grips, after the arm was exchanged or switched on again."""
        self.grips: dict[str, float] = {}
        self.gripped_at: dict[str, int] = {}

    def clear(self) -> None:
        """Forget everything except the grips, after a person has checked the arm."""
        self.verdict: str | None = None
        self._pushing: dict[str, float] = {}  # joint -> since when
        self._alarmed: set[str] = set()  # joints that an alarm disables, by the newest look
        self._warming: dict[str, tuple[float, float]] = {}  # joint -> when, and how warm it was then
        self._losses: dict[str, tuple[float, float]] = {}  # joint -> when, and mean heat of its winding up to then, W

    def look(
        self,
        now_s: float,
        feedback: Mapping[str, Feedback],
        limits: Mapping[str, float],
        closing: Mapping[str, int] | None = None,
    ) -> tuple[Fault, ...]:
        """Judge the measurements of one control period.

        Args:
            now_s: monotonic time of the measurements, seconds.
            feedback: joint -> its measurements, only fresh ones.
            limits: joint -> its torque limit, 0 to 1.
            closing: joint that grips -> the direction in which it closes: -1 towards lower steps, or 1.

        Returns:
            A fault for each active alarm, and one for the verdict.
        """
        faults = []
        for joint, measured in feedback.items():
            if measured.alarms:
                names = ", ".join(self._family.alarm_names(measured.alarms))
                faults.append(Fault("servo_alarm", joint, f"{joint}: the servo's alarm is on: {names}"))
            direction = (closing or {}).get(joint, -1) if joint in self._settings.gripping else 0
            reason = (
                self._stall(now_s, joint, measured, limits[joint], direction)
                or self._heat(now_s, joint, measured)
                or self._disabled(joint, measured)
            )
            self.verdict = self.verdict or reason
        if self.verdict is not None:
            faults.append(Fault("servo", self.verdict.partition(" ")[0], self.verdict))
        return tuple(faults)

    def follow_grips(
        self, eased: Collection[str], goals: np.ndarray, measured: Mapping[str, Feedback], closing: Mapping[str, int]
    ) -> list[int]:
        """Bring the goals of joints that hold a soft object near them, and return the numbers of the changed goals.

        With its lowered torque such a joint is pushed open, and a goal far beyond it would count as a following error.
        The goal stays on the closed side of where the grip began, since one on the other side ends the grip.

        Args:
            eased: joints that hold an object with a lowered torque.
            goals: the goal of each joint, steps, in the order of ``closing``; changed in place.
            measured: joint -> its newest measurements.
            closing: joint -> the direction in which it closes: -1 towards lower steps, or 1.
        """
        changed = []
        for index, (joint, sign) in enumerate(closing.items()):
            if joint not in eased or joint not in self.gripped_at:
                continue
            near = measured[joint].position * sign + self._settings.grip_lead
            farthest = max(near, self.gripped_at[joint] * sign + 1)
            if goals[index] * sign > farthest:
                goals[index] = farthest * sign
                changed.append(index)
        return changed

    def _stall(self, now_s: float, joint: str, measured: Feedback, limit: float, closing: int) -> str | None:
        settings = self._settings
        if joint in self.grips:
            if (measured.goal - self.gripped_at[joint]) * closing > 0:
                return None
            del self.grips[joint], self.gripped_at[joint]
            self._pushing.pop(joint, None)
        ahead = measured.goal - measured.position
        pushing = settings.stall_load * limit
        pushes = (
            abs(measured.load) >= (min(pushing, settings.grip_load) if ahead * closing > 0 else pushing)
            and abs(measured.speed) <= settings.standstill
            and abs(ahead) >= settings.stall_steps
        )
        if not pushes:
            self._pushing.pop(joint, None)
            return None
        since_s = self._pushing.setdefault(joint, now_s)
        if now_s - since_s < settings.stall_s:
            return None
        if ahead * closing > 0:
            self.grips[joint], self.gripped_at[joint] = since_s, measured.position
            return None
        return (
            f"{joint} is blocked: it has pushed with {abs(measured.load):.0%} duty and {abs(measured.current):.2f} A "
            f"for {now_s - since_s:.1f} s without moving; look what is in its way"
        )

    def _disabled(self, joint: str, measured: Feedback) -> str | None:
        """Judge alarms, by two looks one after the other; a joint that grips may be overloaded by what it holds."""
        alarms = 0 if joint in self._settings.gripping else measured.alarms & self._family.disabling_alarms
        if not alarms:
            self._alarmed.discard(joint)
            return None
        if joint not in self._alarmed:
            self._alarmed.add(joint)
            return None
        names = ", ".join(self._family.alarm_names(alarms))
        return f"{joint} has taken its torque away or lowered it: its alarm is on ({names}); look what loads it"

    def _heat(self, now_s: float, joint: str, measured: Feedback) -> str | None:
        limit, warm_s = self._settings.max_temperature, self._settings.warm_s
        begin_s, begin = self._warming.setdefault(joint, (now_s, float(measured.temperature)))
        rate = 0.0
        if now_s - begin_s > 10.0:  # the sensor has whole degrees, so a shorter time shows no slope
            rate = max((measured.temperature - begin) / (now_s - begin_s), 0.0)
        if now_s - begin_s > 60.0:
            self._warming[joint] = (now_s, float(measured.temperature))
        # The case follows the winding late, so the current shows the heat that is still to come.
        before_s, mean = self._losses.get(joint, (now_s, 0.0))
        share = min(max(now_s - before_s, 0.0) / warm_s, 1.0)
        mean += (measured.current**2 * self._settings.resistance - mean) * share
        self._losses[joint] = (now_s, mean)
        expected = measured.temperature + max(rate, mean * self._settings.heating) * warm_s
        if expected < limit:
            return None
        return (
            f"{joint} is hot: {measured.temperature} degrees, {expected:.0f} expected in {warm_s:g} s, "
            f"allowed are {limit}; let it cool, and look what loads it"
        )
