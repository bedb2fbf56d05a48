"""Commands that are all equally late are run without plans, and move the robot as the plans do, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.batch import SimBatch
from sim.latency import DelayModel
from sim.robots.so101 import so101

MODEL = so101(looks=False)
LATE: dict[str, Any] = {"command_delay": {"uniform": [0.0, 0.1]}, "backlash": {"joint_target": 0.02}}
PLANNED = {**LATE, "command_jitter": {"uniform": [0.0, 1e-12]}}
"""The same delays to a picosecond; as commands might overtake each other, they are planned one by one."""


def trajectory(timing: dict[str, Any], num: int) -> list[np.ndarray]:
    """States and sensors over 24 periods, in which some rows are held and others begin anew."""
    batch = SimBatch(MODEL, num, 1, timing=DelayModel.from_dict(timing))
    rng, seen = np.random.default_rng(3), []
    state = batch.reset(seeds=np.arange(num))
    for period in range(24):
        goals = state.sensors["joint_goal"] + rng.uniform(-0.12, 0.12, (num, 6)).astype(np.float32)
        held = np.ones(num, bool)
        held[0] = num == 1 or period % 5 != 2
        state = batch.step({"joint_target": goals}, None if held.all() else held)
        if period == 12:
            batch.reset(np.array([num - 1]), np.array([40]))
            state = batch.batch_state()
        seen += [batch.open_batch.bind("qpos").copy(), *state.sensors.values(), *state.applied.values()]
    batch.close()
    return seen


@pytest.mark.parametrize("num", [1, 5])
def test_commands_in_order_move_as_planned_ones_do(num: int) -> None:
    assert DelayModel.from_dict(LATE).keeps_order
    assert not DelayModel.from_dict(PLANNED).keeps_order
    for one, other in zip(trajectory(LATE, num), trajectory(PLANNED, num), strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_snapshot_keeps_commands_on_their_way() -> None:
    """Restored in the middle, where the delay is longer than a period, the motion goes on bit for bit."""
    batch = SimBatch(MODEL, 3, 1, timing=DelayModel.from_dict({**LATE, "command_delay": 0.09}))
    state = batch.reset(seeds=np.arange(3))
    goals = [state.sensors["joint_goal"] + np.float32(0.02 * number) for number in range(1, 9)]
    for goal in goals[:4]:
        batch.step({"joint_target": goal})
    kept = batch.snapshot()
    whole = [batch.step({"joint_target": goal}).sensors["joint_position"] for goal in goals[4:]]
    batch.restore(kept)
    again = [batch.step({"joint_target": goal}).sensors["joint_position"] for goal in goals[4:]]
    np.testing.assert_array_equal(whole, again)
    batch.close()


def test_a_sensor_is_read_only_when_a_sample_of_it_is_due() -> None:
    """At 15 Hz every second period of 30 Hz takes a sample; the other sensors are read in every period."""
    timing = DelayModel.from_dict({"sensor_rate": {"joint_velocity": 15.0}})
    batch = SimBatch(MODEL, 2, 1, timing=timing)
    state = batch.reset(seeds=np.arange(2))
    read, counts = batch._read, {"joint_velocity": 0, "joint_position": 0}

    def counted(rows: Any = None, names: Any = None) -> Any:
        for name in counts:
            counts[name] += names is not None and name in names
        return read(rows, names)

    batch._read = counted  # type: ignore[method-assign]
    for _ in range(8):
        state = batch.step({"joint_target": state.sensors["joint_goal"]})
    assert counts == {"joint_velocity": 4, "joint_position": 8}
    batch.close()
