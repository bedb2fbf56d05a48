"""Train with Tianshou's SAC, off-policy: `python launch/train_sac.py --out policy.onnx` (extras: train, onnx)."""

import argparse

import numpy as np
import torch
from tianshou.algorithm import SAC
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.torch_utils import policy_within_training_step

import rlenv_robot
from rlenv_bridges.tianshou import to_tianshou
from rlenv_robot import FlatPolicy, LearningCurve, flat_for, task
from rlenv_robot.adapters.gymnasium import flat_spaces
from rlenv_robot.policies.deployment import robot_of_training

EACH, UPDATES = 10, 40  # steps of each environment between updates, and how many updates then


def agent(flat, hidden=(128, 128)):
    """Return SAC, and the network to deploy, which returns the mode of the actions."""
    size, optim = flat.action_size, AdamOptimizerFactory(lr=1e-3)
    body = Net(state_shape=(flat.size,), hidden_sizes=hidden)
    both = Net(state_shape=(flat.size,), action_shape=(size,), hidden_sizes=hidden, concat=True)
    actor = ContinuousActorProbabilistic(
        preprocess_net=body, action_shape=(size,), unbounded=True, conditioned_sigma=True
    )
    sac = SAC(
        policy=SACPolicy(actor=actor, action_space=flat_spaces(flat)[1], action_scaling=False),
        policy_optim=optim,
        critic=ContinuousCritic(preprocess_net=both),
        critic_optim=optim,
        alpha=AutoAlpha(target_entropy=-2 * size, log_alpha=-3.0, optim=optim),
        gamma=0.9,
    )
    return sac, torch.nn.Sequential(body.model, actor.mu, torch.nn.Tanh())


def train(name="so101-reach", steps=30_000, seed=0, num_envs=16, quiet=False):
    """Train for some steps, and return the policy and its learning curve."""
    torch.manual_seed(seed), np.random.seed(seed), torch.set_num_threads(1)
    flat, curve, batch = flat_for(task(name)), LearningCurve(name, quiet=quiet), num_envs * EACH
    envs = to_tianshou(rlenv_robot.make_vector(name, num_envs, seed=seed, autoreset="disabled"), flat)
    sac, network = agent(flat)
    policy, buffer = FlatPolicy(network, flat), VectorReplayBuffer(steps + batch, num_envs, random_seed=seed)
    collector = Collector(sac, envs, buffer)
    collector.reset()
    for round_ in range(1, -(-steps // batch) + 1):
        collector.collect(n_step=batch, random=round_ <= 6)  # the first second of every environment is noise
        with policy_within_training_step(sac.policy):
            for _ in range(UPDATES):
                sac.update(buffer, 256)
        if round_ % 12 == 0 or round_ * batch >= steps:
            curve.add(collector.collect_step, policy, envs.illegal_share)
    curve.close(), envs.close()
    return policy, curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"task": "so101-reach", "steps": 30_000, "seed": 0, "out": "policy.onnx"}.items():
        parser.add_argument(f"--{name}", default=value, type=type(value))
    args = parser.parse_args()
    policy, _ = train(args.task, args.steps, args.seed)
    about = {"trainer": "Tianshou SAC", "steps": args.steps, "seed": args.seed}
    policy.save_onnx(args.out, args.task, about, robot_of_training(args.task))
