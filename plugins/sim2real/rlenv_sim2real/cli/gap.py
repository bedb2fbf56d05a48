"""``rlenv-robot sim2real gap``: measure how far a simulation is from a recorded arm."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.output import print_table
from rlenv_sim2real.cli.arm_log import (
    add_log,
    add_replay,
    chosen_episodes,
    frames_of,
    log_motions,
    open_log,
    recorded_robot_model,
)

if TYPE_CHECKING:
    from rlenv_sim2real.drift import Drift
    from rlenv_sim2real.gap import EpisodeGap, JointGap

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Replay the recorded goals of an arm open loop through a simulation, from the first measured pose, and measure "
        "how far the simulation is from the recording: joint by joint, and at the fingertip. Positive lags and "
        "offsets mean that the arm is later, or farther, than the simulation."
    )
    parser.epilog = """
Examples:

  rlenv-robot sim2real gap runs/2026-11-21-0001
  rlenv-robot sim2real gap so101-pick-place --units percent --frames 0:40-344 --plot gap.png
  rlenv-robot sim2real gap runs --model identified.toml --json

Exit code 0: measured. 1: a joint has drifted from the arm's own history, the gaps kept beside the other runs in the
folder. 2: the data can't be read.
"""
    add_log(parser)
    add_replay(parser)
    parser.add_argument("--plot", metavar="FILE", help="draw an episode there (.png, .svg, .pdf); with several, FILE-N")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the gap of each episode; return 1 if a joint has drifted."""
    from recorder.names import LOG_NAME
    from rlenv_sim2real.drift import drifts, earlier_gaps, save_gaps
    from rlenv_sim2real.figures import plot_gap
    from rlenv_sim2real.gap import measure_gap
    from rlenv_sim2real.open_loop import replay_model

    table = open_log(args.log, args)
    model = replay_model(args.model, recorded_robot_model(table, args), args.contacts)
    frames = frames_of(args.frames)
    motions = log_motions(table, model.sim_model, chosen_episodes(args.episode, table), frames)
    gaps, files = [], []
    for motion in motions:
        gap, simulated = measure_gap(model, motion)
        gaps.append(gap)
        if args.plot:
            path = Path(args.plot)
            path = path if len(motions) == 1 else path.with_stem(f"{path.stem}-{motion.episode}")
            files.append(plot_gap(model, motion, simulated, gap, path))
    one_run = args.log.parent if args.log.is_file() else args.log
    alarms: list[tuple[int, Drift]] = []
    if (one_run / LOG_NAME).is_file():
        history = earlier_gaps(one_run.parent, one_run)
        alarms = [(gap.episode, drift) for gap in gaps for drift in drifts(gap, history)]
        if not (frames or args.episode):
            save_gaps(one_run, gaps)
    if args.json:
        drift = [{"episode": episode, **alarm.to_dict()} for episode, alarm in alarms]
        print(json.dumps({"origin": table.origin, "episodes": [gap.to_dict() for gap in gaps], "drifts": drift}))
    else:
        _print(gaps, alarms)
        for file in files:
            print(file)
    return 1 if alarms else 0


def _print(gaps: Sequence[EpisodeGap], alarms: Sequence[tuple[int, Drift]]) -> None:
    for gap in gaps:
        steps = list(gap.joints[0].after)
        own = [f"rms [{gap.unit}]"] if gap.unit else []
        head = ["joint", "rms [mrad]", *own, "worst [mrad]", "at [s]", "lag [ms]", "offset [mrad]", "gain",
                *(f"{count} steps [mrad]" for count in steps)]  # fmt: skip
        print_table(f"episode {gap.episode}, {gap.seconds:.1f} s against {gap.model}", head, map(_row, gap.joints))
        mean = sum(joint.rms for joint in gap.joints) / len(gap.joints)
        tip = "" if math.isnan(gap.tip_rms_mm) else (
            f"fingertip: {gap.tip_rms_mm:.1f} mm RMS, {gap.tip_worst_mm:.1f} mm at worst; "
        )  # fmt: skip
        print(f"{tip}mean of the joints: {1000 * mean:.1f} mrad RMS")
    for episode, alarm in alarms:
        print(f"episode {episode}: {alarm.line()}")


def _row(joint: JointGap) -> list[str]:
    own = [] if math.isnan(joint.unit_scale) else [f"{joint.rms / abs(joint.unit_scale):.2f}"]
    lag = joint.lag
    moved = not math.isnan(lag.lag_s)
    return [
        joint.name, f"{1000 * joint.rms:.1f}", *own, f"{1000 * joint.worst:.1f}", f"{joint.worst_s:.1f}",
        f"{1000 * lag.lag_s:.0f}" if moved else "-", f"{1000 * lag.offset:.1f}", f"{lag.gain:.3f}" if moved else "-",
        *(f"{1000 * value:.1f}" for value in joint.after.values()),
    ]  # fmt: skip
