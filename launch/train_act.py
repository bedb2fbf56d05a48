"""ACT from 50 recorded demonstrations: `python launch/train_act.py --task so101-push --out act.onnx`.

A script demonstrates, pushed off its way now and then so that the record shows how it recovers (DART). ACT (Zhao et al.
2023) foresees 8 actions from each observation; each step executes the mean of what was foreseen for it. Another
record, such as a person's, is taken with `--runs FOLDER`. Extras: train/onnx.
"""

import argparse
import tempfile

import torch

import rlenv_robot
from rlenv_learn.imitation.act import ACT
from rlenv_learn.imitation.chunk_network import ChunkFields, ChunkNetworkPolicy
from rlenv_learn.imitation.demonstrations import record_demonstrations
from rlenv_learn.imitation.learning import learn_chunks, load_windows
from rlenv_robot import LearningCurve, open_source
from rlenv_robot.policies.chunks import ChunkExecution
from rlenv_robot.policies.deployment import robot_of_training
from rlenv_robot.training.trials import conditions
from rlenv_tabletop.scripted import SCRIPTS

TRIALS = 4  # while it learns


def train(source, name="so101-push", updates=3600, seed=0, length=8, decay=0.01, quiet=False):
    """A policy from recorded demonstrations, and how it came about; only trials touch the simulation."""
    torch.manual_seed(seed), torch.set_num_threads(1)
    task, curve = rlenv_robot.task(name), LearningCurve(name, quiet=quiet)
    fields = ChunkFields(task, ChunkExecution(length=length, decay=decay))
    windows = load_windows(source, fields, {"success": True})
    network = ACT(fields.size, fields.flat.action_size, fields.execution)
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
    parser.add_argument("--updates", type=int, default=3600)
    parser.add_argument("--drawn", action="store_true", help="the script demonstrates on robots of the range")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="act.onnx")
    given = parser.parse_args()
    robots, _ = conditions(given.task, not given.drawn, {})
    with tempfile.TemporaryDirectory() as folder:
        if given.runs is None:
            task, script = rlenv_robot.task(given.task), SCRIPTS[given.task]()
            recorded = record_demonstrations(task, script, folder, given.episodes, seed=given.seed, **robots)
            print(f"learning from {given.episodes} of {recorded} demonstrations, which succeeded")
        policy, _ = train(open_source(given.runs or folder), given.task, given.updates, given.seed)
    about = {"trainer": "ACT", "updates": given.updates, "seed": given.seed}
    policy.save_onnx(given.out, given.task, about, robot_of_training(given.task, **robots))
