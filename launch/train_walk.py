"""Train a quadruped to walk by PPO with a privileged critic: `python launch/train_walk.py` (extra: train).

The same command continues from the last checkpoint beside the policy's file.
"""

import argparse
from dataclasses import replace

import torch

from rlenv_learn.ppo import PpoLearner, PpoSettings
from rlenv_robot import FlatPolicy, LearningCurve, flat_for, load_profile, make_vector
from rlenv_robot.policies.deployment import robot_of_training
from rlenv_robot.training.trials import conditions

SETTINGS = PpoSettings(
    horizon=24, epochs=4, discount=0.99, target_kl=0.01, max_norm=1.0, hidden=(256, 128, 64), activation="elu",
    reward_scale=0.05, action_smoothness=0.0, entropy=0.002,
    state_scales={"linear_velocity": 1 / 2, "height": 1 / 3, "foot_force": 50, "height_scan": 1 / 2},
)  # fmt: skip


def train(name="go2-walk", steps=8_000_000, seed=0, num_envs=256, quiet=False, device="cpu", keep=None, **settings):
    """Train with settings of make_vector; return policy and learning curve. Trials write the checkpoint ``keep``."""
    torch.set_num_threads(1)
    where = {} if device == "cpu" else {"device": device, "arrays": "torch"}  # all on a GPU: device="warp"
    envs = make_vector(name, num_envs, seed=seed, **where, **settings)
    flat, curve, batch = flat_for(envs.task), LearningCurve(name, quiet=quiet, **settings), num_envs * SETTINGS.horizon
    learner = PpoLearner(envs, replace(SETTINGS, minibatch=batch // 4), seed)
    done, last = curve.load_checkpoint(keep, learner), steps // batch
    for update in range(done + 1, last + 1):
        learner.update(update / last)
        if update % 60 == 0 or update == last:
            curve.add(update * batch, FlatPolicy(learner.network(), flat))
            curve.save_checkpoint(keep, update, learner)
    curve.close(), envs.close()
    return FlatPolicy(learner.network(), flat), curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"steps": 8_000_000, "seed": 0, "out": "walk.onnx", "profile": "", "device": "cpu"}.items():
        parser.add_argument(f"--{name}", default=value, type=type(value))
    profile = load_profile(args.profile) if (args := parser.parse_args()).profile else None
    settings = conditions("go2-walk", False, {**profile.task.options, "profile": profile} if profile else {})[0]
    policy = train(steps=args.steps, seed=args.seed, device=args.device, keep=args.out, **settings)[0]
    policy.save_onnx(args.out, "go2-walk", {"trainer": "PPO"}, robot_of_training("go2-walk", **settings))
