"""Control steps a second of a task's robots on the CPU and on a GPU, beside bare MuJoCo Warp, at several sizes.

- ``CPU``: MuJoCo's batch on all processors; sensors are read in every step.
- ``host``: MuJoCo Warp; sensors are copied to the host in every step (`rlenv_gpu.WarpBatch`).
- ``device``: whole environments on the device (`rlenv_gpu.environment.TensorEnvironment`): checks, limits,
  rewards, ends, resets and observations.
- ``bare``: MuJoCo Warp alone, the same model and substeps, recorded as a CUDA graph.

Rounds alternate between the candidates; the table shows medians, and the share that ``device`` has of ``bare`` within a
round. The aims are 0.9, and 740,000 control steps a second for 4,096 quadrupeds on flat ground on an H200.

    python benchmarks/gpu.py [--task go2-walk] [--num 1024 4096] [--device cuda:0] [--seconds 5] [--rounds 5]

Needs the extras gpu and train. `--device cpu` shows that it runs, and says nothing about speed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import mujoco
import numpy as np
import torch

from rlenv_gpu import WarpBatch, WarpDevice
from rlenv_gpu.environment import TensorEnvironment
from rlenv_gpu.tensor_batch import TensorBatch
from rlenv_robot.registry import task as make_task
from rlenv_robot.robot_models import robot_model_of
from rlenv_robot.tasks.task import Task
from sim.batch import SimBatch
from sim.model import SimModel

WARM = 3

Step = Callable[[], object]


def commands(model: SimModel, num: int) -> dict[str, np.ndarray]:
    """The robots' home, scattered by a twentieth of the unit."""
    scatter = np.random.default_rng(0)
    told = {}
    for field in model.spec.commands:
        home = np.broadcast_to(np.asarray(model.spec.home.get(field.name, 0.0)), (num, *field.shape))
        values = home + scatter.uniform(-0.05, 0.05, home.shape)
        told[field.name] = np.clip(values, field.low, field.high).astype(field.numpy_dtype)
    return told


def stepping(batch: SimBatch | WarpBatch) -> Step:
    """A step of a batch whose sensors end on the host."""
    told = commands(batch.sim_model, batch.num)
    batch.reset(seeds=np.arange(batch.num))
    return lambda: batch.step(told)


def environments(model: SimModel, task: Task, num: int, device: str) -> Step:
    """A step of whole environments on the device, with small random actions."""
    envs = TensorEnvironment(TensorBatch(model, num, device), task, seed=0)
    table = envs.reset()

    def step() -> None:
        nonlocal table
        action = {
            field.name: 0.1 * (2 * torch.rand((num, *field.shape), device=envs.device) - 1) for field in envs.action
        }
        table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})

    return step


def bare(model: SimModel, num: int, device: str) -> Step:
    """A control period of MuJoCo Warp alone, from the model's keyframe."""
    physics, key = WarpDevice(model.model, num, model.substeps, "nothing", device), model.keyframe
    if key >= 0:
        physics.bind("qpos")[:] = model.model.key_qpos[key]
        physics.bind("ctrl")[:] = model.model.key_ctrl[key]
        physics.push(("qpos", "ctrl"))
    return physics.advance_with_torch


def rate(step: Step, num: int, seconds: float, wait: Callable[[], object]) -> float:
    """Control steps of all robots a second, until the device has finished the last one."""
    wait()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        count += 1
    wait()
    return num * count / (time.perf_counter() - began)


def nothing() -> None:
    """There is nothing to wait for: a CPU device has finished when a call returns."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="go2-walk")
    parser.add_argument("--num", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    task = make_task(args.task)
    model = robot_model_of(task).make_sim_model(looks=False)
    wait = torch.cuda.synchronize if args.device.startswith("cuda") else nothing
    print(f"{args.task}, {model.substeps} steps of the physics a control step; {os.cpu_count()} processors; MuJoCo "
          f"{mujoco.__version__}; control steps/s, all robots together, medians of {args.rounds} rounds")  # fmt: skip
    print(f"{'robots':>8}{'CPU':>12}{'host':>12}{'device':>12}{'bare':>12}  device of bare")
    for num in args.num:
        steps = {
            "CPU": stepping(SimBatch(model, num)),
            "host": stepping(WarpBatch(model, num, args.device)),
            "device": environments(model, task, num, args.device),
            "bare": bare(model, num, args.device),
        }
        for step in steps.values():
            for _ in range(WARM):
                step()
        rounds = [
            {name: rate(step, num, args.seconds, wait) for name, step in steps.items()} for _ in range(args.rounds)
        ]
        medians = {name: statistics.median(each[name] for each in rounds) for name in steps}
        shares = sorted(each["device"] / each["bare"] for each in rounds)
        print(f"{num:8}" + "".join(f"{value:12.0f}" for value in medians.values())
              + f"  {statistics.median(shares):.2f} ({shares[0]:.2f} to {shares[-1]:.2f})")  # fmt: skip


if __name__ == "__main__":
    main()
