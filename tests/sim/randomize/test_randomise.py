"""Declared quantities are drawn from seed and episode alone, reach the physics, and are never impossible."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest
from mujoco.batch import MODEL_FIELDS

from hal import SpecError
from sim.batch import SimBatch
from sim.model import SimModel
from sim.randomize.distribution import Choice, Fixed, LogUniform, Measured, Normal, Uniform, distribution
from sim.randomize.randomise import _COMPUTED, _REFUSED, Randomise, changes_constants, targets
from sim.robot import SimRobot
from sim.robots.so101 import so101

LINES = {
    "body.*.mass": {"uniform": [0.5, 2.0], "scale": True},
    "joint.b.damping": {"uniform": [0.0, 0.5], "unit": "N m s/rad"},
    "joint.*.frictionloss": {"choice": [0.0, 0.02], "unit": "N m", "together": True},
    "opt.gravity[2]": {"normal": [0, 0.1, -0.3, 0.3], "add": True, "unit": "m/s^2"},
}


def batch_of(model: SimModel, num: int, plain: dict[str, Any] = LINES, threads: int = 1) -> SimBatch:
    return SimBatch(model, num, threads, randomise=Randomise.from_dict(plain))


def commands(num: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"torque": rng.uniform(-1, 1, (num, 2)), "bend": rng.uniform(-2, 2, num).astype(np.float32)}


def test_fields_hold_the_drawn_numbers_and_no_other_changes(pendulum: SimModel) -> None:
    batch = batch_of(pendulum, 4)
    batch.reset(seeds=np.arange(4))
    nominal, drawn = pendulum.model, batch.drawn
    assert set(drawn) == {
        "body.one.mass", "body.body2.mass", "body.body3.mass", "joint.b.damping", "joint.a.frictionloss",
        "joint.b.frictionloss", "joint.c.frictionloss", "opt.gravity[2]",
    }  # fmt: skip
    for row in range(4):
        own = batch.open_batch.get_model(row)
        factors = [drawn[f"body.{name}.mass"][row] for name in ("one", "body2", "body3")]
        np.testing.assert_array_equal(own.body_mass[1:], nominal.body_mass[1:] * factors)
        np.testing.assert_allclose(own.body_inertia[1:], nominal.body_inertia[1:] * np.array(factors)[:, None])
        np.testing.assert_array_equal(own.dof_damping, [0.05, drawn["joint.b.damping"][row], 0.05])
        assert set(own.dof_frictionloss.tolist()) == {drawn["joint.a.frictionloss"][row]}, "one draw for all"
        assert own.opt.gravity.tolist() == [0, 0, nominal.opt.gravity[2] + drawn["opt.gravity[2]"][row]]
        assert own.body_subtreemass[1] == pytest.approx(own.body_mass[1:].sum()), "what follows from it follows"
    assert len(set(drawn["body.one.mass"].tolist())) == 4


def test_the_physics_equal_those_of_a_model_with_the_drawn_numbers(pendulum: SimModel) -> None:
    batch = batch_of(pendulum, 2)
    batch.reset(seeds=[1, 2])
    model = batch.open_batch.get_model(1)
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    data.qpos[:], data.qvel[:] = (batch.open_batch.bind(name)[1] for name in ("qpos", "qvel"))
    mujoco.mj_forward(model, data)
    for step in range(10):
        command = commands(2, step)
        robot_state = batch.step(command)
        data.ctrl[[0, 2, 1]] = (*command["torque"][1], command["bend"][1])
        mujoco.mj_step(model, data, 5)
        np.testing.assert_array_equal(robot_state.sensors["angles"][1], data.qpos)


@pytest.mark.requirement("R1.3")
def test_draws_depend_on_seed_and_episode_only(pendulum: SimModel) -> None:
    """Not on number, place, threads, other resets; nor on other lines of the declaration."""
    alone = SimRobot(pendulum, randomise=Randomise.from_dict(LINES))
    few, many = batch_of(pendulum, 2), batch_of(pendulum, 5, threads=2)
    fewer = batch_of(pendulum, 1, {"joint.b.damping": LINES["joint.b.damping"]})
    alone.reset({"seed": 7})
    few.reset(seeds=[3, 7])
    many.reset(seeds=[1, 2, 4, 7, 9])
    fewer.reset(seeds=[7])
    seen = []
    for episode in range(3):
        for name, value in alone.drawn.items():
            assert few.drawn[name][1] == many.drawn[name][3] == value
        assert fewer.drawn["joint.b.damping"][0] == alone.drawn["joint.b.damping"]
        seen.append(alone.drawn)
        alone.reset({})
        few.reset([0])
        few.reset([1])
        many.reset(None if episode else [3])
        fewer.reset()
    assert len({each["joint.b.damping"] for each in seen}) == 3
    few.reset([1], seeds=[7])
    assert few.drawn["joint.b.damping"][1] == seen[0]["joint.b.damping"], "the seed begins again"


def test_randomisation_changes_no_start(pendulum: SimModel) -> None:
    plain, drawn = SimBatch(pendulum, 3, 1), batch_of(pendulum, 3)
    for _ in range(2):
        one, other = plain.reset(seeds=[1, 2, 3]), drawn.reset(seeds=[1, 2, 3])
        np.testing.assert_array_equal(one.sensors["angles"], other.sensors["angles"])


def test_servo_gains_move_gain_and_bias_together() -> None:
    plain = {
        "actuator.*.kp": {"uniform": [0.5, 2], "scale": True},
        "actuator.gripper.kv": {"choice": [0.3], "unit": "N m s/rad"},
    }
    batch = batch_of(so101(), 2, plain)
    batch.reset(seeds=[1, 2])
    own, nominal = batch.open_batch.get_model(1), batch.sim_model.model
    factors = np.array([batch.drawn[f"actuator.{nominal.actuator(each).name}.kp"][1] for each in range(6)])
    np.testing.assert_allclose(own.actuator_gainprm[:, 0], nominal.actuator_gainprm[:, 0] * factors)
    np.testing.assert_allclose(own.actuator_biasprm[:, 1], -own.actuator_gainprm[:, 0])
    assert own.actuator_biasprm[5, 2] == -0.3


@pytest.mark.parametrize(
    ("path", "line", "message"),
    [
        ("body.cub.mass", {"uniform": [1, 2], "scale": True}, "no body is called 'cub', did you mean 'cube'"),
        ("body.cube.mas", {"uniform": [1, 2], "scale": True}, "a body has no 'mas', did you mean"),
        ("cube.mass", {"uniform": [1, 2], "scale": True}, "kinds are body, joint"),
        ("body", {"uniform": [1, 2], "scale": True}, "a path is <kind>.<name>.<field>"),
        ("opt.gravty[2]", {"uniform": [1, 2], "scale": True}, "can't make it differ"),
        ("opt.timestep", {"uniform": [1, 2], "scale": True}, "no longer be a whole number of steps"),
        ("opt.iterations", {"uniform": [1, 2], "scale": True}, "a whole number"),
        ("geom.*.size", {"uniform": [1, 2], "scale": True}, "stay those of the old size"),
        ("geom.*.type", {"uniform": [1, 2], "scale": True}, "a whole number that says how the model is built"),
        ("body.cube.invweight0", {"uniform": [1, 2], "scale": True}, "MuJoCo computes it from other fields"),
        ("body.cube.mass", {"uniform": [-1, 2], "scale": True}, "body.cube.mass could become -"),
        ("body.cube.mass", {"uniform": [0, 2], "scale": True}, "it must be above 0"),
        ("joint.gripper.damping", {"uniform": [-9, 9], "add": True, "unit": "N m s/rad"}, "it must be at least 0"),
        ("body.cube.mass", {"uniform": [1, 2]}, "unit is missing"),
        ("body.cube.mass", {"uniform": [1, 2], "scale": 1}, "scale, add and together are true or false"),
        ("body.cube.mass", {"uniform": [1, 2], "scale": True, "add": True}, "not both"),
        ("body.cube.mass", {"flat": [1, 2], "scale": True}, "no distribution"),
        ("body.cube.mass", 3, "it must be a table"),
        ("opt.gravity", {"uniform": [-10, -9], "unit": "m/s^2"}, r"has 3 numbers: scale them together, or name one"),
        ("opt.gravity[3]", {"uniform": [-10, -9], "unit": "m/s^2"}, "it has 3 numbers, counted from 0"),
        ("actuator.gripper.delay", {"uniform": [0, 0.1], "unit": "s"}, "the engine's buffer holds 0 s"),
    ],
)
def test_an_impossible_line_is_refused_with_the_reason(path: str, line: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message) as refused:
        SimRobot(so101(cube=True), randomise=Randomise.from_dict({path: line}))
    assert str(refused.value).startswith(f"randomise.{path}")


def test_two_draws_of_the_same_number_are_refused() -> None:
    line = {"uniform": [1, 2], "scale": True}
    with pytest.raises(SpecError, match=r"randomise.body.cube.mass: 'body.\*.mass'"):
        SimRobot(so101(cube=True), randomise=Randomise.from_dict({"body.*.mass": line, "body.cube.mass": line}))


def test_an_engine_s_delay_is_drawn_per_simulation(pendulum_of: Any, pendulum_xml: str) -> None:
    delayed = pendulum_xml.replace('<position joint="b"', '<position name="b" joint="b" delay="0.02" nsample="6"')
    line = {"actuator.b.delay": {"choice": [0.0, 0.02, 0.06], "unit": "s"}}
    batch = batch_of(pendulum_of(delayed), 20, line)
    batch.reset(seeds=np.arange(20))
    assert set(batch.drawn["actuator.b.delay"].tolist()) == {0.0, 0.02, 0.06}
    np.testing.assert_array_equal(batch.open_batch.expanded("actuator_delay")[:, 1], batch.drawn["actuator.b.delay"])


# -- distributions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plain", "made"),
    [
        (3, Fixed(3.0)),
        ({"uniform": [1, 2]}, Uniform(1.0, 2.0)),
        ({"log_uniform": [0.1, 10]}, LogUniform(0.1, 10.0)),
        ({"normal": [1, 2, 0, 4]}, Normal(1.0, 2.0, 0.0, 4.0)),
        ({"choice": [1, 5]}, Choice((1.0, 5.0))),
        ({"measured": [0, 1, 5]}, Measured((0.0, 1.0, 5.0))),
    ],
)
def test_quantiles_are_those_of_the_distribution(plain: Any, made: Any) -> None:
    assert distribution(plain) == made == distribution(made)
    share = (np.arange(100_000) + 0.5) / 100_000
    values = made.quantile(share)
    assert values.min() >= made.low
    assert values.max() <= made.high
    assert (np.diff(values) >= 0).all()
    middle = {Fixed: 3, Uniform: 1.5, LogUniform: 9.9 / np.log(100), Choice: 3, Measured: 1.75}.get(type(made))
    if middle is None:  # the mean of a truncated normal (Johnson, Kotz and Balakrishnan 1994, 13.10.1)
        a, b = -0.5, 1.5
        normal = [np.exp(-z * z / 2) / np.sqrt(2 * np.pi) for z in (a, b)]
        middle = 1 + 2 * (normal[0] - normal[1]) / (0.9331927987 - 0.3085375387)
    assert values.mean() == pytest.approx(middle, rel=1e-4)
    assert str(made)


def test_samples_become_a_measured_distribution() -> None:
    samples = np.random.default_rng(0).gamma(2.0, 0.01, 5000)
    made = Measured.of(samples)
    assert (made.low, made.high) == (samples.min(), samples.max())
    assert made.quantile(np.array(0.5)) == pytest.approx(np.median(samples))


@pytest.mark.parametrize(
    "plain",
    [
        {"uniform": [2, 1]}, {"uniform": [1]}, {"uniform": 1}, {"log_uniform": [0, 1]}, {"normal": [5, 1, 0, 4]},
        {"normal": [1, 0, 0, 4]}, {"choice": []}, {"measured": [2, 1]}, {"measured": [1]}, "1", None,
        {"uniform": [1, 2], "choice": [1]}, {"choice": [float("inf")]}, float("nan"),
    ],
)  # fmt: skip
def test_data_that_is_no_distribution_is_refused(plain: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        distribution(plain)


# -- targets ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string("""
<mujoco><worldbody><body name="cube"><freejoint/><geom name="side" size="0.1"/></body></worldbody></mujoco>""")


@pytest.mark.skipif(not hasattr(mujoco.MjModel, "_setconst_outputs"), reason="this release of MuJoCo has no such list")
def test_the_computed_fields_are_those_of_this_release(model: mujoco.MjModel) -> None:
    quantities = {
        name for name in MODEL_FIELDS if getattr(getattr(model, name, None), "dtype", np.dtype(int)).kind == "f"
    }
    theirs = quantities.intersection(mujoco.MjModel._setconst_outputs)
    assert theirs - _REFUSED.keys() == _COMPUTED


def test_a_computed_field_is_refused(model: mujoco.MjModel) -> None:
    with pytest.raises(SpecError, match="computes"):
        targets(model, "body.cube.subtreemass")


def test_constants_are_recomputed_where_mujoco_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert changes_constants("body_mass")
    assert not changes_constants("geom_friction")
    monkeypatch.delattr(mujoco.MjModel, "_setconst_inputs")
    assert changes_constants("geom_friction")
