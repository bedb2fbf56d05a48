"""Check before switching an arm's torque on that it is the arm of its calibration and is fit to move."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hal.drivers.arm_table import ArmTable
from hal.drivers.bus import ServoBus
from hal.drivers.calibration import Calibration, JointCalibration
from hal.drivers.registers import Feedback, Register
from hal.drivers.servo_family import ServoFamily
from hal.errors import DeadlineExceeded, RobotError
from hal.field import JsonDict

__all__ = [
    "FitnessSettings",
    "Misfit",
    "ServoFacts",
    "UnfitArm",
    "check_arm",
    "check_servos",
    "read_facts",
    "read_register",
    "whole_turns",
]


_VOLTS_SHARE = 0.2
"""Share by which the measured supply may differ from the declared one; a battery's own varies by 15 %."""


@dataclass(frozen=True, slots=True)
class FitnessSettings:
    """The allowed differences of an arm from its calibration and its model.

    Attributes:
        travel_tolerance_deg: largest difference between a calibration's travel and the model's, degrees.
        max_temperature: highest temperature at which a servo may be switched on, degrees Celsius.
        outside_deg: largest distance of a joint outside the model's range, degrees.
        volts: the supply voltage that the arm's manifest declares, V; None allows any that the servos accept.
    """

    travel_tolerance_deg: float = 3.0
    max_temperature: int = 60
    outside_deg: float = 6.0
    volts: float | None = None


@dataclass(frozen=True, slots=True)
class Misfit:
    """A reason not to switch an arm on.

    Attributes:
        code: a short machine-readable word, such as ``voltage``.
        joint: name of the joint; empty for the whole arm.
        problem: the value found and the values allowed.
        cure: the remedy.
    """

    code: str
    joint: str
    problem: str
    cure: str

    def __str__(self) -> str:
        return f"{self.joint + ': ' if self.joint else ''}{self.problem}. {self.cure}"


class UnfitArm(RobotError):
    """An arm was not switched on, because it is not fit to move.

    Attributes:
        misfits: all reasons.
    """

    def __init__(self, misfits: Iterable[Misfit]) -> None:
        self.misfits = tuple(misfits)
        super().__init__("the arm is not switched on: " + " / ".join(map(str, self.misfits)))


@dataclass(frozen=True, slots=True)
class ServoFacts:
    """The contents of a servo's registers that the check reads.

    Attributes:
        registers: register name -> number, of the block `ServoFamily.identity`.
        firmware: version of the firmware.
        position: present position, steps.
        volts: measured supply voltage, V.
        temperature: temperature, degrees Celsius.
        alarms: alarm bits (`ServoFamily.alarm_names`).
        torque: content of ``torque_enable``.
    """

    registers: dict[str, int]
    firmware: str
    position: int
    volts: float
    temperature: int
    alarms: int
    torque: int

    def about(self, newest: Feedback | None) -> JsonDict:
        """Return ``firmware``, ``volts`` and ``temperature`` (degrees Celsius), with the newest measurement's values.

        Args:
            newest: the newest measurement, with which ``duty`` (share) and ``current`` (A) come too; None for none.
        """
        first: JsonDict = {"firmware": self.firmware, "volts": self.volts, "temperature": self.temperature}
        if newest is None:
            return first
        return {**first, "volts": newest.voltage, "temperature": newest.temperature,
                "duty": newest.load, "current": newest.current}  # fmt: skip


def read_register(bus: ServoBus, servo: int, register: Register, attempts: int = 4) -> int:
    """Read a register of one servo, and read it again after a lost packet.

    Raises:
        DeadlineExceeded: no answer came to any attempt.
        ConnectionLost: the serial line is lost.
    """
    for _ in range(attempts - 1):
        with contextlib.suppress(DeadlineExceeded):
            return register.unpack(bus.read(servo, register.address, register.size).data)
    return register.unpack(bus.read(servo, register.address, register.size).data)


