"""Watch an arm's currents for contacts: torques that gravity, inertia, friction and a payload do not explain."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from hal.drivers.contact_model import ContactModel, average, confirmed

__all__ = ["Contact", "ContactWatch"]

_LONGEST_GAP = 2.5
"""Longest time between two readings that are judged together, in control periods; one lost answer makes it 2."""

_BLIND_S = 0.5
"""Longest time without a judgement before it counts as a fault, seconds."""

_DRIVEN = 0.1
"""Duty cycle from which on a motor has a current that can be measured."""

_SILENT_READINGS = 10
"""Readings in a row of driven motors without any current, after which the servos count as measuring none."""

_GLITCH = 2.0
"""Multiple of the threshold that two residuals of opposite signs must exceed to count as a wrong measurement."""


@dataclass(frozen=True, slots=True)
class Contact:
    """A torque that free motion does not explain, or a measurement that no motion explains.

    Attributes:
        joint: the joint with the largest excess.
        measured: its measured torque, N m, by the torque constant.
        expected: its expected torque in free motion without a payload, N m.
        excess: how far it lies beyond what free motion may need, N m.
        allowed: the largest excess that is none, N m.
        code: ``contact``; or ``measurement``, if the residual changed its sign from one reading to the next.
    """

    joint: str
    measured: float
    expected: float
    excess: float
    allowed: float
    code: str = "contact"

    def __str__(self) -> str:
        if self.code == "measurement":
            return (
                f"implausible: {self.joint} jumped: its motion would take {abs(self.excess):.2f} N m more than its "
                "servo applied, then as much less; its encoder or its cable is faulty, or something struck the arm"
            )
        return (
            f"contact at {self.joint}: it measures {self.measured:+.2f} N m, {self.expected:+.2f} are expected in free "
            f"motion, {abs(self.excess):.2f} beyond what friction and payload may need, allowed are "
            f"{self.allowed:.2f}; look what it touches"
        )


class ContactWatch:
    """Judge the readings of each control period. Not thread-safe.

    Args:
        model: the expectation of free motion.
        period_s: the control period, seconds.

    Attributes:
        blind_s: how long no judgement has been possible since the last one, seconds.
        silent: whether the servos report no current although they are driven.
    """

    def __init__(self, model: ContactModel, period_s: float) -> None:
        self._model, self._period_s = model, period_s
        self._names = [joint.name for joint in model.joints]
        self._kept: deque[tuple[float, np.ndarray, np.ndarray]] = deque(maxlen=2 * model.windows(period_s) + 1)
        self._scale = np.array([joint.torque_constant for joint in model.joints])
        self.begin()

    def begin(self) -> None:
        """Forget all readings, such as at a reset."""
        self._kept.clear()
        self._before: np.ndarray | None = None
        self._judged_s: float | None = None
        self._unmeasured = 0
        self.blind_s, self.silent = 0.0, False

    @property
    def is_blind(self) -> bool:
        """Whether contacts have not been judged for longer than half a second."""
        return self.blind_s > _BLIND_S

    def skip(self, now_s: float) -> None:
        """Note a period without a whole reading."""
        self.blind_s = now_s - (self._judged_s if self._judged_s is not None else now_s)

    def look(self, now_s: float, angle: np.ndarray, current: np.ndarray, duty: np.ndarray) -> Contact | None:
        """Judge a reading; return the contact that it shows, or None.

        Args:
            now_s: time of the reading, seconds.
            angle: measured angles, rad, (n,).
            current: measured currents in the joints' directions, A, (n,).
            duty: duty cycles, -1 to 1, (n,).
        """
        self._unmeasured = 0 if current.any() or (abs(duty) < _DRIVEN).all() else self._unmeasured + 1
        self.silent = self._unmeasured >= _SILENT_READINGS
        if self._kept and not 0.0 < now_s - self._kept[-1][0] <= _LONGEST_GAP * self._period_s:
            self._kept.clear()
            self._before = None
        self._kept.append((now_s, angle, current))
        if self._judged_s is None:
            self._judged_s = now_s
        self.blind_s = now_s - self._judged_s
        if len(self._kept) < (self._kept.maxlen or 0):
            return None
        self._judged_s, self.blind_s = now_s, 0.0
        times, angles, currents = (np.array(part) for part in zip(*self._kept, strict=True))
        motion = average(times, angles, currents)
        expectation = self._model.expect(motion)
        excess, before = expectation.excess(motion.current), self._before
        self._before = excess
        if before is None:
            return None
        limits = self._model.thresholds
        for code, shares in (
            ("contact", abs(confirmed(excess, before)) / limits),
            ("measurement", np.where(excess * before < 0, np.minimum(abs(excess), abs(before)), 0) / limits / _GLITCH),
        ):  # fmt: skip
            joint = int(np.argmax(shares))
            if shares[joint] > 1:
                measured, expected, beyond, allowed = (
                    float(part[joint] * self._scale[joint])
                    for part in (motion.current, expectation.middle, excess, limits)
                )
                return Contact(self._names[joint], measured, expected, beyond, allowed, code)
        return None
