"""Friction that grows with the load: by its formula, bit for bit after a snapshot, and in the motion of an arm."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest

from hal import SpecError
from sim.batch import SimBatch
from sim.mjcf.robot import from_mjcf
from sim.randomize.randomise import Randomise
from sim.robots.so101 import so101

HOME = np.float32([0.0, -0.5, 0.5, 0.6, -1.5221, 0.0])


def arms(num: int, share: Any) -> SimBatch:
    lines = {
        "joint.*.frictionloss": {"uniform": [0.05, 0.1], "unit": "N m"},
        "joint.*.load_friction": {**share, "unit": "1"},
        "actuator.*.kp": {"uniform": [5.0, 20.0], "unit": "N m/rad"},
    }
    return SimBatch(so101(looks=False), num, 1, randomise=Randomise.from_dict(lines))


def test_friction_is_the_base_and_a_share_of_the_torque_that_mujoco_computes() -> None:
    batch = arms(3, {"uniform": [0.05, 0.3]})
    batch.reset(seeds=range(3))
    rng = np.random.default_rng(0)
    for _ in range(20):
        qpos, qvel = (np.array(batch.open_batch.bind(name)) for name in ("qpos", "qvel"))
        goals = (HOME + rng.uniform(-0.3, 0.3, (3, 6))).astype(np.float32)
        batch.step({"joint_target": goals})
        for row in range(3):
            own = batch.open_batch.get_model(row)
            data = mujoco.MjData(own)
            data.qpos[:], data.qvel[:], data.ctrl[:] = qpos[row], qvel[row], goals[row]
            mujoco.mj_forward(own, data)
            for joint, name in enumerate(("shoulder_pan", "shoulder_lift", "elbow_flex")):
                base, share = (batch.drawn[f"joint.{name}.{key}"][row] for key in ("frictionloss", "load_friction"))
                expected = base + share * abs(data.qfrc_actuator[joint])
                assert own.dof_frictionloss[joint] == pytest.approx(expected, rel=1e-9)


def test_a_snapshot_and_another_number_of_arms_repeat_it_bit_for_bit() -> None:
    batch, more = arms(2, {"uniform": [0.0, 0.3]}), arms(5, {"uniform": [0.0, 0.3]})
    batch.reset(seeds=[0, 1])
    more.reset(seeds=range(5))
    goals = [np.tile(HOME + np.float32(0.02 * step), (5, 1)) for step in range(20)]
    for goal in goals[:10]:
        batch.step({"joint_target": goal[:2]})
        more.step({"joint_target": goal})
    kept = batch.snapshot()
    first = [batch.step({"joint_target": goal[:2]}).sensors["joint_position"] for goal in goals[10:]]
    batch.restore(kept)
    for goal, expected in zip(goals[10:], first, strict=True):
        np.testing.assert_array_equal(batch.step({"joint_target": goal[:2]}).sensors["joint_position"], expected)
        np.testing.assert_array_equal(more.step({"joint_target": goal}).sensors["joint_position"][:2], expected)
    batch.reset(seeds=[0, 1])
    again = batch.step({"joint_target": goals[0][:2]}).sensors["joint_position"]
    batch.reset(seeds=[0, 1])
    np.testing.assert_array_equal(batch.step({"joint_target": goals[0][:2]}).sensors["joint_position"], again)


def test_a_loaded_joint_sticks_more() -> None:
    """An arm stops farther apart from its two sides, the more of its torque becomes friction."""
    widths = []
    for share in (0.0, 0.3):
        batch, stops = arms(4, {"uniform": [share, share]}), []
        for side in (-0.2, 0.2):
            batch.reset(seeds=range(4))
            for goal in (HOME + np.float32(side), HOME):
                for _ in range(60):
                    stop = batch.step({"joint_target": np.tile(goal, (4, 1))}).sensors["joint_position"]
            stops.append(stop)
        widths.append(np.abs(stops[1] - stops[0])[:, 1:3].mean())
    assert widths[1] > 1.3 * widths[0]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ({"joint.x.load_friction": {"uniform": [0.0, 1.0], "unit": "1"}}, "below 1"),
        ({"joint.x.load_friction": {"uniform": [-0.1, 0.5], "unit": "1"}}, "at least 0"),
        ({"joint.free.load_friction": {"uniform": [0.0, 0.5], "unit": "1"}}, "0 actuators"),
    ],
)
def test_gears_that_can_not_be_are_refused(line: dict[str, Any], text: str) -> None:
    mjcf = """<mujoco model="two"><option timestep="0.01"/><worldbody><body><joint name="x"/><geom size="0.1"/>
      <body pos="0 0 1"><joint name="free"/><geom size="0.1"/></body></body></worldbody>
      <actuator><position name="x" joint="x" ctrlrange="-1 1"/></actuator></mujoco>"""
    with pytest.raises(SpecError, match=text):
        SimBatch(from_mjcf(mjcf, rate_hz=50), 1, 1, randomise=Randomise.from_dict(line))
