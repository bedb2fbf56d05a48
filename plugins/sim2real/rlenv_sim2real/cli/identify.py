"""``rlenv-robot sim2real identify``: fit the servos of a simulated arm to recordings of a real one."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.output import print_table, say
from rlenv_sim2real.cli.arm_log import (
    add_log,
    chosen_episodes,
    frames_of,
    log_motions,
    open_log,
    recorded_gain,
    recorded_gains,
    recorded_robot_model,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlenv_robot.robot_models import RobotModel
    from rlenv_sim2real.identify import Estimate, Identification, Judgement
    from rlenv_sim2real.motion import RecordedMotion

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Fit the parameters of an arm's servos to recorded episodes by least squares over batched simulation, in free "
        "air, and judge them on other episodes. The result is a profile for make, make_vector, run, serve and gap."
    )
    parser.epilog = """
Examples:

  rlenv-robot sim2real identify runs/excite --output arm.toml
  rlenv-robot sim2real identify so101-pick-place --units percent --fit 0 --judge 1 --frames 0:40-344 --leave-out gripper
  rlenv-robot sim2real identify so101-pick-place --units percent --fit 0 --judge 1 --leave-out gripper --friction auto
  rlenv-robot sim2real identify runs/p16 runs/p32 --kinds stiffness,damping,friction,offset,armature,delay,backlash

Exit code 0: fitted. 1: on the episodes that judge, the fit is no better than the nominal simulation. 2: the data can't
be read. Read the warnings: what the data don't determine rests on the nominal arm in the profile too.
Logs that declare different gains P of the servos are fitted together: the stiffness, which holds at the first log's P,
scales with P, and friction and backlash do not, which tells these two apart.
"""
    add_log(parser, several=True)
    parser.add_argument("--fit", metavar="N,...", help="episodes to fit (default: all but those that judge)")
    parser.add_argument(
        "--judge", metavar="N,...", help="episodes to judge by (default: the last fifth, if there are 2)"
    )
    parser.add_argument(
        "--frames", metavar="E:A-B", action="append", default=[], help="only frames A to B of episode E"
    )
    parser.add_argument("--kinds", metavar="KIND,...", help="what to estimate; --kinds help lists all kinds")
    parser.add_argument(
        "--friction", default="m1", metavar="MODEL",
        help="the friction (BAM): m1 Coulomb and viscous, m2 and more at rest, m3 a share of the load, m4 both, "
        "m5 with a direction, m6 and quadratic; of several (m1,m3), or auto for all, the one that predicts left-out "
        "pieces best (default: m1)",
    )  # fmt: skip
    parser.add_argument("--leave-out", metavar="JOINT,...", default="", help="joints to leave out of the fit")
    parser.add_argument("--output", metavar="FILE", help="write the profile there (.toml)")
    parser.add_argument("--spread", action="store_true",
                        help="a profile that draws each resolved figure from its 95 %% interval")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Fit, judge, print, and write the profile."""
    import numpy as np

    from rlenv_sim2real.identify import DEFAULT_KINDS, identify, judge, profile_text
    from rlenv_sim2real.servo_replay import KINDS

    kinds = tuple(filter(None, args.kinds.split(","))) if args.kinds else DEFAULT_KINDS
    if kinds == ("help",):
        print_table("kinds", ["kind", "unit", "meaning"], [[name, k.unit, k.meaning] for name, k in KINDS.items()])
        return 0
    if args.output and not args.output.endswith(".toml"):
        raise ValueError(f"--output is {args.output!r}, a profile's name ends in .toml")
    gains = _gains(args.logs)
    fitted, judging, robot = _motions(args, gains)
    sim_model = robot.make_sim_model(looks=False)
    if not args.json:
        say(f"fitting {robot.name} to {sum(map(len, fitted))} frames of {len(fitted)} episodes")
    leave_out = tuple(filter(None, args.leave_out.split(",")))
    friction = args.friction if "," not in args.friction else args.friction.split(",")
    result = identify(sim_model, fitted, kinds, leave_out, friction=friction)
    judgement = judge(sim_model, result.values, judging or fitted)
    if args.output:
        origin = ", ".join(path.name for path in args.logs)
        at_first = [path for path, gain in zip(args.logs, gains, strict=True) if gain == 1.0]
        text = profile_text(result, sim_model, origin, args.spread, recorded_gains(at_first))
        Path(args.output).write_text(text, encoding="utf-8")
    if args.json:
        data = {**result.to_dict(), "judged": judgement.to_dict(), "held_out": bool(judging)}
        print(json.dumps(data | ({"profile": args.output} if args.output else {})))
    else:
        _print(result, judgement, bool(judging))
        if args.output:
            print(args.output)
    counts = np.array([name not in leave_out for name in judgement.names])
    return 0 if judgement.identified[counts].mean() < judgement.nominal[counts].mean() else 1


