"""``rlenv-robot robot calibrate``: calibrate an arm, and read, write, convert and verify calibrations."""

from __future__ import annotations

import argparse
import select
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from rlenv_robot.cli.progress_file import ProgressFile, add_progress

if TYPE_CHECKING:
    from hal.drivers.arm_table import ArmTable
    from hal.drivers.bus import ServoBus

__all__ = ["add", "run"]

Sweep = tuple[str, tuple[int, int]]
"""A joint, and its encoder's readings at its lower and upper end."""

_LET_DOWN_S = 10.0
"""Longest time for damping to lower the arm, in seconds."""

_SHOWN_S = 0.2
"""Time between two reports of a joint's travel, in seconds."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Calibrate an arm of servos: the torque goes off, you move one joint after the other to both of its ends, and "
        "its travel is compared with that of the table. With --motor the arm does so itself, at a low torque. "
        "Offsets and limits are written to the servos, and to the file. An interrupted calibration goes on at the "
        "joint where it was."
    )
    parser.epilog = """
Examples:

  rlenv-robot robot calibrate arm.json --port /dev/serial/by-id/usb-1a86_USB_Single_Serial-if00
  rlenv-robot robot calibrate arm.json --motor --port /dev/serial/by-id/usb-1a86_USB_Single_Serial-if00
  rlenv-robot robot calibrate arm.json --from-lerobot ~/.cache/huggingface/lerobot/calibration/robots/so/me.json
  rlenv-robot robot calibrate arm.json --verify --port /dev/ttyACM0
  rlenv-robot robot calibrate gimbal.json --arm gimbal.arm.toml --port /dev/ttyACM0
"""
    parser.add_argument("file", help="the calibration, in our format; --report and the like read LeRobot's too")
    parser.add_argument("--arm", default="so101", metavar="ROBOT",
                        help="a robot with a table of joints, or such a table (.arm.toml; default: so101)")  # fmt: skip
    parser.add_argument("--port", help="of the arm's adapter")
    parser.add_argument("--baud", type=int, help="bits a second (default: the table's; the SO-101's is 1000000)")
    parser.add_argument("--tolerance-deg", type=float, default=3.0, help="of a travel from the model's (default: 3)")
    parser.add_argument("--ids", type=int, nargs="+", metavar="ID",
                        help="the servos in the order of the joints (default: the table's)")  # fmt: skip
    parser.add_argument("--motor", action="store_true", help="let the arm sweep its joints itself, at a low torque")
    parser.add_argument("--restart", action="store_true", help="sweep all joints anew")
    add_progress(parser)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--report", action="store_true", help="print what LeRobot's units mean on this arm")
    action.add_argument("--from-lerobot", metavar="FILE", help="write FILE of LeRobot's as our file")
    action.add_argument("--to-lerobot", metavar="FILE", help="write our file as FILE of LeRobot's")
    action.add_argument("--write", action="store_true", help="write the file's offsets and limits to the servos")
    action.add_argument("--verify", action="store_true", help="compare the arm with the file, as before torque")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry out the requested action, by default the guided calibration.

    Raises:
        ValueError: the robot is unknown, or the number of ids differs from that of its joints.
        SpecError: the table can't be used.
        CalibrationError: the calibration can't be used.
    """
    from hal.drivers.calibration import load_calibration, portability_report, save_calibration
    from rlenv_robot.robot_models import load_robot_model

    arm = load_robot_model(args.arm).load_arm()
    if args.from_lerobot:
        calibration = load_calibration(args.from_lerobot, arm)
        save_calibration(args.file, calibration)
    elif args.to_lerobot:
        calibration = load_calibration(args.file, arm)
        save_calibration(args.to_lerobot, calibration, lerobot=True)
    elif args.report:
        calibration = load_calibration(args.file, arm)
    else:
        return _at_the_arm(args, arm)
    for line in portability_report(calibration):
        print(line)
    misfits = calibration.misfits(args.tolerance_deg)
    for line in misfits:
        print(f"! {line}")
    return 1 if misfits and args.report else 0


