"""``rlenv-robot retrain``: a better policy from recorded runs alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlenv_robot.cli.output import progress_bars, search_bar
from rlenv_robot.cli.train import checked_output
from rlenv_robot.policies.reach import ReachPolicy
from rlenv_robot.training.evolution import retrain_from_record

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Improve a policy from recorded runs alone."
    parser.add_argument("runs", help="a folder of recorded runs of so101-reach")
    parser.add_argument("--policy", required=True, help="the policy to improve")
    parser.add_argument("--out", required=True, help="the policy file to write, ending in .npz")
    parser.add_argument("--seconds", type=float, default=15.0, help="of search (default: 15)")
    parser.add_argument("--seed", type=int, default=0, help="of everything (default: 0)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Fit a model to the record, improve the policy inside it, and say how good the model is."""
    out = checked_output(args.out, args.seconds)
    start = ReachPolicy.load(args.policy)
    with progress_bars() as bars:
        bar = search_bar(bars, "retrain from the record", args.seconds)
        done = retrain_from_record(Path(args.runs), start, args.seconds, args.seed, bar)
    known, unseen = done.episodes
    done.training.policy.save(out, {"trained": str(args.runs), "episodes": known, "seed": args.seed})
    print(
        f"{out}: model fitted to {len(known)} episodes; on {len(unseen)} others its joints are "
        f"{done.error_deg[-1]:.2f} degrees RMS off after {len(done.error_deg)} steps without correction"
    )
    return 0
