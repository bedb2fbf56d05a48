"""Calibrate an arm at its bus: sweep joints by hand, write offsets and limits to the servos, and resume."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

from hal.drivers.bus import ServoBus
from hal.drivers.calibration import STEP_RAD, Calibration, CalibrationError, calibration_from_sweep
from hal.drivers.fitness import read_facts
from hal.drivers.sts3215 import STEPS, TABLE
from hal.errors import DeadlineExceeded
from hal.robots.so101 import HIGH, JOINTS, LOW

__all__ = ["SweepFile", "check_same_arm", "finish_calibration", "sweep_joint", "write_calibration"]

_BEYOND_STEPS = 35
"""A joint may stand beyond the ends of its sweep by 3 degrees: bends, and the play of its gears."""

_ZERO_POSE_STEPS = 170
"""An arm that somebody holds in its zero pose may be off by 15 degrees."""

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


def check_same_arm(
    bus: ServoBus, sweeps: Mapping[str, tuple[int, int]], ids: Mapping[str, int], in_zero_pose: bool
) -> None:
    """Check that sweeps of an interrupted calibration are of the arm at the bus: its encoders read within them.

    Servos have no serial numbers. Encoders of two arms agree in a joint by chance about as often as its travel is a
    part of a turn, and in the zero pose once in twelve times.

    Args:
        bus: the bus.
        sweeps: joint -> lowest and highest reading, as `sweep_joint` returns them.
        ids: joint -> id of its servo.
        in_zero_pose: whether somebody holds the arm in its zero pose.

    Raises:
        CalibrationError: a joint stands outside its sweep, or elsewhere than in its zero pose.
        DeadlineExceeded: a servo is silent.
    """
    for name, (lowest, highest) in sweeps.items():
        encoder = _read(bus, ids[name], "present_position") + _read(bus, ids[name], "homing_offset")
        index = JOINTS.index(name)
        middle = (lowest + highest) / 2
        expected, allowed = middle, (highest - lowest) / 2 + _BEYOND_STEPS
        if in_zero_pose:
            expected, allowed = middle - (LOW[index] + HIGH[index]) / 2 / STEP_RAD, _ZERO_POSE_STEPS
        off = (encoder - expected + STEPS / 2) % STEPS - STEPS / 2
        if abs(off) > allowed:
            where = "its zero pose" if in_zero_pose else "the travel that was swept"
            raise CalibrationError(
                f"{name}: stands {abs(off) * math.degrees(STEP_RAD):.0f} degrees from the middle of {where} in the "
                f"interrupted calibration, allowed are {allowed * math.degrees(STEP_RAD):.0f}; "
                f"{'hold the arm in its zero pose, or, if ' if in_zero_pose else 'if '}"
                "this is another arm or another servo, begin anew with --restart"
            )


class SweepFile:
    """The sweeps of a calibration under way, so that an interrupted one goes on where it was.

    Args:
        path: of the calibration; the sweeps lie beside it until it is finished.
        port: name of the arm's adapter; sweeps at another one are not taken up.
    """

    def __init__(self, path: str | Path, port: str) -> None:
        self._path, self._port = Path(f"{Path(path).expanduser()}.sweeps"), port

    def load(self) -> dict[str, tuple[int, int]]:
        """Return the sweeps that are done; none where there is no file, one that is torn, or one of another port."""
        try:
            plain = json.loads(self._path.read_text(encoding="utf-8"))
            if plain["port"] != self._port:
                return {}
            return {name: (int(low), int(high)) for name, (low, high) in plain["sweeps"].items() if name in JOINTS}
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            return {}

    def save(self, sweeps: Mapping[str, tuple[int, int]]) -> None:
        """Keep the sweeps."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        plain = {"port": self._port, "sweeps": {name: list(ends) for name, ends in sweeps.items()}}
        self._path.write_text(json.dumps(plain), encoding="utf-8")

    def remove(self) -> None:
        """Forget them: the calibration is finished."""
        self._path.unlink(missing_ok=True)