def read_facts(bus: ServoBus, servo: int, family: ServoFamily, attempts: int = 3) -> ServoFacts | None:
    """Read the facts of a servo; return None if it is silent.

    Raises:
        ConnectionLost: the serial line is lost.
    """
    for _ in range(attempts):
        try:
            identity = bus.read(servo, *family.identity).data
            state = bus.read(servo, *family.state).data
        except DeadlineExceeded:
            continue
        registers, measured = family.registers(identity, family.identity[0]), family.feedback(state)
        return ServoFacts(
            registers,
            family.firmware(registers),
            measured.position,
            measured.voltage,
            measured.temperature,
            measured.alarms,
            family.registers(state, family.state[0])["torque_enable"],
        )
    return None


def check_arm(
    bus: ServoBus, calibration: Calibration, settings: FitnessSettings | None = None
) -> tuple[dict[str, ServoFacts], list[Misfit]]:
    """Read all servos and compare them with the calibration. Nothing is written, nothing moves.

    Returns:
        The facts of the servos that answer, by joint, and all misfits.

    Raises:
        ConnectionLost: the serial line is lost.
    """
    settings = settings or FitnessSettings()
    ids = dict(zip(calibration.joints, calibration.ids, strict=True))
    facts, misfits = check_servos(bus, ids, calibration.arm, settings)
    for name, reading in facts.items():
        misfits += _identity(name, reading, calibration)
    if len(facts) == len(calibration.joints):
        misfits += _outside(facts, calibration, settings)
    misfits += _travel(calibration, settings)
    return facts, misfits


def check_servos(
    bus: ServoBus, ids: Mapping[str, int], arm: ArmTable, settings: FitnessSettings | None = None
) -> tuple[dict[str, ServoFacts], list[Misfit]]:
    """Read servos and run those checks of `check_arm` that need no calibration.

    Args:
        bus: the bus of the servos.
        ids: joint -> id of its servo.
        arm: the table of joints.
        settings: the limits; None for the defaults.

    Raises:
        ConnectionLost: the serial line is lost.
    """
    settings = settings or FitnessSettings()
    facts: dict[str, ServoFacts] = {}
    misfits: list[Misfit] = []
    for name, servo in ids.items():
        reading = read_facts(bus, servo, arm.family)
        if reading is None:
            misfits.append(
                Misfit(
                    "missing",
                    name,
                    f"servo {servo} does not answer, or two servos have this id",
                    "Check its cable, the supply and its id; rlenv-robot robot ports lists what answers",
                )
            )
        else:
            facts[name] = reading
    for name, reading in facts.items():
        misfits += _model(name, ids[name], reading, arm)
        misfits += (Misfit(code, name, problem, cure) for code, problem, cure in arm.family.misfits(reading.registers))
        misfits += _state(name, reading, arm.family, settings)
    misfits += _together(facts, arm)
    return facts, misfits


def _model(name: str, servo: int, facts: ServoFacts, arm: ArmTable) -> Iterator[Misfit]:
    wanted = arm.joint(name).model
    if facts.registers["model"] != wanted.number:
        label = wanted.name.upper()
        yield Misfit(
            "model", name, f"servo {servo} is of model {facts.registers['model']}, wanted is {wanted.number} ({label})",
            f"Put in an {label}, or name the servo that is there in the arm's table of joints",
        )  # fmt: skip


def _identity(name: str, facts: ServoFacts, calibration: Calibration) -> Iterator[Misfit]:
    registers, joint = facts.registers, calibration.joints[name]
    for key, cure in (
        ("homing_offset", "Use this arm's own file, or calibrate it: rlenv-robot robot calibrate"),
        ("min_position", "Use this arm's own file, or write it to the servos: rlenv-robot robot calibrate --write"),
        ("max_position", "Use this arm's own file, or write it to the servos: rlenv-robot robot calibrate --write"),
    ):
        wanted = {"homing_offset": joint.homing_offset, "min_position": joint.range_min}.get(key, joint.range_max)
        if registers[key] != wanted:
            yield Misfit("fingerprint", name, f"{key} is {registers[key]}, the calibration says {wanted}", cure)
    recorded = calibration.servos.get(name, {}).get("firmware")
    if recorded is not None and recorded != facts.firmware:
        yield Misfit(
            "servo_changed", name, f"the firmware is {facts.firmware}, at the calibration it was {recorded}",
            "The servo was changed or updated: calibrate again",
        )  # fmt: skip


