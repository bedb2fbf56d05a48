"""Success of each task's baselines: standing still, random actions, the script that ships, a trained policy.

    python benchmarks/tasks.py --episodes 200
    python benchmarks/tasks.py --task so101-reach --policy reach.onnx

Episodes are those of seed 1000; random actions are drawn anew every step from the whole range of the action.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

import rlenv_robot
from rlenv_robot.policies.policy import load_policy
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


def main() -> None:
    """A line of Markdown for each task and policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--task", choices=sorted({*SCRIPTS, "so101-reach", "go2-walk"}))
    parser.add_argument("--policy", help="a trained policy for --task, .onnx or .npz")
    args = parser.parse_args()
    if args.policy and not args.task:
        parser.error("--policy wants --task")
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
