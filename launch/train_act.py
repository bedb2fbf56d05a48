"""Train ACT on 50 recorded demonstrations: `python launch/train_act.py --task so101-push --out act.onnx`.

A script demonstrates under disturbances, so that the recording includes recoveries (DART). ACT (Zhao et al. 2023)
predicts 8 actions from each observation; each step executes the mean of all predictions for it. `--runs FOLDER` takes
another recording, such as a person's. Extras: train/onnx.
"""

import argparse
import tempfile

import torch

import rlenv_robot
from rlenv_learn.imitation.act import ACT
from rlenv_learn.imitation.chunk_network import ChunkFields, ChunkNetworkPolicy
from rlenv_learn.imitation.demonstrations import record_demonstrations
from rlenv_learn.imitation.learning import learn_chunks, load_windows
from rlenv_learn.policies.chunks import ChunkExecution
from rlenv_robot import LearningCurve, open_source
from rlenv_robot.policies.deployment import robot_of_training
from rlenv_robot.training.trials import conditions
from rlenv_tabletop.scripted import SCRIPTS

EXECUTION = ChunkExecution(length=8, decay=0.01)
TRIALS = 4  # while it learns


def train(source, name="so101-push", updates=3600, seed=0, execution=EXECUTION, network=ACT, quiet=False):
    """Train on recorded demonstrations; return policy and learning curve. Only trials use the simulation."""
    torch.manual_seed(seed), torch.set_num_threads(1)
    curve, fields = LearningCurve(name, quiet=quiet), ChunkFields(rlenv_robot.task(name), execution)
    windows = load_windows(source, fields, {"success": True}, network.SCALING)
    model = network(fields.size, fields.flat.action_size, execution)
    for update, mean in enumerate(learn_chunks(model, fields, windows, updates, seed=seed), 1):
        if update % -(-updates // TRIALS) == 0 or update == updates:
            policy = ChunkNetworkPolicy(mean, fields)
            curve.add(update, policy)
    curve.close()
    return policy, curve


def main(description, trainer, out, **settings):
    """Record demonstrations if `--runs` gives none, and train according to the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--task", default="so101-push", choices=sorted(SCRIPTS))
    parser.add_argument("--runs", help="recorded demonstrations; left out, the task's script demonstrates")
    parser.add_argument("--episodes", type=int, default=50, help="successful demonstrations of the script")
    parser.add_argument("--updates", type=int, default=settings.pop("updates", 3600))
    parser.add_argument("--drawn", action="store_true", help="the script demonstrates on robots of the range")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=out)
    args = parser.parse_args()
    robots, _ = conditions(args.task, not args.drawn, {})
    with tempfile.TemporaryDirectory() as folder:
        if args.runs is None:
            task, script = rlenv_robot.task(args.task), SCRIPTS[args.task]()
            recorded = record_demonstrations(task, script, folder, args.episodes, seed=args.seed, **robots)
            print(f"learning from {args.episodes} of {recorded} demonstrations, which succeeded")
        policy, _ = train(open_source(args.runs or folder), args.task, args.updates, args.seed, **settings)
    about = {"trainer": trainer, "updates": args.updates, "seed": args.seed}
    policy.save_onnx(args.out, args.task, about, robot_of_training(args.task, **robots))


if __name__ == "__main__":
    main(__doc__, "ACT", "act.onnx")