def _at_the_arm(args: argparse.Namespace, arm: ArmTable) -> int:
    from hal.drivers.bus import BusSettings, ServoBus
    from hal.drivers.simulated_port import open_port

    if not args.port:
        raise ValueError("give --port, the arm's adapter; rlenv-robot robot ports lists the ports")
    port = open_port(args.port, arm.baud if args.baud is None else args.baud)
    bus = ServoBus(port, arm.family.codec, BusSettings(latency_s=0.1))
    try:
        if args.write:
            return _write(args, bus, arm)
        return _verify(args, bus, arm) if args.verify else _sweep(args, bus, arm)
    finally:
        bus.close()


def _write(args: argparse.Namespace, bus: ServoBus, arm: ArmTable) -> int:
    from hal.drivers.calibration import load_calibration
    from rlenv_arms.calibrate import write_calibration

    print(f"{write_calibration(bus, load_calibration(args.file, arm))} registers written")
    return 0


def _verify(args: argparse.Namespace, bus: ServoBus, arm: ArmTable) -> int:
    from hal.drivers.calibration import load_calibration
    from hal.drivers.fitness import FitnessSettings, check_arm

    settings = FitnessSettings(travel_tolerance_deg=args.tolerance_deg)
    facts, misfits = check_arm(bus, load_calibration(args.file, arm), settings)
    for name, reading in facts.items():
        measured = f"{reading.volts:g} V, {reading.temperature} degrees, step {reading.position}"
        print(f"{name}: firmware {reading.firmware}, {measured}")
    for misfit in misfits:
        print(f"! {misfit}")
    return 1 if misfits else 0


def _sweep(args: argparse.Namespace, bus: ServoBus, arm: ArmTable) -> int:
    from hal.drivers.calibration import portability_report, save_calibration
    from rlenv_arms.calibrate import SweepFile, check_same_arm, finish_calibration, write_calibration

    servos = arm.ids if args.ids is None else args.ids
    if len(servos) != len(arm.joints):
        raise ValueError(f"--ids has {len(servos)} numbers, expected {len(arm.joints)}: {', '.join(arm.names)}")
    ids = dict(zip(arm.names, servos, strict=True))
    file = SweepFile(args.file, args.port, arm)
    sweeps = {} if args.restart else file.load()
    if sweeps:
        print(f"going on after {', '.join(sweeps)}; --restart begins anew")
    missing = [name for name in arm.names if name not in sweeps]
    if not missing:
        check_same_arm(bus, sweeps, ids, in_zero_pose=False, arm=arm)
    else:
        by = _sweep_by_motor if args.motor else _sweep_by_hand
        with closing(ProgressFile(args.progress)) as progress:
            guide = _Guide(progress, len(ids), len(sweeps))
            for name, ends in by(bus, ids, dict(sweeps), args.tolerance_deg, arm, guide):
                sweeps[name] = ends
                file.save(sweeps)
                guide.done += 1
    calibration = finish_calibration(bus, sweeps, ids, args.tolerance_deg, arm)
    written = write_calibration(bus, calibration)
    save_calibration(args.file, calibration)
    file.remove()
    print(f"{args.file} written, and {written} registers of the servos")
    for line in portability_report(calibration):
        print(line)
    return 0


