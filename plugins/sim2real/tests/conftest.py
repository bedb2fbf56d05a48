"""Recorded motions with known truths, and the real logs where they are there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hal.robots.so101 import JOINTS
from recorder.table.table import Table
from rlenv_robot.data.folder import read_folder
from rlenv_sim2real.motion import RecordedMotion
from rlenv_sim2real.open_loop import ReplayModel, replay
from sim.model import SimModel

DATA = Path(__file__).parents[4] / "shared" / "data"
PERIOD_S = 1 / 30


def real_log(name: str, **options: str) -> Table:
    """A log of a real robot; the test is skipped where it is not there."""
    if not (DATA / name).is_dir():
        pytest.skip(f"the recorded episodes {name} of a real robot are not here")
    pytest.importorskip("pyarrow")
    return read_folder(DATA / name, **options)


@pytest.fixture(scope="session")
def so101_log() -> Table:
    return real_log("so101-pick-place", units="percent")


@pytest.fixture(scope="session")
def g1_log() -> Table:
    return real_log("g1-pick-bottle")


def wandering(seconds: float, seed: int = 0, size: float = 0.35) -> np.ndarray:
    """Smooth goals of the six joints around a pose over the table, rad, (T, 6)."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(0.0, seconds, PERIOD_S)
    swing = np.zeros((len(time_s), 6))
    for frequency in rng.uniform(0.1, 0.9, 5):
        swing += rng.uniform(0.3, 1.0, 6) * np.sin(2 * np.pi * frequency * time_s[:, None] + rng.uniform(0, 6.28, 6))
    ramp = np.clip(time_s / 2.0, 0.0, 1.0)[:, None]
    return np.array([0.0, -0.3, 0.3, 0.6, -1.5, 0.5]) + ramp * size * swing / 2.5


def recorded_on(sim_model: SimModel, goals: np.ndarray, episode: int = 0) -> RecordedMotion:
    """Return what an arm measures under these goals, as a log would hold it."""
    still = np.repeat(goals[:1], len(goals), axis=0)
    motion = RecordedMotion(episode, PERIOD_S, JOINTS, goals, still, goals[0])
    measured = replay(ReplayModel("arm", sim_model), motion)
    return RecordedMotion(episode, PERIOD_S, JOINTS, goals, measured, goals[0])
