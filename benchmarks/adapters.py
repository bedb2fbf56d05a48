"""Time that `from_gymnasium` and `from_fmu` add to a step of the environment inside, and steps/s beside bare FMPy.

In each round every candidate makes the same number of steps, one candidate after the other; the table shows medians and
quartiles of the rounds. The FMU is the tank of `plugins/bridges/tests/tank.c`, compiled here by gcc.

    pip install gymnasium fmpy
    python benchmarks/adapters.py [--rounds 15] [--steps 4000]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from fmpy import extract, read_model_description
from fmpy.fmi2 import FMU2Slave

from plugins.bridges.tests.test_from_fmu import DESCRIPTION, _packed
from rlenv_bridges.from_fmu import from_fmu
from rlenv_bridges.from_gymnasium import from_gymnasium

Run = Callable[[int], None]


def stepped(env: Any, action: dict[str, Any], steps: int) -> None:
    """Step an environment of the standard, and reset it where an episode ends."""
    table = env.reset({"seed": 1})
    for _ in range(steps):
        if table["terminated"] or table["truncated"]:
            table = env.reset()
        table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})


def gymnasium_stepped(env: Any, steps: int) -> None:
    """Step an environment of Gymnasium in the same way."""
    env.reset(seed=1)
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(0)
        if terminated or truncated:
            env.reset()


@contextlib.contextmanager
def tank(folder: Path) -> Iterator[tuple[Run, Run]]:
    """Make the tank's FMU; return runs of bare FMPy and of the adapter."""
    source = Path(__file__).parents[1] / "tests" / "rlenv_robot" / "adapters" / "tank.c"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", source, "-lm", "-o", folder / "tank.so"], check=True)
    path = _packed(folder / "Tank.fmu", DESCRIPTION, folder / "tank.so")
    described, unpacked = read_model_description(str(path)), extract(str(path))
    slave = FMU2Slave(guid=described.guid, unzipDirectory=unpacked, instanceName="bare", modelIdentifier="tank")
    slave.instantiate()
    slave.setupExperiment(startTime=0.0)
    slave.enterInitializationMode()
    slave.exitInitializationMode()
    moment = [0.0]

    def bare(steps: int) -> None:
        for _ in range(steps):
            slave.setReal([1], [0.1])
            slave.doStep(moment[0], 1.0)
            moment[0] += 1.0
            slave.getReal([0, 2])

    with from_fmu(path, lambda values: -abs(values["level"] - 2.0), step_s=1.0, steps=10**6) as env:
        yield bare, lambda steps: stepped(env, {"inflow_rate": np.array(0.1)}, steps)
    slave.terminate()
    slave.freeInstance()
    shutil.rmtree(unpacked, ignore_errors=True)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=4000)
    args = parser.parse_args()
    inner = gymnasium.make("CartPole-v1")
    with (
        tempfile.TemporaryDirectory() as folder,
        tank(Path(folder)) as (bare, adapted),
        from_gymnasium(gymnasium.make("CartPole-v1")) as cart,
    ):
        runs: dict[str, tuple[Run, Run]] = {
            "from_gymnasium, CartPole-v1": (
                lambda steps: gymnasium_stepped(inner, steps),
                lambda steps: stepped(cart, {"action": np.array(0)}, steps),
            ),
            "from_fmu, a tank": (bare, adapted),
        }
        print(f"load {os.getloadavg()[0]:.1f}, processor time")
        print("| adapter | inside, steps/s | adapter, steps/s | added, µs a step | quartiles |\n|---|---|---|---|---|")
        for name, pair in runs.items():
            times = np.array([[timed(run, args.steps) for run in pair] for _ in range(args.rounds + 1)])[1:]
            added = np.quantile(times[:, 1] - times[:, 0], (0.25, 0.5, 0.75)) * 1e6
            rates = 1 / np.median(times, axis=0)
            print(f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} | {added[1]:.1f} | {added[0]:.1f} to {added[2]:.1f} |")


def timed(run: Run, steps: int) -> float:
    """Return the processor time of a step, seconds."""
    began = time.process_time()
    run(steps)
    return (time.process_time() - began) / steps


if __name__ == "__main__":
    main()
