"""``rlenv-robot run``: run a trained policy on a simulated or real robot, and record the run."""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlenv_robot.cli.clearing import add_clearing, clearing
from rlenv_robot.cli.output import warn_of_limit_cycles

if TYPE_CHECKING:
    from hal import Robot, RobotSpec, Spec
    from rlenv_robot.env import Environment
    from rlenv_robot.policies.chunked_policy import ChunkedPolicy
    from rlenv_robot.policies.chunks import ChunkPredictor
    from rlenv_robot.policies.policy import Policy, SavedPolicy
    from rlenv_robot.robot_env.intervention import Operator
    from rlenv_robot.tasks.task import Task
    from rlenv_robot.training.rollout import Outcome

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Run a trained policy on a robot, simulated or real, and record it."
    parser.epilog = """
Examples:

  rlenv-robot run so101-reach --policy zoo:so101-reach
  rlenv-robot run so101-reach --policy reach.npz
  rlenv-robot run so101-reach --policy reach.npz --record runs
  rlenv-robot run so101-stack --policy script:so101-stack --record demonstrations
  rlenv-robot run so101-reach --policy reach.npz --robot tcp://10.0.0.7:5555
  rlenv-robot run free --policy policy.onnx --robot tcp://10.0.0.7:5555
"""
    parser.add_argument("name", help="so101-reach, a MuJoCo model (.xml), module:factory, ..., or free for any robot")
    words = "a policy: .onnx, .npz, a folder of LeRobot, zoo:NAME, or script:TASK; in simulation also zero or random"
    parser.add_argument("--policy", required=True, help=words)
    parser.add_argument("--robot", default="sim", help="sim, twin, a server's address, or module:factory of a driver")
    parser.add_argument("--keys", metavar="FOLDER", help="this machine's keys, for a robot on another machine")
    parser.add_argument(
        "--take", choices=("ask", "force"), help="if another client holds the robot: ask it, or take it"
    )
    words = "in simulation: frames from an observation to the effect of the chunk predicted from it (default: 0)"
    parser.add_argument("--delay", type=int, metavar="FRAMES", help=words)
    words = "predict an ONNX file's next chunk while frames go on, as policy servers do, on a robot in real time"
    parser.add_argument("--asynchronous", action="store_true", help=words)
    words = "on a slow network: send each command this many frames ahead; the server's serve.ahead allows it"
    parser.add_argument("--ahead", type=int, metavar="FRAMES", default=0, help=words)
    parser.add_argument("--episodes", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the goals (default: 0)")
    parser.add_argument("--record", help="a folder; the run is recorded into a new one inside it")
    parser.add_argument("--profile", metavar="FILE", help="a profile, for its task's settings and its record.folder")
    words = "run although these parts of the manifest differ: sensors, rate, home, gains, delays"
    parser.add_argument("--accept", metavar="PART,...", default="", help=words)
    add_clearing(parser)
    parser.add_argument("--verdicts", action="store_true", help="ask at this terminal for a verdict on each episode")
    parser.add_argument("--intervene", action="store_true", help="take over with the keys of this terminal")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the episodes, and print a line for each."""
    from rlenv_robot.data.folder import runs_at
    from rlenv_robot.policies.deployment import check_deployment, deployed_spec

    if args.episodes < 1:
        raise ValueError(f"--episodes is {args.episodes}, it must be at least 1")
    policy = _policy(args)
    predictor = _predictor(args, policy)
    folder = _record_folder(args)
    known = runs_at(folder)
    with ExitStack() as last, _environment(args, policy, answers=predictor is not None) as env:
        policy.check(env.observation, env.action)
        deployed = deployed_spec(env.world)
        for line in check_deployment(policy, deployed, _accepted(args)):
            print(line, file=sys.stderr)
        chunked = None if predictor is None else _chunked(args, predictor, env, deployed)
        if chunked is not None:
            last.callback(chunked.close)  # after the robot, for which nothing may wait
        outcomes = []
        for episode in range(args.episodes):
            options: dict[str, Any] = {"seed": args.seed} if episode == 0 else {}
            if episode == 0:
                options |= clearing(args)
            outcome = _episode(env, chunked or policy, options)
            outcomes.append(outcome)
            print(_line(episode, outcome, _has_goal(env)), flush=True)
    _summarise(outcomes, _has_goal(env))
    if chunked is not None:
        print(chunked.totals)
    warn_of_limit_cycles([outcome.limit_cycle_deg for outcome in outcomes])
    if args.robot != "sim":
        _report(runs_at(folder) - known)
    return 0


def _episode(env: Environment, policy: Policy, options: Mapping[str, Any]) -> Outcome:
    """Run one episode, and stop the robot if a policy server falls silent."""
    from rlenv_robot.policies.chunked_policy import SilentPolicy
    from rlenv_robot.training.rollout import run_episode

    try:
        *_, outcome = run_episode(env, policy, options)
    except SilentPolicy as error:
        env.stop(str(error))
        raise
    assert outcome is not None
    return outcome


def _predictor(args: argparse.Namespace, policy: SavedPolicy) -> ChunkPredictor | None:
    """Return the predictor whose chunks are executed while it predicts the next one; None for any other policy."""
    from rlenv_robot.policies.chunks import ChunkPredictor, HasChunkPredictor

    if args.delay is not None and (args.robot != "sim" or args.delay < 0):
        raise ValueError(
            f"--delay is {args.delay}, with --robot {args.robot}; it is a number of frames, at least 0, and for "
            "--robot sim, whose frames take no fixed time; frames of other robots pass while the policy predicts"
        )
    if isinstance(policy, ChunkPredictor):
        return policy
    if args.delay is None and not args.asynchronous:
        return None
    predictor = policy.chunk_predictor() if isinstance(policy, HasChunkPredictor) else None
    if predictor is None:
        option = "asynchronous" if args.asynchronous else "delay"
        raise ValueError(
            f"--{option} is for a policy that predicts chunks, and {args.policy} does not; leave the option out"
        )
    return predictor


def _chunked(
    args: argparse.Namespace, predictor: ChunkPredictor, env: Environment, deployed: RobotSpec | None
) -> ChunkedPolicy:
    from rlenv_robot.action_limiter import limiter_of
    from rlenv_robot.policies.chunked_policy import ChunkedPolicy

    delay = (args.delay or 0) if args.robot == "sim" else None
    chunked = ChunkedPolicy(predictor, limiter_of(env.world, deployed), delay=delay, ahead=args.ahead)
    chunked.check(env.observation, env.action)
    return chunked


def _report(runs: Iterable[Path]) -> None:
    """Print what installed packages say of new runs on a robot, such as the gap to its simulation.

    An entry point of the group ``rlenv_robot.run_reports`` names a function that takes the runs' folders and returns
    lines.
    """
    from rlenv_robot.config.plugins import PluginTable

    table = PluginTable("report of runs", "rlenv_robot.run_reports", {})
    for name in table.names():
        for line in cast("Callable[[Iterable[Path]], Iterable[str]]", table.load(name))(runs):
            print(line)


def _accepted(args: argparse.Namespace) -> list[str]:
    return [part for part in args.accept.split(",") if part]


def _policy(args: argparse.Namespace) -> SavedPolicy:
    from rlenv_robot.policies.policy import PLAIN, load_policy

    if args.policy not in PLAIN:
        return load_policy(args.policy)
    if args.robot not in ("sim", "twin"):
        raise ValueError(
            f"--policy {args.policy} ignores what it observes, so --robot may be sim or twin; it is {args.robot!r}: "
            "name a trained policy's file, or step rr.make(..., robot=...) in Python"
        )
    return PLAIN[args.policy](args.seed)


def _environment(args: argparse.Namespace, policy: SavedPolicy, *, answers: bool) -> Environment:
    """Make the environment of the arguments, and of the profile where they leave something out."""
    from hal import Terminal
    from rlenv_robot.config.profile import load_profile
    from rlenv_robot.policies.deployment import TrainedPolicy
    from rlenv_robot.policies.lineage import POLICY_DIGEST, policy_digest
    from rlenv_robot.policies.policy import PLAIN, StochasticPolicy
    from rlenv_robot.policies.zoo import policy_file
    from rlenv_robot.registry import make

    info: dict[str, Any] = {"policy": str(args.policy)}
    if args.policy not in PLAIN and (file := policy_file(args.policy)).exists():
        info[POLICY_DIGEST] = policy_digest(file)
    if isinstance(policy, TrainedPolicy) and policy.robot is not None:
        info |= {"manifest": policy.robot.manifest_digest, "accepted": _accepted(args)}
    profile = load_profile(args.profile) if args.profile else None
    options, record = {}, args.record
    if profile is not None:
        if profile.task.name != args.name:
            raise ValueError(f"{profile.file}: task.name is {profile.task.name!r}, but the command says {args.name!r}")
        options, record = profile.task.options, args.record or profile.record.folder or None
    where, keys = _robot(args, options)
    return make(
        args.name, where, mode="inference", record=record, info=info, keys=keys, profile=profile,
        judge=Terminal() if args.verdicts else None, operator=_operator(args, options),
        behaviour=policy.behaviour if isinstance(policy, StochasticPolicy) else None, answers=answers,
        ahead=0 if args.take else args.ahead, **options,
    )  # fmt: skip


def _record_folder(args: argparse.Namespace) -> Path | None:
    from rlenv_robot.config.profile import load_profile

    name = args.record or (load_profile(args.profile).record.folder if args.profile else "")
    return Path(name) if name else None


def _robot(args: argparse.Namespace, options: Mapping[str, Any]) -> tuple[str | Robot, str | None]:
    """Return the robot's place and its keys; with ``--take``, the robot on the network itself."""
    from rlenv_robot.registry import robot
    from rlenv_robot.robot_models import robot_model_of

    if not args.take:
        return args.robot, args.keys
    if "://" not in args.robot:
        raise ValueError(
            f"--take is for a robot on the network, such as tcp://10.0.0.7:5555, and this is {args.robot!r}"
        )
    model = robot_model_of(_task(args, options))
    return robot(model, args.robot, keys=args.keys, take=args.take, ahead=args.ahead), None


def _task(args: argparse.Namespace, options: Mapping[str, Any]) -> Task:
    from rlenv_robot.registry import task
    from rlenv_robot.tasks.free import FREE, free_task

    return free_task(args.robot, args.keys, **options) if args.name == FREE else task(args.name, **options)


def _operator(args: argparse.Namespace, options: Mapping[str, Any]) -> Operator | None:
    """Return the keys of this terminal as the device of a person who may take over, if that is asked for.

    An entry point ``keyboard`` of the group ``rlenv_robot.operators`` names the function that makes it.
    """
    from rlenv_robot.config.plugins import PluginTable

    if not args.intervene:
        return None
    operators = PluginTable("operator's device", "rlenv_robot.operators", {})
    if "keyboard" not in operators:
        from hal.errors import missing_plugin

        raise ValueError(f"--intervene needs {missing_plugin('rlenv_operate')}")
    return cast("Callable[[Spec], Operator]", operators.load("keyboard"))(_task(args, options).action)


def _has_goal(env: Environment) -> bool:
    """Whether the task has a goal, so that an episode can succeed."""
    from rlenv_robot.tasks.free import Free
    from rlenv_robot.tasks.task import task_world

    inner = task_world(env.world)
    return inner is None or not isinstance(inner.task, Free)


def _line(episode: int, outcome: Outcome, has_goal: bool) -> str:
    word = "" if not has_goal else "reached" if outcome.success else "missed "
    figures = "".join(f"{_figure(name, value)}  " for name, value in outcome.metrics.items())
    return f"episode {episode:3d}  {word}  {figures}return {outcome.total:6.2f}  {outcome.end}"


def _figure(name: str, value: float) -> str:
    return f"{value:7.1f} mm" if name == "distance_mm" else f"{name} {value:.3g}"


def _summarise(outcomes: list[Outcome], has_goal: bool) -> None:
    cycles = [outcome.limit_cycle_deg for outcome in outcomes if math.isfinite(outcome.limit_cycle_deg)]
    steadiness = (
        f", median limit cycle {statistics.median(cycles):.1f} degrees (largest {max(cycles):.1f})" if cycles else ""
    )
    if not has_goal:
        returns = statistics.median(outcome.total for outcome in outcomes)
        print(f"{len(outcomes)} episodes, median return {returns:.2f}{steadiness}")
        return
    hits = sum(outcome.success for outcome in outcomes)
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.metrics)
    middle_values = {
        name: statistics.median(outcome.metrics[name] for outcome in outcomes if name in outcome.metrics)
        for name in names
    }
    medians = "".join(
        f", median final distance {value:.1f} mm" if name == "distance_mm" else f", median {_figure(name, value)}"
        for name, value in middle_values.items()
    )
    print(f"{hits} of {len(outcomes)} reached{medians}{steadiness}")
