"""Calibrate an arm through its bus: sweep joints by hand, write offsets and limits to the servos, and resume."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

from hal.drivers.arm_table import ArmJoint, ArmTable
from hal.drivers.bus import ServoBus
from hal.drivers.calibration import Calibration, CalibrationError, calibration_from_sweep
from hal.drivers.fitness import read_facts, read_register
from hal.drivers.servo_family import ServoFamily
from hal.drivers.so101_arm import SO101_ARM

__all__ = ["SweepFile", "check_same_arm", "finish_calibration", "set_zero", "sweep_joint", "write_calibration"]

_BEYOND_STEPS = 35
"""Steps by which a joint may be beyond the ends of its sweep: 3 degrees, for bending and the play of gears."""

_ZERO_POSE_STEPS = 170
"""Steps by which an arm that a person holds in its zero pose may be off: 15 degrees."""

_TRIES = 11
"""Number of attempts to read a register in a sweep before a servo counts as silent."""


def sweep_joint(
    bus: ServoBus, joint: ArmJoint, servo: int, done: Callable[[int, int], bool], pause: Callable[[float], None]
) -> tuple[int, int]:
    """Watch a joint while a person moves it to both ends of its travel, and return the encoder's readings there.

    Args:
        bus: the bus.
        joint: the joint's row in the arm's table.
        servo: id of the joint's servo, with its torque off.
        done: called with the lowest and the highest reading so far, in steps; returns whether the sweep is over.
        pause: waits between two reads, seconds.

    Returns:
        The encoder's readings in steps at the joint's lower and upper end, without homing offset and unwrapped, so that
        they may be negative or exceed the steps of a turn. If the table describes the upper end, the joint is assumed
        to be there at the end; otherwise its direction is the table's.

    Raises:
        DeadlineExceeded: the servo fell silent.
    """
    family = joint.model.family
    position = _encoder(bus, servo, family)
    lowest = highest = position
    while not done(lowest, highest):
        pause(0.01)
        encoder = _encoder(bus, servo, family)
        position += (encoder - position + family.steps // 2) % family.steps - family.steps // 2
        lowest, highest = min(lowest, position), max(highest, position)
    is_reversed = position - lowest < highest - position if joint.upper else joint.reversed
    return (highest, lowest) if is_reversed else (lowest, highest)


def set_zero(
    bus: ServoBus, joint: ArmJoint, servo: int, at_zero: Callable[[], None], turned: Callable[[], None]
) -> tuple[int, int]:
    """Return the ends of a joint without stops, from its zero and the direction in which a person turns it.

    Args:
        bus: the bus.
        joint: the joint's row in the arm's table.
        servo: id of the joint's servo, with its torque off.
        at_zero: called first; returns when the joint is at zero.
        turned: returns when a person has turned the joint towards its upper end, by more than 10 degrees and less than
            half a turn; called only if the table describes the upper end.

    Returns:
        The ends, as `sweep_joint` returns them.

    Raises:
        CalibrationError: the joint was not turned far enough.
        DeadlineExceeded: the servo fell silent.
    """
    family = joint.model.family
    at_zero()
    zero = _encoder(bus, servo, family)
    is_reversed = joint.reversed
    if joint.upper:
        turned()
        way = (_encoder(bus, servo, family) - zero + family.steps // 2) % family.steps - family.steps // 2
        if abs(way) * joint.step_rad < math.radians(10):
            raise CalibrationError(f"{joint.name}: it was turned less than 10 degrees from zero; turn it farther")
        is_reversed = way < 0
    sign = -1 if is_reversed else 1
    first, last = (zero + sign * round(angle / joint.step_rad) for angle in (joint.low, joint.high))
    return first, last


def _encoder(bus: ServoBus, servo: int, family: ServoFamily) -> int:
    """Return the encoder's reading without homing offset, within a turn."""
    position, offset = _read(bus, servo, "present_position", family), _read(bus, servo, "homing_offset", family)
    return family.encoder(position, offset) % family.steps


def _read(bus: ServoBus, servo: int, name: str, family: ServoFamily) -> int:
    """Read a register; a lost packet is no reason to give a sweep up."""
    return read_register(bus, servo, family.table[name], _TRIES)


def write_calibration(bus: ServoBus, calibration: Calibration) -> int:
    """Write offsets and limits to the servos where they differ. The torque must be off.

    Returns:
        The number of registers written.

    Raises:
        CalibrationError: a servo has its torque on, so that the change would move it.
        DeadlineExceeded: a servo does not answer.
        ServoRefused: a servo refuses a value.
    """
    family, written = calibration.arm.family, 0
    for name, joint in calibration.joints.items():
        if _read(bus, joint.id, "torque_enable", family):
            raise CalibrationError(f"{name}: its torque is on, and a change would move it; release the arm first")
    for joint in calibration.joints.values():
        contents = {
            **family.at_calibration,
            "homing_offset": joint.homing_offset, "min_position": joint.range_min, "max_position": joint.range_max,
        }  # fmt: skip
        changes = {key: value for key, value in contents.items() if _read(bus, joint.id, key, family) != value}
        if changes:
            family.write_kept(bus, joint.id, changes)
        written += len(changes)
    return written


