"""Compare the metrics that an environment on a device keeps of an episode with those of a batch on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from hal.robots.so101 import CUBE_HALF, SO101_CUBE
from rlenv_robot.tasks.cube import PickPlace
from rlenv_robot.tasks.episode_rules import RecentMetrics

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra train)")

from rlenv_gpu.environment import _RecentMetrics  # noqa: E402
from rlenv_gpu.tensor_array import TensorArray, arrays_of  # noqa: E402

NUM, READINGS = 8, 70


def test_means_and_peaks_are_those_of_the_cpu_after_new_episodes_and_refused_steps() -> None:
    task, rng = PickPlace(), np.random.default_rng(0)
    on_cpu, on_device = RecentMetrics(task, NUM), _RecentMetrics(task, NUM, torch.device("cpu"))
    goal = {"target_position": np.tile(np.float32([0.2, 0.0, CUBE_HALF]), (NUM, 1))}
    goals = arrays_of({name: torch.as_tensor(value) for name, value in goal.items()})
    peaks = set[float]()
    for step in range(READINGS):
        sensors = SO101_CUBE.sensors.sample(rng, (NUM,))
        lifted = rng.uniform(size=NUM) < 0.03  # the others lie somewhere
        sensors["cube_position"][:, 2] = np.where(lifted, rng.uniform(0.03, 0.1, NUM), CUBE_HALF)
        sensors["gripper_position"] = sensors["cube_position"] + np.float32([0.0, 0.0, 0.01])
        moved = rng.uniform(size=NUM) < 0.9
        on_cpu.add(sensors, goal, moved)
        readings = arrays_of({name: torch.as_tensor(value) for name, value in sensors.items()})
        if step == 0:
            on_device.open(readings, goals)
        following = on_device.added(readings, goals, TensorArray(torch.as_tensor(moved)))
        rows = np.arange(NUM)
        expected = on_cpu.means(rows, task.metrics(sensors, goal))
        means = on_device.means(following)
        assert set(means) == set(expected) == {"distance_mm", "put_down_share", "lifted_mm"}
        seen = np.asarray(following[""].tensor) > 0
        for name, value in means.items():
            np.testing.assert_allclose(np.asarray(value.tensor)[seen], expected[name][seen], rtol=1e-6, err_msg=name)
        peaks |= set(expected["lifted_mm"].tolist())
        begins = rng.uniform(size=NUM) < 0.05
        on_cpu.begin(np.flatnonzero(begins))
        kept = _RecentMetrics.begun(following, TensorArray(torch.as_tensor(begins)))
        on_device._counts, on_device._kept = kept.pop(""), kept
    assert len(peaks) > 5
