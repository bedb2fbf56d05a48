"""Sweep the joints of an SO-101 by its own motors, at a low torque, to the ends of their travel.

The arm begins in the model's zero pose, as exactly as a person can put it. Its servos count from there, so no joint
passes the end of the encoder's count, where a servo would turn the long way round. Where a joint would bring the
gripper down to the table, others turn the other way with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hal.drivers.bus import ServoBus
from hal.drivers.calibration import STEP_RAD, CalibrationError
from hal.drivers.feetech import alarm_names
from hal.drivers.fitness import ServoFacts, UnfitArm, check_servos
from hal.drivers.group_read import GroupRead
from hal.drivers.sts3215 import FEEDBACK, STEPS, TABLE, Feedback, decode_feedback
from hal.drivers.torque import ON, let_down, write_all
from hal.errors import ConnectionLost
from hal.robots.so101 import HIGH, JOINTS, LOW

__all__ = ["ORDER", "MotorSweep", "SweepSettings"]

ORDER = ("gripper", "wrist_roll", "wrist_flex", "elbow_flex", "shoulder_lift", "shoulder_pan")
"""The order of the sweeps: each needs only joints before it to be where they were put."""

_FOLDED = {"shoulder_lift": -1.6, "elbow_flex": 1.5, "wrist_flex": 0.9}
"""The pose in which the arm is let down, rad; other joints are at zero."""

_STILL_STEPS = 4
_MIDDLE = STEPS // 2
_TICK_S = 0.02
_SHARES = dict.fromkeys(JOINTS, 0.3) | {"shoulder_lift": 0.45, "elbow_flex": 0.35}
"""Largest duty cycle of each joint: what carries the arm, and some more."""


def _followers(name: str, goal: float) -> dict[str, float]:
    """Return the goals of joints that keep forearm and gripper off table and arm while another one is swept, rad."""
    if name == "elbow_flex":
        back = max(goal - 0.8, 0.0)  # upright, the forearm meets the shoulder before the elbow's end
        return {"shoulder_lift": -back, "wrist_flex": max(min(-goal, 1.5), -1.2)}
    if name == "shoulder_lift":
        forward = max(goal, 0.0)
        return {"elbow_flex": max(min(-goal - 0.2 * forward, 1.6), -1.6), "wrist_flex": -0.4 * forward}
    return {}


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """The speed of a sweep, and when an end counts as reached.

    Attributes:
        speed: rad/s.
        lead: farthest that a goal goes ahead of its joint, rad; with P = 16 a servo's duty is 2.7 for each rad.
        push: how far the goal lies beyond an end while the end is measured, rad.
        still_s: how long a joint must stand at an end, seconds.
        longest_s: for one way, seconds.
        max_temperature: degrees Celsius at which a sweep is given up.
        beyond_deg: most by which a joint may travel farther than the model's range, degrees.
    """

    speed: float = 0.8
    lead: float = 0.25
    push: float = 0.05
    still_s: float = 0.4
    longest_s: float = 20.0
    max_temperature: int = 60
    beyond_deg: float = 25.0


class MotorSweep:
    """Drive one joint after the other to both ends of its travel. The others hold still.

    Args:
        bus: the bus.
        ids: joint -> id of its servo, for all of `JOINTS`.
        sleep: waits, seconds.
        settings: speed and limits.

    Attributes:
        eeprom_writes: registers written to EEPROM so far.
    """

    def __init__(
        self,
        bus: ServoBus,
        ids: Mapping[str, int],
        sleep: Callable[[float], None],
        settings: SweepSettings | None = None,
    ) -> None:
        self._bus, self._ids, self._sleep = bus, {name: ids[name] for name in JOINTS}, sleep
        self._settings = settings or SweepSettings()
        self._group = GroupRead(bus, *FEEDBACK, tuple(self._ids.values()))
        self._offsets: dict[str, int] = {}
        self._goals = np.zeros(len(JOINTS))
        self.eeprom_writes = 0

    def begin(self) -> None:
        """Check the servos, count from the present pose, and hold it.

        Raises:
            UnfitArm: a servo is missing or not fit.
            ConnectionLost, DeadlineExceeded, ServoRefused: the line is gone, or a servo does not take its settings.
        """
        facts, misfits = check_servos(self._bus, self._ids)
        if misfits:
            raise UnfitArm(misfits)
        if any(found.torque for found in facts.values()):
            self.end()
        for name in JOINTS:
            self._prepare(name, facts[name])
        self._refresh()
        goals = {servo: TABLE["goal_position"].pack(self._present(name)) for name, servo in self._ids.items()}
        missed = write_all(self._bus, TABLE["goal_position"].address, goals)
        if missed:
            raise ConnectionLost(f"servos {missed} do not answer; {self._bus.cure}")
        self._goals = np.array([self._angle(name) for name in JOINTS])
        for servo in self._ids.values():
            self._bus.write(servo, TABLE["torque_enable"].address, ON)

    def _prepare(self, name: str, facts: ServoFacts) -> None:
        """Let a servo count from its present position, and give it the gains of the driver and a low torque."""
        servo, registers = self._ids[name], facts.registers
        offset, position = registers["homing_offset"], facts.position
        if abs(position - _MIDDLE) > math.radians(10) / STEP_RAD:
            offset = (position + offset - _MIDDLE + STEPS // 2) % STEPS - STEPS // 2
            offset = max(min(offset, 2047), -2047)
        self._offsets[name] = offset
        wanted = {"homing_offset": offset, "min_position": 0, "max_position": STEPS - 1, "p": 16, "i": 0, "d": 32}
        changes = {key: value for key, value in wanted.items() if registers[key] != value}
        if changes:
            self._bus.write(servo, TABLE["lock"].address, b"\x00")
            for key, value in changes.items():
                self._bus.write(servo, TABLE[key].address, TABLE[key].pack(value))
                self.eeprom_writes += 1
            self._bus.write(servo, TABLE["lock"].address, b"\x01")
        limit = TABLE["torque_limit"]
        for key, data in (("acceleration", b"\xfe"), ("goal_speed", b"\0\0"),
                          ("torque_limit", limit.pack(round(_SHARES[name] * 1000)))):  # fmt: skip
            self._bus.write(servo, TABLE[key].address, data)

    def sweep(self, name: str) -> tuple[int, int]:
        """Drive a joint to both ends, and back to where it began.

        Returns:
            The encoder's readings at the two ends, without homing offset and counted on over a wrap: the lower one
            first, which may be negative, or the higher one above 4095.

        Raises:
            CalibrationError: an end was not found, or something got hot or raised an alarm. The arm is let down.
            ConnectionLost: the line is gone; the servos hold the goals that they have.
        """
        try:
            low, high = (self._seek(name, direction) for direction in (-1.0, 1.0))
            self._go(name, 0.0)
        except CalibrationError:
            self.end()
            raise
        offset = self._offsets[name]
        return round(low) + offset, round(high) + offset

    def fold(self) -> bool:
        """Fold the arm, then let it down as `end` does."""
        begin = self._goals.copy()
        folded = np.array([_FOLDED.get(name, 0.0) for name in JOINTS])
        ticks = round(float(np.abs(folded - begin).max()) / self._settings.speed / _TICK_S)
        for tick in range(1, ticks + 1):
            self._goals = begin + (folded - begin) * tick / ticks
            self._tick()
        return self.end()

    def end(self) -> bool:
        """Let the arm down by damping; return whether its torque is off, which it is once nothing moves."""
        return let_down(self._bus, tuple(self._ids.values()), self._sleep, self._settings.longest_s)

    # -- one way ---------------------------------------------------------------------------------------------------

    def _seek(self, name: str, direction: float) -> float:
        """Push a joint in a direction until it stands; return its position there, steps."""
        settings, index = self._settings, JOINTS.index(name)
        bound = (HIGH if direction > 0 else LOW)[index] + direction * math.radians(settings.beyond_deg)
        stood_s = passed_s = 0.0
        begin, stood_at = self._angle(name), self._present(name)
        while stood_s < settings.still_s:
            angle = self._angle(name)
            if direction * (angle - bound) > 0 or passed_s > settings.longest_s:
                raise CalibrationError(
                    f"{name}: no end was found after {math.degrees(angle - begin):.0f} degrees in {passed_s:.0f} s; "
                    "was the arm in its zero pose, and is the joint's horn fastened?"
                )
            goal = float(self._goals[index])
            leads = direction * (goal - angle) >= settings.lead
            self._move(name, goal if leads else goal + direction * settings.speed * _TICK_S)
            passed_s += _TICK_S
            if leads and abs(self._present(name) - stood_at) <= _STILL_STEPS:
                stood_s += _TICK_S
            else:
                stood_s, stood_at = 0.0, self._present(name)
        return self._at_rest(name, direction)

    def _at_rest(self, name: str, direction: float) -> float:
        """Return the position of a joint that pushes lightly against its end, steps."""
        goal = self._angle(name) + direction * self._settings.push
        positions = []
        for tick in range(40):
            self._move(name, goal)
            if tick >= 20:
                positions.append(self._present(name))
        return float(np.mean(positions))

    def _go(self, name: str, angle: float) -> None:
        """Bring a joint to an angle at the speed of a sweep."""
        index = JOINTS.index(name)
        stride = self._settings.speed * _TICK_S
        for _ in range(round(self._settings.longest_s / _TICK_S)):
            left = angle - float(self._goals[index])
            self._move(name, float(self._goals[index]) + max(min(left, stride), -stride))
            if left == 0.0 and abs(self._angle(name) - angle) < 0.3:
                return
        raise CalibrationError(f"{name}: it does not come back to where it began; look what is in its way")

    def _move(self, name: str, goal: float) -> None:
        for joint, value in {name: goal, **_followers(name, goal)}.items():
            self._goals[JOINTS.index(joint)] = value
        self._tick()

    def _tick(self) -> None:
        """Write the goals of all joints, wait, and read all joints.

        Raises:
            CalibrationError: a servo is hot, or raises an alarm.
        """
        steps = np.clip(np.rint(self._goals / STEP_RAD) + _MIDDLE, 0, STEPS - 1)
        register = TABLE["goal_position"]
        packed = {servo: register.pack(int(step)) for servo, step in zip(self._ids.values(), steps, strict=True)}
        self._bus.sync_write(register.address, packed)
        self._sleep(_TICK_S)
        self._refresh()
        for joint in JOINTS:
            measured = self._measured(joint)
            if measured.temperature >= self._settings.max_temperature or measured.alarms:
                alarms = ", ".join(alarm_names(measured.alarms)) or "none"
                raise CalibrationError(
                    f"{joint}: {measured.temperature} degrees, alarms: {alarms}; let it cool, and look what loads it"
                )

    # -- measurements ----------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        missing = self._group.refresh(attempts=4)
        ages = [self._group.age_ns(servo) for servo in self._ids.values() if servo in self._group.newest]
        if len(ages) < len(JOINTS) or (missing and max(ages) > 0.3e9):
            raise ConnectionLost(f"servos {list(missing)} do not answer; {self._bus.cure}")

    def _measured(self, name: str) -> Feedback:
        return decode_feedback(self._group.newest[self._ids[name]].data)

    def _present(self, name: str) -> int:
        return self._measured(name).position

    def _angle(self, name: str) -> float:
        """Return a joint's angle, as if the arm had begun in its zero pose exactly, rad."""
        return (self._present(name) - _MIDDLE) * STEP_RAD