def _state(name: str, facts: ServoFacts, family: ServoFamily, settings: FitnessSettings) -> Iterator[Misfit]:
    low, high = facts.registers["min_voltage"] / 10, facts.registers["max_voltage"] / 10
    if not low <= facts.volts <= high:
        variant = "a servo for less voltage burns" if facts.volts > high else "the supply is weak or the wrong one"
        yield Misfit(
            "voltage", name, f"the supply is {facts.volts:g} V, this servo takes {low:g} to {high:g} V: {variant}",
            "Unplug the supply now, and use the one for this variant of the servo",
        )  # fmt: skip
    elif settings.volts is not None and abs(facts.volts - settings.volts) > _VOLTS_SHARE * settings.volts:
        yield Misfit(
            "declared_voltage", name, f"the supply is {facts.volts:g} V, the setting volts says {settings.volts:g} V",
            "A policy's gains hold at the declared voltage: set volts to the supply's, or use that supply",
        )  # fmt: skip
    if facts.temperature > settings.max_temperature:
        yield Misfit(
            "hot", name, f"it has {facts.temperature} degrees, at most {settings.max_temperature} are allowed",
            "Let it cool, and look what blocks or overloads it",
        )  # fmt: skip
    alarms = family.alarm_names(facts.alarms & ~1)  # of the voltage there is more to say above
    if alarms:
        yield Misfit(
            "alarm", name, f"its alarm is on: {', '.join(alarms)}",
            "Remove the cause, then switch the supply off and on",
        )  # fmt: skip


def _together(facts: dict[str, ServoFacts], arm: ArmTable) -> Iterator[Misfit]:
    """Yield the models of servo that come with several firmwares."""
    for model in dict.fromkeys(joint.servo for joint in arm.joints):
        firmwares = {name: reading.firmware for name, reading in facts.items() if arm.joint(name).servo == model}
        if len(set(firmwares.values())) > 1:
            listed = ", ".join(f"{name} {firmware}" for name, firmware in firmwares.items())
            yield Misfit(
                "firmware", "", f"the servos have different firmware: {listed}",
                "Update all of them to one version with the maker's tool, then calibrate again",
            )  # fmt: skip


def _outside(facts: dict[str, ServoFacts], calibration: Calibration, settings: FitnessSettings) -> Iterator[Misfit]:
    family = calibration.arm.family
    margin = settings.outside_deg / 360 * family.steps
    for name, reading in facts.items():
        joint = calibration.joints[name]
        position = reading.position + whole_turns(joint, reading.position, family)
        if not joint.range_min - margin <= position <= joint.range_max + margin:
            problem = f"it stands at step {position}, outside its range of {joint.range_min} to {joint.range_max}"
            yield Misfit("outside", name, problem, "Move it into its range by hand; if it is there, calibrate again")


def whole_turns(joint: JointCalibration, position: int, family: ServoFamily) -> int:
    """Return the steps of whole turns that bring a servo's position nearest to the calibrated range when added to it.

    A servo that counts turns restarts within one turn when it is switched on, wherever it was before. For a servo that
    does not count turns the result is 0.
    """
    if not family.counts_turns:
        return 0
    return round(((joint.range_min + joint.range_max) / 2 - position) / family.steps) * family.steps


def _travel(calibration: Calibration, settings: FitnessSettings) -> Iterator[Misfit]:
    for line in calibration.misfits(settings.travel_tolerance_deg):
        name, _, problem = line.partition(": ")
        yield Misfit(
            "travel", name, problem.partition(". ")[0],
            "Sweep it again to both ends (rlenv-robot robot calibrate), "
            "or set travel_tolerance_deg if that is its range",
        )  # fmt: skip
