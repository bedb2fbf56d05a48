"""The check of an arm before its torque goes on: whether it is the arm that its calibration describes, and is fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hal.drivers import feetech
from hal.drivers.bus import ServoBus
from hal.drivers.calibration import Calibration
from hal.drivers.sts3215 import MODEL, STEPS, TABLE, decode_feedback
from hal.errors import DeadlineExceeded, RobotError

__all__ = ["FitnessSettings", "Misfit", "ServoFacts", "UnfitArm", "check_arm", "check_servos", "read_facts"]


_VOLTS_SHARE = 0.2
"""Share by which the measured supply may differ from the declared one; a battery's own varies by 15 %."""


@dataclass(frozen=True, slots=True)
class FitnessSettings:
    """The differences from its calibration and its model that an arm may have.

    Attributes:
        travel_tolerance_deg: most difference between a calibration's travel and the model's, degrees.
        max_temperature: hottest servo that may be switched on, degrees Celsius.
        outside_deg: most by which a joint may stand outside the model's range, degrees.
        volts: the supply that the arm's manifest declares, V; None for any that the servos take.
    """

    travel_tolerance_deg: float = 3.0
    max_temperature: int = 60
    outside_deg: float = 6.0
    volts: float | None = None


@dataclass(frozen=True, slots=True)
class Misfit:
    """One reason why an arm is not switched on.

    Attributes:
        code: a short machine-readable word, such as ``voltage``.
        joint: its name; empty for the whole arm.
        problem: what was found, and what is wanted.
        cure: what to do.
    """

    code: str
    joint: str
    problem: str
    cure: str

    def __str__(self) -> str:
        return f"{self.joint + ': ' if self.joint else ''}{self.problem}. {self.cure}"


class UnfitArm(RobotError):
    """An arm is not switched on.

    Attributes:
        misfits: every reason.
    """

    def __init__(self, misfits: Iterable[Misfit]) -> None:
        self.misfits = tuple(misfits)
        super().__init__("the arm is not switched on: " + " / ".join(map(str, self.misfits)))


@dataclass(frozen=True, slots=True)
class ServoFacts:
    """The registers of a servo that the check looks at.

    Attributes:
        registers: numbers by name, of registers 0 to 39 and 85.
        position: steps.
        volts: of the supply.
        temperature: degrees Celsius.
        alarms: bits of register 65.
        torque: content of register 40.
    """

    registers: dict[str, int]
    position: int
    volts: float
    temperature: int
    alarms: int
    torque: int

    @property
    def firmware(self) -> str:
        """Major and minor number."""
        return f"{self.registers['firmware_major']}.{self.registers['firmware_minor']}"


def read_facts(bus: ServoBus, servo: int, attempts: int = 3) -> ServoFacts | None:
    """Return a servo's facts; None where it is silent.

    Raises:
        ConnectionLost: the line is gone.
    """
    for _ in range(attempts):
        try:
            low = bus.read(servo, 0, 40).data
            high = bus.read(servo, 40, 31).data
        except DeadlineExceeded:
            continue
        registers = {
            name: register.unpack(low[register.address :])
            for name, register in TABLE.items()
            if register.address + register.size <= len(low)
        }
        feedback = decode_feedback(high[16:])
        return ServoFacts(
            registers, feedback.position, feedback.voltage, feedback.temperature, feedback.alarms, high[0]
        )
    return None


def check_arm(
    bus: ServoBus, calibration: Calibration, settings: FitnessSettings | None = None
) -> tuple[dict[str, ServoFacts], list[Misfit]]:
    """Read all servos and compare them with the calibration. Nothing is written, nothing moves.

    Returns:
        The facts by joint, of those servos that answer, and every misfit.

    Raises:
        ConnectionLost: the line is gone.
    """
    settings = settings or FitnessSettings()
    facts, misfits = check_servos(bus, dict(zip(calibration.joints, calibration.ids, strict=True)), settings)
    for name, found in facts.items():
        misfits += _identity(name, found, calibration)
    if len(facts) == len(calibration.joints):
        misfits += _outside(facts, calibration, settings)
    misfits += _travel(calibration, settings)
    return facts, misfits


