"""A step of an environment against bare MuJoCo, Gymnasium's and EnvPool's, in one run.

    pip install 'rlenv-robot[gym]' 'gymnasium[mujoco]' envpool
    python benchmarks/step.py [half-cheetah | ant] [--rounds 15] [--num 64]

Gymnasium's v5 half-cheetah, or its ant without contact forces, 5 substeps a control step; tests/sim compares values
state by state. Every round times all candidates one after the other, so that a machine whose speed drifts favours none;
what counts is the ratio within a round, given as median and quartiles. EnvPool is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import ant
import half_cheetah

from hal import Guard
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.vector.env import VectorEnvironment
from sim.batch import SimBatch, time_mujoco
from sim.model import SimModel
from sim.robot import SimRobot

STEPS = 400  # of a single environment; it is not reset while it is timed
BATCH_ROWS = {"half-cheetah": 64_000, "ant": 12_800}  # steps of all together in a round
SUBSTEPS = 5


@dataclass(frozen=True)
class Subject:
    """A task of ours, the environment of Gymnasium that it equals, and the model of both."""

    name: str
    gymnasium: str
    options: dict[str, Any]
    mjcf: Path
    model: Callable[[], SimModel]
    task: Callable[[], Any]
    width: int


SUBJECTS = {
    "half-cheetah": Subject("half-cheetah", "HalfCheetah-v5", {}, half_cheetah.mjcf_path(), half_cheetah.half_cheetah,
                            half_cheetah.HalfCheetah, 6),
    "ant": Subject("ant", "Ant-v5", {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0},
                   ant.mjcf_path(), ant.ant, ant.Ant, 8),
}  # fmt: skip


def raw(subject: Subject) -> Callable[[], float]:
    model = mujoco.MjModel.from_xml_path(str(subject.mjcf))
    data = mujoco.MjData(model)
    actions = _actions(STEPS, subject.width)

    def run() -> float:
        mujoco.mj_resetData(model, data)
        time_mujoco(True)  # as its Python package does by itself, and Gymnasium's environments below
        begun = time.perf_counter()
        for action in actions:
            data.ctrl[:] = action
            mujoco.mj_step(model, data, SUBSTEPS)
        spent = time.perf_counter() - begun
        time_mujoco(False)
        return STEPS / spent

    return run


def gymnasium_env(subject: Subject) -> Callable[[], float]:
    import gymnasium

    # An ant that fell goes on, here as below: what is timed is the step.
    options = dict(subject.options, terminate_when_unhealthy=False) if subject.name == "ant" else subject.options
    env = gymnasium.make(subject.gymnasium, **options)
    actions = _actions(STEPS, subject.width)

    def run() -> float:
        env.reset(seed=0)
        time_mujoco(True)
        begun = time.perf_counter()
        for action in actions:
            env.step(action)
        spent = time.perf_counter() - begun
        time_mujoco(False)
        return STEPS / spent

    return run


def one(subject: Subject) -> Callable[[], float]:
    task = ant.Ant(falls=False) if subject.name == "ant" else subject.task()
    robot = Guard(SimRobot(subject.model(), validate=False))  # as `make` builds it
    env = Environment(RobotWorld(robot, task), env_id="bench")
    actions = _actions(STEPS, subject.width)

    def run() -> float:
        table = env.reset({"seed": 0})
        begun = time.perf_counter()
        for action in actions:
            table, _ = env.step({"env_id": "bench", "frame_no": table["frame_no"], "action": {"torque": action}})
        return STEPS / (time.perf_counter() - begun)

    return run


def many(subject: Subject, threads: int, num: int, steps: int | None = None) -> Callable[[], float]:
    """Measure steps together with resets: of ants that fall, and of all environments at the end of an episode."""
    steps = steps or BATCH_ROWS[subject.name] // num
    envs = VectorEnvironment(SimBatch(subject.model(), num, threads), subject.task(), seed=0)
    actions = _actions(steps * num, subject.width).reshape(steps, num, subject.width)

    def run() -> float:
        table = envs.reset({})
        begun = time.perf_counter()
        for action in actions:
            request = {"env_id": table["env_id"], "frame_no": table["frame_no"], "action": {"torque": action}}
            table, _ = envs.step(request)
        return steps * num / (time.perf_counter() - begun)

    return run


def envpool_env(subject: Subject, threads: int, num: int) -> Callable[[], float]:
    import envpool

    # Its own word for what Gymnasium calls include_cfrc_ext_in_observation.
    options: dict[str, Any] = {"use_contact_force": False, "contact_cost_weight": 0.0} if subject.name == "ant" else {}
    envs = envpool.make(subject.gymnasium, env_type="gymnasium", num_envs=num, num_threads=threads, seed=0, **options)
    steps = BATCH_ROWS[subject.name] // num
    actions = _actions(steps * num, subject.width).reshape(steps, num, subject.width).astype(np.float64)

    def run() -> float:
        envs.reset()
        begun = time.perf_counter()
        for action in actions:
            envs.step(action)
        return steps * num / (time.perf_counter() - begun)

    return run


def _actions(count: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (count, width)).astype(np.float32)


def compare(subject: Subject, rounds: int, threads: int, num: int) -> None:
    candidates = {
        "raw mj_step, one thread": raw(subject),
        f"Gymnasium {subject.gymnasium}": gymnasium_env(subject),
        "Environment, one": one(subject),
        f"VectorEnvironment, {num} on {threads} threads": many(subject, threads, num),
    }
    if importlib.util.find_spec("envpool"):
        candidates[f"EnvPool, {num} on {threads} threads"] = envpool_env(subject, threads, num)
    for run in candidates.values():
        run()
    figures = {name: np.zeros(rounds) for name in candidates}
    for index in range(rounds):
        for name, run in candidates.items():
            figures[name][index] = run()
    base = figures["raw mj_step, one thread"]
    print(f"{subject.name + ', control steps/s':<40}{'median':>10}{'of raw':>9}   quartiles")
    for name, values in figures.items():
        ratio = np.quantile(values / base, [0.5, 0.25, 0.75])
        print(f"{name:<40}{np.median(values):>10,.0f}{ratio[0]:>9.2f}   {ratio[1]:.2f} to {ratio[2]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subject", nargs="?", choices=sorted(SUBJECTS), default="half-cheetah")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--num", type=int, default=64, help="environments of a batch (default: 64)")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    threads = os.cpu_count() or 1
    print(f"{platform.machine()}, {threads} cores, Python {platform.python_version()}, MuJoCo {mujoco.__version__}")
    compare(SUBJECTS[args.subject], args.rounds, threads, args.num)


if __name__ == "__main__":
    main()
