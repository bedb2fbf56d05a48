"""The gap between a simulation and a recorded arm: planted lags, gains, offsets and shifts are found."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import SourceError
from hal.robots.so101 import forward_kinematics
from plugins.sim2real.tests.conftest import PERIOD_S, recorded_on, wandering
from recorder.table.table import Table
from rlenv_sim2real.figures import plot_gap
from rlenv_sim2real.gap import best_lag, constant_delay_error, measure_gap
from rlenv_sim2real.motion import read_motions
from rlenv_sim2real.open_loop import ReplayModel, replay, without_contacts
from sim.robots.so101 import STIFF_SERVO, so101
from sim.robots.twin import so101_twin


@settings(max_examples=40, deadline=None)
@given(frames=st.floats(-9.0, 9.0), gain=st.floats(0.4, 2.0), offset=st.floats(-1.0, 1.0), seed=st.integers(0, 99))
def test_a_planted_lag_gain_and_offset_are_found(frames: float, gain: float, offset: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    frequencies, phases = rng.uniform(0.1, 1.0, 6), rng.uniform(0, 6.28, 6)

    def angle(time_s: np.ndarray) -> np.ndarray:
        return np.sin(2 * np.pi * frequencies * time_s[:, None] + phases).sum(axis=1)

    time_s = np.arange(300) * PERIOD_S
    simulated = angle(time_s)
    measured = offset + gain * angle(time_s - frames * PERIOD_S)
    found = best_lag(measured, simulated, PERIOD_S)
    assert found.lag_s / PERIOD_S == pytest.approx(frames, abs=0.15)
    assert found.gain == pytest.approx(gain, rel=0.02)
    inner = slice(12, -12)
    assert found.offset == pytest.approx(float((measured - angle(time_s - frames * PERIOD_S))[inner].mean()), abs=0.1)


def test_a_still_joint_has_an_offset_and_no_lag() -> None:
    found = best_lag(np.full(100, 0.3), np.full(100, 0.1), PERIOD_S)
    assert math.isnan(found.lag_s)
    assert math.isnan(found.gain)
    assert found.offset == pytest.approx(0.2)


def test_a_simulation_has_no_gap_to_its_own_recording() -> None:
    arm = without_contacts(so101(looks=False))
    gap, simulated = measure_gap(ReplayModel("sim", arm), recorded_on(arm, wandering(6.0)))
    assert max(joint.rms for joint in gap.joints) < 1e-6
    assert gap.tip_worst_mm < 1e-3
    assert all(abs(joint.lag.lag_s) < 1e-3 for joint in gap.joints)
    assert simulated.shape == (180, 6)


def test_millimetres_are_those_of_the_makers_kinematics() -> None:
    arm = without_contacts(so101(looks=False))
    motion = recorded_on(arm, wandering(4.0))
    shift = np.radians([0.0, 0.0, 17.0, 0.0, 0.0, 0.0])
    shifted = replace(motion, measured=motion.measured + shift)
    gap, _ = measure_gap(ReplayModel("sim", arm), replace(motion, measured=motion.measured))
    simulated = replay(ReplayModel("sim", arm), shifted)
    tips = [1000 * forward_kinematics(angles) for angles in (shifted.measured, simulated)]
    expected = np.linalg.norm(tips[0] - tips[1], axis=1)
    wide, _ = measure_gap(ReplayModel("sim", arm), shifted)
    assert wide.tip_rms_mm == pytest.approx(float(np.sqrt((expected**2).mean())), rel=1e-3)
    assert wide.tip_rms_mm > 50 > gap.tip_rms_mm, "17 degrees are 6 cm at the tip"


def test_the_error_after_k_steps_grows_towards_the_open_loop_error() -> None:
    motion = recorded_on(so101_twin(3), wandering(8.0))
    gap, _ = measure_gap(ReplayModel("sim", without_contacts(so101(looks=False))), motion)
    for joint in gap.joints[:4]:
        assert joint.after[1] < joint.after[10]
        assert joint.after[1] < joint.rms
    assert set(gap.joints[0].after) == {1, 3, 10, 30}
    assert json.loads(json.dumps(gap.to_dict()))["joints"][2]["joint"] == "elbow_flex"


def test_a_constant_delay_predicts_a_delayed_goal_exactly() -> None:
    motion = recorded_on(without_contacts(so101(looks=False)), wandering(4.0))
    late = np.concatenate([np.repeat(motion.goals[:1], 4, axis=0), motion.goals[:-4]])
    assert constant_delay_error(replace(motion, measured=late)) == pytest.approx(np.zeros(6), abs=1e-12)
    assert constant_delay_error(replace(motion, measured=late + 0.01)) == pytest.approx(np.full(6, 0.01), abs=1e-3)


def test_another_rate_is_interpolated_and_other_joints_are_refused() -> None:
    arm = without_contacts(so101(looks=False))
    motion = recorded_on(arm, wandering(6.0, size=0.2))
    twice = motion.at_period(PERIOD_S / 2)
    gap, _ = measure_gap(ReplayModel("sim", arm), twice)
    assert max(joint.rms for joint in gap.joints) < 2e-3
    with pytest.raises(SourceError, match="the motion is of a, b"):
        measure_gap(ReplayModel("sim", arm), replace(motion, names=("a", "b")))


def test_a_plot_shows_every_joint_and_the_fingertip(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    model = ReplayModel("sim", without_contacts(so101(looks=False)))
    motion = recorded_on(so101_twin(), wandering(4.0))
    gap, simulated = measure_gap(model, motion)
    text = plot_gap(model, motion, simulated, gap, tmp_path / "gap.svg").read_text()
    assert text.count("<!-- fingertip") == 1
    assert all(f"<!-- {name}" in text for name in motion.names)


@pytest.mark.parametrize(
    ("model", "expected"),
    [("nominal", (0.48, 1.70, 2.24, 1.25, 0.37)), ("stiff", (1.43, 4.43, 5.00, 2.99, 1.24)),
     ("twin", (0.24, 0.60, 0.95, 0.73, 0.14))],
)  # fmt: skip
def test_the_real_arms_gap_is_the_published_one(so101_log: Table, model: str, expected: tuple[float, ...]) -> None:
    """The figures are those of `sim.robots.twin`, which another program computed from the same log."""
    models = {"nominal": so101(), "stiff": so101(servo=STIFF_SERVO), "twin": so101_twin()}
    (motion,) = read_motions(so101_log, models[model], [0], {0: (40, 345)})
    gap, _ = measure_gap(ReplayModel(model, without_contacts(models[model])), motion)
    own = [joint.to_dict()["own"]["rms"] for joint in gap.joints[:5]]
    assert own == pytest.approx(expected, abs=0.02)
    delayed = constant_delay_error(motion)[:5] / np.abs(motion.own.scale[:5])
    assert delayed == pytest.approx((0.35, 2.14, 3.45, 1.49, 0.38), abs=0.02)
