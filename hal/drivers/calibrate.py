"""Calibrate an arm at its bus: sweep joints by hand, write offsets and limits to the servos, and resume."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from hal.drivers.bus import ServoBus
from hal.drivers.calibration import Calibration, CalibrationError, calibration_from_sweep
from hal.drivers.fitness import read_facts
from hal.drivers.sts3215 import STEPS, TABLE
from hal.errors import DeadlineExceeded
from hal.robots.so101 import JOINTS

__all__ = ["SweepFile", "finish_calibration", "sweep_joint", "write_calibration"]

_LOST = 10
"""Number of reads in a row that may fail in a sweep."""


def sweep_joint(
    bus: ServoBus, servo: int, done: Callable[[int, int], bool], pause: Callable[[float], None]
) -> tuple[int, int]:
    """Watch a joint while somebody moves it to both ends of its travel.

    Args:
        bus: the bus.
        servo: id; its torque is off.
        done: called with the lowest and the highest reading so far; returns whether the sweep is over.
        pause: waits between two reads, seconds.

    Returns:
        The lowest and the highest reading of the encoder, without homing offset and counted on over a wrap, so that
        the highest may exceed 4095 and the lowest may be negative.

    Raises:
        DeadlineExceeded: the servo fell silent.
    """
    offset = _read(bus, servo, "homing_offset")
    position = (_read(bus, servo, "present_position") + offset) % STEPS
    lowest = highest = position
    while not done(lowest, highest):
        pause(0.01)
        encoder = (_read(bus, servo, "present_position") + offset) % STEPS
        position += (encoder - position + STEPS // 2) % STEPS - STEPS // 2
        lowest, highest = min(lowest, position), max(highest, position)
    return lowest, highest


def _read(bus: ServoBus, servo: int, name: str) -> int:
    """Read a register; a lost packet is no reason to give a sweep up."""
    register = TABLE[name]
    for _ in range(_LOST):
        try:
            return register.unpack(bus.read(servo, register.address, register.size).data)
        except DeadlineExceeded:
            continue
    return register.unpack(bus.read(servo, register.address, register.size).data)


def write_calibration(bus: ServoBus, calibration: Calibration) -> int:
    """Write offsets and limits to the servos, each only where it differs. The torque must be off.

    Returns:
        How many registers were written.

    Raises:
        CalibrationError: a servo has its torque on; the change would move it.
        DeadlineExceeded, ServoRefused: a servo does not take it.
    """
    written = 0
    for name, joint in calibration.joints.items():
        if _read(bus, joint.id, "torque_enable"):
            raise CalibrationError(f"{name}: its torque is on, and a change would move it; release the arm first")
    for joint in calibration.joints.values():
        wanted = {
            "homing_offset": joint.homing_offset, "min_position": joint.range_min, "max_position": joint.range_max,
        }  # fmt: skip
        for key, value in wanted.items():
            register = TABLE[key]
            if _read(bus, joint.id, key) == value:
                continue
            bus.write(joint.id, TABLE["lock"].address, b"\x00")
            bus.write(joint.id, register.address, register.pack(value))
            bus.write(joint.id, TABLE["lock"].address, b"\x01")
            written += 1
    return written


def finish_calibration(
    bus: ServoBus, sweeps: Mapping[str, tuple[int, int]], ids: Mapping[str, int], tolerance_deg: float = 3.0
) -> Calibration:
    """Return the calibration that sweeps of all joints give, with what the servos are.

    Args:
        bus: the bus.
        sweeps: joint -> lowest and highest reading, as `sweep_joint` returns them.
        ids: joint -> id of its servo.
        tolerance_deg: most difference of a travel from the model's.

    Raises:
        CalibrationError: a travel differs by more, or a servo is silent.
    """
    joints = {name: calibration_from_sweep(name, ids[name], *sweeps[name], tolerance_deg) for name in JOINTS}
    servos: dict[str, dict[str, object]] = {}
    for name in JOINTS:
        facts = read_facts(bus, ids[name])
        if facts is None:
            raise CalibrationError(f"{name}: servo {ids[name]} does not answer; check its cable")
        servos[name] = {"model": facts.registers["model"], "firmware": facts.firmware}
    return Calibration(joints, servos)


class SweepFile:
    """The sweeps of a calibration under way, so that an interrupted one goes on where it was.

    Args:
        path: of the calibration; the sweeps lie beside it until it is finished.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(f"{Path(path).expanduser()}.sweeps")

    def load(self) -> dict[str, tuple[int, int]]:
        """Return the sweeps that are done; none where there is no file, or one that is torn."""
        try:
            plain = json.loads(self._path.read_text(encoding="utf-8"))
            return {name: (int(low), int(high)) for name, (low, high) in plain.items() if name in JOINTS}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def save(self, sweeps: Mapping[str, tuple[int, int]]) -> None:
        """Keep the sweeps."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps({name: list(ends) for name, ends in sweeps.items()}), encoding="utf-8")

    def remove(self) -> None:
        """Forget them: the calibration is finished."""
        self._path.unlink(missing_ok=True)
