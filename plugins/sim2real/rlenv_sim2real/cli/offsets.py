"""``rlenv-robot sim2real offsets``: find constant offsets between goals and measurements, or between two arms."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlenv_robot.cli.output import print_table
from rlenv_sim2real.cli.arm_log import add_log, open_log, recorded_robot_model

if TYPE_CHECKING:
    from rlenv_sim2real.offsets import Offset

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Find joints with a constant offset from what they follow: of a measurement from its goal, or a follower arm "
        "beside its leader. Lag, friction and, with a model of the arm, gravity's sag are taken out first. An offset "
        "that goals and measurements share, as after a wrong calibration, is in no log: compare the arm itself "
        "(rlenv-robot robot calibrate --verify)."
    )
    parser.epilog = """
Examples:

  rlenv-robot sim2real offsets runs/2026-11-21-0001
  rlenv-robot sim2real offsets so101-pick-place --units percent
  rlenv-robot sim2real offsets my-set --pair observation_leader observation_follower --limit 3

Exit code 0: no alarm. 1: an offset is certainly beyond the limit. 2: the data can't be read.
"""
    add_log(parser)
    parser.add_argument("--pair", nargs=2, metavar=("LEADER", "FOLLOWER"), help="two columns of the rows")
    parser.add_argument("--limit", type=float, metavar="X",
                        help="an offset beyond it is an alarm: degrees for angles, else the column's unit (default: 5 "
                        "degrees, or 5 %% of the widest joint's recorded range)")  # fmt: skip
    parser.add_argument("--all", action="store_true", help="print every joint of every episode, not the alarms alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the offsets; return 1 if one is an alarm."""
    from rlenv_robot.robot_models import robot_names
    from rlenv_sim2real.motion import robot_of
    from rlenv_sim2real.offsets import find_offsets, pair_named, pairs_of

    if args.limit is not None and not 0 < args.limit < math.inf:
        raise ValueError(f"--limit is {args.limit}, it must be a number above 0")
    table = open_log(args.log, args)
    pairs = [pair_named(table, *args.pair)] if args.pair else pairs_of(table)
    known = args.robot or robot_of(table) in robot_names()
    sim_model = recorded_robot_model(table, args).make_sim_model(looks=False) if known else None
    limit = args.limit
    if limit is not None and all(pair.field.unit == "rad" for pair in pairs):
        limit = math.radians(limit)
    offsets = find_offsets(table, pairs, sim_model, limit)
    alarms = [offset for offset in offsets if offset.alarm]
    if args.json:
        print(json.dumps({"origin": table.origin, "offsets": [offset.to_dict() for offset in offsets]}))
    else:
        _print(offsets if args.all else alarms)
        print(f"{len(alarms)} of {len(offsets)} offsets are beyond their limit")
        if alarms:
            print("compare the two calibrations, and the arm with its own: rlenv-robot robot calibrate --verify")
    return 1 if alarms else 0


def _print(offsets: Sequence[Offset]) -> None:
    if offsets:
        head = ["episode", "joint", "offset", "95 % interval", "lag [ms]", "limit", ""]
        print_table(f"offsets of {offsets[0].pair.replace('->', 'to')}", head, map(_row, offsets))


def _row(offset: Offset) -> list[str]:
    in_degrees = offset.unit == "rad"
    factor, unit = (math.degrees(1.0), "deg") if in_degrees else (1.0, offset.unit)
    return [
        str(offset.episode), offset.joint, f"{factor * offset.offset:+.2f} {unit}",
        f"+-{factor * offset.half_width:.2f}", f"{1000 * offset.lag_s:.0f}", f"{factor * offset.limit:.2f}",
        "ALARM" if offset.alarm else "",
    ]  # fmt: skip
