"""``rlenv-robot kaiwu``: run, evaluate, test and write projects of Tencent's Kaiwu framework."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rlenv_robot.cli.verbs import Verb, add_verbs

if TYPE_CHECKING:
    from rlenv_kaiwu.agent import Counter
    from rlenv_kaiwu.env import Bridge
    from rlenv_kaiwu.project import Project
    from rlenv_kaiwu.run import EnvLike, Outcome, View
    from rlenv_kaiwu.session import Budget, Style
    from rlenv_robot.config.profile import Profile
    from rlenv_robot.env import Environment

__all__ = ["add", "add_eval", "add_new", "add_run", "add_test", "evaluate", "new", "run", "test"]

_STYLES = ("document", "2024", "2025", "2026", "batch")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands ``run``, ``eval``, ``test`` and ``new``."""
    parser.description = (
        "Run a project directory of Tencent's Kaiwu framework, with its agent and workflow unchanged, over any of our "
        "environments (docs/kaiwu.md)."
    )
    here = "rlenv_kaiwu.cli.kaiwu"
    verbs = {
        "run": Verb(f"{here}:add_run", "run a project's training workflow"),
        "eval": Verb(f"{here}:add_eval", "play episodes with a saved model, and report scores"),
        "test": Verb(f"{here}:add_test", "test a project as its train_test.py does"),
        "new": Verb(f"{here}:add_new", "write a project to begin with"),
    }
    add_verbs(parser, verbs, None)


def _add_project(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="the project's directory")
    parser.add_argument(
        "--env", metavar="NAME", help="an environment, as for rlenv-robot run (default: the one that kaiwu.json names)"
    )
    parser.add_argument("--robot", default="sim", help="sim, twin, or a server's address (default sim)")
    parser.add_argument("--keys", metavar="FOLDER", help="this machine's keys, for a robot on the network")
    parser.add_argument("--profile", metavar="FILE", help="settings of the environment")
    parser.add_argument("--algorithm", metavar="NAME", help="one of the project's (default: its own choice)")
    parser.add_argument("--style", choices=_STYLES, help="the year of the project (default: found from its files)")
    parser.add_argument(
        "--bridge",
        metavar="MODULE:CLASS",
        help="translates observations and actions for a project made for another game",
    )
    parser.add_argument("--out", metavar="FOLDER", help="models, logs and metrics (default: kaiwu-runs/DIR)")


