"""A diffusion policy from 50 recorded demonstrations: `python launch/train_diffusion.py --out diffusion.onnx`.

A script demonstrates as for `launch/train_act.py`. The policy (Chi et al. 2023) takes one observation and
draws the next 8 actions by removing noise in 8 steps (DDIM). It executes 4 of them, then draws again.
Extras: train/onnx.
"""

import argparse
import tempfile

import torch

import rlenv_robot
from rlenv_learn.imitation.chunk_network import ChunkFields, ChunkNetworkPolicy
from rlenv_learn.imitation.demonstrations import record_demonstrations
from rlenv_learn.imitation.diffusion import DiffusionPolicy
from rlenv_learn.imitation.learning import learn_chunks, load_windows
from rlenv_robot import LearningCurve, open_source
from rlenv_robot.policies.chunks import ChunkExecution
from rlenv_robot.policies.deployment import robot_of_training
from rlenv_robot.training.trials import conditions
from rlenv_tabletop.scripted import SCRIPTS

EXECUTION = ChunkExecution(length=8, execute=4)
TRIALS = 4  # while it learns


def train(source, name="so101-push", updates=6000, seed=0, quiet=False):
    """A policy from recorded demonstrations, and how it came about; only trials touch the simulation."""
    torch.manual_seed(seed), torch.set_num_threads(1)
    task, curve = rlenv_robot.task(name), LearningCurve(name, quiet=quiet)
    fields = ChunkFields(task, EXECUTION)
    windows = load_windows(source, fields, {"success": True})
    network = DiffusionPolicy(fields.size, fields.flat.action_size, EXECUTION)
    for update, mean in enumerate(learn_chunks(network, fields, windows, updates, seed=seed), 1):
        if update % -(-updates // TRIALS) == 0 or update == updates:
            policy = ChunkNetworkPolicy(mean, fields)
            curve.add(update, policy)
    curve.close()
    return policy, curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="so101-push", choices=sorted(SCRIPTS))
    parser.add_argument("--runs", help="recorded demonstrations; left out, the task's script demonstrates")
    parser.add_argument("--episodes", type=int, default=50, help="successful demonstrations of the script")
    parser.add_argument("--updates", type=int, default=6000)
    parser.add_argument("--drawn", action="store_true", help="the script demonstrates on robots of the range")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="diffusion.onnx")
    given = parser.parse_args()
    robots, _ = conditions(given.task, not given.drawn, {})
    with tempfile.TemporaryDirectory() as folder:
        if given.runs is None:
            task, script = rlenv_robot.task(given.task), SCRIPTS[given.task]()
            recorded = record_demonstrations(task, script, folder, given.episodes, seed=given.seed, **robots)
            print(f"learning from {given.episodes} of {recorded} demonstrations, which succeeded")
        policy, _ = train(open_source(given.runs or folder), given.task, given.updates, given.seed)
    about = {"trainer": "diffusion policy", "updates": given.updates, "seed": given.seed}
    policy.save_onnx(given.out, given.task, about, robot_of_training(given.task, **robots))
