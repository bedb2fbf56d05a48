"""The learned sensors: known dynamics are found again, and the model stands where a simulation stands."""

from __future__ import annotations

import numpy as np
import pytest

from hal import SourceError
from hal.robots.go2 import GO2
from rlenv_robot.tasks.walk import Walk
from rlenv_robot.training.sensor_model import Recording, SensorBatch, fit_sensors, open_loop_error_of_sensors
from rlenv_robot.vector.env import VectorEnvironment


def spring(seed: int, steps: int = 60) -> Recording:
    """Return a damped oscillator (position and velocity) that a command pushes."""
    rng = np.random.default_rng(seed)
    state, commands = [rng.normal(size=2)], rng.normal(size=(steps + 1, 1))
    for command in commands[1:, 0]:
        position, velocity = state[-1]
        velocity = 0.9 * velocity - 0.2 * position + 0.3 * command
        state.append(np.array([position + 0.3 * velocity, velocity]))
    return Recording(np.array(state), commands)


@pytest.mark.requirement("R6.2")
def test_known_dynamics_are_found_again() -> None:
    model = fit_sensors([spring(seed) for seed in range(10)])
    error, unchanged = open_loop_error_of_sensors(model, [spring(100), spring(101)])
    assert error.shape == unchanged.shape == (30,)
    assert error[-1] < 0.05 < 0.5 < unchanged[-1]


def test_it_takes_the_place_of_a_simulation() -> None:
    rng = np.random.default_rng(0)
    sensors, commands = (sum(field.size for field in spec) for spec in (GO2.sensors, GO2.commands))
    stretches = [Recording(rng.normal(size=(20, sensors)), rng.normal(size=(20, commands))) for _ in range(6)]
    robots = SensorBatch(fit_sensors(stretches), GO2, 6)
    assert robots.spec == GO2
    with VectorEnvironment(robots, Walk(steps=5), autoreset="disabled", streams=np.tile([0, 1, 2], 2)) as envs:
        table = envs.reset({"seed": 4})
        for name, value in table["observation"].items():
            assert value.shape == (6, *Walk().observation[name].shape)
            np.testing.assert_array_equal(value[:3], value[3:])  # common random numbers
        action = {"joint_offset": np.zeros((6, 12), np.float32)}
        _, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
        assert np.isfinite(reward["reward"]).all()
    with pytest.raises(ValueError, match="begin together"):
        robots.reset(np.array([1]), None, None)


def test_predictions_stay_near_what_was_recorded() -> None:
    model = fit_sensors([spring(seed) for seed in range(4)])
    far = np.full((4, 2), 1e3)
    following = model.next_sensors(far, far, [np.zeros((4, 1))] * 4, np.arange(4))
    np.testing.assert_array_equal(following, np.tile(model.high, (4, 1)))


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(SourceError, match="no recorded step"):
        fit_sensors([])