def add_run(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``kaiwu run``."""
    parser.description = "Run a project's training workflow until it returns or a limit is reached."
    parser.epilog = """
Examples:

  rlenv-robot kaiwu new reach --env so101-reach
  rlenv-robot kaiwu run reach --steps 60000 --seed 0
"""
    _add_project(parser)
    for name, kind, text in (
        ("steps", int, "steps of the environment"), ("updates", int, "calls of learn"),
        ("episodes", int, "episodes"), ("seconds", float, "seconds of wall-clock time"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=kind, metavar="N", help=f"end after so many {text}")
    parser.add_argument("--seed", type=int, help="of the first episode")
    parser.add_argument(
        "--pool", action="store_true", help="send samples through a sample pool, as distributed runs do"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the newest model in the folder of --out")
    parser.add_argument(
        "--distributed",
        action="store_true",
        help="run workflows, actors and the learner in processes of their own, on Ray",
    )
    parser.add_argument(
        "--workflows", type=int, default=1, metavar="N", help="workflows of a distributed run (default 1)"
    )
    parser.add_argument(
        "--actors",
        type=int,
        default=0,
        metavar="N",
        help="processes that choose actions for the workflows (default: none)",
    )
    parser.add_argument(
        "--environments-apart", action="store_true", help="give each environment of a distributed run its own process"
    )
    parser.add_argument("--address", help="of a Ray cluster (default: start Ray on this machine)")
    parser.set_defaults(run=run)


def add_eval(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``kaiwu eval``."""
    parser.description = (
        "Play episodes with a saved model and the agent's exploit, as the platform evaluates, and print each episode's "
        "score and the mean with its 95 % interval. Nothing is learned."
    )
    parser.epilog = """
Examples:

  rlenv-robot kaiwu eval reach
  rlenv-robot kaiwu eval reach --model 40 --episodes 100 --seed 7
  rlenv-robot kaiwu eval reach --model kaiwu-runs/reach/ckpt/model.ckpt-40.pkl --robot tcp://10.0.0.7:5555
"""
    _add_project(parser)
    parser.add_argument(
        "--model", default="latest", metavar="MODEL",
        help="a number or latest, of the models in the folder of --out, or a file model.ckpt-NUMBER.* (default latest)",
    )  # fmt: skip
    parser.add_argument("--episodes", type=int, default=20, metavar="N", help="default 20")
    parser.add_argument("--seed", type=int, default=0, help="of the first episode (default 0)")
    parser.set_defaults(run=evaluate)


def add_test(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``kaiwu test``."""
    parser.description = (
        "Test a project as its train_test.py does: with a small pool and batch, one call of learn, one saved model, "
        "and no error in the log."
    )
    parser.epilog = """
Examples:

  rlenv-robot kaiwu test reach
  rlenv-robot kaiwu test legged_robot_competition_26 --env go2-walk --seconds 900
"""
    _add_project(parser)
    parser.add_argument("--seconds", type=float, default=300.0, metavar="N", help="give up after (default 300)")
    parser.add_argument(
        "--most-refused", type=float, default=0.5, metavar="SHARE",
        help="share of the steps whose action may be illegal, so that nothing moves; above it the test fails "
        "(default 0.5)",
    )  # fmt: skip
    parser.set_defaults(run=test)


def add_new(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``kaiwu new``."""
    parser.description = "Write a project whose workflow runs as it stands: PPO, or DQN with numbered moves."
    parser.epilog = """
Examples:

  rlenv-robot kaiwu new reach --env so101-reach
  rlenv-robot kaiwu new moves --env so101-reach --algorithm dqn
"""
    parser.add_argument("folder", metavar="DIR", help="made if it is missing; no file is replaced")
    parser.add_argument("--env", default="so101-reach", metavar="NAME", help="a task (default so101-reach)")
    parser.add_argument("--algorithm", choices=("ppo", "dqn"), default="ppo", help="default ppo")
    parser.set_defaults(run=new)


def run(args: argparse.Namespace) -> int:
    """Run a project, and print a summary."""
    from rlenv_kaiwu.project import open_project
    from rlenv_kaiwu.run import run_project

    project = open_project(args.folder, args.algorithm, args.style)
    if args.distributed:
        return _run_distributed(args, project)
    outcome = run_project(
        project, _views(args, project), out=_out(args), budget=_budget(args), bridge=_bridge(args),
        through_pool=args.pool, resume=args.resume, seed=args.seed,
    )  # fmt: skip
    _print(outcome)
    return 0


def _run_distributed(args: argparse.Namespace, project: Project) -> int:
    from rlenv_kaiwu.run import make_env

    try:
        from rlenv_kaiwu.distributed import run_distributed
    except ImportError as error:
        raise ValueError(f"--distributed needs Ray: pip install 'rlenv-robot[kaiwu]' ({error})") from error
    if project.style == "batch":
        raise ValueError("--distributed needs a workflow that sends samples; a project of style batch keeps its own")
    _env(args, project.environment).close()  # a mistake in a name shows here, not in a process of Ray
    arguments = argparse.Namespace(**{**vars(args), "run": None})

    def make(counter: Counter, style: Style, seed: int | None) -> View:
        return make_env(_env(arguments, project.environment), style, counter, seed, _bridge(arguments))

    outcome = run_distributed(
        project, make, out=_out(args), workflows=args.workflows, predictors=args.actors, budget=_budget(args),
        resume=args.resume, seed=args.seed or 0, address=args.address, environments_apart=args.environments_apart,
    )  # fmt: skip
    rate = outcome.steps / max(outcome.seconds, 1e-9)
    print(
        f"{outcome.ended}: {outcome.steps} steps, {_refused(outcome.refused, outcome.steps)}, learned "
        f"{outcome.updates} times, {outcome.seconds:.1f} s "
        f"({rate:.0f} steps/s); {outcome.counts.inserted} samples came, {outcome.learned} were learned, {outcome.left} "
        f"are left, {outcome.counts.unused} were dropped unused"
    )
    print("processes started: " + ", ".join(f"{role} {count}" for role, count in sorted(outcome.started.items())))
    if outcome.models:
        print(f"models {', '.join(map(str, outcome.models))} in {outcome.out / 'ckpt'}")
    return 0


def evaluate(args: argparse.Namespace) -> int:
    """Play episodes with a saved model; print and write the results. Return 1 if every episode failed."""
    from rlenv_kaiwu.evaluation import evaluate_project, mean_interval, share_interval
    from rlenv_kaiwu.project import open_project
    from rlenv_robot.cli.output import counted, print_table

    project = open_project(args.folder, args.algorithm, args.style)
    result = evaluate_project(
        project, _views(args, project), out=_out(args), model=args.model, episodes=args.episodes,
        bridge=_bridge(args), seed=args.seed,
    )  # fmt: skip
    words = {None: "", True: "success", False: "failure"}
    agents = result.agent_scores
    rows = [
        (
            str(number), *(f"{one.agent_scores.get(name, 0.0):.3f}" for name in agents),
            *(() if agents else (f"{one.score:.3f}",)), str(one.steps), str(one.refused), words[one.success], one.end,
        )
        for number, one in enumerate(result.episodes)
    ]  # fmt: skip
    head = [f"score {name}" for name in agents] or ["score"]
    print_table(f"model {result.model}", ("episode", *head, "steps", "refused", "verdict", "end"), rows)
    scores, verdicts = result.scores, result.verdicts
    if failed := len(result.episodes) - len(scores):
        print(f"{counted(failed, 'episode')} failed, since the environment did; they count in no score")
    if not scores:
        return 1
    for name, own in agents.items() or {"": scores}.items():
        low, high = mean_interval(own)
        print(f"score {name and name + ': '}{sum(own) / len(own):.3f} (95 % interval {low:.3f} to {high:.3f}), "
              f"{counted(len(own), 'episode')}")  # fmt: skip
    if verdicts:
        low, high = share_interval(verdicts)
        print(f"success {sum(verdicts)} of {len(verdicts)} (95 % interval {low:.0%} to {high:.0%})")
    print(f"results in {_out(args) / 'evaluation' / f'model-{result.model}.json'}")
    return 0


def test(args: argparse.Namespace) -> int:
    """Test a project, and print a summary."""
    from rlenv_kaiwu.project import open_project
    from rlenv_kaiwu.run import check_project

    if not 0 <= args.most_refused <= 1:
        raise ValueError(f"--most-refused is {args.most_refused}, it must be from 0 to 1")
    project = open_project(args.folder, args.algorithm, args.style)
    outcome = check_project(
        args.folder, _views(args, project), out=_out(args), algorithm=args.algorithm, style=args.style,
        bridge=_bridge(args), seconds=args.seconds,
    )  # fmt: skip
    _print(outcome)
    if outcome.refused_share > args.most_refused:
        print(
            f"train test failed: {outcome.refused_share:.0%} of the actions were refused, allowed are "
            f"{args.most_refused:.0%} (--most-refused); look at state['error'], and translate the actions by --bridge"
        )
        return 1
    print("train test succeeded: the agent has learned and saved a model")
    return 0


def new(args: argparse.Namespace) -> int:
    """Write a new project, and print what to do next."""
    from rlenv_kaiwu.templates import write_project

    written = write_project(args.folder, args.env, args.algorithm)
    print(f"{args.folder}: {len(written)} files")
    print("next:")
    print(f"  rlenv-robot kaiwu test {args.folder}")
    print(f"  rlenv-robot kaiwu run {args.folder} --steps 60000")
    return 0


def _budget(args: argparse.Namespace) -> Budget:
    from rlenv_kaiwu.session import Budget

    return Budget(args.steps, args.updates, args.episodes, args.seconds)


def _out(args: argparse.Namespace) -> Path:
    return Path(args.out) if args.out else Path("kaiwu-runs") / Path(args.folder).absolute().name


def _bridge(args: argparse.Namespace) -> Callable[[Environment], Bridge] | None:
    from rlenv_robot.config.plugins import load_object

    return (
        None if args.bridge is None else cast("Callable[[Environment], Bridge]", load_object(args.bridge, Path.cwd()))
    )


def _views(args: argparse.Namespace, project: Project) -> EnvLike:
    """Return the environment, or for a project that steps batches the function that makes them."""
    if project.style != "batch":
        return _env(args, project.environment)
    name = args.env or project.environment
    profile = _profile(args)
    if profile is not None:
        name = name or profile.task.name
    if name != "go2-walk" or args.robot != "sim":
        raise ValueError(f"--style batch is for --env go2-walk in simulation; this is {name!r} on {args.robot!r}")
    from rlenv_kaiwu.batch import Go2Batch
    from rlenv_kaiwu.lab import Processors
    from rlenv_kaiwu.project import load_processors

    def processors() -> Processors:
        return Processors(**load_processors(project))

    return lambda counter, style, seed: Go2Batch(counter, seed, profile=profile, processors=processors)


def _profile(args: argparse.Namespace) -> Profile | None:
    from rlenv_robot.config.profile import load_profile

    return None if args.profile is None else load_profile(args.profile)


def _env(args: argparse.Namespace, named: str) -> Environment:
    from rlenv_robot.registry import make

    profile = _profile(args)
    name = args.env or named
    options = {}
    if profile is not None:
        name, options = name or profile.task.name, dict(profile.task.options)
    if not name:
        raise ValueError("which environment? kaiwu.json names none: give --env, such as --env so101-reach")
    return make(name, args.robot, keys=args.keys, profile=profile, **options)


def _refused(refused: int, steps: int) -> str:
    """Return how many of the steps moved nothing, since their action was illegal, in words."""
    return f"{refused} of them refused ({refused / max(steps, 1):.0%})"


def _print(outcome: Outcome) -> None:
    rate = outcome.steps / max(outcome.seconds, 1e-9)
    print(
        f"{outcome.ended}: {outcome.steps} steps in {outcome.episodes} episodes, "
        f"{_refused(outcome.refused, outcome.steps)}, learned {outcome.updates} times, {outcome.seconds:.1f} s "
        f"({rate:.0f} steps/s)"
    )
    if outcome.models:
        print(f"models {', '.join(map(str, outcome.models))} in {outcome.out / 'ckpt'}")
