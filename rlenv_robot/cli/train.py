"""``rlenv-robot train`` and ``retrain``: train a policy in simulation, and improve one from recorded runs."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlenv_robot.cli.output import progress_bars, search_bar

if TYPE_CHECKING:
    from rlenv_robot.data.relabel import Goal
    from rlenv_robot.policies.feedback import FeedbackPolicy
    from rlenv_robot.training.learner import Retraining
    from rlenv_robot.training.rollout import Outcome

__all__ = ["add", "add_retrain", "checked_output", "run", "run_retrain", "task_settings"]

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
    from rlenv_robot.policies.feedback import FeedbackPolicy
    from rlenv_robot.registry import make_vector
    from rlenv_robot.training.learner import train_in_simulation
    from rlenv_robot.training.rollout import evaluate

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
    return statistics.fmean(outcome.total for outcome in outcomes)


def task_settings(profile_file: str | None, name: str) -> dict[str, Any]:
    """Return what `rlenv_robot.make_vector` takes of a profile: the task's settings and the profile itself.

    Raises:
        ProfileError: the profile is wrong.
        ValueError: the profile is for another task.
    """
    from rlenv_robot.config.profile import load_profile

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


# -- rlenv-robot retrain -------------------------------------------------------------------------------------


def add_retrain(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument(
        "--goal", type=_goal, default="recorded", metavar="GOAL",
        help="goal that the episodes are rewarded for: recorded (default), hindsight (what each episode reached), or "
        "values for all of them, such as target_position=0.2,0.0,0.1",
    )  # fmt: skip
    parser.add_argument(
        "--units", choices=("degrees", "percent"), help="unit of an SO-101's joints that LeRobot recorded"
    )
    parser.set_defaults(run=run_retrain)


def _goal(text: str) -> Goal:
    """Read a goal: a word, or ``field=numbers`` with semicolons between fields.

    Raises:
        argparse.ArgumentTypeError: the text is neither.
    """
    if text in ("recorded", "hindsight"):
        return text
    goal: dict[str, list[float] | float] = {}
    for part in text.split(";"):
        name, equals, numbers = part.partition("=")
        try:
            values = [float(number) for number in numbers.split(",")]
        except ValueError:
            values = []
        if not (name.strip() and equals and values):
            raise argparse.ArgumentTypeError(
                f"{text!r} is no goal; write recorded, hindsight, or field=numbers such as target_position=0.2,0.0,0.1"
            )
        goal[name.strip()] = values if len(values) > 1 else values[0]
    return goal


def run_retrain(args: argparse.Namespace) -> int:
    """Fit a model to the record, improve the policy inside it, and say how good the model is."""
    from rlenv_robot.registry import task
    from rlenv_robot.training.learner import retrain_from_record

    out, start = checked_output(args.out, args.seconds), _policy_to_improve(args.policy)
    name = args.task or start.task
    settings = task_settings(args.profile, name)
    settings.pop("profile", None)
    chosen = task(name, **settings)
    with progress_bars() as bars:
        bar = search_bar(bars, "retrain from the record", args.seconds)
        retrained = retrain_from_record(
            Path(args.runs), start, chosen, args.seconds, args.seed, bar, args.goal, args.units
        )
    about = {"trained": str(args.runs), "episodes": retrained.episodes[0], "seed": args.seed}
    retrained.training.policy.save(out, about)
    print(f"{out}: {_retrain_summary(retrained)}")
    if not retrained.is_improved:
        print(
            "the policy is saved unchanged: the gain may be the model's error, or the record holds no actions "
            "but the policy's own. Record more episodes, and other actions (a script, a person, another policy)"
        )
    return 0


def _policy_to_improve(name: str) -> FeedbackPolicy:
    from hal import RobotError
    from rlenv_robot.policies.feedback import FeedbackPolicy

    if Path(name).suffix == ".onnx":
        raise RobotError(
            f"{name}: retrain searches over the parameters of an .npz policy of `rlenv-robot train`; an ONNX file is a "
            "fixed graph. Retrain that one where it was trained (docs/trainers.md)"
        )
    return FeedbackPolicy.load(name)


def _retrain_summary(retrained: Retraining) -> str:
    known, unseen = retrained.episodes
    error, unchanged = retrained.error[-1], retrained.unchanged[-1]
    return (
        f"model fitted to {len(known)} episodes; over {len(retrained.error)} steps of {len(unseen)} held-out ones, "
        f"without correction, it strays {error:.2f} {retrained.unit} RMS ({unchanged:.2f} if nothing moved); "
        f"the return in the model rose by {retrained.gain:.3g}, give or take {retrained.return_error:.3g}"
    )