class _Guide:
    """Tell the person at the arm what to do, at the terminal and in the file of the progress, and wait for Enter.

    Args:
        progress: takes each message; a program that shows it sends Enter as a line of standard input.
        joints: number of joints.
        done: number of joints that are swept.
    """

    def __init__(self, progress: ProgressFile, joints: int, done: int) -> None:
        self._progress, self._joints, self._asked, self._shown_s = progress, joints, "", 0.0
        self.done = done

    def say(self, words: str) -> None:
        """Show a message."""
        print(words, flush=True)
        self._add(words)

    def begin(self, words: str) -> None:
        """Show a request that a person answers with Enter."""
        print(words, flush=True)
        self._asked = words
        self._add(words, ask=words)

    def wait(self, words: str) -> None:
        """Show a request, and wait for Enter."""
        self.begin(words)
        sys.stdin.readline()
        self._add(words)

    def is_over(self, lowest: int, highest: int) -> bool:
        """Show the travel so far, in steps; return whether somebody pressed Enter."""
        degrees = (highest - lowest) * 360 / 4096
        if sys.stdout.isatty():
            print(f"\r  {degrees:6.1f} degrees", end="", flush=True)
        if (now_s := time.monotonic()) > self._shown_s + _SHOWN_S:
            self._shown_s = now_s
            self._add(f"{degrees:.0f} degrees", self._asked, {"degrees": degrees})
        if not select.select([sys.stdin], [], [], 0)[0]:
            return False
        sys.stdin.readline()
        return True

    def _add(self, remark: str, ask: str = "", figures: Mapping[str, float] | None = None) -> None:
        self._progress.add("calibrate", share=self.done / self._joints, remark=remark, ask=ask, figures=figures)


def _sweep_by_hand(
    bus: ServoBus,
    ids: dict[str, int],
    done: Mapping[str, tuple[int, int]],
    tolerance_deg: float,
    arm: ArmTable,
    guide: _Guide,
) -> Iterator[Sweep]:
    from hal import RobotError
    from hal.drivers.calibration import calibration_from_sweep
    from hal.drivers.torque import let_down
    from rlenv_arms.calibrate import check_same_arm, set_zero, sweep_joint

    guide.say("the arm is let down, and its torque goes off: hold it")
    if not let_down(bus, tuple(ids.values()), arm.family, bus.port.sleep, _LET_DOWN_S):
        raise RobotError("the torque is not off, since a joint still moves or a servo is silent; try again")
    check_same_arm(bus, done, ids, in_zero_pose=False, arm=arm)
    for name in [name for name in ids if name not in done]:
        joint = arm.joint(name)
        if joint.stops:
            last = f", at last to the one where {joint.upper}," if joint.upper else ""
            guide.begin(f"{name}: move it gently to both of its ends{last} then press Enter")
            ends = sweep_joint(bus, joint, ids[name], guide.is_over, bus.port.sleep)
        else:
            at_zero = partial(guide.wait, f"{name}: put it where {joint.zero}, then press Enter")
            turned = partial(guide.wait, f"{name}: turn it until {joint.upper}, then press Enter")
            ends = set_zero(bus, joint, ids[name], at_zero, turned)
        calibration_from_sweep(name, ids[name], *ends, tolerance_deg, arm)  # raises where an end was missed
        yield name, ends


def _sweep_by_motor(
    bus: ServoBus,
    ids: dict[str, int],
    done: Mapping[str, tuple[int, int]],
    tolerance_deg: float,
    arm: ArmTable,
    guide: _Guide,
) -> Iterator[Sweep]:
    from hal.drivers.calibration import calibration_from_sweep
    from rlenv_arms.calibrate import check_same_arm
    from rlenv_arms.motor_sweep import MotorSweep, sweep_plan

    plan = sweep_plan(arm)

    guide.wait(
        f"Clear 0.5 m around the arm. Hold it in its zero pose, within 10 degrees: {plan.zero_pose}. Press Enter: "
        "the torque goes on at a low limit, the arm holds itself, and moves one joint after the other to both ends. "
        "Ctrl-C lets it down."
    )
    check_same_arm(bus, done, ids, in_zero_pose=True, arm=arm)
    sweep = MotorSweep(bus, ids, bus.port.sleep, arm=arm)
    folded = False
    try:
        sweep.begin()
        for name in plan.order:
            if name in done:
                continue
            guide.say(f"{name} ...")
            ends = sweep.sweep(name)
            calibration_from_sweep(name, ids[name], *ends, tolerance_deg, arm)  # raises where an end was missed
            yield name, ends
        folded = sweep.fold()
    finally:
        if not folded:
            sweep.end()
    if sweep.eeprom_writes:
        print(f"{sweep.eeprom_writes} registers of the servos were written to count from the zero pose")
