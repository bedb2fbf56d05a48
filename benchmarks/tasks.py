"""Success of each task's baselines: standing still, random actions, the script that ships, a trained policy.

    python benchmarks/tasks.py --episodes 200
    python benchmarks/tasks.py --task so101-reach --policy reach.onnx
    python benchmarks/tasks.py --population builtin --episodes 50

Episodes are those of seed 1000; random actions are drawn anew every step from the whole range of the action. With
``--population`` scripts and trained policies run on each arm of a population, or on its held-out arms if it has any:
the success on the nominal arm, and the median and the tenth percentile over the arms.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

import rlenv_robot
from rlenv_robot.config.population import Population, load_population
from rlenv_robot.policies.policy import load_policy
from rlenv_robot.robot_models import robot_model_of
from rlenv_robot.training.rollout import evaluate
from rlenv_robot.vector.env import VectorEnvironment
from rlenv_tabletop.scripted import SCRIPTS

SEED = 1000
Act = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Acting:
    """A function as a `rlenv_robot.policies.policy.Policy`."""

    act: Act


def still(envs: VectorEnvironment) -> Act:
    """Keeps the servos' goals where they are; for a walking robot, its stance."""

    def act(obs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        action = {}
        for field in envs.action:
            name = field.name.replace("joint_target", "joint_goal").replace("arm_target", "joint_goal")
            zeros = np.zeros((envs.num_envs, *field.shape), field.numpy_dtype)
            action[field.name] = obs[name][..., : field.shape[0]] if name in obs else zeros
        return action

    return act


def random(envs: VectorEnvironment) -> Act:
    """Draw an action from the whole range that is allowed."""
    rng = np.random.default_rng(SEED)
    return lambda obs: envs.action.sample(rng, (envs.num_envs,))


def over_arms(name: str, make: Callable[[], Act], arms: Population, episodes: int) -> tuple[float, list[float]]:
    """Return the success of a policy on the nominal arm, and on each arm of a population, in the same episodes.

    Args:
        name: the task.
        make: makes the policy anew for each arm.
        arms: the arms.
        episodes: number of episodes on each arm.
    """
    robot = robot_model_of(rlenv_robot.task(name)).load_spec()
    settings = [{}, *(arms.choose([arm.name]).settings(robot) for arm in arms.arms)]
    rates = []
    for own in settings:
        with rlenv_robot.make_vector(name, episodes, autoreset="disabled", **own) as envs:
            rates.append(float(np.mean([outcome.success for outcome in evaluate(envs, Acting(make()), SEED)])))
    return rates[0], rates[1:]


def print_population(args: argparse.Namespace) -> None:
    """Print a line of Markdown for each script and trained policy, over the arms of a population."""
    population = load_population(args.population)
    arms = population.held_out if population.held_out.arms else population
    if not arms.arms:
        raise SystemExit(f"{args.population} has no arm")
    print("| task | policy | arms | episodes each | nominal | median arm | tenth percentile | arms, worst first |")
    print("|---|---|---|---|---|---|---|---|")
    for name in [args.task] if args.task else [name for name in SCRIPTS if name.startswith("so101")]:
        makers: dict[str, Callable[[], Act]] = {}
        if name in SCRIPTS:
            makers["script"] = lambda name=name: SCRIPTS[name]().act
        if args.policy:
            makers["trained"] = lambda: load_policy(args.policy).act
        for policy, make in makers.items():
            nominal, rates = over_arms(name, make, arms, args.episodes)
            figures = " | ".join(f"{rate:.1%}" for rate in (nominal, np.median(rates), np.percentile(rates, 10)))
            each = ", ".join(f"{rate:.0%}" for rate in sorted(rates))
            print(f"| {name} | {policy} | {len(rates)} | {args.episodes} | {figures} | {each} |", flush=True)


def main() -> None:
    """A line of Markdown for each task and policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--task", choices=sorted({*SCRIPTS, "so101-reach", "go2-walk"}))
    parser.add_argument("--policy", help="a trained policy for --task, .onnx or .npz")
    parser.add_argument(
        "--population", metavar="FILE", help="run on the arms of this population; builtin: the package's"
    )
    args = parser.parse_args()
    if args.policy and not args.task:
        parser.error("--policy wants --task")
    if args.population:
        print_population(args)
        return
    print("| task | policy | episodes | success | median figure | mean return |\n|---|---|---|---|---|---|")
    for name in [args.task] if args.task else SCRIPTS:
        with rlenv_robot.make_vector(name, args.episodes, autoreset="disabled") as envs:
            policies = {"stands still": still(envs), "random": random(envs)}
            if name in SCRIPTS:
                policies["script"] = SCRIPTS[name]().act
            if args.policy:
                policies["trained"] = load_policy(args.policy).act
            for policy, act in policies.items():
                outcomes = evaluate(envs, Acting(act), SEED)
                success, total = (np.mean([getattr(each, key) for each in outcomes]) for key in ("success", "total"))
                figure = np.median([next(iter(each.metrics.values())) for each in outcomes])
                figures = f"{success:.1%} | {figure:.2f} | {total:.1f}"
                print(f"| {name} | {policy} | {args.episodes} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
