"""The same physics, commanded and read at another rate."""

from __future__ import annotations

import numpy as np
import pytest

from hal import SpecError
from sim.model import at_rate
from sim.robot import SimRobot
from sim.robots.so101 import so101


def test_eight_steps_at_240_hz_are_one_at_30() -> None:
    slow, fast = SimRobot(so101(looks=False)), SimRobot(at_rate(so101(looks=False), 240.0))
    assert fast.spec.rate_hz == 240
    command = {"joint_target": np.array([0.2, -1.0, 1.0, 0.5, 0.1, 0.3], np.float32)}
    slow.reset({"seed": 1})
    fast.reset({"seed": 1})
    for _ in range(10):
        robot_state = slow.step(command)
        for _ in range(8):
            quick = fast.step(command)
        for name, value in robot_state.sensors.items():
            np.testing.assert_array_equal(value, quick.sensors[name])
    slow.close()
    fast.close()


@pytest.mark.parametrize("rate_hz", [500.0, 100.0, 0.0, -1.0])
def test_what_the_physics_does_not_have_is_refused_with_what_it_has(rate_hz: float) -> None:
    with pytest.raises(SpecError, match="has 240 steps a second, so allowed are 240, 120, 80, 60"):
        at_rate(so101(looks=False), rate_hz)
