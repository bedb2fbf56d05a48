"""``rlenv-robot sim2real excite``: record a motion from which an arm's servos can be identified."""

from __future__ import annotations

import argparse
import json
import math
import sys
from contextlib import closing
from typing import TYPE_CHECKING

from rlenv_robot.cli.output import print_table, say

if TYPE_CHECKING:
    from rlenv_sim2real.excite import Excitation

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Design a motion of all joints at once, made of sines, within the robot's limits, clear of the robot itself "
        "and of the table; show its bounds; and with --robot carry it out and record it, for `sim2real identify`."
    )
    parser.epilog = """
The motion is checked for the goals, by the simulation model of the robot. It ignores everything else around the
arm. Keep a hand on the stop.

Examples:

  rlenv-robot sim2real excite so101
  rlenv-robot sim2real excite so101 --robot twin --record runs
  rlenv-robot sim2real excite so101 --robot tcp://10.0.0.7:5555 --keys keys --record runs --speed 0.3
"""
    parser.add_argument("name", help="the robot model, such as so101")
    parser.add_argument("--robot", help="sim, twin (in real time), a server's address, or module:factory of a driver; "
                                        "by default only show the motion")  # fmt: skip
    parser.add_argument("--keys", metavar="FOLDER", help="this machine's keys, for a robot on another machine")
    parser.add_argument("--record", default="runs", help="a folder; the run is recorded into a new one (default: runs)")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the motion (default: 60)")
    parser.add_argument("--speed", type=float, default=0.5, help="share of the robot's limit on speed (default: 0.5)")
    parser.add_argument("--reach", type=float, default=0.6, help="share of the joints' ranges (default: 0.6)")
    parser.add_argument(
        "--clearance", type=float, default=0.02, help="distance that parts keep, metres (default: 0.02)"
    )
    parser.add_argument("--table", type=float, default=0.0, help="height of the table, metres (default: 0)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sines' phases (default: 0)")
    parser.add_argument("--yes", action="store_true", help="a real robot may move without a confirmation")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show the motion, and record it if a robot is given."""
    from rlenv_robot.robot_models import load_robot_model
    from rlenv_sim2real.excite import ExcitationSettings, excitation

    settings = ExcitationSettings(
        seconds=args.seconds, speed=args.speed, reach=args.reach, clearance_m=args.clearance, table_m=args.table
    )
    motion = excitation(load_robot_model(args.name).make_sim_model(looks=False), settings, args.seed)
    if not args.json:
        _show(motion, args.seconds, args.clearance)
    recorded: dict[str, object] = {}
    if args.robot is not None:
        if args.robot not in ("sim", "twin"):
            _confirm(args)
        recorded = _record(args, motion)
    if args.json:
        data = {
            "robot": args.name, "seconds": args.seconds, "frames": len(motion.goals), "joints": list(motion.names),
            "low_rad": motion.goals.min(axis=0).tolist(), "high_rad": motion.goals.max(axis=0).tolist(),
            "peak_speed_rad_s": motion.peak_speed.tolist(), "clearance_m": motion.clearance_m + args.clearance,
        }  # fmt: skip
        print(json.dumps(data | recorded))
    elif recorded:
        print(f"recorded {recorded['steps']} steps in {recorded['run']}; it ended because: {recorded['end']}")
    return 0 if not recorded or recorded["steps"] == len(motion.goals) - 1 else 1


def _show(motion: Excitation, seconds: float, clearance_m: float) -> None:
    rows = [
        [name, f"{math.degrees(low):.0f}", f"{math.degrees(high):.0f}", f"{speed:.2f}"]
        for name, low, high, speed in zip(
            motion.names, motion.goals.min(axis=0), motion.goals.max(axis=0), motion.peak_speed, strict=True
        )
    ]
    print_table(f"{seconds:g} s of motion", ["joint", "from [deg]", "to [deg]", "peak speed [rad/s]"], rows)
    say(f"all parts keep {1000 * (motion.clearance_m + clearance_m):.0f} mm from each other and from the table")


def _confirm(args: argparse.Namespace) -> None:
    """Ask a person whether a real robot may move."""
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise ValueError(f"{args.robot} will move; add --yes if there is no terminal to ask at")
    answer = input(f"{args.name} at {args.robot} will move through this range. Stand clear. Begin? [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        raise ValueError("nothing moved: not confirmed")


def _record(args: argparse.Namespace, motion: Excitation) -> dict[str, object]:
    """Carry the motion out through an environment that records it; return the run, its steps and its end."""
    from rlenv_robot.registry import make
    from rlenv_robot.tasks.free import Free

    info = {"source": "excitation", "seed": args.seed, "robot": args.name}
    with closing(
        make(Free(args.name, steps=len(motion.goals)), args.robot, record=args.record, info=info, keys=args.keys)
    ) as env:
        table = env.reset({})
        steps, end = 0, "the motion is complete"
        for number in range(1, len(motion.goals)):
            action = {name: values[number] for name, values in motion.commands.items()}
            table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
            if "error" in table["extra_info"] or table["terminated"] or table["truncated"]:
                reason = table["extra_info"].get("truncated_by", table["extra_info"].get("error", "it ended"))
                end = str(reason)
                break
            steps += 1
    return {"run": str(args.record), "steps": steps, "end": end}