def _motions(
    args: argparse.Namespace, gains: Sequence[float]
) -> tuple[list[RecordedMotion], list[RecordedMotion], RobotModel]:
    """Return the motions to fit and those to judge by, and the robot's model; several logs' episodes count on.

    Args:
        args: the verb's arguments.
        gains: the gain P of each log as a factor of the first log's.
    """
    from dataclasses import replace

    tables = [open_log(path, args) for path in args.logs]
    models = {model.name: model for model in (recorded_robot_model(table, args) for table in tables)}
    if len(models) > 1:
        raise ValueError(f"the logs are of several robots: {', '.join(sorted(models))}; identify one at a time")
    if len(tables) > 1 and (args.fit or args.judge or args.frames):
        raise ValueError("--fit, --judge and --frames count the episodes of one log; name one log, or leave them out")
    robot = next(iter(models.values()))
    sim_model = robot.make_sim_model(looks=False)
    frames = frames_of(args.frames)
    judge = chosen_episodes(args.judge, tables[0]) or []
    fit = chosen_episodes(args.fit, tables[0])
    motions: list[RecordedMotion] = []
    for table, gain in zip(tables, gains, strict=True):
        chosen = None if fit is None else sorted({*fit, *judge})
        for motion in log_motions(table, sim_model, chosen, frames):
            number = motion.episode if len(tables) == 1 else len(motions)
            motions.append(replace(motion, episode=number, gain=gain))
    if not judge and args.fit is None:
        judge = _held_back(motions)
    if fit is not None and set(fit) & set(judge):
        raise ValueError("an episode can't both be fitted and judge; name others")
    fitted = [motion for motion in motions if motion.episode not in judge]
    if not fitted:
        raise ValueError("no episode is left to fit; leave some out of --judge")
    return fitted, [motion for motion in motions if motion.episode in judge], robot


def _gains(logs: Sequence[Path]) -> list[float]:
    """Return the gain P of each log as a factor of the first log's; 1 for all where none declares it.

    Raises:
        ValueError: logs declare different gains, and one does not declare any.
    """
    gains = {path: recorded_gain(path) for path in logs}
    known = {gain for gain in gains.values() if gain}
    if len(known) < 2:
        return [1.0] * len(logs)
    silent = [str(path) for path, gain in gains.items() if not gain]
    if silent:
        raise ValueError(f"{silent[0]} does not declare its servos' gain P, and the other logs declare different ones")
    return [(gains[path] or 1.0) / (gains[logs[0]] or 1.0) for path in logs]


def _held_back(motions: Sequence[RecordedMotion]) -> list[int]:
    """Return the episodes that judge by default: the last fifth, of gains that other episodes have too."""
    held: list[int] = []
    for motion in reversed(motions):
        left = [other for other in motions if other.gain == motion.gain and other.episode not in held]
        if len(left) > 1 and len(held) < max(1, len(motions) // 5):
            held.append(motion.episode)
    return sorted(held)


def _print(result: Identification, judgement: Judgement, held_out: bool) -> None:
    import numpy as np

    head = ["parameter", "estimate", "95 % interval", "nominal", "unit", ""]
    print_table("identified", head, map(_row, result.estimates))
    if result.combinations:
        rows = [
            [part.name, f"{part.value:.4g}", f"{part.low:.4g} to {part.high:.4g}" if math.isfinite(part.high) else
             "unknown", "N m", "" if part.resolved else "not resolved"]
            for part in result.combinations
        ]  # fmt: skip
        print_table("friction and play together", ["combination", "estimate", "95 % interval", "unit", ""], rows)
    if result.validation:
        rows = [[name, f"{1000 * error:.2f}"] for name, error in result.validation.items()]
        print_table("error in left-out pieces of the fitted episodes, mean RMS in mrad", ["friction", "error"], rows)
        print(f"friction: {result.friction}")
    for warning in result.warnings:
        print(f"warning: {warning}")
    factor, unit = (1000.0, "mrad") if judgement.scale is None else (1 / np.abs(judgement.scale), "log's units")
    rows = []
    for name, errors in (
        ("identified", judgement.identified),
        ("nominal", judgement.nominal),
        ("constant delay", judgement.constant_delay),
    ):  # fmt: skip
        own = errors * factor
        counted = [value for joint, value in zip(judgement.names, own, strict=True) if joint in result.fitted]
        rows.append([name, *(f"{value:.2f}" for value in own), f"{np.mean(counted):.2f}"])
    episodes = ", ".join(map(str, judgement.episodes))
    what = "held back" if held_out else "fitted, no episode is left to judge by"
    print_table(f"open-loop error on episodes {episodes} ({what}), RMS in {unit}", ["", *judgement.names, "mean"], rows)


def _row(estimate: Estimate) -> list[str]:
    from rlenv_sim2real.servo_replay import KINDS

    known = math.isfinite(estimate.low) and math.isfinite(estimate.high)
    return [
        estimate.name, f"{estimate.value:.4g}", f"{estimate.low:.4g} to {estimate.high:.4g}" if known else "unknown",
        f"{estimate.nominal:.4g}", KINDS[estimate.kind].unit, "" if estimate.resolved else "not resolved",
    ]  # fmt: skip
