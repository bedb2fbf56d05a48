"""The driver at speed on servos that were written from the maker's tables alone (`tests/hal/foreign_sts3215.py`).

    python benchmarks/foreign_servos.py [--seconds 600] [--hz 200] [--time virtual real]

The arm sways all joints for so long. ``virtual`` has driver and servos in one process and a time of their own, with the
wire's time and turn-arounds: what fails there is the driver's or the emulator's fault. ``real`` has the servos behind a
pseudo-terminal in a process of their own, so the machine takes part.

Of each: periods, stops, faults, answers that did not come in time, errors, periods that began late, the farthest that a
joint was from its goal, and goals that were not read back as they were written.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hal.drivers.bus_arm import BusArm
from hal.drivers.calibration import nominal_calibration
from hal.errors import RobotError
from hal.robots.so101 import HIGH, LOW
from tests.hal.foreign_bus import ForeignPort, ForeignProcess

STEP_RAD = 2 * np.pi / 4096


def prepare(servos: Any) -> None:
    """Write the calibration into the servos, and put ends to the joints' travel."""
    for joint in nominal_calibration().joints.values():
        servos.keep(joint.id, 9, joint.range_min, 2)
        servos.keep(joint.id, 11, joint.range_max, 2)
        servos.set(joint.id, wall=(joint.range_min - 3, joint.range_max + 3))


def drive(arm: BusArm, seconds: float, hz: float) -> dict[str, Any]:
    """Sway an arm; return what happened."""
    seen: Counter[str] = Counter()
    low, high = np.array(LOW), np.array(HIGH)
    middle, swing = (low + high) / 2, 0.3 * (high - low) / 2
    begin = arm.reset({}).applied["joint_target"]
    farthest = 0.0
    for period in range(round(seconds * hz)):
        at_s = period / hz
        share = min(1.0, at_s / 3.0)
        wave = swing * np.sin(2 * np.pi * at_s / 3.0)
        target = np.clip(begin + (middle + wave - begin) * share, low, high).astype(np.float32)
        try:
            state = arm.step({"joint_target": target})
        except RobotError as error:
            seen[f"stop: {str(error)[:80]}"] += 1
            with contextlib.suppress(RobotError):
                arm.reset({"clear_stop": "a benchmark"})
            continue
        seen.update(f"fault: {fault.code}" for fault in state.faults)
        seen["goal not read back"] += bool(np.abs(state.sensors["joint_goal"] - target).max() > 0.51 * STEP_RAD)
        if at_s > 4.0:
            farthest = max(farthest, float(np.abs(state.sensors["joint_position"] - target).max()))
    assert arm.bus is not None
    return {
        "periods": round(seconds * hz), **seen, "late periods": arm._rate.overruns, "farthest rad": round(farthest, 3),
        "bus": arm.bus.counts.to_dict(), "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--hz", type=float, default=200.0)
    parser.add_argument("--time", nargs="+", default=["virtual", "real"], choices=("virtual", "real"))
    options = parser.parse_args()
    calibration = nominal_calibration()
    for kind in options.time:
        if kind == "virtual":
            port = ForeignPort(wire_time=True)
            prepare(port)
            arm = BusArm(port, calibration, rate_hz=options.hz)
            print(kind, drive(arm, options.seconds, options.hz), flush=True)
            continue
        with ForeignProcess(wire_time=True) as servos:
            prepare(servos)
            arm = BusArm(servos.path, calibration, rate_hz=options.hz)
            begun_s = time.monotonic()
            print(kind, drive(arm, options.seconds, options.hz), f"{time.monotonic() - begun_s:.1f} s", flush=True)
            arm.hold_on_close()
            arm.close()


if __name__ == "__main__":
    main()
