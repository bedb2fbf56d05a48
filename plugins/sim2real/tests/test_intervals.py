"""Intervals contain the planted parameters of arms that other code simulates, and rest on the data alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hal.robots.so101 import JOINTS
from plugins.sim2real.tests.hidden_arm import HiddenArm
from plugins.sim2real.tests.test_fit_problem import STEP_S, pendulum
from rlenv_sim2real.excite import ExcitationSettings, excitation
from rlenv_sim2real.fit_problem import FitProblem
from rlenv_sim2real.identify import DEFAULT_KINDS, Identification, identify
from rlenv_sim2real.intervals import uncertainty
from rlenv_sim2real.motion import RecordedMotion
from rlenv_sim2real.open_loop import ReplayModel, replay, without_contacts
from rlenv_sim2real.servo_replay import ServoReplay
from sim.robots.so101 import so101

ARM = so101(looks=False)
PLANTED = {"stiffness": 14.0, "damping": 0.5, "friction": 0.12, "backlash": 0.03}


def slow(gain: float, seed: int = 0) -> RecordedMotion:
    """Record slow turns of a pendulum with play, at a gain of its servo, with the noise of a 12-bit encoder."""
    time_s = np.arange(0.0, 12.0, STEP_S)
    goals = 0.3 * np.sin(0.2 * np.pi * time_s) + 0.25 * np.sin(0.33 * np.pi * time_s)
    motion = RecordedMotion(0, STEP_S, ("hinge",), goals[:, None], np.zeros((len(goals), 1)), goals[:1], gain=gain)
    sent, half = goals.copy(), PLANTED["backlash"] / 2
    for frame in range(1, len(goals)):
        sent[frame] = np.clip(sent[frame - 1], goals[frame] - half, goals[frame] + half)
    arm = without_contacts(pendulum(PLANTED["stiffness"] * gain, PLANTED["damping"], PLANTED["friction"]))
    measured = replay(ReplayModel("arm", arm), replace(motion, goals=sent[:, None]))
    return replace(motion, measured=measured + np.random.default_rng(seed).normal(0, 4e-4, measured.shape))


def misses(found: Identification) -> list[str]:
    return [
        estimate.name for estimate in found.estimates if not estimate.low <= PLANTED[estimate.kind] <= estimate.high
    ]


@pytest.mark.slow
def test_friction_and_play_are_told_together_at_one_gain_and_apart_at_two() -> None:
    arm, kinds = pendulum(12.0, 0.5, 0.1), tuple(PLANTED)
    one = identify(arm, [slow(1.0)], kinds)
    known = {estimate.kind: estimate for estimate in one.estimates}
    (together,) = one.combinations
    assert not known["friction"].resolved
    assert not known["backlash"].resolved
    assert together.resolved
    assert together.low <= 0.12 + 0.5 * 14.0 * 0.03 <= together.high
    assert (together.high - together.low) < 0.5 * (known["friction"].high - known["friction"].low)
    assert len(one.warnings) == 2
    assert "hinge is determined" in one.warnings[1]
    same = {estimate.kind: estimate for estimate in identify(arm, [slow(1.0), slow(1.0, 1)], kinds).estimates}
    two = identify(arm, [slow(1.0), slow(2.0, 1)], kinds)
    apart = {estimate.kind: estimate for estimate in two.estimates}
    for kind in ("friction", "backlash"):
        assert apart[kind].resolved
        assert apart[kind].high - apart[kind].low < 0.6 * (same[kind].high - same[kind].low), kind
    assert two.combinations == ()
    assert misses(one) == misses(two) == []


def test_an_interval_does_not_rest_on_the_nominal_arm() -> None:
    """The weight of the nominal arm holds an estimate, and leaves its interval as it is."""
    problem = FitProblem(
        ServoReplay(pendulum(14.0, 0.5, 0.12)), [slow(1.0)], ("stiffness", "friction"), np.array([True])
    )
    free = uncertainty(problem, problem.begin, 1e-2)
    problem.weight = 1e9
    held = uncertainty(problem, problem.begin, 1e-2)
    np.testing.assert_array_equal(free.high - free.low, held.high - held.low)


def test_the_physics_step_is_allowed_for() -> None:
    """A semi-implicit step of 1/100 s is ahead by half of it: the exact arm seems to be that much later."""
    arm = pendulum(14.0, 0.5, 0.0)
    replayer = ServoReplay(arm)
    motion = slow(1.0)
    nominal = {kind: value[None] for kind, value in replayer.nominal().items()}
    exact = replace(motion, measured=replayer.finer(64).run(nominal, motion)[0])
    problem = FitProblem(replayer, [exact], ("delay",), np.array([True]))
    known = uncertainty(problem, np.array([0.25]), 1e-2)
    assert known.shift[0] * 0.02 == pytest.approx(-0.005, rel=0.2)
    assert known.low[0] < 0.25 + known.shift[0]


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("payload", [False, True], ids=["empty", "payload"])
def test_at_most_two_planted_parameters_of_a_hidden_arm_are_missed(
    payload: bool, request: pytest.FixtureRequest
) -> None:
    """One arm from 10 s of motion at P = 16; with ``--soak`` 12 arms, 4 of them at P = 16 and 32, 4 with play behind.

    Play behind the encoder is an error of the model: it shows in no log, so that the planted backlash is 0.
    """
    kinds = (*DEFAULT_KINDS, "backlash", *(("payload",) if payload else ()))
    soak = request.config.getoption("--soak")
    total, missed = 0, 0
    for seed in range(201, 213 if soak else 202):
        arm = replace(HiddenArm.drawn(seed, payload), hinge=seed >= 209)
        motions = []
        for episode, gain in enumerate((1.0, 2.0) if 205 <= seed < 209 else (1.0,)):
            goals = excitation(ARM, ExcitationSettings(seconds=10.0), seed + 1000 * episode).goals
            motions.append(replace(arm.record(goals, 16 * gain, episode), gain=gain))
        found = identify(ARM, motions, kinds, leave_out=("gripper",), most_iterations=15 if soak else 5)
        assert len(found.estimates) == 23 + payload
        wrong = []
        for estimate in found.estimates:
            behind = arm.hinge and estimate.kind == "backlash"
            true = 0.0 if behind else arm.truth(estimate.kind, estimate.joint)
            if not estimate.low <= true <= estimate.high:
                wrong.append(f"{estimate.name}: {true:.4g}, {estimate.low:.4g} to {estimate.high:.4g}")
            if estimate.resolved and estimate.kind in ("stiffness", "damping", "friction", "armature"):
                assert abs(estimate.value / true - 1) < 0.1, estimate
            if estimate.resolved and estimate.kind == "payload":
                assert abs(estimate.value - true) < 0.02, estimate
        resolved = sum(estimate.resolved for estimate in found.estimates)
        print(f"arm {seed}: {len(wrong)} of {len(found.estimates)} missed, {resolved} resolved; {wrong}")
        total, missed = total + len(found.estimates), missed + len(wrong)
        assert len(wrong) <= 2, wrong
        assert arm.hinge or resolved >= 20
    assert missed <= 0.05 * total + (0 if soak else 2)
    assert JOINTS[5] not in found.fitted
