"""Train a network to imitate a script while it acts itself: `python launch/train_clone.py --task so101-push`.

DAgger (Ross et al. 2011) without rounds. Half of the robots are drawn, unless `--nominal` is given. Extras: train/onnx.
"""

import argparse

import numpy as np
import torch
from torch import nn

from rlenv_learn.policies.flat import FlatPolicy, ScaledDifferences
from rlenv_robot import LearningCurve, flat_for, make_vector
from rlenv_robot.policies.deployment import robot_of_training
from rlenv_robot.training.trials import conditions
from rlenv_tabletop.scripted import SCRIPTS

EPISODES = {"so101-insert": 150, "so101-pick-place": 160, "so101-sort": 220, "so101-stack": 130}  # nominal; others 100
TURN, UPDATES, BATCH, RATE, TRIALS = 10, 70, 256, 1e-3, 5  # steps of each robot, then updates of the network


class Drivers:
    """Choose each robot's driver for a second on average: the script, the disturbed script, or the network."""

    def __init__(self, num, size, rng):
        self.network, self.offset, self.rng = np.zeros((num, 1), bool), np.zeros((num, size)), rng

    def choose(self, script, network, share):
        """Return the action vectors, given the script's, the network's, and the network's share of the time."""
        new = (self.rng.random(len(script)) < 1 / 30).nonzero()[0]
        self.network[new] = self.rng.random((len(new), 1)) < share
        size = self.rng.uniform(0, 0.35, (len(new), 1)) * (self.rng.random((len(new), 1)) < 0.5)
        self.offset[new] = size * self.rng.normal(size=(len(new), script.shape[1]))
        return np.where(self.network, network, script + self.offset * self.rng.normal(1, 0.5, script.shape))


def train(name="so101-push", steps=128_000, seed=0, num_envs=64, quiet=False, nominal=False, flat=None, observe=None):
    """Train for some steps; return policy and learning curve. ``flat`` and ``observe`` replace the observation."""
    torch.manual_seed(seed), torch.set_num_threads(1)
    robots = [{"steps": EPISODES.get(name, 100)}, *([] if nominal else [conditions(name, False, {})[0]])]
    batches = [make_vector(name, num_envs, seed=seed, **made) for made in robots]
    flat, curve, script = flat or flat_for(batches[0].task), LearningCurve(name, quiet=quiet), SCRIPTS[name]()
    hidden = [nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
    hidden.append(nn.Linear(256, flat.action_size))
    actor = nn.Sequential(features := ScaledDifferences(flat), nn.Linear(features.size, 256), *hidden)
    policy, optimizer = FlatPolicy(actor, flat), torch.optim.Adam(actor.parameters(), RATE, fused=True)
    drivers, turns = Drivers(num_envs, flat.action_size, np.random.default_rng(seed)), -(-steps // (num_envs * TURN))
    obs, labels = (torch.empty(turns * TURN, num_envs, size) for size in (flat.size, flat.action_size))
    tables, done = [envs.reset() for envs in batches], 0
    for turn in range(1, turns + 1):
        envs, table = batches[turn % len(batches)], tables[turn % len(batches)]
        for _ in range(TURN):
            observation = table["observation"]
            obs[done] = torch.from_numpy(flat.observe(observe(table) if observe else observation))
            labels[done] = torch.from_numpy(flat.vector_of(script.act(observation), observation))
            chosen = actor(obs[done]).detach().numpy()
            action = flat.act(drivers.choose(labels[done].numpy(), chosen, min(0.7, 2.5 * turn / turns)), observation)
            table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
            done, tables[turn % len(batches)] = done + 1, table
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, 1.5 * (1 - turn / turns) + 0.02)
        for rows in torch.randint(done * num_envs, (UPDATES, BATCH)):
            loss = nn.functional.smooth_l1_loss(actor(obs.flatten(0, 1)[rows]), labels.flatten(0, 1)[rows], beta=0.05)
            optimizer.zero_grad(), loss.backward(), optimizer.step()
        if turn % -(-turns // TRIALS) == 0 or turn == turns:
            curve.add(done * num_envs, policy)
    curve.close(), [envs.close() for envs in batches]
    return policy, curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"task": "so101-push", "steps": 128_000, "seed": 0, "out": "policy.onnx"}.items():
        parser.add_argument(f"--{name}", default=value, type=type(value))
    parser.add_argument("--nominal", action="store_true", help="no drawn robots")
    args = parser.parse_args()
    policy, _ = train(args.task, args.steps, args.seed, nominal=args.nominal)
    about = {"trainer": "cloned script", "steps": args.steps, "seed": args.seed, "nominal": args.nominal}
    robot = robot_of_training(args.task, **conditions(args.task, args.nominal, {})[0])
    (policy.save_npz if args.out.endswith(".npz") else policy.save_onnx)(args.out, args.task, about, robot)
