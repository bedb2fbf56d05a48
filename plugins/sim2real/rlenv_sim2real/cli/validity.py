"""``rlenv-robot sim2real validity``: judge whether scores in simulation predict how policies perform on the robot."""

from __future__ import annotations

import argparse
import json
import math
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlenv_robot.cli.output import print_table, say

if TYPE_CHECKING:
    import numpy as np

    from rlenv_robot.policies.policy import SavedPolicy
    from rlenv_robot.training.rollout import Outcome
    from rlenv_sim2real.validity import PolicyScores, Validity

__all__ = ["add", "run", "scores_from_file"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Run a set of policies in simulation and on the robot, and report how well the scores in simulation stand for "
        "those on the robot: Pearson's correlation, and the mean maximum rank violation of SIMPLER (0 is perfect; it "
        "is in the unit of the score), with intervals over the episodes."
    )
    parser.epilog = """
Examples:

  rlenv-robot sim2real validity so101-reach early.npz late.npz best.onnx --robot twin
  rlenv-robot sim2real validity so101-reach *.npz --robot tcp://127.0.0.1:5555 --episodes 10 --score return
  rlenv-robot sim2real validity --scores scores.json

scores.json: {"early": {"simulated": [0, 1, 0], "real": [0, 0, 1]}, "late": {...}}, one number for each episode, or one
number for all of them.
"""
    parser.add_argument("name", nargs="?", help="the environment, such as so101-reach")
    parser.add_argument("policies", nargs="*", metavar="POLICY", help="policy files, two or more")
    parser.add_argument("--robot", default="twin", help="twin, twin:SEED, or a server's address (default: twin)")
    parser.add_argument("--model", default="sim", help="the simulation: sim, or an identified profile (.toml)")
    parser.add_argument("--keys", metavar="FOLDER", help="this machine's keys, for a robot on another machine")
    parser.add_argument("--episodes", type=int, default=50, help="episodes of each policy on each side (default: 50)")
    parser.add_argument("--score", choices=("success", "return"), default="success", help="of an episode")
    parser.add_argument("--seed", type=int, default=1_000_000, help="seed of the episodes (default: 1000000)")
    parser.add_argument("--scores", metavar="FILE", help="take recorded scores (.json) instead of running anything")
    parser.add_argument("--plot", metavar="FILE", help="draw the scores against each other there (.png, .svg, .pdf)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print how well simulated scores predict real ones for these policies."""
    from rlenv_sim2real.figures import plot_validity
    from rlenv_sim2real.validity import validity

    if args.scores:
        if args.name or args.policies:
            raise ValueError("--scores runs nothing: leave out the environment and the policies")
        scores, unit = scores_from_file(Path(args.scores)), "score"
    else:
        if args.name is None or len(args.policies) < 2:
            raise ValueError("name an environment and two or more policies, or recorded ones by --scores FILE")
        if args.episodes < 1:
            raise ValueError(f"--episodes is {args.episodes}, it must be at least 1")
        scores, unit = _run_policies(args), args.score
    result = validity(scores)
    if args.plot:
        plot_validity(result, unit, Path(args.plot))
    if args.json:
        print(json.dumps({"score": unit, **result.to_dict()}))
    else:
        _print(result, unit)
        if args.plot:
            print(args.plot)
    return 0


def scores_from_file(path: Path) -> list[PolicyScores]:
    """Read the scores of policies from a JSON file.

    Raises:
        ValueError: the file can't be read, or does not hold the scores of two or more policies.
    """
    from rlenv_sim2real.validity import PolicyScores

    expected = 'expected {"policy": {"simulated": [...], "real": [...]}, ...} with numbers'
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return [
            PolicyScores(str(name), _numbers(sides["simulated"]), _numbers(sides["real"]))
            for name, sides in data.items()
        ]
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error!r:.200}; {expected}") from error


def _numbers(value: object) -> np.ndarray:
    import numpy as np

    return np.atleast_1d(np.asarray(value, np.float64)).ravel()


def _run_policies(args: argparse.Namespace) -> list[PolicyScores]:
    import numpy as np

    from rlenv_robot.policies.policy import load_policy
    from rlenv_sim2real.validity import PolicyScores

    scores = []
    for path in args.policies:
        sides = []
        for where in (args.model, args.robot):
            if not args.json:
                say(f"{path}: {args.episodes} episodes in {where}")
            outcomes = _outcomes(args, load_policy(path), where)
            sides.append(np.array([_score(outcome, args.score) for outcome in outcomes]))
        scores.append(PolicyScores(str(path), *sides))
    return scores


def _score(outcome: Outcome, name: str) -> float:
    return float(outcome.success) if name == "success" else outcome.total


def _outcomes(args: argparse.Namespace, policy: SavedPolicy, where: str) -> list[Outcome]:
    """Run a policy's episodes in a simulation, all at once, or on a robot on the network, one after the other."""
    from rlenv_robot.policies.deployment import check_deployment, deployed_spec
    from rlenv_robot.registry import make, task
    from rlenv_robot.robot_models import robot_model_of
    from rlenv_robot.training.rollout import evaluate, run_episode
    from rlenv_robot.vector.env import VectorEnvironment
    from rlenv_sim2real.open_loop import replay_model
    from sim.batch import SimBatch

    if "://" in where:
        outcomes = []
        with closing(make(args.name, where, mode="inference", keys=args.keys)) as env:
            policy.check(env.observation, env.action)
            for line in check_deployment(policy, deployed_spec(env.world)):
                print(f"{line}", file=sys.stderr)
            for episode in range(args.episodes):
                options: dict[str, Any] = {"seed": args.seed} if episode == 0 else {}
                *_, outcome = run_episode(env, policy, options)
                assert outcome is not None
                outcomes.append(outcome)
        return outcomes
    described = task(args.name)
    model = replay_model(where, robot_model_of(described), contacts=True)
    batch = SimBatch(model.sim_model, args.episodes, **model.settings)
    with closing(VectorEnvironment(batch, described, seed=args.seed, autoreset="disabled")) as envs:
        policy.check(described.observation, described.action)
        return evaluate(envs, policy, args.seed)


def _print(result: Validity, unit: str) -> None:
    rows = [[name, f"{sim:.3f}", f"{real:.3f}"] for name, (sim, real) in result.means.items()]
    print_table(f"mean {unit}", ["policy", "simulated", "real"], rows)
    if math.isnan(result.pearson):
        print("correlation: unknown, since the scores of one side are all equal; use policies that differ more")
    else:
        low, high = result.pearson_interval
        print(f"correlation (Pearson): {result.pearson:.3f}, 95 % interval {low:.3f} to {high:.3f}")
    low, high = result.rank_violation_interval
    print(f"mean maximum rank violation: {result.rank_violation:.3f}, 95 % interval {low:.3f} to {high:.3f}")
