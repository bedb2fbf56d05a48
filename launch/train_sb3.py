"""Train by Stable-Baselines3's PPO on a batch: `python launch/train_sb3.py --out policy.onnx` (extras: sb3, onnx)."""

import argparse

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

import rlenv_robot
from rlenv_bridges.stable_baselines3 import to_stable_baselines3
from rlenv_robot import FlatPolicy, LearningCurve, flat_for, task
from rlenv_robot.policies.deployment import robot_of_training


class Watch(BaseCallback):
    """Evaluate the policy after every second update."""

    def __init__(self, policy, curve):
        super().__init__()
        self.policy, self.curve = policy, curve

    def _on_rollout_start(self):
        updates = self.num_timesteps // (self.model.n_steps * self.model.n_envs)
        if updates and updates % 2 == 0:
            self.curve.add(self.num_timesteps, self.policy, self.training_env.illegal_share)

    def _on_step(self):
        return True


def train(name="so101-reach", steps=60_000, seed=0, num_envs=16, quiet=False):
    """Train for some steps, and return the policy and its learning curve."""
    torch.set_num_threads(1)
    flat, curve = flat_for(task(name)), LearningCurve(name, quiet=quiet)
    envs = to_stable_baselines3(rlenv_robot.make_vector(name, num_envs, seed=seed), flat)
    network = {"net_arch": [64, 64], "log_std_init": -0.7}
    ppo = PPO("MlpPolicy", envs, learning_rate=1e-3, n_steps=60, batch_size=120, gamma=0.9, n_epochs=10, seed=seed,
              policy_kwargs=network, device="cpu")  # fmt: skip
    inside = ppo.policy
    actor = torch.nn.Sequential(inside.mlp_extractor.policy_net, inside.action_net)
    policy = FlatPolicy(actor, flat)
    ppo.learn(steps, callback=Watch(policy, curve))
    curve.add(ppo.num_timesteps, policy, envs.illegal_share)
    curve.close(), envs.close()
    return policy, curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="so101-reach")
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="policy.onnx")
    args = parser.parse_args()
    policy, _ = train(args.task, args.steps, args.seed)
    about = {"trainer": "SB3 PPO", "steps": args.steps, "seed": args.seed}
    policy.save_onnx(args.out, args.task, about, robot_of_training(args.task))
