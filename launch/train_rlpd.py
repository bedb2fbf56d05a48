"""Improve on a few demonstrations by reinforcement learning (RLPD; Ball et al. 2023), with a sparse reward.

`python launch/train_rlpd.py --task so101-reach --out reach.onnx` lets a clumsy demonstrator show the task ten times.
Half of each batch are these steps, and the curve begins with their clones, by the same network. `SMALLER` suits one
core: the paper has layers and batches of 256, 20 updates a step, rates of 3e-4 and 0.005, and 1. Extras: train, onnx.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

import rlenv_robot
from rlenv_learn.imitation.demonstrations import Disturbance, DisturbedDemonstrator
from rlenv_learn.online.actor import OnlineActor, take_turns
from rlenv_learn.online.learner import LOGS, Learner
from rlenv_learn.online.session import simulated
from rlenv_learn.online.settings import OnlineSettings
from rlenv_robot import LearningCurve, flat_for
from rlenv_robot.policies.deployment import robot_of_training
from rlenv_robot.training.rollout import run_episode

DEMONSTRATIONS, TRIALS, EPISODES = 10, 3, 200
CLUMSY = Disturbance(share=1.0, size=0.6)  # recorded as the demonstrator's own actions
SMALLER = {"hidden": (64, 64), "batch": 128, "ratio": 3.0, "actor_every": 3, "rate": 1e-3}
SMALLER |= {"target_rate": 0.01, "temperature": 0.1}
SETTINGS = OnlineSettings(view="gripper", n_step=5, average=0.02, **SMALLER)
CLONES = (300, 1000)  # updates of a clone; the best one is the imitation to beat
CLONE = replace(SETTINGS, critics=0, batch=256)


def train(name="so101-reach", steps=4500, seed=0, quiet=False):
    """Train in simulation; return policy and learning curve, which begins with the clones, after 0 steps."""
    torch.manual_seed(seed), torch.set_num_threads(1)
    task = rlenv_robot.task(name, rewards="sparse")
    test = rlenv_robot.make_vector(task, EPISODES, autoreset="disabled")
    curve, teacher = LearningCurve(f"{name}-sparse", envs=test, quiet=quiet), rlenv_robot.load_policy(f"zoo:{name}")
    with tempfile.TemporaryDirectory() as made:
        folder, options = Path(made), {"seed": seed}
        clumsy = DisturbedDemonstrator(teacher, flat_for(task), CLUMSY, seed)
        with simulated(task, folder / "demos", policy="script") as env:
            for _ in range(DEMONSTRATIONS):
                list(run_episode(env, clumsy, options)), options.clear()
        for updates in CLONES:
            clone = replace(CLONE, cloning=updates)
            curve.add(0, Learner(folder / f"clone-{updates}", task, [folder / "demos"], clone, seed).policy())
        learner = Learner(folder, task, [folder / "demos"], SETTINGS, seed)
        with simulated(task, folder / LOGS, policy=SETTINGS.method) as env:
            actor = OnlineActor(env, flat_for(task), folder, SETTINGS, seed)
            for _ in take_turns(actor, learner, steps, seed + 1):
                if actor.frames * TRIALS >= (len(curve.points) - len(CLONES) + 1) * steps:
                    curve.add(actor.frames, learner.policy())
    curve.close()
    return learner.policy(), curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"task": "so101-reach", "steps": 4500, "seed": 0, "out": "rlpd.onnx"}.items():
        parser.add_argument(f"--{name}", default=value, type=type(value))
    args = parser.parse_args()
    policy, _ = train(args.task, args.steps, args.seed)
    about = {"trainer": SETTINGS.method, "steps": args.steps, "seed": args.seed}
    policy.save_onnx(args.out, args.task, about, robot_of_training(args.task))