def check_servos(
    bus: ServoBus, ids: Mapping[str, int], settings: FitnessSettings | None = None
) -> tuple[dict[str, ServoFacts], list[Misfit]]:
    """Read servos and check all that needs no calibration, as `check_arm`.

    Args:
        bus: the bus.
        ids: joint -> id of its servo.
        settings: the limits.

    Raises:
        ConnectionLost: the line is gone.
    """
    settings = settings or FitnessSettings()
    facts: dict[str, ServoFacts] = {}
    misfits: list[Misfit] = []
    for name, servo in ids.items():
        found = read_facts(bus, servo)
        if found is None:
            misfits.append(
                Misfit(
                    "missing",
                    name,
                    f"servo {servo} does not answer, or two servos have this id",
                    "Check its cable, the supply and its id; rlenv-robot ports lists what answers",
                )
            )
        else:
            facts[name] = found
    for name, found in facts.items():
        misfits += _model(name, ids[name], found)
        misfits += _settings(name, found)
        misfits += _state(name, found, settings)
    misfits += _together(facts)
    return facts, misfits


def _model(name: str, servo: int, facts: ServoFacts) -> Iterator[Misfit]:
    if facts.registers["model"] != MODEL:
        yield Misfit(
            "model", name, f"servo {servo} is of model {facts.registers['model']}, wanted is {MODEL} (STS3215)",
            "Put in an STS3215, or use a driver for that servo",
        )  # fmt: skip


def _identity(name: str, facts: ServoFacts, calibration: Calibration) -> Iterator[Misfit]:
    registers, joint = facts.registers, calibration.joints[name]
    for key, cure in (
        ("homing_offset", "Use this arm's own file, or calibrate it: rlenv-robot calibrate"),
        ("min_position", "Use this arm's own file, or write it to the servos: rlenv-robot calibrate --write"),
        ("max_position", "Use this arm's own file, or write it to the servos: rlenv-robot calibrate --write"),
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


def _settings(name: str, facts: ServoFacts) -> Iterator[Misfit]:
    registers = facts.registers
    unlock = "Set it with Feetech's tool, or restore the servo (instruction 06) and calibrate again"
    if registers["angle_resolution"] != 1:
        problem = f"angle_resolution (30) is {registers['angle_resolution']}, wanted is 1: its steps are larger"
        yield Misfit("resolution", name, problem, unlock)
    if registers["phase"] & 1 << 4:
        yield Misfit("multi_turn", name, "phase (18) has bit 4 set: it counts several turns", unlock)
    if registers["phase"] & (1 << 0 | 1 << 7):
        yield Misfit("reversed", name, f"phase (18) is {registers['phase']}: drive or feedback is reversed", unlock)
    if registers["mode"] != 0:
        problem = f"mode (33) is {registers['mode']}, wanted is 0: it does not hold positions"
        yield Misfit("mode", name, problem, unlock)
    if registers["max_torque"] < 200:
        problem = f"max_torque (16) is {registers['max_torque'] / 10:g} %, it can't carry the arm"
        yield Misfit("weak", name, problem, unlock)


def _state(name: str, facts: ServoFacts, settings: FitnessSettings) -> Iterator[Misfit]:
    low, high = facts.registers["min_voltage"] / 10, facts.registers["max_voltage"] / 10
    if not low <= facts.volts <= high:
        variant = "a 7.4 V servo at 12 V burns" if facts.volts > high else "the supply is weak or the wrong one"
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
    alarms = feetech.alarm_names(facts.alarms & ~1)  # of the voltage there is more to say above
    if alarms:
        yield Misfit(
            "alarm", name, f"its alarm is on: {', '.join(alarms)}",
            "Remove the cause, then switch the supply off and on",
        )  # fmt: skip


def _together(facts: dict[str, ServoFacts]) -> Iterator[Misfit]:
    firmwares = {found.firmware for found in facts.values()}
    if len(firmwares) > 1:
        listed = ", ".join(f"{name} {found.firmware}" for name, found in facts.items())
        yield Misfit(
            "firmware", "", f"the servos have different firmware: {listed}",
            "Update all of them to one version with Feetech's tool, then calibrate again",
        )  # fmt: skip


def _outside(facts: dict[str, ServoFacts], calibration: Calibration, settings: FitnessSettings) -> Iterator[Misfit]:
    margin = settings.outside_deg / 360 * STEPS
    for name, found in facts.items():
        joint = calibration.joints[name]
        if not joint.range_min - margin <= found.position <= joint.range_max + margin:
            problem = f"it stands at step {found.position}, outside its range of {joint.range_min} to {joint.range_max}"
            yield Misfit("outside", name, problem, "Move it into its range by hand; if it is there, calibrate again")


def _travel(calibration: Calibration, settings: FitnessSettings) -> Iterator[Misfit]:
    for line in calibration.misfits(settings.travel_tolerance_deg):
        name, _, problem = line.partition(": ")
        yield Misfit(
            "travel", name, problem.partition(". ")[0],
            "Sweep it again to both ends (rlenv-robot calibrate), or set travel_tolerance_deg if that is its range",
        )  # fmt: skip
