"""``rlenv-robot train``: train a policy from nothing in simulation, for any task with a simulated robot."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlenv_robot.cli.output import progress_bars, search_bar
from rlenv_robot.config.profile import load_profile
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.registry import make_vector
from rlenv_robot.training.learner import train_in_simulation
from rlenv_robot.training.rollout import Outcome, evaluate

__all__ = ["add", "checked_output", "run", "task_settings"]

_EVALUATED = 200


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Train a small feedback policy by evolution in simulation. This suits tasks whose reward leads the way, such "
        "as so101-reach; for contacts and for walking use the trainers on docs/trainers.md."
    )
    parser.add_argument("name", help="the task: a name such as so101-reach, a MuJoCo model (.xml), or module:factory")
    parser.add_argument("--out", required=True, help="the policy file to write, ending in .npz")
    parser.add_argument("--seconds", type=float, default=60.0, help="wall time of the search (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all randomness (default: 0)")
    parser.add_argument(
        "--profile",
        metavar="FILE",
        help="a profile: the task's settings, and the simulation's timing and randomisation",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, save, and say how the policy does on episodes that it was not trained on."""
    out, settings = checked_output(args.out, args.seconds), task_settings(args.profile, args.name)
    with progress_bars() as bars:
        bar = search_bar(bars, "train in simulation", args.seconds)
        trained = train_in_simulation(args.name, args.seconds, args.seed, bar, settings)
    trained.policy.save(out, {"trained": "simulation", "steps": trained.steps, "seed": args.seed})
    start = FeedbackPolicy.zeros(trained.policy.vectors, trained.policy.task)
    with make_vector(args.name, _EVALUATED, autoreset="disabled", **settings) as envs:
        before, after = (evaluate(envs, policy, 7_000_000 + args.seed) for policy in (start, trained.policy))
    print(f"{out}: {trained.steps:,} steps; {_summary(before, after)}")
    if _mean_return(after) <= _mean_return(before):
        print("the policy is no better than the one it began with: train for longer, or see docs/trainers.md")
    return 0


def _summary(before: Sequence[Outcome], after: Sequence[Outcome]) -> str:
    hits, asks = sum(outcome.success for outcome in after), bool(after[0].metrics)
    medians = "".join(
        f", median {name} {statistics.median(outcome.metrics[name] for outcome in after):.3g}"
        for name in after[0].metrics
    )
    returns = f"mean return {_mean_return(after):.2f} ({_mean_return(before):.2f} untrained)"
    # A MuJoCo model without a goal has no figures, and nothing that could succeed.
    return f"{hits} of {len(after)} new episodes succeed{medians}; {returns}" if hits or asks else returns


def _mean_return(outcomes: Sequence[Outcome]) -> float:
    return float(np.mean([outcome.total for outcome in outcomes]))


def task_settings(profile_file: str | None, name: str) -> dict[str, Any]:
    """Return what `rlenv_robot.make_vector` takes of a profile: the task's settings and the profile itself.

    Raises:
        ProfileError: the profile is wrong.
        ValueError: the profile is for another task.
    """
    if profile_file is None:
        return {}
    profile = load_profile(profile_file)
    if profile.task.name != name:
        raise ValueError(f"{profile.file}: task.name is {profile.task.name!r}, but the command says {name!r}")
    return {**profile.task.options, "profile": profile}


def checked_output(name: str, seconds: float) -> Path:
    """Return the file to write; a wrong one is refused before an hour of training rather than after.

    Raises:
        ValueError: a wrong ending, a missing folder, or no time to search.
    """
    path = Path(name)
    if path.suffix != ".npz":
        raise ValueError(f"--out is {name!r}, but a policy file ends in .npz")
    if not path.parent.is_dir():
        raise ValueError(f"--out is {name!r}, but there is no folder {str(path.parent)!r}; make it first")
    if not seconds > 0:
        raise ValueError(f"--seconds is {seconds}, it must be above 0")
    return path
