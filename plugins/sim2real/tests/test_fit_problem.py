"""Friction under load, payload and backlash are found, and the model of friction is chosen by what was left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from plugins.sim2real.tests.conftest import recorded_on, wandering
from plugins.sim2real.tests.test_identify import PENDULUM
from rlenv_robot.robot_models import find_robot_model
from rlenv_sim2real.fit_problem import FRICTION_MODELS, FitProblem
from rlenv_sim2real.identify import identify, profile_text
from rlenv_sim2real.motion import RecordedMotion
from rlenv_sim2real.open_loop import ReplayModel, replay, replay_model, without_contacts
from rlenv_sim2real.servo_replay import KINDS, ServoReplay
from sim.mjcf.robot import from_mjcf
from sim.model import SimModel
from sim.randomize.load_friction import TERMS
from sim.randomize.randomise import Randomise
from sim.robots.so101 import so101

ARM = so101(looks=False)
STEP_S = 0.02


def pendulum(stiffness: float, damping: float, friction: float) -> SimModel:
    xml = PENDULUM.format(stiffness=stiffness, damping=damping, friction=friction)
    return from_mjcf(xml.replace('timestep="0.002"', 'timestep="0.01"'), rate_hz=50)


def swung(arm: SimModel, seconds: float = 6.0, played: float = 0.0, **drawn: float) -> RecordedMotion:
    """Simulate an arm with such figures of its joint ``hinge``, and round what it measures to 0.001 rad."""
    time_s = np.arange(0.0, seconds, STEP_S)
    goals = 0.5 * np.sin(2 * np.pi * 0.2 * time_s) + 0.4 * np.sin(2 * np.pi * 0.9 * time_s) - 0.4
    motion = RecordedMotion(0, STEP_S, ("hinge",), goals[:, None], np.zeros((len(goals), 1)), goals[:1])
    lines = {path: {"choice": [value], "unit": KINDS[path.split(".")[-1]].unit if "friction" in path else "1"}
             for path, value in drawn.items()}  # fmt: skip
    settings: Any = {"randomise": Randomise.from_dict(lines)} if lines else {}
    sent = goals.copy()
    for frame in range(1, len(goals)):
        sent[frame] = np.clip(sent[frame - 1], goals[frame] - played / 2, goals[frame] + played / 2)
    measured = replay(ReplayModel("arm", without_contacts(arm), settings), replace(motion, goals=sent[:, None]))
    return replace(motion, measured=np.round(measured, 3))


LOADED = {"joint.hinge.load_friction": 0.15, "joint.hinge.external_friction": 0.15}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_friction_that_grows_with_the_load_is_found_within_five_percent() -> None:
    motion, kinds = swung(pendulum(14.0, 0.9, 0.12), **LOADED), ("stiffness", "damping", "friction")
    found = identify(pendulum(12.0, 0.8, 0.1), [motion], kinds, friction="m3", most_iterations=8)
    truth = {"stiffness": 14.0, "damping": 0.9, "friction": 0.12, "load_friction": 0.15}
    resolved = [estimate for estimate in found.estimates if estimate.resolved]
    for estimate in resolved:
        assert estimate.value == pytest.approx(truth[estimate.kind], rel=0.05), estimate
    assert {"stiffness", "damping", "load_friction"} <= {estimate.kind for estimate in resolved}, found.warnings


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_friction_is_chosen_by_pieces_that_were_left_out(request: pytest.FixtureRequest) -> None:
    """Between Coulomb's friction and one that grows with the load; with ``--soak`` among all six."""
    kinds = ("stiffness", "damping", "friction")
    models = tuple(FRICTION_MODELS) if request.config.getoption("--soak") else ("m1", "m3")
    for drawn, expected in ((LOADED, models[1:]), ({}, ("m1",))):
        found = identify(
            pendulum(13.0, 0.8, 0.1), [swung(pendulum(14.0, 0.9, 0.12), **drawn)], kinds, friction=models,
            most_iterations=6,
        )  # fmt: skip
        assert found.friction in expected, found.validation
        if drawn:
            assert found.validation[found.friction] < 0.7 * found.validation["m1"]


@pytest.mark.slow
def test_payload_and_backlash_are_found_within_five_percent() -> None:
    held = '<geom type="sphere" size="0.001" pos="0.3 0 0" mass="0.06"/><site name="tip"'
    xml = PENDULUM.format(stiffness=14.0, damping=0.9, friction=0.12).replace('<site name="tip"', held)
    motion = swung(from_mjcf(xml.replace('timestep="0.002"', 'timestep="0.01"'), rate_hz=50), played=0.04)
    found = identify(pendulum(14.0, 0.9, 0.12), [motion], ("damping", "payload", "backlash"))
    values = {estimate.kind: estimate.value for estimate in found.estimates}
    assert values["payload"] == pytest.approx(0.06, rel=0.05)
    assert values["backlash"] == pytest.approx(0.04, rel=0.05)


def test_what_a_motion_does_not_tell_stays_near_the_nominal_arm() -> None:
    """The weight of the nominal arm follows the residuals: strong beside a rough motion, weak beside an exact one."""
    arm = pendulum(9.0, 0.6, 0.1)
    motion = swung(pendulum(14.0, 0.9, 0.12), 3.0)
    rough = replace(motion, measured=motion.measured + 0.3 * np.sin(np.arange(len(motion)) / 3)[:, None])
    weights = []
    for recorded in (motion, rough):
        problem = FitProblem(ServoReplay(arm), [recorded], ("stiffness", "damping"), np.array([True]))
        problem.weigh(problem.begin)
        weights.append(problem.weight)
        objective = problem.objective(np.array([[0.3], [0.0]]))
        assert objective[-2:, 0] == pytest.approx([np.sqrt(problem.weight), 0.0])
    assert weights[1] > 2 * weights[0]
    problem.weigh(problem.begin, strength=0.0)
    assert problem.weight == 0.0


def test_each_model_of_friction_has_the_parameters_of_the_law() -> None:
    used = {kind for model in FRICTION_MODELS.values() for kind in (*model.kinds, *model.tied)}
    assert used == set(TERMS)
    with pytest.raises(SourceError, match="allowed are m1, m2"):
        identify(pendulum(9.0, 0.6, 0.1), [swung(pendulum(9.0, 0.6, 0.1), 1.0)], ("stiffness",), friction="m7")


def test_a_replay_under_load_is_the_simulations_replay(tmp_path: Any) -> None:
    """Two roads: the batch of a fit, and a profile's randomisation in the batch that environments step."""
    motion = recorded_on(without_contacts(ARM), wandering(2.0))
    nominal = ServoReplay(ARM).nominal()
    figures = {name: 0.05 for name, term in TERMS.items() if term.default == 0.0} | {"stribeck_speed": 0.3}
    values = {kind: value[None] for kind, value in nominal.items()}
    values |= {name: np.array([value]) for name, value in figures.items()}
    fitted = identify(ARM, [motion.cut(0, 12)], ("damping",), most_iterations=1)
    file = tmp_path / "arm.toml"
    file.write_text(profile_text(replace(fitted, values={k: v[0] for k, v in values.items()}), ARM, "figures"))
    assert '"joint.elbow_flex.external_friction"' in file.read_text()
    expected = replay(replay_model(str(file), find_robot_model("so101")), motion)
    np.testing.assert_allclose(ServoReplay(ARM).run(values, motion)[0], expected, atol=5e-6)