def finish_calibration(
    bus: ServoBus,
    sweeps: Mapping[str, tuple[int, int]],
    ids: Mapping[str, int],
    tolerance_deg: float = 3.0,
    arm: ArmTable = SO101_ARM,
) -> Calibration:
    """Return the calibration from sweeps of all joints, with the servos' models and firmware.

    Args:
        bus: the bus.
        sweeps: joint -> readings at its lower and its upper end, as `sweep_joint` returns them.
        ids: joint -> id of its servo.
        tolerance_deg: largest difference between a joint's travel and the model's, degrees.
        arm: the arm's table of joints.

    Raises:
        CalibrationError: a joint's travel differs by more, or a servo is silent.
    """
    joints = {name: calibration_from_sweep(name, ids[name], *sweeps[name], tolerance_deg, arm) for name in arm.names}
    servos: dict[str, dict[str, object]] = {}
    for name in arm.names:
        facts = read_facts(bus, ids[name], arm.family)
        if facts is None:
            raise CalibrationError(f"{name}: servo {ids[name]} does not answer; check its cable")
        servos[name] = {"model": facts.registers["model"], "firmware": facts.firmware}
    return Calibration(joints, servos, arm)


def check_same_arm(
    bus: ServoBus,
    sweeps: Mapping[str, tuple[int, int]],
    ids: Mapping[str, int],
    in_zero_pose: bool,
    arm: ArmTable = SO101_ARM,
) -> None:
    """Check that an interrupted calibration's sweeps belong to the arm at the bus: its encoders must read within them.

    Servos have no serial numbers. The encoders of two arms agree in a joint by chance with a probability of about the
    joint's travel divided by a turn, and of 1/12 in the zero pose.

    Args:
        bus: the bus.
        sweeps: joint -> readings at its lower and its upper end, as `sweep_joint` returns them.
        ids: joint -> id of its servo.
        in_zero_pose: whether a person holds the arm in its zero pose.
        arm: the arm's table of joints.

    Raises:
        CalibrationError: a joint is outside its sweep, or not in the zero pose.
        DeadlineExceeded: a servo is silent.
    """
    family = arm.family
    for name, (first, last) in sweeps.items():
        encoder, row = _encoder(bus, ids[name], family), arm.joint(name)
        middle = (first + last) / 2
        expected, allowed = middle, abs(last - first) / 2 + _BEYOND_STEPS
        if in_zero_pose:
            sign = -1 if first > last else 1
            expected, allowed = middle - sign * (row.low + row.high) / 2 / row.step_rad, _ZERO_POSE_STEPS
        off = (encoder - expected + family.steps / 2) % family.steps - family.steps / 2
        if abs(off) > allowed:
            where = "its zero pose" if in_zero_pose else "the travel that was swept"
            raise CalibrationError(
                f"{name}: stands {abs(off) * math.degrees(row.step_rad):.0f} degrees from the middle of {where} in the "
                f"interrupted calibration, allowed are {allowed * math.degrees(row.step_rad):.0f}; "
                f"{'hold the arm in its zero pose, or, if ' if in_zero_pose else 'if '}"
                "this is another arm or another servo, begin anew with --restart"
            )


class SweepFile:
    """The file with the sweeps of an unfinished calibration, from which an interrupted calibration resumes.

    Args:
        path: path of the calibration; the sweeps are stored beside it until it is finished.
        port: name of the arm's adapter; sweeps from another adapter are ignored.
        arm: the arm's table of joints.
    """

    def __init__(self, path: str | Path, port: str, arm: ArmTable = SO101_ARM) -> None:
        self._path, self._port, self._arm = Path(f"{Path(path).expanduser()}.sweeps"), port, arm

    def load(self) -> dict[str, tuple[int, int]]:
        """Return the finished sweeps; empty if the file is missing, incomplete or of another port."""
        try:
            plain = json.loads(self._path.read_text(encoding="utf-8"))
            if plain["port"] != self._port:
                return {}
            return {
                name: (int(low), int(high)) for name, (low, high) in plain["sweeps"].items() if name in self._arm.names
            }
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            return {}

    def save(self, sweeps: Mapping[str, tuple[int, int]]) -> None:
        """Write the sweeps to the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        plain = {"port": self._port, "sweeps": {name: list(ends) for name, ends in sweeps.items()}}
        self._path.write_text(json.dumps(plain), encoding="utf-8")

    def remove(self) -> None:
        """Delete the file after the calibration is finished."""
        self._path.unlink(missing_ok=True)
