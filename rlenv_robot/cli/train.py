"""``rlenv-robot train``: a policy from nothing, in simulation."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from rlenv_robot.cli.output import progress_bars, search_bar
from rlenv_robot.registry import make_vector
from rlenv_robot.training.evolution import train_in_simulation
from rlenv_robot.training.rollout import evaluate

__all__ = ["add", "checked_output", "run"]

_EVALUATED = 200


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Train a policy from nothing, in simulation."
    parser.add_argument("name", choices=["so101-reach"], help="the task")
    parser.add_argument("--out", required=True, help="the policy file to write, ending in .npz")
    parser.add_argument("--seconds", type=float, default=60.0, help="of search (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of everything (default: 0)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, save, and say what it can do on episodes that it was not trained on."""
    out = checked_output(args.out, args.seconds)
    with progress_bars() as bars:
        trained = train_in_simulation(args.seconds, args.seed, search_bar(bars, "train in simulation", args.seconds))
    trained.policy.save(out, {"trained": "simulation", "steps": trained.steps, "seed": args.seed})
    with make_vector(args.name, _EVALUATED, autoreset="disabled") as envs:
        outcomes = evaluate(envs, trained.policy, seed=7_000_000 + args.seed)
    middle = np.median([outcome.distance_mm for outcome in outcomes])
    hits = sum(outcome.success for outcome in outcomes)
    print(f"{out}: {trained.steps:,} steps; {hits} of {_EVALUATED} new targets reached, median {middle:.1f} mm")
    return 0


def checked_output(name: str, seconds: float) -> Path:
    """The file to write, refused before an hour of training rather than after.

    Raises:
        ValueError: a wrong ending, a missing folder, or no time to search.
    """
    path = Path(name)
    if path.suffix != ".npz":
        raise ValueError(f"--out is {name!r}, a policy file ends in .npz")
    if not path.parent.is_dir():
        raise ValueError(f"--out is {name!r}, but there is no folder {str(path.parent)!r}; make it first")
    if not seconds > 0:
        raise ValueError(f"--seconds is {seconds}, it must be above 0")
    return path
