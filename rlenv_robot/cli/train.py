"""``rlenv-robot train`` and ``retrain``: train a policy in simulation, and improve one from recorded runs."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlenv_robot.cli.data.selection import add_reading, location, reading_options
from rlenv_robot.cli.output import INTERRUPTED, counted, progress_bars, say, search_bar
from rlenv_robot.cli.progress_file import add_progress

if TYPE_CHECKING:
    from hal.field import JsonDict, JsonObject
    from rlenv_robot.cli.output import Advance
    from rlenv_robot.data.relabel import Goal
    from rlenv_robot.policies.feedback import SearchedPolicy
    from rlenv_robot.source import SourceData
    from rlenv_robot.tasks.task import Task
    from rlenv_robot.training.evolution import Generation
    from rlenv_robot.training.learner import Retraining
    from rlenv_robot.training.rollout import Outcome, Point
    from rlenv_robot.training.trainers import Trained

__all__ = ["add", "add_retrain", "add_track", "checked_output", "run", "run_retrain", "task_settings"]

_EVALUATED, _TEST_SEED = 200, 7_000_000
_EVOLUTION_STEPS = 1_500_000
"""Budget of an evolution for which the user gives none, control steps."""
_RETRAINING_STEPS = 2_000_000
"""Likewise of a retraining, control steps in the learned model."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Train a policy in simulation: by PPO where PyTorch is installed (extra 'train'), or else by evolution of a "
        "small feedback policy, which suits tasks with a dense reward, such as so101-reach. PPO draws a robot "
        "for every episode from the range in which robots of the kind differ, and writes its learning curve (.csv) and "
        "checkpoints beside the policy. The same seed and steps give the same policy on the same machine. With --data "
        "it learns from recorded data alone, by offline reinforcement learning (IQL, AWAC, CQL, TD3+BC) or cloning; "
        "without a task these may be any data with rewards, such as Minari's."
    )
    parser.add_argument(
        "name", nargs="?",
        help="the task: a name such as so101-reach, a MuJoCo model (.xml), or module:factory; not needed with --data",
    )  # fmt: skip
    parser.add_argument("--out", required=True, help="the policy file to write, ending in .npz; by PPO also .onnx")
    parser.add_argument("--steps", type=int, help="control steps of all robots together (default: the task's)")
    parser.add_argument(
        "--seconds", type=float, help="end after this wall time in any case; a run that it ends is not reproducible"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws (default: 0)")
    parser.add_argument(
        "--method",
        help="evolution, ppo, or what another package declares (default: ppo where PyTorch is installed, else "
        "evolution); with --data: iql (default), awac, cql, td3bc, bc",
    )
    parser.add_argument("--nominal", action="store_true", help="by PPO: train on the nominal robot only")
    parser.add_argument(
        "--profile",
        metavar="FILE",
        help="a profile: the task's settings, and the simulation's timing and randomisation",
    )
    parser.add_argument(
        "--demos", type=location, metavar="RUNS",
        help="by PPO: recorded runs of the task, such as a person's or a script's; training begins as a clone of the "
        "episodes that succeeded",
    )  # fmt: skip
    parser.add_argument(
        "--resume", action="store_true",
        help="go on with the training of the same command that Ctrl-C, or anything else, ended (by evolution and ppo)",
    )  # fmt: skip
    add_track(parser)
    add_progress(parser)
    _add_offline(parser)
    parser.set_defaults(run=run)


def _add_offline(parser: argparse.ArgumentParser) -> None:
    """Declare the options of learning from recorded data alone."""
    group = parser.add_argument_group("from recorded data alone")
    group.add_argument(
        "--data", type=location, action="append", metavar="SET",
        help="recorded runs, or a data set or its address, with rewards; a task computes them where they are missing; "
        "may be repeated",
    )  # fmt: skip
    group.add_argument("--updates", type=int, help="number of updates (default: the method's, 20,000)")
    group.add_argument(
        "--set", action="append", default=[], type=_setting, metavar="NAME=VALUE",
        help="a setting of the method, such as expectile=0.8, n_step=5, best=0.1 or hidden=[128,128]; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--goal", type=_goal, metavar="GOAL",
        help="compute rewards anew for this goal: recorded, hindsight (what each episode reached), or values for all, "
        "such as target_position=0.2,0.0,0.1",
    )  # fmt: skip
    add_reading(parser)


def _setting(text: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE``, the value as JSON.

    Raises:
        argparse.ArgumentTypeError: the text is something else.
    """
    name, _, value = text.partition("=")
    try:
        return name.strip(), json.loads(value)  # without "=" it is empty
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE with a number, such as expectile=0.8") from None


def add_track(parser: argparse.ArgumentParser) -> None:
    """Declare the option for the destination of training metrics."""
    parser.add_argument(
        "--track", metavar="PLACE",
        help="write the figures to tensorboard[=FOLDER], wandb[=PROJECT], or both with a comma between them (default: "
        "the environment variable RLENV_ROBOT_TRACK)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Train a policy, save it, and print its results on held-out episodes."""
    from rlenv_robot.training.trainers import offline_trainer_names, trainer_names, unknown_method

    if args.data is not None or args.method in offline_trainer_names():
        return _train_from_data(args)
    if args.name is None:
        raise ValueError("name the task to train, or give recorded data: --data SET")
    methods = ["evolution", *trainer_names()]
    method = args.method or ("ppo" if "ppo" in methods and find_spec("torch") else "evolution")
    if method not in methods:
        raise unknown_method(method)
    by_evolution = method == "evolution"
    out = checked_output(args.out, args.seconds, (".npz",) if by_evolution else (".npz", ".onnx"), args.steps)
    if args.set or args.updates is not None:
        option = "--set" if args.set else "--updates"
        raise ValueError(
            f"{option} is for methods that learn from recorded data: give them as --data SET, or leave it out"
        )
    if args.demos is not None and by_evolution:
        raise ValueError("--demos is given, but evolution can't begin from demonstrations: use --method ppo")
    _note_unscaled(args)
    return _train_by_evolution(args, out) if by_evolution else _train_by(method, args, out)


def _note_unscaled(args: argparse.Namespace) -> None:
    """Print which observation fields a task without hints hands to the learner as they are."""
    from rlenv_robot.adapters.flat import flat_for
    from rlenv_robot.registry import task
    from rlenv_robot.tasks.flat_hints import HasFlatHints

    own = {name: value for name, value in task_settings(args.profile, args.name).items() if name != "profile"}
    subject = task(args.name, **own)
    if not isinstance(subject, HasFlatHints) and (unscaled := flat_for(subject).unscaled):
        print(
            f"note: {', '.join(unscaled)} of the observation have no finite range, so training takes them unscaled; "
            "give the task flat_hints() (docs/extending.md)"
        )


def _train_by(method: str, args: argparse.Namespace, out: Path) -> int:
    from rlenv_robot.training.trainers import can_resume, trainer

    train, settings = trainer(method), task_settings(args.profile, args.name)
    more: dict[str, Any] = {"resume": args.resume} if can_resume(train) else {}
    if args.resume and not more:
        raise ValueError(f"a training by {method} can't be resumed: leave out --resume to begin anew")
    shown = None if args.demos is None else _demonstrations(args, settings)
    with progress_bars(file=args.progress) as bars:
        advance, steps = _progress(bars.begin(f"train by {method}")), 0

        def progress(done: int, total: int, point: Point | None) -> None:
            nonlocal steps
            steps = done
            advance(done, total, point)

        try:
            trained = train(
                args.name, out, steps=args.steps, seconds=math.inf if args.seconds is None else args.seconds,
                seed=args.seed, nominal=args.nominal, settings=settings, track=args.track,
                demonstrations=shown, progress=progress, **more,
            )  # fmt: skip
        except KeyboardInterrupt:
            if not more or not steps:
                raise
            say(f"stopped after {steps:,} steps; go on with the same command and --resume")
            return INTERRUPTED
    how = method if shown is None else f"{method} from demonstrations (their clone: {trained.points[0].success:.1%})"
    print(f"{out}: {how}, {trained.steps:,} steps in {trained.seconds:.0f} s; {_success(args, trained, settings)}")
    print(f"learning curve: {out.with_suffix('.csv')}; checkpoints: {out.with_suffix('.checkpoints')}")
    return 0


def _progress(advance: Advance) -> Callable[[int, int, Point | None], None]:
    """Return a function that advances a bar, with the newest evaluation as its remark."""

    def progress(done: int, total: int, point: Point | None) -> None:
        remark = "" if point is None else f"success {point.success:.0%}, mean return {point.returns:.1f}"
        figures = None if point is None else {"steps": point.steps, "success": point.success, "return": point.returns}
        advance(done, remark, total=total, figures=figures)

    return progress


def _success(args: argparse.Namespace, trained: Trained, settings: JsonDict) -> str:
    """Evaluate the policy in new episodes, and return its shares of success as text."""
    from rlenv_robot.training.trials import success_rates

    rates = success_rates(
        args.name, trained.policy, _EVALUATED, _TEST_SEED + args.seed, nominal=args.nominal, settings=settings
    )
    shares = ", ".join(f"{share:.1%} {group}" for group, share in rates.items())
    return f"of {_EVALUATED} new episodes each: {shares}"


def _train_from_data(args: argparse.Namespace) -> int:
    """Train on recorded data alone; a task's simulation serves for trials only."""
    from rlenv_robot.registry import task
    from rlenv_robot.training.trainers import offline_trainer, open_rewarded

    method, out = _checked_offline(args), checked_output(args.out, args.seconds, (".npz", ".onnx"))
    settings = {} if args.name is None else task_settings(args.profile, args.name)
    own = {name: value for name, value in settings.items() if name != "profile"}
    target = None if args.name is None else task(args.name, **own)
    source = open_rewarded(
        args.data[0] if len(args.data) == 1 else args.data, target, args.goal, **reading_options(args)
    )
    print(f"{len(source):,} steps of {counted(len(source.table.episodes), 'episode')}")
    with progress_bars(file=args.progress) as bars:
        trained = offline_trainer(method)(
            source, out, task=args.name, updates=args.updates,
            seconds=math.inf if args.seconds is None else args.seconds, seed=args.seed, settings=settings,
            options=dict(args.set), track=args.track, progress=_progress(bars.begin(f"train by {method}")),
        )  # fmt: skip
    how = f"{out}: {method}, {trained.steps:,} updates in {trained.seconds:.0f} s"
    if args.name is None:
        print(f"{how}; not evaluated, since no task was named")
        return 0
    print(f"{how}; {_success(args, trained, settings)}")
    print(f"learning curve: {out.with_suffix('.csv')}")
    return 0


def _checked_offline(args: argparse.Namespace) -> str:
    """Return the offline method; refuse options that it doesn't have.

    Raises:
        ValueError: the method is unknown or learns in simulation, there are no data, or an option is of other methods.
    """
    from rlenv_robot.training.trainers import offline_trainer_names, trainer_names, unknown_method

    names = offline_trainer_names()
    method = str(args.method or "iql")
    if method in ("evolution", *trainer_names()):
        raise ValueError(f"--method {method} learns in simulation; with --data use one of {', '.join(names)}")
    if method not in names:
        raise unknown_method(method)
    if args.data is None:
        raise ValueError(f"--method {method} learns from recorded data: give them as --data SET")
    if args.steps is not None:
        raise ValueError("--steps counts steps in simulation, of which there are none with --data: use --updates")
    if args.demos is not None:
        raise ValueError("--demos is for training in simulation: give all recorded runs as --data")
    if args.resume:
        raise ValueError("--resume is for training in simulation; with --data a training begins anew")
    if args.updates is not None and args.updates < 1:
        raise ValueError(f"--updates is {args.updates}, it must be at least 1")
    return method


def _demonstrations(args: argparse.Namespace, settings: JsonObject) -> SourceData:
    """Return the recorded runs of ``--demos``, read as the task that is trained."""
    from rlenv_robot.registry import task
    from rlenv_robot.source import open_source

    own = {name: value for name, value in settings.items() if name != "profile"}
    return open_source(args.demos, task=task(args.name, **own))


def _train_by_evolution(args: argparse.Namespace, out: Path) -> int:
    from rlenv_robot.policies.feedback import FeedbackPolicy
    from rlenv_robot.registry import make_vector
    from rlenv_robot.training.evolution import SearchFile
    from rlenv_robot.training.learner import train_in_simulation
    from rlenv_robot.training.rollout import evaluate
    from rlenv_robot.training.trackers import open_tracker

    settings = task_settings(args.profile, args.name)
    seconds = math.inf if args.seconds is None else args.seconds
    steps = _EVOLUTION_STEPS if args.steps is None and args.seconds is None else args.steps
    about = {"task": args.name, "seed": args.seed, "method": "evolution"}
    own = {name: value for name, value in settings.items() if name != "profile"}
    file = SearchFile(out, {**about, "profile": args.profile, "options": own})
    earlier = file.load() if args.resume else []
    if not args.resume:
        file.begin()
    done = len(earlier)
    with progress_bars(file=args.progress) as bars, closing(open_tracker(args.track, args.name, about)) as tracker:
        bar = search_bar(bars, "train by evolution")

        def progress(generation: Generation) -> None:
            nonlocal done
            if generation.number >= len(earlier):
                file.add(generation.scores)
            done = generation.number + 1
            tracker.add(done, generation.metrics)
            bar(generation)

        try:
            trained = train_in_simulation(args.name, seconds, args.seed, progress, settings, steps, earlier)
        except KeyboardInterrupt:
            say(f"stopped after {counted(done, 'generation')}; go on with the same command and --resume")
            return INTERRUPTED
    trained.policy.save(out, {"trained": "evolution", "steps": trained.steps, "seed": args.seed})
    file.remove()
    vectors, task = trained.policy.vectors, trained.policy.task
    start = FeedbackPolicy.zeros(vectors, task)
    with make_vector(args.name, _EVALUATED, autoreset="disabled", **settings) as envs:
        before, after = (evaluate(envs, policy, _TEST_SEED + args.seed) for policy in (start, trained.policy))
    print(f"{out}: evolution, {trained.steps:,} steps; {_summary(before, after)}")
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
    """Return the settings for `rlenv_robot.make_vector` from a profile: the task's settings and the profile itself.

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


def checked_output(
    name: str, seconds: float | None, endings: tuple[str, ...] = (".npz",), steps: int | None = None
) -> Path:
    """Return the file to write; check it before training, so that an hour's work is not lost.

    Args:
        name: as given by the user.
        seconds: wall time of the training; None for no limit.
        endings: the allowed extensions.
        steps: the number of steps of the training; None for no limit.

    Raises:
        ValueError: the extension is wrong, the folder is missing or can't be written to, or no time or steps are left.
    """
    path = Path(name)
    if path.suffix not in endings:
        raise ValueError(f"--out is {name!r}, but a policy file of this method ends in {' or '.join(endings)}")
    if not path.parent.is_dir():
        raise ValueError(f"--out is {name!r}, but there is no folder {str(path.parent)!r}; make it first")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise ValueError(f"--out is {name!r}, but its folder can't be written to: {error.strerror}") from None
    if seconds is not None and not seconds > 0:
        raise ValueError(f"--seconds is {seconds}, it must be above 0")
    if steps is not None and steps < 1:
        raise ValueError(f"--steps is {steps}, it must be at least 1")
    return path


# -- rlenv-robot retrain -------------------------------------------------------------------------------------


def add_retrain(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Fit a model of the robot to recorded runs, and improve a policy inside it by the task's own reward. Of a "
        "network the search changes the last layer. For the "
        "so101 the model knows the arm's kinematics; for any other robot it is linear and knows no contacts."
    )
    parser.add_argument("runs", type=location, help="a folder of recorded runs, or a data set or its address")
    words = "the policy to improve, an .npz file of `rlenv-robot train`, or zoo:NAME"
    parser.add_argument("--policy", required=True, help=words)
    parser.add_argument("--out", required=True, help="the policy file to write, ending in .npz")
    parser.add_argument("--task", metavar="NAME", help="the task (default: the one that the policy was trained for)")
    parser.add_argument(
        "--steps", type=int,
        help="control steps of all candidates in the model together (default: 2,000,000)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, help="end after this wall time in any case; a run that it ends is not reproducible"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws (default: 0)")
    parser.add_argument("--profile", metavar="FILE", help="a profile: its task's settings")
    parser.add_argument(
        "--goal", type=_goal, default="recorded", metavar="GOAL",
        help="goal that the episodes are rewarded for: recorded (default), hindsight (what each episode reached), or "
        "values for all of them, such as target_position=0.2,0.0,0.1",
    )  # fmt: skip
    add_reading(parser)
    add_track(parser)
    add_progress(parser)
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
                f"{text!r} is not a goal; write recorded, hindsight or field=numbers: target_position=0.2,0.0,0.1"
            )
        goal[name.strip()] = values if len(values) > 1 else values[0]
    return goal


def run_retrain(args: argparse.Namespace) -> int:
    """Fit a model to the recorded runs, improve the policy inside it, and print the model's accuracy."""
    from rlenv_robot.policies.lineage import LINEAGE, policy_digest
    from rlenv_robot.policies.zoo import policy_file
    from rlenv_robot.registry import task
    from rlenv_robot.training.learner import retrain_from_record
    from rlenv_robot.training.trackers import open_tracker

    out, start = checked_output(args.out, args.seconds, steps=args.steps), _policy_to_improve(policy_file(args.policy))
    name = args.task or start.task
    settings = task_settings(args.profile, name)
    settings.pop("profile", None)
    chosen = task(args.task, **settings) if args.task else _task_of(start, args.policy, settings)
    about = {"task": name, "seed": args.seed, "runs": str(args.runs)}
    with progress_bars(file=args.progress) as bars, closing(open_tracker(args.track, name, about)) as tracker:
        bar = search_bar(bars, "retrain from the record")

        def progress(generation: Generation) -> None:
            bar(generation)
            tracker.add(generation.number + 1, generation.metrics)

        retrained = retrain_from_record(
            args.runs, start, chosen, math.inf if args.seconds is None else args.seconds, args.seed, progress,
            args.goal, _RETRAINING_STEPS if args.steps is None and args.seconds is None else args.steps,
            **reading_options(args),
        )  # fmt: skip
    lineage = replace(retrained.lineage, parent=policy_digest(policy_file(args.policy))).to_dict()
    about = {"trained": str(args.runs), "episodes": retrained.episodes[0], "seed": args.seed, LINEAGE: lineage}
    retrained.training.policy.save(out, about)
    for note in retrained.notes:
        print(f"note: {note}")
    for run, count in retrained.runs.items():
        print(f"used {counted(count, 'episode')} of {run}")
    print(f"{out}: {_retrain_summary(retrained)}")
    if not retrained.is_improved:
        print(
            "the policy is saved unchanged: the gain may be the model's error, or the record holds no actions "
            "but the policy's own. Record more episodes, and other actions (a script, a person, another policy)"
        )
    return 0


def _task_of(policy: SearchedPolicy, file: str, settings: Mapping[str, Any]) -> Task:
    """Return the registered task that a policy's file names."""
    from rlenv_robot.registry import find_task

    try:
        return find_task(policy.task, **settings)
    except ValueError as error:
        raise ValueError(f"{file}: {error}. If you know where its task is, name it: --task NAME") from error


def _policy_to_improve(name: Path) -> SearchedPolicy:
    from hal import RobotError
    from rlenv_robot.policies.policy import load_searched

    if name.suffix == ".onnx":
        raise RobotError(
            f"{name}: retrain searches over the parameters of an .npz policy of `rlenv-robot train`; an ONNX file is a "
            "fixed graph. Retrain that one where it was trained (docs/trainers.md)"
        )
    return load_searched(name)


def _retrain_summary(retrained: Retraining) -> str:
    known, unseen = retrained.episodes
    error, unchanged = retrained.error[-1], retrained.unchanged[-1]
    return (
        f"model fitted to {len(known)} episodes; over {len(retrained.error)} steps of {len(unseen)} held-out ones, "
        f"without correction, its error is {error:.2f} {retrained.unit} RMS ({unchanged:.2f} if nothing moved); "
        f"the return in the model rose by {retrained.gain:.3g}, give or take {retrained.return_error:.3g}"
    )
