"""Control steps a second of a task's robots on the CPU and on a GPU, beside bare MuJoCo Warp, at several sizes.

- ``CPU``: MuJoCo's batch on all processors; sensors are read in every step.
- ``host``: MuJoCo Warp; sensors are copied to the host in every step (`rlenv_gpu.WarpBatch`).
- ``device``: whole environments on the device (`rlenv_gpu.environment.TensorEnvironment`) with random actions: checks,
  limits, rewards, ends, resets and observations. Robots fall or run out of time, so episodes end in every step.
- ``calm``: the same with actions of zero and without a time limit, so that hardly an episode ends.
- ``bare``: MuJoCo Warp alone, the same model and substeps, recorded as a CUDA graph, at rest in the model's keyframe.

Rounds alternate between the candidates; the table shows medians, and the share of ``bare`` that ``device`` and ``calm``
have within a round. Robots that move cost the physics more than robots at rest, so ``device`` and ``calm`` are also
compared with the physics alone in the same states: it goes through the same control signals from the same states again.
The aim is 0.9 of that, and 740,000 control steps a second for 4,096 quadrupeds on flat ground on an
H200. Below each row: how steps are enqueued, launches in a step, ends in a step, and how often a step waited for
episodes, or paused because the device was several steps behind.

    python benchmarks/gpu.py [--task go2-walk so101-reach] [--num 1024 4096] [--device cuda:0] [--seconds 5]
        [--rounds 5] [--rows device calm bare]

Needs the extras gpu and train. `--device cpu` shows that it runs, and says nothing about speed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

import mujoco
import numpy as np
import torch

from rlenv_gpu import WarpBatch, WarpDevice
from rlenv_gpu.environment import TensorEnvironment
from rlenv_gpu.launches import CountedLaunches
from rlenv_gpu.tensor_batch import TensorBatch
from rlenv_gpu.warp_batch import STATE
from rlenv_robot.registry import task as make_task
from rlenv_robot.robot_models import robot_model_of
from rlenv_robot.tasks.task import Task
from sim.batch import SimBatch
from sim.model import SimModel

WARM = 8  # by then a step is compiled and recorded
ENDLESS = 10**6

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


class Environments:
    """Whole environments on the device, with small random actions or actions of zero.

    Args:
        task: the task.
        model: its robot.
        num: number of environments.
        device: Warp's name of the device.
        scale: largest action.
    """

    def __init__(self, task: Task, model: SimModel, num: int, device: str, scale: float) -> None:
        self.envs = TensorEnvironment(TensorBatch(model, num, device), task, seed=0)
        self._scale = scale
        self._table = self.envs.reset()
        self._ended = torch.zeros((), dtype=torch.int64, device=self.envs.device)
        self._steps = 0
        # The fields' middle, as zero may be out of range.
        self._middle = {
            field.name: torch.full((num, *field.shape), 0.0, device=self.envs.device).clamp(*map(float, _range(field)))
            for field in self.envs.action
        }

    def __call__(self) -> None:
        action = self._middle
        if self._scale:
            action = {name: middle + self._scale * (2 * torch.rand_like(middle) - 1) for name, middle in action.items()}
        self._step(action)
        self._ended += self._table["extra_info"]["final"].mask.sum()
        self._steps += 1

    def _step(self, action: dict[str, torch.Tensor]) -> None:
        table = self._table
        self._table, _ = self.envs.step({**{name: table[name] for name in ("env_id", "frame_no")}, "action": action})

    def share_of_physics(self, rounds: int, wait: Callable[[], object], steps: int = 50) -> list[float]:
        """Return the rate of steps over that of the physics alone in the same states, in order of size."""
        physics, shares = self.envs.batch.physics, []
        state = [name for name in STATE if physics.tensor(name).numel()]

        def copied() -> dict[str, torch.Tensor]:
            return {name: physics.tensor(name).clone() for name in state}

        def put_back(values: dict[str, torch.Tensor]) -> None:
            for name, value in values.items():
                physics.tensor(name).copy_(value)

        for _ in range(2):  # the second call records the physics alone
            physics.advance_with_torch()
        for _ in range(rounds):
            before = copied()
            signals: list[torch.Tensor] = []
            whole_s = _duration(partial(self._go_on, steps, signals), wait)
            after = copied()
            put_back(before)
            physics_s = _duration(partial(_replay, physics, signals), wait)
            put_back(after)
            shares.append(physics_s / whole_s)
        return sorted(shares)

    def _go_on(self, steps: int, signals: list[torch.Tensor]) -> None:
        for _ in range(steps):
            self()
            signals.append(self.envs.batch.physics.tensor("ctrl").clone())

    def report(self) -> str:
        """The way in which steps were enqueued, with the launches of one more step."""
        self._step(self._middle)
        with CountedLaunches() as counted:
            self._step(self._middle)
        if self.envs.device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(3):
            self._step(self._middle)
        host_us = (time.perf_counter() - began) / 3 * 1e6
        launches = counted.launches.total() + (self.envs.recording == "whole")
        for part in (self.envs._command, self.envs._end_step):
            if part.refusal:
                print(f"         not compiled: {part.refusal[:500]}")
        waits, pauses = self.envs.waits
        launched = ", ".join(f"{name} {number}" for name, number in counted.launches.items())
        return (
            f"host {host_us:.0f} us a step; recorded: {self.envs.recording}; compiled: {self.envs.compiled}; "
            f"launches in a step: {launches} ({launched}); waits in it: "
            f"{counted.waits.total()}; ends in a step: {int(self._ended) / self._steps:.1f}; waits for episodes: "
            f"{waits} of {self._steps} steps, pauses {pauses}"
        )


def _replay(physics: WarpDevice, signals: list[torch.Tensor]) -> None:
    for signal in signals:
        physics.tensor("ctrl").copy_(signal)
        physics.advance_with_torch()


def _duration(work: Callable[[], object], wait: Callable[[], object]) -> float:
    wait()
    began = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - began


def _range(field: object) -> tuple[float, float]:
    low, high = field.bounds  # type: ignore[attr-defined]
    return float(np.max(low)), float(np.min(high))


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


def measure(name: str, args: argparse.Namespace) -> None:
    task, calm = make_task(name), make_task(name, steps=ENDLESS)
    model = robot_model_of(task).make_sim_model(looks=False)
    wait = torch.cuda.synchronize if args.device.startswith("cuda") else nothing
    print(f"{name}, {model.substeps} steps of the physics a control step", flush=True)
    for num in args.num:
        made: dict[str, Callable[[], Step]] = {
            "CPU": lambda num=num: stepping(SimBatch(model, num)),
            "host": lambda num=num: stepping(WarpBatch(model, num, args.device)),
            "device": lambda num=num: Environments(task, model, num, args.device, 0.1),
            "calm": lambda num=num: Environments(calm, model, num, args.device, 0.0),
            "bare": lambda num=num: bare(model, num, args.device),
        }  # fmt: skip
        steps: dict[str, Step] = {}
        for row in args.rows:
            began = time.perf_counter()
            steps[row] = made[row]()
            for _ in range(WARM):
                steps[row]()
            wait()
            print(f"  {row}: ready after {time.perf_counter() - began:.0f} s", flush=True)
        rounds = [{row: rate(step, num, args.seconds, wait) for row, step in steps.items()} for _ in range(args.rounds)]
        for row, step in steps.items():
            rates = [each[row] for each in rounds]
            shares = sorted(each[row] / each["bare"] for each in rounds) if "bare" in steps else [float("nan")]
            print(f"  {num:6} {row:8}{statistics.median(rates):12.0f}  of bare {statistics.median(shares):.2f} "
                  f"({shares[0]:.2f} to {shares[-1]:.2f})", flush=True)  # fmt: skip
            if isinstance(step, Environments):
                shares = step.share_of_physics(args.rounds, wait)
                print(f"         of the physics alone in the same states {statistics.median(shares):.3f} "
                      f"({shares[0]:.3f} to {shares[-1]:.3f})", flush=True)  # fmt: skip
                print(f"         {step.report()}", flush=True)
                step.envs.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", default=["go2-walk", "so101-reach"])
    parser.add_argument("--num", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    rows = ("CPU", "host", "device", "calm", "bare")
    parser.add_argument("--rows", nargs="+", default=rows, choices=rows)
    args = parser.parse_args()
    print(f"{os.cpu_count()} processors; MuJoCo {mujoco.__version__}; PyTorch {torch.__version__}; control steps/s, "
          f"all robots together, medians of {args.rounds} rounds")  # fmt: skip
    for name in args.task:
        measure(name, args)


if __name__ == "__main__":
    main()
