"""A step of an environment against bare MuJoCo and against Gymnasium's, in one run.

    pip install 'rlenv-robot[gym]' 'gymnasium[mujoco]'
    python benchmarks/step.py [--rounds 15]

Half-cheetah, 5 substeps a control step. Every round times all candidates one after the other, so that a machine
whose speed drifts favours none; what counts is the ratio within a round, given as median and quartiles.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import mujoco
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from half_cheetah import SUBSTEPS, HalfCheetah, half_cheetah, mjcf_path

from hal import Guard
from rlenv_robot.embodied import RobotWorld
from rlenv_robot.environment import Environment
from rlenv_robot.vector import VectorEnvironment
from sim.batch import SimBatch
from sim.robot import SimRobot

STEPS = 900  # under the 1000 of an episode, so that a single environment is not reset while it is timed
NUM = 64
BATCH_STEPS = 1000  # one whole episode, so one reset of each environment


def raw() -> Callable[[], float]:
    model = mujoco.MjModel.from_xml_path(str(mjcf_path()))
    data = mujoco.MjData(model)
    actions = _actions(STEPS)

    def run() -> float:
        mujoco.mj_resetData(model, data)
        begun = time.perf_counter()
        for action in actions:
            data.ctrl[:] = action
            mujoco.mj_step(model, data, SUBSTEPS)
        return STEPS / (time.perf_counter() - begun)

    return run


def gymnasium_env() -> Callable[[], float]:
    import gymnasium

    env = gymnasium.make("HalfCheetah-v5")
    actions = _actions(STEPS)

    def run() -> float:
        env.reset(seed=0)
        begun = time.perf_counter()
        for action in actions:
            env.step(action)
        return STEPS / (time.perf_counter() - begun)

    return run


def one() -> Callable[[], float]:
    env = Environment(RobotWorld(Guard(SimRobot(half_cheetah())), HalfCheetah()), env_id="bench")
    actions = _actions(STEPS)

    def run() -> float:
        table = env.reset({"seed": 0})
        begun = time.perf_counter()
        for action in actions:
            table, _ = env.step({"env_id": "bench", "frame_no": table["frame_no"], "action": {"torque": action}})
        return STEPS / (time.perf_counter() - begun)

    return run


def many(threads: int) -> Callable[[], float]:
    envs = VectorEnvironment(SimBatch(half_cheetah(), NUM, threads), HalfCheetah(), seed=0)
    actions = _actions(BATCH_STEPS * NUM).reshape(BATCH_STEPS, NUM, 6)

    def run() -> float:
        table = envs.reset({})
        begun = time.perf_counter()
        for action in actions:
            request = {"env_id": table["env_id"], "frame_no": table["frame_no"], "action": {"torque": action}}
            table, _ = envs.step(request)
        return BATCH_STEPS * NUM / (time.perf_counter() - begun)

    return run


def _actions(count: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (count, 6)).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")
    threads = os.cpu_count() or 1
    candidates = {
        "raw mj_step, one thread": raw(),
        "Gymnasium HalfCheetah-v5": gymnasium_env(),
        "Environment, one": one(),
        f"VectorEnvironment, {NUM} on {threads} threads": many(threads),
    }
    for run in candidates.values():
        run()
    figures = {name: np.zeros(rounds) for name in candidates}
    for index in range(rounds):
        for name, run in candidates.items():
            figures[name][index] = run()
    base = figures["raw mj_step, one thread"]
    print(f"{platform.machine()}, {threads} cores, Python {platform.python_version()}, MuJoCo {mujoco.__version__}")
    print(f"{'half-cheetah, control steps/s':<40}{'median':>10}{'of raw':>9}   quartiles")
    for name, values in figures.items():
        ratio = np.quantile(values / base, [0.5, 0.25, 0.75])
        print(f"{name:<40}{np.median(values):>10,.0f}{ratio[0]:>9.2f}   {ratio[1]:.2f} to {ratio[2]:.2f}")


if __name__ == "__main__":
    main()
