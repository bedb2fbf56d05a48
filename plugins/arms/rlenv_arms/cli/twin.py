"""``rlenv-robot robot twin``: serve a virtual arm on a serial port, with servos that answer byte for byte."""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlenv_arms.servo_terminal import ServoTerminal
    from sim.servo_bus.arm import ServoArm

__all__ = ["add", "obey", "run"]

_SHARES = ("lose", "corrupt", "double", "shorten", "noise", "delay")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Serve a virtual arm on a pseudo-terminal until Ctrl-C or SIGTERM. Its servos answer byte for byte, at the "
        "wire's speed, so any program for such an arm can use the terminal. A simulated twin on the network is "
        "`rlenv-robot serve`."
    )
    parser.epilog = """
Lines on standard input plant faults while it runs: unplug, plug, brown-out [ID], torque-on-goal on (firmware
that takes a goal for an order to put torque on), hang ID, wake ID, volts NUMBER, lose SHARE (likewise corrupt, double,
shorten, noise, delay). A springy thing that the open fingers just touch: thing STIFFNESS (N m/rad); no-thing. A
person's hand on joints without torque, as on a leader arm: hand and each joint's angle in degrees; let-go.

Examples:

  rlenv-robot robot twin so101 --bus --link /tmp/arm --calibration arm.json
  rlenv-robot robot twin so101 --bus --lose 0.01 --corrupt 0.01
  rlenv-robot robot twin so101 --bus --link /tmp/leader --calibration leader.json  # then type: hand 0 -30 30 30 -87 0
"""
    parser.add_argument("robot", help="so101, another robot with a table of joints, or such a table (.arm.toml)")
    parser.add_argument("--bus", action="store_true", required=True, help="on a serial bus")
    parser.add_argument("--link", metavar="PATH", help="a symbolic link to create, as a lasting name of the terminal")
    parser.add_argument("--calibration", metavar="FILE", help="write the arm's calibration there")
    parser.add_argument("--seed", type=int, default=0, help="seed of the encoders' zero positions; 0: mid-turn")
    parser.add_argument("--uncalibrated", action="store_true", help="leave offsets and limits as the factory does")
    parser.add_argument(
        "--hand",
        nargs="+",
        type=float,
        metavar="DEG",
        help="angles in which a hand holds joints without torque",
    )
    parser.add_argument("--volts", type=float, help="voltage of the supply (default: each servo's own)")
    parser.add_argument("--echo", action="store_true", help="let the adapter return every request")
    for share in _SHARES:
        parser.add_argument(f"--{share}", type=float, default=0.0, metavar="SHARE", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve the virtual arm until Ctrl-C or SIGTERM.

    Raises:
        ValueError: the robot is unknown, is not a table of joints, or has another number of joints than given angles.
        SpecError: the table can't be used, or has no bodies.
    """
    import numpy as np

    from hal.drivers.calibration import nominal_calibration, save_calibration
    from rlenv_arms.servo_terminal import ServoTerminal
    from rlenv_robot.cli.output import say
    from rlenv_robot.robot_models import load_robot_model
    from rlenv_robot.serving import TerminationSignals
    from sim.servo_bus.arm import ServoArm, arm_servos
    from sim.servo_bus.line import LineFaults, ServoLine

    table = load_robot_model(args.robot).load_arm()
    steps, count = table.family.steps, len(table.joints)
    zeros = (
        [steps // 2] * count if not args.seed else np.random.default_rng(args.seed).integers(0, steps, count).tolist()
    )
    servos = arm_servos(table, zeros, calibrated=not args.uncalibrated, volts=args.volts)
    arm = ServoArm(servos, zeros, arm=table)
    if args.hand is not None:
        if len(args.hand) != count:
            raise ValueError(f"--hand has {len(args.hand)} angles, expected are {count}: {', '.join(table.names)}")
        arm.hand = np.radians(args.hand)
    faults = LineFaults(echo=args.echo, **{share: getattr(args, share) for share in _SHARES})
    line = ServoLine(servos, table.family.codec, faults=faults, seed=args.seed, before_request=arm.advance)
    if args.calibration:
        offsets = [servo.get("homing_offset") for servo in servos]
        save_calibration(args.calibration, nominal_calibration(offsets, table))
    with TerminationSignals() as signals, ServoTerminal(line, args.link, on_time=arm.advance) as terminal:
        ids = ", ".join(map(str, table.ids)) if table.ids != tuple(range(1, count + 1)) else f"1 to {count}"
        say(f"virtual {table.name} at {terminal.path}: servos {ids}, {servos[0].baud} baud")
        heard = True
        lines = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - no line waits where select does not see it
        while not signals.wait(0.2):
            while heard and _has_input():
                words = lines.readline().decode()
                heard = bool(words)
                if words.strip():
                    say(obey(words.split(), arm, terminal))
    return 0


def _has_input() -> bool:
    """Return whether a line waits. In the background a terminal is left alone: reading it would stop the process."""
    if sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():
        return False
    return bool(select.select([sys.stdin], [], [], 0)[0])


def obey(words: list[str], arm: ServoArm, terminal: ServoTerminal) -> str:
    """Execute one line of standard input; return the result, or the reason for a refusal."""
    import numpy as np

    from sim.servo_bus.feetech_servo import FeetechServo

    faults = terminal.line.faults
    try:
        match words:
            case ["unplug"]:
                terminal.unplug()
            case ["plug"]:
                return f"plugged in at {terminal.plug()}"
            case ["brown-out", *servo] if len(servo) < 2:
                arm.power_cycle(*map(int, servo))
            case ["torque-on-goal", ("on" | "off") as state]:
                for virtual in arm.servos:
                    if not isinstance(virtual, FeetechServo):
                        return "torque-on-goal is a fault of Feetech's firmware, and these are other servos"
                    virtual.torque_on_goal = state == "on"
            case ["hang", servo]:
                faults.silent.add(int(servo))
            case ["wake", servo]:
                faults.silent.discard(int(servo))
            case ["volts", volts]:
                arm.set_supply(float(volts))
            case ["hand", *angles] if len(angles) == len(arm.servos):
                arm.hand = np.radians([float(angle) for angle in angles])
                return f"hand at {time.monotonic_ns()} ns"
            case ["let-go"]:
                arm.hand = None
            case ["thing", stiffness]:
                grips = [index for index, joint in enumerate(arm.arm.joints) if joint.grips]
                if not grips:
                    return f"no joint of a {arm.arm.name} grips"
                arm.thing = grips[0], float(arm.joints[grips[0]]), float(stiffness)
            case ["no-thing"] if arm.thing is not None:
                arm.thing = *arm.thing[:2], 0.0
            case [share, value] if share in _SHARES:
                setattr(faults, share, float(value))
            case _:
                return f"unknown: {' '.join(words)}; see rlenv-robot robot twin --help"
    except ValueError as error:
        return f"{' '.join(words)}: {error}"
    return f"done: {' '.join(words)}"
