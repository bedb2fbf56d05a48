"""Train with RLlib's PPO on several workers from one profile: `python launch/train_ray.py --out policy.onnx`.

Needs the extras ray and onnx. Each worker makes the profile's environments itself. On a cluster started by `ray start`,
pass `--address auto`.
"""

import argparse
import os

import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

import rlenv_robot
from rlenv_robot import FlatPolicy, LearningCurve, Profile, flat_for, task, to_gymnasium
from rlenv_robot.policies.deployment import robot_of_training


def environment(settings):
    """Return a worker's environment: the profile's task in simulation, with the profile's delays and randomisation."""
    name, options, profile = settings["name"], settings["options"], settings["profile"]
    return to_gymnasium(rlenv_robot.make(name, profile=profile, **options), flat=flat_for(task(name, **options)))


def train(profile, steps=60_000, seed=0, workers=2, num_envs=8, address=None, quiet=False):
    """Train for some steps on several workers, and return the policy and its learning curve."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray sends no usage statistics
    here = {} if address else {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, **here)
    settings = {"name": profile.task.name, "options": profile.task.options, "profile": profile}
    flat, curve = flat_for(task(settings["name"], **settings["options"])), LearningCurve(settings["name"], quiet=quiet)
    register_env("profile", environment)
    algorithm = (
        PPOConfig()
        .environment("profile", env_config=settings)
        .env_runners(num_env_runners=workers, num_envs_per_env_runner=num_envs, rollout_fragment_length=60)
        .training(lr=1e-3, gamma=0.9, lambda_=0.95, train_batch_size_per_learner=workers * num_envs * 60,
                  minibatch_size=128, num_epochs=10, vf_clip_param=1e9, use_kl_loss=False, grad_clip=0.5)
        .rl_module(model_config=DefaultModelConfig([64, 64], "tanh", head_fcnet_hiddens=[], vf_share_layers=False))
        .debugging(seed=seed, log_level="ERROR")
        .build_algo()
    )  # fmt: skip
    module, done = algorithm.get_module(), 0
    while done < steps:
        result = algorithm.train()
        done = result["num_env_steps_sampled_lifetime"]
        module.set_state(algorithm.learner_group.get_weights()["default_policy"])
        actor = Mean(module, flat.action_size)
        curve.add(int(done), FlatPolicy(actor, flat))
    algorithm.stop(), curve.close()
    return FlatPolicy(actor, flat), curve


class Mean(torch.nn.Module):
    """The mean of the action distribution of RLlib's network."""

    def __init__(self, module, size):
        super().__init__()
        self.encoder, self.head, self.size = module.encoder.actor_encoder.net, module.pi, size

    def forward(self, obs):
        """Return action vectors for observation vectors."""
        return self.head(self.encoder(obs))[:, : self.size]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", help="a TOML file; without, so101-reach in simulation")
    for name, value in {"steps": 60_000, "seed": 0, "workers": 2, "out": "policy.onnx", "address": None}.items():
        parser.add_argument(f"--{name}", default=value, type=type(value or ""))
    args = parser.parse_args()
    profile = rlenv_robot.load_profile(args.profile) if args.profile else Profile()
    policy, _ = train(profile, args.steps, args.seed, args.workers, address=args.address)
    robot = robot_of_training(profile.task.name, profile=profile, **profile.task.options)
    policy.save_onnx(args.out, profile.task.name, {"trainer": "RLlib PPO", "seed": args.seed}, robot)
