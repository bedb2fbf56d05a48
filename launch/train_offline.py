"""Train on recorded data only: `python launch/train_offline.py runs/ --method td3bc` (extras: train, onnx).

For the data of another robot or project, such as LeRobot's, compute rewards with `--task so101-reach --goal hindsight`.

Methods: `td3bc`, `bcq` and `cql` from all steps; `bc`, behaviour cloning, from the best fifth of the episodes.
"""

import argparse
import time

import numpy as np
import torch
from tianshou.utils.torch_utils import policy_within_training_step
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from rlenv_bridges.tianshou import to_replay_buffer
from rlenv_learn.offline_agents import METHODS, offline_agent
from rlenv_robot import FlatPolicy, LearningCurve, RobotError, flat_for, open_source, task


def load(runs, name="so101-reach", goal=None, **reading):
    """Return a task's steps: as recorded if they belong to this task, otherwise recomputed from the data."""
    target, source = task(name), open_source(runs, **reading)
    layout = source.table.layout
    if goal is None and layout.observation.names == target.observation.names and layout.action == target.action:
        return source
    return open_source(runs, target, goal=goal or "recorded", **reading)


def train(source, name="so101-reach", method="td3bc", updates=20_000, seed=0, tries=10, quiet=False):
    """Train on recorded data; return policy and learning curve. Only trials use the simulation."""
    torch.manual_seed(seed), np.random.seed(seed), torch.set_num_threads(1)
    flat = flat_for(task(name))
    buffer = to_replay_buffer(source, flat=flat, best=0.2 if method == "bc" else 1.0, seed=seed)
    algorithm, network = offline_agent(method, flat)
    buffer = algorithm.process_buffer(buffer)
    if method in ("bcq", "cql"):
        buffer.done[:] = buffer.terminated  # these two take `done` for the task's end, which time is not
    mean = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.999)) if method == "bc" else None
    policy = FlatPolicy(mean.module if mean else network, flat)  # a clone's last batches sway it, so their mean
    curve = LearningCurve(name, quiet=quiet)
    for update in range(1, updates + 1):
        with policy_within_training_step(algorithm.policy):
            algorithm.update(buffer, 256)
        if mean:
            mean.update_parameters(network)
        if update % max(1, updates // tries) == 0:
            curve.add(update, policy)
    curve.close()
    return policy, curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", help="a recorded run, a folder of runs, or a data set such as LeRobot's")
    parser.add_argument("--task", default="so101-reach")
    parser.add_argument("--goal", choices=("recorded", "hindsight"), help="compute rewards anew, for this goal")
    parser.add_argument("--units", choices=("degrees", "percent"), help="of the joints of LeRobot's SO-101")
    parser.add_argument("--cache", help="a folder for tables that can't lie beside the data, or fill memory")
    parser.add_argument("--method", choices=METHODS, default="td3bc")
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="policy.onnx")
    args = parser.parse_args()
    begun = time.perf_counter()
    try:
        source = load(args.runs, args.task, args.goal, units=args.units, cache=args.cache)
    except RobotError as error:
        parser.error(str(error))
    print(f"{len(source):,} steps read in {time.perf_counter() - begun:.1f} s")
    policy, _ = train(source, args.task, args.method, args.updates, args.seed)
    policy.save_onnx(args.out, args.task, {"trainer": f"Tianshou {args.method}", "seed": args.seed})
