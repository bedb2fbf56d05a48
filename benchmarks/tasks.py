"""How far each task's baselines come: standing still, random actions, and the script that ships.

    python benchmarks/tasks.py --episodes 200

Episodes are those of seed 1000; random actions are drawn anew every step from the whole range of the action.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import rlenv_robot
from rlenv_robot.experts.pair_lift import PairLiftExpert
from rlenv_robot.experts.pick_place import PickPlaceExpert
from rlenv_robot.experts.push import PushExpert
from rlenv_robot.vector import VectorEnvironment

SEED = 1000
Act = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
EXPERTS: dict[str, Any] = {
    "so101-push": PushExpert(),
    "so101-pick-place": PickPlaceExpert(),
    "so101-pair-lift": PairLiftExpert(),
}


def episodes(envs: VectorEnvironment, act: Act) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Success, final distance (mm) and return of one episode in each environment."""
    table, count = envs.reset({"seed": SEED}), envs.num_envs
    success, distance, total = np.zeros(count, bool), np.full(count, np.nan), np.zeros(count)
    for _ in range(envs.task.steps):
        live = np.isnan(distance)
        action = act(table["observation"])
        table, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
        paid = reward["reward"]
        total += np.where(live, np.mean(list(paid.values()), axis=0) if isinstance(paid, dict) else paid, 0.0)
        final = table["extra_info"].get("final")
        if final is not None:
            success[final["index"]], distance[final["index"]] = final["success"], final["metrics"]["distance_mm"]
    return success, distance, total


def still(envs: VectorEnvironment) -> Act:
    """Keeps the servos' goals where they are."""

    def act(seen: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        action = {}
        for field in envs.action:
            name = field.name.replace("joint_target", "joint_goal").replace("arm_target", "joint_goal")
            action[field.name] = seen[name][..., : field.shape[0]]
        return action

    return act


def random(envs: VectorEnvironment) -> Act:
    """Anything that is allowed."""
    rng = np.random.default_rng(SEED)
    return lambda seen: envs.action.sample(rng, (envs.num_envs,))


def main() -> None:
    """A line of Markdown for each task and policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--task", choices=sorted(EXPERTS))
    args = parser.parse_args()
    print("| task | policy | episodes | success | median distance, mm | mean return |\n|---|---|---|---|---|---|")
    for name, expert in EXPERTS.items():
        if args.task not in (None, name):
            continue
        with rlenv_robot.make_vector(name, args.episodes, autoreset="disabled") as envs:
            policies = {"stands still": still(envs), "random": random(envs), "script": expert.act}
            for policy, act in policies.items():
                success, distance, total = episodes(envs, act)
                figures = f"{success.mean():.1%} | {np.median(distance):.1f} | {total.mean():.1f}"
                print(f"| {name} | {policy} | {args.episodes} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
