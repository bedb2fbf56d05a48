"""A step of each of our tasks against bare `mj_step` of the same model in the same states, in one run.

    python benchmarks/task_step.py [--rounds 9] [--num 64] [--task so101-push]

The actions of an episode are chosen once, by the task's script where there is one, and else at random around the goals
that the servos hold. Every candidate then repeats them from the same starts, and bare MuJoCo applies the same commands
to the same model, so that the contacts are the same: those of the first environment for a single one, of all for a
batch. Time is the processor's, of all threads together: a machine that others share changes it little. What counts is
the ratio within a round, given as median and quartiles. Raw is MuJoCo as its Python package runs it: it times its own
parts, which our simulations leave out (`sim.batch.time_mujoco`); what raw costs without is given too. ``varied`` is the
same with the robots of the model's range (`RobotModel.variation`; for so101-reach that of launch/any_so101.toml), and
is divided by the cost without.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import mujoco
import numpy as np

import rlenv_robot
from rlenv_robot.registry import task as make_task
from rlenv_robot.robot_models import robot_model_of
from rlenv_robot.vector.env import VectorEnvironment
from rlenv_tabletop.scripted import SCRIPTS
from sim.batch import time_mujoco
from sim.model import SimModel

TASKS = (
    "so101-reach", "so101-push", "so101-pick-place", "so101-pair-lift", "so101-stack", "so101-sort", "so101-drawer",
    "so101-lid", "so101-insert", "go2-walk",
)  # fmt: skip
STEPS = 60
REPEATS = 6  # of a single environment's episode in a round
SEED = 5


def choose(name: str, envs: VectorEnvironment, obs: Mapping[str, np.ndarray], rng: np.random.Generator) -> Any:
    """The script's actions, or ones that move the servos' goals a little."""
    if name in SCRIPTS:
        return SCRIPTS[name]().act(obs)
    (field,) = envs.action
    if "joint_goal" not in obs or name == "go2-walk":
        return {field.name: rng.uniform(-0.3, 0.3, (envs.num_envs, *field.shape)).astype(field.numpy_dtype)}
    moved = obs["joint_goal"] + rng.uniform(-0.1, 0.1, obs["joint_goal"].shape)
    return {field.name: np.clip(moved, *field.bounds).astype(field.numpy_dtype)}


def rehearse(name: str, num: int) -> tuple[list[Any], list[np.ndarray], SimModel, np.ndarray, np.ndarray]:
    """Actions of all steps, commands as rows of ``ctrl``, the model, and the first ``qpos`` and ``qvel``."""
    rng = np.random.default_rng(SEED)
    with rlenv_robot.make_vector(name, num, seed=SEED, threads=1, steps=STEPS + 1) as envs:
        table = envs.reset({})
        batch: Any = envs.batch
        qpos, qvel = (np.array(batch.open_batch.bind(key)) for key in ("qpos", "qvel"))
        actions, controls = [], []
        for _ in range(STEPS):
            action = choose(name, envs, table["observation"], rng)
            table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
            actions.append(action)
            controls.append(np.array(batch.open_batch.bind("ctrl")))
        return actions, controls, batch.sim_model, qpos, qvel


def raw(
    model: SimModel, controls: list[np.ndarray], qpos: np.ndarray, qvel: np.ndarray, rows: list[int], timed: bool
) -> Callable[[], tuple[float, int]]:
    data = mujoco.MjData(model.model)

    def run() -> tuple[float, int]:
        time_mujoco(timed)
        spent = 0.0
        for row in rows:
            mujoco.mj_resetData(model.model, data)
            data.qpos[:], data.qvel[:] = qpos[row], qvel[row]
            begun = time.process_time()
            for control in controls:
                data.ctrl[:] = control[row]
                mujoco.mj_step(model.model, data, model.substeps)
            spent += time.process_time() - begun
        time_mujoco(False)
        return spent, len(rows) * len(controls)

    return run


def one(name: str, actions: list[Any], settings: Mapping[str, Any]) -> Callable[[], tuple[float, int]]:
    env = rlenv_robot.make(name, env_id="bench", steps=STEPS + 1, **settings)
    own = [{field: value[0] for field, value in action.items()} for action in actions]

    def run() -> tuple[float, int]:
        spent = 0.0
        for _ in range(REPEATS):
            table = env.reset({"seed": SEED})
            begun = time.process_time()
            for action in own:
                table, _ = env.step({"env_id": "bench", "frame_no": table["frame_no"], "action": action})
            spent += time.process_time() - begun
        return spent, REPEATS * len(own)

    return run


def many(
    name: str, actions: list[Any], num: int, threads: int, settings: Mapping[str, Any]
) -> Callable[[], tuple[float, int]]:
    envs = rlenv_robot.make_vector(name, num, seed=SEED, threads=threads, steps=STEPS + 1, **settings)

    def run() -> tuple[float, int]:
        table = envs.reset({"seed": SEED})
        begun = time.process_time()
        for action in actions:
            table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
        return time.process_time() - begun, num * len(actions)

    return run


def compare(name: str, rounds: int, num: int, threads: int) -> None:
    actions, controls, model, qpos, qvel = rehearse(name, num)
    variation = robot_model_of(make_task(name)).load_variation()
    candidates = {
        "raw, one": raw(model, controls, qpos, qvel, [0] * REPEATS, True),
        "raw without its timers, one": raw(model, controls, qpos, qvel, [0] * REPEATS, False),
        "one": one(name, actions, {}),
        "one, varied": one(name, actions, variation),
        "raw, all": raw(model, controls, qpos, qvel, list(range(num)), True),
        f"batch of {num}": many(name, actions, num, threads, {}),
        f"batch of {num}, varied": many(name, actions, num, threads, variation),
    }
    for run in candidates.values():
        run()
    costs = {label: np.zeros(rounds) for label in candidates}
    for index in range(rounds):
        for label, run in candidates.items():
            spent, steps = run()
            costs[label][index] = spent / steps
    base = plain = costs["raw, one"]
    for label, cost in costs.items():
        base = cost if label in ("raw, one", "raw, all") else base
        if label.endswith("varied"):
            ratios, kind = cost / plain, "of the cost without"
        else:
            ratios, plain, kind = base / cost, cost, "of raw"
        ratio, low, high = np.quantile(ratios, [0.5, 0.25, 0.75])
        cells = (name, label, f"{np.median(cost) * 1e6:.1f}", f"{ratio:.2f} {kind}", f"{low:.2f} to {high:.2f}")
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--num", type=int, default=64, help="environments of a batch (default: 64)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--task", choices=TASKS)
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}; processor time of a control step in microseconds\n")
    print("| task | candidate | microseconds | ratio | quartiles |\n|---|---|---|---|---|")
    for name in [given.task] if given.task else TASKS:
        compare(name, given.rounds, given.num, given.threads)


if __name__ == "__main__":
    main()
