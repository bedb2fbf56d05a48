"""Train by Tianshou's PPO on a batch: `python launch/train_tianshou.py --out policy.onnx` (extras: train, onnx)."""

import argparse

import numpy as np
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.torch_utils import policy_within_training_step
from torch.distributions import Independent, Normal

import rlenv_robot
from rlenv_bridges.tianshou import to_tianshou
from rlenv_robot import FlatPolicy, LearningCurve, flat_for, task
from rlenv_robot.adapters.gymnasium import flat_spaces
from rlenv_robot.policies.deployment import robot_of_training

HORIZON = 60  # steps of each environment between updates


def agent(flat, hidden=(64, 64)):
    """Return PPO, and the network to deploy, which returns the mean of the actions."""
    nets = [Net(state_shape=(flat.size,), hidden_sizes=hidden, activation=torch.nn.Tanh) for _ in range(2)]
    actor = ContinuousActorProbabilistic(preprocess_net=nets[0], action_shape=(flat.action_size,), unbounded=True)
    torch.nn.init.constant_(actor.sigma_param, -0.7)  # exploration: half of what an action may do
    with torch.no_grad():
        for weights in actor.mu.parameters():
            weights.mul_(0.01)  # on average nothing moves at first
    policy = ProbabilisticActorPolicy(
        actor=actor,
        dist_fn=lambda mean_and_width: Independent(Normal(*mean_and_width), 1),
        action_space=flat_spaces(flat)[1],
        action_scaling=False,
        action_bound_method="clip",
    )
    critic, optim = ContinuousCritic(preprocess_net=nets[1]), AdamOptimizerFactory(lr=1e-3)
    ppo = PPO(policy=policy, critic=critic, optim=optim, gamma=0.9, ent_coef=0.0, max_grad_norm=0.5, max_batchsize=8192)
    return ppo, torch.nn.Sequential(nets[0].model, actor.mu)


def train(name="so101-reach", steps=60_000, seed=0, num_envs=16, envs=None, quiet=False, profile=None):
    """Train for some steps, and return the policy and its learning curve."""
    torch.manual_seed(seed), np.random.seed(seed), torch.set_num_threads(1)
    flat, curve = flat_for(task(name)), LearningCurve(name, quiet=quiet)
    made = {"seed": seed, "autoreset": "disabled", "profile": profile}  # the profile's timing and randomisation
    envs = envs or to_tianshou(rlenv_robot.make_vector(name, num_envs, **made), flat)
    ppo, actor = agent(flat)
    policy, collector = FlatPolicy(actor, flat), Collector(ppo, envs, VectorReplayBuffer(num_envs * HORIZON, num_envs))
    collector.reset()
    while collector.collect_step < steps:
        with policy_within_training_step(ppo.policy):
            collector.collect(n_step=num_envs * HORIZON)
            ppo.update(collector.buffer, batch_size=128, repeat=10)
        collector.reset_buffer(keep_statistics=True)
        if collector.collect_step % (2 * num_envs * HORIZON) == 0 or collector.collect_step >= steps:
            curve.add(collector.collect_step, policy, envs.illegal_share)
    curve.close(), envs.close()
    return policy, curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="so101-reach")
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="policy.onnx")
    parser.add_argument("--profile", help="a TOML file: simulations as late and as varied as it says")
    args = parser.parse_args()
    profile = rlenv_robot.load_profile(args.profile) if args.profile else None
    policy, _ = train(args.task, args.steps, args.seed, profile=profile)
    about = {"trainer": "Tianshou PPO", "steps": args.steps, "seed": args.seed}
    policy.save_onnx(args.out, args.task, about, robot_of_training(args.task, profile=profile))
