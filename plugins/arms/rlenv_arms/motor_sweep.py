"""Sweep an arm's joints to the ends of their travel with the arm's motors, at a low torque.

The arm begins in the model's zero pose, as exactly as a person can place it. Its servos count from there, so that no
joint passes the encoder's wrap, where a servo would turn the long way round. The arm's `SweepPlan` gives the order of
the joints and the poses of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hal.drivers.arm_table import ArmTable, SweepPlan
from hal.drivers.bus import ServoBus
from hal.drivers.calibration import CalibrationError
from hal.drivers.fitness import ServoFacts, UnfitArm, check_servos
from hal.drivers.group_read import GroupRead
from hal.drivers.registers import Feedback
from hal.drivers.so101_arm import SO101_ARM
from hal.drivers.torque import ON, let_down, write_all
from hal.errors import ConnectionLost

__all__ = ["MotorSweep", "SweepSettings", "sweep_plan"]

_STILL_STEPS = 4
_TICK_S = 0.02


def sweep_plan(arm: ArmTable) -> SweepPlan:
    """Return the plan by which an arm sweeps its joints with its motors.

    Raises:
        CalibrationError: the arm's table has no plan, or the angle of a joint falls as its steps rise.
    """
    if arm.sweep is None or any(joint.reversed for joint in arm.joints):
        raise CalibrationError(f"{arm.name} has no plan for a sweep by its motors; sweep it by hand, without --motor")
    return arm.sweep


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """The speed of a sweep, and the conditions for its end.

    Attributes:
        speed: speed of the goal, rad/s.
        lead: largest lead of a goal over its joint, rad; with P = 16 a servo's duty cycle is 2.7 per rad.
        push: distance of the goal beyond an end while the end is measured, rad.
        still_s: time for which a joint must be still at an end, seconds.
        longest_s: longest time for a sweep to one end, seconds.
        max_temperature: temperature at which a sweep is aborted, degrees Celsius.
        beyond_deg: largest travel of a joint beyond the model's range, degrees.
    """

    speed: float = 0.8
    lead: float = 0.25
    push: float = 0.05
    still_s: float = 0.4
    longest_s: float = 20.0
    max_temperature: int = 60
    beyond_deg: float = 25.0


class MotorSweep:
    """Drive one joint after another to both ends of its travel while the others hold still.

    Args:
        bus: the bus.
        ids: joint -> id of its servo, for all joints.
        sleep: waits, seconds.
        settings: speed and limits.
        arm: the arm's table of joints, with a `SweepPlan`.

    Attributes:
        eeprom_writes: registers written to EEPROM so far.
    """

    def __init__(
        self,
        bus: ServoBus,
        ids: Mapping[str, int],
        sleep: Callable[[float], None],
        settings: SweepSettings | None = None,
        arm: ArmTable = SO101_ARM,
    ) -> None:
        self._bus, self._ids, self._sleep = bus, {name: ids[name] for name in arm.names}, sleep
        self._arm, self._plan, self._family = arm, sweep_plan(arm), arm.family
        self._names, self._step_rad, self._middle = arm.names, arm.step_rad, arm.family.steps // 2
        self._settings = settings or SweepSettings()
        self._group = GroupRead(bus, *self._family.state, tuple(self._ids.values()))
        self._offsets: dict[str, int] = {}
        self._goals = np.zeros(len(self._names))
        self.eeprom_writes = 0

    def begin(self) -> None:
        """Check the servos, let them count from the present pose, and hold this pose.

        Raises:
            UnfitArm: a servo is missing or not fit for use.
            ConnectionLost: the line is gone.
            DeadlineExceeded: a servo does not answer.
            ServoRefused: a servo refuses its settings.
        """
        facts, misfits = check_servos(self._bus, self._ids, self._arm)
        if misfits:
            raise UnfitArm(misfits)
        if any(reading.torque for reading in facts.values()):
            self.end()
        for name in self._names:
            self._prepare(name, facts[name])
        self._refresh()
        register = self._family.table["goal_position"]
        goals = {servo: register.pack(self._present(name)) for name, servo in self._ids.items()}
        missed = write_all(self._bus, register.address, goals)
        if missed:
            raise ConnectionLost(f"servos {missed} do not answer; {self._bus.cure}")
        self._goals = np.array([self._angle(name) for name in self._names])
        for servo in self._ids.values():
            self._bus.write(servo, self._family.table["torque_enable"].address, ON)

    def _prepare(self, name: str, facts: ServoFacts) -> None:
        """Let a servo count from its present position, and give it the gains of the driver and a low torque."""
        servo, registers, family = self._ids[name], facts.registers, self._family
        offset, position = registers["homing_offset"], facts.position
        if abs(position - self._middle) * self._arm.joint(name).step_rad > math.radians(10):
            offset = family.offset_for(family.encoder(position, offset), self._middle)
        self._offsets[name] = offset
        contents = {
            **family.at_calibration, "homing_offset": offset, "min_position": 0, "max_position": family.steps - 1,
            **self._arm.joint(name).register_values,
        }  # fmt: skip
        changes = {key: value for key, value in contents.items() if family.table[key].kept and registers[key] != value}
        if changes:
            family.write_kept(self._bus, servo, changes)
            self.eeprom_writes += len(changes)
        limit = round(self._plan.shares[name] * family.full_duty)
        run = {key: value for key, value in family.same_on_all.items() if not family.table[key].kept}
        for key, value in {**run, "torque_limit": limit}.items():
            self._bus.write(servo, family.table[key].address, family.table[key].pack(value))

    def sweep(self, name: str) -> tuple[int, int]:
        """Drive a joint to both ends, and back to where it started.

        Returns:
            The encoder's readings in steps at the lower and the upper end, without homing offset and unwrapped, so that
            they may be negative or above 4095.

        Raises:
            CalibrationError: an end was not found, or a servo became too hot or raised an alarm. The arm is lowered.
            ConnectionLost: the line is gone; the servos hold the goals that they have.
        """
        try:
            low, high = (self._seek(name, direction) for direction in (-1.0, 1.0))
            self._go(name, 0.0)
        except CalibrationError:
            self.end()
            raise
        offset = self._offsets[name]
        return self._family.encoder(round(low), offset), self._family.encoder(round(high), offset)

    def fold(self) -> bool:
        """Fold the arm, then lower it as `end` does."""
        begin = self._goals.copy()
        folded = np.array([self._plan.folded.get(name, 0.0) for name in self._names])
        ticks = round(float(np.abs(folded - begin).max()) / self._settings.speed / _TICK_S)
        for tick in range(1, ticks + 1):
            self._goals = begin + (folded - begin) * tick / ticks
            self._tick()
        return self.end()

    def end(self) -> bool:
        """Lower the arm by damping, and return whether its torque is off, which is so once nothing moves."""
        return let_down(self._bus, tuple(self._ids.values()), self._family, self._sleep, self._settings.longest_s)

    # -- one way ---------------------------------------------------------------------------------------------------

    def _seek(self, name: str, direction: float) -> float:
        """Push a joint in a direction until it stands; return its position there, steps."""
        settings, index = self._settings, self._names.index(name)
        bound = (self._arm.high if direction > 0 else self._arm.low)[index] + direction * math.radians(
            settings.beyond_deg
        )
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
        index = self._names.index(name)
        stride = self._settings.speed * _TICK_S
        for _ in range(round(self._settings.longest_s / _TICK_S)):
            left = angle - float(self._goals[index])
            self._move(name, float(self._goals[index]) + max(min(left, stride), -stride))
            if left == 0.0 and abs(self._angle(name) - angle) < 0.3:
                return
        raise CalibrationError(f"{name}: it does not return to where it started; check what blocks it")

    def _move(self, name: str, goal: float) -> None:
        for joint, value in {name: goal, **self._plan.followers(name, goal)}.items():
            self._goals[self._names.index(joint)] = value
        self._tick()

    def _tick(self) -> None:
        """Write the goals of all joints, wait, and read all joints.

        Raises:
            CalibrationError: a servo is hot, or raises an alarm.
        """
        steps = np.clip(np.rint(self._goals / self._step_rad) + self._middle, 0, self._family.steps - 1)
        register = self._family.table["goal_position"]
        packed = {servo: register.pack(int(step)) for servo, step in zip(self._ids.values(), steps, strict=True)}
        self._bus.sync_write(register.address, packed)
        self._sleep(_TICK_S)
        self._refresh()
        for joint in self._names:
            measured = self._measured(joint)
            if measured.temperature >= self._settings.max_temperature or measured.alarms:
                alarms = ", ".join(self._family.alarm_names(measured.alarms)) or "none"
                raise CalibrationError(
                    f"{joint}: {measured.temperature} degrees, alarms: {alarms}; let it cool, and check what loads it"
                )

    # -- measurements ----------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        missing = self._group.refresh(attempts=4)
        ages = [self._group.age_ns(servo) for servo in self._ids.values() if servo in self._group.newest]
        if len(ages) < len(self._names) or (missing and max(ages) > 0.3e9):
            raise ConnectionLost(f"servos {list(missing)} do not answer; {self._bus.cure}")

    def _measured(self, name: str) -> Feedback:
        return self._family.feedback(self._group.newest[self._ids[name]].data)

    def _present(self, name: str) -> int:
        return self._measured(name).position

    def _angle(self, name: str) -> float:
        """Return a joint's angle, as if the arm had begun in its zero pose exactly, rad."""
        return float((self._present(name) - self._middle) * self._step_rad[self._names.index(name)])
