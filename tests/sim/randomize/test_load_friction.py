"""Friction that grows with the load: by its formula, bit for bit after a snapshot, and in the motion of an arm."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest

from hal import SpecError
from sim.batch import SimBatch
from sim.mjcf.robot import from_mjcf
from sim.randomize.load_friction import friction_torque
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


MX106 = {
    "stribeck_friction": 0.122, "stribeck_speed": 1.7463, "stribeck_shape": 1.1428, "load_friction": 0.198,
    "external_friction": 0.0222, "stribeck_load_friction": 0.1986, "stribeck_external_friction": 0.0871,
    "load_quadratic_friction": 0.03, "external_quadratic_friction": 0.02,
}  # fmt: skip
"""Terms of BAM's Dynamixel MX-106 (``params/mx106/m6.json``), with other quadratic ones."""

STATES = np.array([(0.9, -0.7, 0.0), (0.4, -1.1, 0.3), (1.3, 0.2, -1.2), (-0.6, 0.9, -0.05), (-1.5, 1.2, 2.5)])
"""Torque of the motor, external torque, speed."""


BAM = {
    "m1": [0.08, 0.08, 0.08, 0.08, 0.08],
    "m2": [0.202, 0.186744177, 0.143605523, 0.199914974, 0.107035822],
    "m3": [0.272, 0.26, 0.212, 0.26, 0.404],
    "m4": [0.506, 0.458614166, 0.315749993, 0.483120484, 0.472919187],
    "m5": [0.63545, 0.443699564, 0.522087375, 0.53286877, 0.519854147],
    "m6": [0.64525, 0.447899334, 0.522087375, 0.543484194, 0.526236374],
}
"""Friction in `STATES` by each of BAM's models, N m, computed by its own ``Model.compute_frictions`` (Rhoban/bam at
1b5a1ce) from a friction of 0.08 N m, shares of 0.12 and 0.07 for M3 and M4, and `MX106`."""

_NONE = dict.fromkeys(("load_quadratic_friction", "external_quadratic_friction"), 0.0)
TERMS_OF: dict[str, dict[str, float]] = {
    "m1": {},
    "m2": {name: MX106[name] for name in ("stribeck_friction", "stribeck_speed", "stribeck_shape")},
    "m3": {"load_friction": 0.12, "external_friction": 0.12},
    "m5": MX106 | _NONE,
    "m6": MX106,
}
TERMS_OF["m4"] = TERMS_OF["m5"] | TERMS_OF["m3"] | {"stribeck_load_friction": 0.07, "stribeck_external_friction": 0.07}


@pytest.mark.parametrize("name", BAM)
def test_the_law_is_bams(name: str) -> None:
    motor, external, speed = STATES.T
    friction = friction_torque(TERMS_OF[name], np.full(5, 0.08), motor, external, speed)
    assert friction == pytest.approx(np.array(BAM[name]), abs=1e-8)


def test_terms_that_depend_on_speed_follow_every_step_of_the_physics() -> None:
    """An arm in MuJoCo alone, with BAM's law before each of its steps, moves alike."""
    lines = {f"joint.*.{name}": {"choice": [value]} | {"unit": "1"} for name, value in MX106.items()}
    batch = SimBatch(so101(looks=False), 2, 1, randomise=Randomise.from_dict(lines))
    batch.reset(seeds=[0, 1])
    model = batch.open_batch.get_model(0)
    data = mujoco.MjData(model)
    data.qpos[:], data.ctrl[:] = batch.open_batch.bind("qpos")[0], batch.open_batch.bind("ctrl")[0]
    base = so101(looks=False).model.dof_frictionloss
    for period in range(30):
        goal = HOME + np.float32(0.3 * np.sin(period / 5))
        goal[5] += 0.5  # away from the jaw's end
        batch.step({"joint_target": np.tile(goal, (2, 1))})
        data.ctrl[:] = goal
        for _ in range(so101(looks=False).substeps):
            mujoco.mj_forward(model, data)
            terms = {name: np.full(6, value) for name, value in MX106.items()}
            model.dof_frictionloss[:] = friction_torque(terms, base, data.qfrc_actuator, -data.qfrc_bias, data.qvel)
            mujoco.mj_step(model, data)
        np.testing.assert_allclose(batch.open_batch.bind("qpos")[0], data.qpos, atol=1e-9)
    kept = batch.snapshot()
    first = batch.step({"joint_target": np.tile(HOME, (2, 1))}).sensors["joint_position"]
    batch.restore(kept)
    np.testing.assert_array_equal(batch.step({"joint_target": np.tile(HOME, (2, 1))}).sensors["joint_position"], first)


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
        ({"joint.x.external_friction": {"uniform": [0.0, 1.0], "unit": "1"}}, "below 1"),
        ({"joint.x.stribeck_speed": {"uniform": [0.0, 1.0], "unit": "rad/s"}}, "at least 0.001"),
        ({"joint.free.load_friction": {"uniform": [0.0, 0.5], "unit": "1"}}, "0 actuators"),
    ],
)
def test_gears_that_can_not_be_are_refused(line: dict[str, Any], text: str) -> None:
    mjcf = """<mujoco model="two"><option timestep="0.01"/><worldbody><body><joint name="x"/><geom size="0.1"/>
      <body pos="0 0 1"><joint name="free"/><geom size="0.1"/></body></body></worldbody>
      <actuator><position name="x" joint="x" ctrlrange="-1 1"/></actuator></mujoco>"""
    with pytest.raises(SpecError, match=text):
        SimBatch(from_mjcf(mjcf, rate_hz=50), 1, 1, randomise=Randomise.from_dict(line))
