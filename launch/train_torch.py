"""Train with this project's PPO in your own loop on a native batch: `python launch/train_torch.py --out policy.onnx`.

`rlenv-robot train --method ppo` is the same learner with checkpoints and drawn robots. Extras: train/onnx.
"""

import argparse

import torch

from rlenv_learn.ppo import PpoLearner, ppo_settings
from rlenv_robot import FlatPolicy, LearningCurve, flat_for, make_vector
from rlenv_robot.policies.deployment import robot_of_training


def train(name="so101-reach", steps=60_000, seed=0, num_envs=16, quiet=False):
    """Train for some steps, and return the policy and its learning curve."""
    torch.set_num_threads(1)
    envs = make_vector(name, num_envs, seed=seed)
    flat, curve, settings = flat_for(envs.task), LearningCurve(name, quiet=quiet), ppo_settings(envs.task)
    learner, batch = PpoLearner(envs, settings, seed), num_envs * settings.horizon
    updates = max(1, steps // batch)
    for update in range(1, updates + 1):
        learner.update((update - 1) / updates)
        if update % 2 == 0 or update == updates:
            curve.add(update * batch, policy := FlatPolicy(learner.network(), flat))
    curve.close(), envs.close()
    return policy, curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"task": "so101-reach", "steps": 60_000, "seed": 0, "out": "policy.onnx"}.items():
        parser.add_argument(f"--{name}", default=value, type=type(value))
    args = parser.parse_args()
    policy, _ = train(args.task, args.steps, args.seed)
    about = {"trainer": "PyTorch PPO", "steps": args.steps, "seed": args.seed}
    policy.save_onnx(args.out, args.task, about, robot_of_training(args.task))
