"""``rlenv-robot sim2real population``: identify many recorded arms, as a file that simulations draw from."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.output import print_table, say
from rlenv_sim2real.cli.arm_log import log_motions, open_log, recorded_robot_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rlenv_robot.config.population import Population, PopulationArm
    from rlenv_sim2real.population import ArmFit

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Identify the arm of each recorded set, one arm a set, and write the servos of all of them into one file, from "
        "which simulations draw whole arms. Each arm is fitted on every second episode and judged on the others."
    )
    parser.epilog = """
Examples:

  rlenv-robot sim2real population hub --units percent --output arms.json --hold-out 0.25
  rlenv-robot sim2real population hub/alice/* hub/bob/cups --units degrees --output arms.json
  rlenv-robot sim2real population runs/mine --output arms.json --json

A set that can't be used is skipped, with the reason. The file is written after each arm: a further call, also after
Ctrl-C, goes on with the sets that are not in it yet. Several sets of one arm count as several arms: name one of them.
Exit code 0: the file has an arm. 1: it has none. 2: an argument is wrong.
"""
    parser.add_argument(
        "sets", metavar="SET", type=Path, nargs="+",
        help="a run or folder of runs of one arm, a LeRobot data set, or a folder of such data sets",
    )  # fmt: skip
    parser.add_argument("--output", metavar="FILE", required=True, type=Path, help="the population (.json)")
    parser.add_argument(
        "--robot", help="the robot model that recorded the sets, such as so101 (default: from the data)"
    )
    parser.add_argument("--units", choices=("degrees", "percent"), help="of the joints of LeRobot data sets")
    parser.add_argument("--calibration", metavar="FILE", help="LeRobot's calibration of the arm that recorded them")
    parser.add_argument(
        "--hold-out", metavar="SHARE", type=float, default=0.0,
        help="share of the arms that training leaves out: with 0.25 every fourth (default: 0)",
    )  # fmt: skip
    parser.add_argument("--kinds", metavar="KIND,...", help="what to estimate, as for identify (default: as there)")
    parser.add_argument(
        "--leave-out", metavar="JOINT,...", default="gripper",
        help="joints to leave nominal (default: gripper, which holds things that the replay lacks)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=float,
        default=25.0,
        help="longest time to fit, and to judge, an arm (default: 25)",
    )
    parser.add_argument(
        "--source", metavar="TEXT", help="where the sets are from, for the file (default: robot, rate and episodes)"
    )
    parser.add_argument("--again", action="store_true", help="also identify arms that the file has")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Identify the arms, write each into the file, and print them."""
    from rlenv_robot.config.population import load_population
    from rlenv_sim2real.identify import DEFAULT_KINDS
    from rlenv_sim2real.population import ArmFit
    from rlenv_sim2real.servo_replay import KINDS

    if args.output.suffix != ".json":
        raise ValueError(f"--output is {str(args.output)!r}, a population's name ends in .json")
    if not 0 <= args.hold_out < 1:
        raise ValueError(f"--hold-out is {args.hold_out:g}, it must be 0 or more and below 1")
    if args.source and len(args.source) > 200:
        raise ValueError(f"--source has {len(args.source)} characters, allowed are 200")
    if not 3 <= args.seconds <= 3600:
        raise ValueError(f"--seconds is {args.seconds:g}, it must be 3 to 3600")
    for path in args.sets:
        if not path.exists():
            raise ValueError(f"{path} does not exist; name recorded sets, or folders of them")
    kinds = tuple(filter(None, args.kinds.split(","))) if args.kinds else DEFAULT_KINDS
    for kind in kinds:
        if kind not in (*DEFAULT_KINDS, "backlash"):
            known = f"is unknown; {', '.join(KINDS)} exist, and" if kind not in KINDS else "is not in a population:"
            raise ValueError(f"--kinds: {kind!r} {known} a population has {', '.join(DEFAULT_KINDS)}, backlash")
    settings = ArmFit(kinds, tuple(filter(None, args.leave_out.split(","))), args.seconds)
    population = load_population(args.output) if args.output.exists() else None
    skipped: dict[str, str] = {}
    for path in _sets(args.sets):
        name = _name(path)
        if population is not None and name in {arm.name for arm in population.arms} and not args.again:
            _tell(args, f"{name}: is in {args.output} (--again identifies it anew)")
            continue
        _tell(args, f"{name}: identifying ...")
        reason, population = _added(population, path, name, args, settings)
        if reason:
            skipped[name] = reason
            _tell(args, f"{name}: skipped, {reason}")
    arms = [] if population is None else population.arms
    if args.json:
        print(json.dumps({"population": str(args.output), "arms": [arm.name for arm in arms], "skipped": skipped}))
    elif arms:
        print_table(f"{len(arms)} arms in {args.output}", _HEAD, map(_row, arms))
    return 0 if arms else 1


def _tell(args: argparse.Namespace, line: str) -> None:
    if not args.json:
        say(line)


def _sets(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield each set: a path, or the data sets of other formats in its folder."""
    from recorder.formats.registry import recognised, sets_in
    from rlenv_robot.data.folder import runs_at

    for path in paths:
        if path.is_dir() and not runs_at(path) and recognised(path) is None:
            yield from sets_in(path) or [path]
        else:
            yield path


def _name(path: Path) -> str:
    """Return the name of an arm: the last two parts of its path, as user and set of the Hub, without leading dots."""
    parts = [part for part in path.parts if part not in (".", "..", path.anchor)]
    return ("/".join(parts[-2:]) or path.resolve().name)[-200:]


def _added(
    population: Population | None, path: Path, name: str, args: argparse.Namespace, settings: ArmFit
) -> tuple[str, Population | None]:
    """Identify one arm and write it into the file.

    Returns:
        The reason if the set is skipped, else an empty text; and the population.
    """
    from hal import ProfileError, RobotError
    from rlenv_sim2real.population import arm_row, empty_population, next_held_out

    try:
        table = open_log(path, args)
        robot = recorded_robot_model(table, args)
        if population is not None and robot.name != population.robot:
            return f"it was recorded by a {robot.name!r}, the file is of {population.robot!r}", population
        sim_model = robot.make_sim_model(looks=False)
        grown = population or empty_population(sim_model)
        leave_out = [joint for joint in settings.leave_out if joint in grown.joints]
        source = args.source or _source(table.episodes)
        motions = log_motions(table, sim_model, None, {})
        arm = arm_row(sim_model, motions, name, source, replace(settings, leave_out=leave_out))
    except (RobotError, ValueError, OSError) as error:
        return " ".join(str(error).split()), population
    earlier = {arm.name: arm.held_out for arm in grown.arms}
    arm = replace(arm, held_out=earlier.get(name, next_held_out(grown, args.hold_out)))
    arms = [arm if other.name == name else other for other in grown.arms] + ([] if name in earlier else [arm])
    grown = replace(grown, arms=arms)
    try:
        grown.save(args.output)
    except ProfileError as error:
        return str(error), population
    _tell(args, f"{name}: {_summary(arm)}")
    return "", grown


def _source(episodes: Sequence[Mapping[str, object]]) -> str:
    """Return a description of recorded data: robot, rate and number of episodes."""
    first = episodes[0] if episodes else {}
    rate = f", {first['fps']} Hz" if "fps" in first else ""
    return f"{first.get('robot', 'robot')}{rate}, {len(episodes)} episode{'s' * (len(episodes) != 1)}"


def _summary(arm: PopulationArm) -> str:
    share = arm.error_rad.identified / arm.error_rad.nominal
    return f"{share:.2f} of the nominal error on episodes outside the fit" + (", held out" if arm.held_out else "")


_HEAD = ["arm", "frames", "stiffness, N m/rad", "friction, N m", "delay, ms", "error, mrad", "nominal", ""]


def _row(arm: PopulationArm) -> list[str]:
    values, error = arm.values, arm.error_rad
    ends = [f"{min(part):.3g} to {max(part):.3g}" for part in (values.stiffness, values.friction)]
    return [
        arm.name, str(arm.frames), *ends, f"{1000 * values.delay:.0f}", f"{1000 * error.identified:.1f}",
        f"{1000 * error.nominal:.1f}", "held out" if arm.held_out else "",
    ]  # fmt: skip
