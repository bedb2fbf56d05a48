"""A network that learns from a script while acting itself: `python launch/train_clone.py --task so101-push`.

DAgger (Ross, Gordon, Bagnell 2011): in the first round the script acts, with noise; then the network does, and the
script says what it would have done instead. All rounds are learned from.
"""

import argparse
from importlib import import_module

import numpy as np
import torch
from torch import nn

import rlenv_robot
from rlenv_robot.interop.flat import flat_for
from rlenv_robot.learning.curve import Curve
from rlenv_robot.learning.flat_policy import FlatPolicy

SCRIPTS = {"so101-push": "PushExpert", "so101-pick-place": "PickPlaceExpert", "so101-pair-lift": "PairLiftExpert"}
NOISE, BATCH, EPOCHS = 0.1, 512, 6


def script_for(name):
    """The script that ships for a task."""
    module = import_module(f"rlenv_robot.experts.{name.removeprefix('so101-').replace('-', '_')}")
    return getattr(module, SCRIPTS[name])()


def collect(envs, flat, script, policy, rng):
    """One episode of each environment: vectors seen, and what the script would do there."""
    table, seen, wanted = envs.reset(), [], []
    for _ in range(envs.task.steps):
        told = flat.vector_of(script.act(table["observation"]), table["observation"])
        seen.append(flat.observe(table["observation"])), wanted.append(told)
        if policy is None:
            action = flat.act(told + rng.normal(0, NOISE, told.shape), table["observation"])
        else:
            action = policy.act(table["observation"])
        table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
    return torch.from_numpy(np.concatenate(seen)), torch.from_numpy(np.concatenate(wanted))


def train(name="so101-push", steps=400_000, seed=0, num_envs=128, quiet=False):
    """A policy after so many steps, and how it came about."""
    torch.manual_seed(seed), torch.set_num_threads(1)
    envs, rng, script = (
        rlenv_robot.make_vector(name, num_envs, seed=seed),
        np.random.default_rng(seed),
        script_for(name),
    )
    flat, curve = flat_for(envs.task), Curve(name, quiet=quiet)
    hidden = [nn.Linear(flat.size, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
    policy = FlatPolicy(nn.Sequential(*hidden, nn.Linear(256, flat.action_size)), flat)
    optimizer = torch.optim.Adam(policy.actor.parameters(), 1e-3)
    rounds, data = max(1, steps // (num_envs * envs.task.steps)), []
    for turn in range(rounds):
        optimizer.param_groups[0]["lr"] = 1e-3 * (1 - turn / (rounds + 1))
        data.append(collect(envs, flat, script, policy if data else None, rng))
        seen, wanted = (torch.cat(column) for column in zip(*data, strict=True))
        for rows in (rows for _ in range(EPOCHS) for rows in torch.randperm(len(seen)).split(BATCH)):
            loss = (policy.actor(seen[rows]) - wanted[rows]).abs().mean()
            optimizer.zero_grad(), loss.backward(), optimizer.step()
        curve.add((turn + 1) * num_envs * envs.task.steps, policy)
    curve.close(), envs.close()
    return policy, curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"task": "so101-push", "steps": 400_000, "seed": 0, "out": "policy.onnx"}.items():
        parser.add_argument(f"--{name}", default=value, type=type(value))
    given = parser.parse_args()
    policy, _ = train(given.task, given.steps, given.seed)
    policy.save_onnx(given.out, given.task, {"trainer": "cloned script", "steps": given.steps, "seed": given.seed})
