"""``rlenv-robot retrain``: improve a policy from recorded runs alone, for any task."""

from __future__ import annotations

import argparse
from pathlib import Path

from hal import RobotError
from rlenv_robot.cli.output import progress_bars, search_bar
from rlenv_robot.cli.train import checked_output, task_settings
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.registry import task
from rlenv_robot.training.learner import Retraining, retrain_from_record

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Fit a model of the robot to recorded runs, and improve a policy inside it by the task's own reward. For the "
        "so101 the model knows the arm's kinematics; for any other robot it is linear and knows no contacts."
    )
    parser.add_argument("runs", help="a folder of recorded runs of the task")
    parser.add_argument("--policy", required=True, help="the policy to improve, an .npz file of `rlenv-robot train`")
    parser.add_argument("--out", required=True, help="the policy file to write, ending in .npz")
    parser.add_argument("--task", metavar="NAME", help="the task (default: the one that the policy was trained for)")
    parser.add_argument("--seconds", type=float, default=15.0, help="wall time of the search (default: 15)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all randomness (default: 0)")
    parser.add_argument("--profile", metavar="FILE", help="a profile: its task's settings")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Fit a model to the record, improve the policy inside it, and say how good the model is."""
    out, start = checked_output(args.out, args.seconds), _policy(args.policy)
    name = args.task or start.task
    settings = task_settings(args.profile, name)
    settings.pop("profile", None)
    chosen = task(name, **settings)
    with progress_bars() as bars:
        bar = search_bar(bars, "retrain from the record", args.seconds)
        retrained = retrain_from_record(Path(args.runs), start, chosen, args.seconds, args.seed, bar)
    about = {"trained": str(args.runs), "episodes": retrained.episodes[0], "seed": args.seed}
    retrained.training.policy.save(out, about)
    print(f"{out}: {_summary(retrained)}")
    if not retrained.is_improved:
        print(
            "the policy is saved unchanged: the gain may be the model's error, or the record holds no actions "
            "but the policy's own. Record more episodes, and other actions (a script, a person, another policy)"
        )
    return 0


def _policy(name: str) -> FeedbackPolicy:
    if Path(name).suffix == ".onnx":
        raise RobotError(
            f"{name}: retrain searches over the parameters of an .npz policy of `rlenv-robot train`; an ONNX file is a "
            "fixed graph. Retrain that one where it was trained (docs/trainers.md)"
        )
    return FeedbackPolicy.load(name)


def _summary(retrained: Retraining) -> str:
    known, unseen = retrained.episodes
    error, unchanged = retrained.error[-1], retrained.unchanged[-1]
    return (
        f"model fitted to {len(known)} episodes; over {len(retrained.error)} steps of {len(unseen)} held-out ones, "
        f"without correction, it strays {error:.2f} {retrained.unit} RMS ({unchanged:.2f} if nothing moved); "
        f"the return in the model rose by {retrained.gain:.3g}, give or take {retrained.return_error:.3g}"
    )
