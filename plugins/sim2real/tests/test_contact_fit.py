"""A fit finds planted friction in noisy currents, sets thresholds beyond them, and refuses what is no motion."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hal import SourceError
from hal.drivers.so101_arm import SO101_ARM
from hal.robots.so101 import JOINTS
from rlenv_sim2real.contact_fit import ServoRun, fit_contacts
from sim.mjcf.chain import chain_of, tool_of
from sim.robots.so101 import so101_mjcf

MODEL = so101_mjcf(looks=False).compile()
CHAIN, TOOL = chain_of(MODEL, JOINTS), tool_of(MODEL, JOINTS)
GAINS = {name: {"p": 16, "i": 0, "d": 32} for name in JOINTS}
CONSTANT, ARMATURE, VISCOUS, COULOMB, LOAD = 1.2116, 0.02, 0.08, 0.15, 0.1
MASSES = np.array([1.0, 1.2, 0.85, 1.1, 0.9, 1.0])


def moved(seconds: float = 60.0, seed: int = 0, noise_a: float = 0.01) -> ServoRun:
    """Sines of all joints at 30 Hz; currents of planted masses, rotors and friction, rounded as a servo rounds."""
    rng = np.random.default_rng(seed)
    times = np.arange(0.0, seconds, 1 / 30)
    rates, phases = rng.uniform(1.0, 4.0, (3, 6)), rng.uniform(0, 6.28, (3, 6))
    waves = times[:, None, None] * rates + phases
    angle = (0.2 * np.sin(waves)).sum(axis=1) + np.array([0.0, -0.3, 0.3, 0.6, -1.5, 0.5])
    speed, change = (0.2 * rates * np.cos(waves)).sum(axis=1), (-0.2 * rates**2 * np.sin(waves)).sum(axis=1)
    links = (CHAIN.torques(angle, speed, change) * MASSES[:, None]).sum(axis=1)
    friction = np.tanh(speed / 0.01) * (COULOMB + LOAD * abs(links))
    current = (links + ARMATURE * change + VISCOUS * speed + friction) / CONSTANT + rng.normal(0, noise_a, angle.shape)
    return ServoRun("planted", times, np.rint(angle * 652) / 652, np.rint(current / 0.0065) * 0.0065, 1 / 30)


def test_planted_figures_are_found_and_nothing_planted_is_a_contact() -> None:
    fit = fit_contacts(SO101_ARM, CHAIN, TOOL, [moved()], GAINS)
    assert (fit.alarms, fit.judged_alarms, fit.readings) == (0, 0, 1798)
    for joint in fit.model.joints[:4]:
        assert joint.coulomb * CONSTANT == pytest.approx(COULOMB, abs=0.03), joint.name
        assert joint.viscous * CONSTANT == pytest.approx(VISCOUS, abs=0.03), joint.name
    assert (fit.explained > 0.95).all(), "rotors and links are told apart by their sum alone"
    assert fit.model.joints[1].load == pytest.approx(LOAD, abs=0.04)
    assert (fit.thresholds[:5] < 0.45).all()
    assert math.isinf(fit.thresholds[5]), "the gripper holds things"
    other = fit_contacts(SO101_ARM, CHAIN, TOOL, [moved(seed=1)], GAINS)
    np.testing.assert_allclose(other.thresholds[:5], fit.thresholds[:5], rtol=0.6)


def test_more_noise_and_rarer_alarms_raise_the_thresholds() -> None:
    quiet, loud = (fit_contacts(SO101_ARM, CHAIN, TOOL, [moved(30.0, noise_a=size)], GAINS) for size in (0.005, 0.08))
    rare = fit_contacts(SO101_ARM, CHAIN, TOOL, [moved(30.0, noise_a=0.08)], GAINS, false_alarm_hours=1000.0)
    assert (loud.thresholds[:5] > quiet.thresholds[:5]).all()
    assert (rare.thresholds[:5] > loud.thresholds[:5]).all()


def test_recordings_that_tell_nothing_are_refused() -> None:
    good = moved(30.0)
    for runs, problem in (
        ([], "no recording"),
        ([moved(15.0)], "600 are needed"),
        ([replace(good, current=-good.current)], "does not follow"),
        ([replace(good, current=0 * good.current)], "does not follow"),
        ([replace(good, angle=np.repeat(good.angle[:1], len(good.angle), axis=0))], "shoulder_pan moves in 0 readings"),
        ([good, replace(good, period_s=1 / 90)], "different control periods"),
    ):
        with pytest.raises(SourceError, match=problem):
            fit_contacts(SO101_ARM, CHAIN, TOOL, runs, GAINS)
    with pytest.raises(SourceError, match="payload"):
        fit_contacts(SO101_ARM, CHAIN, TOOL, [good], GAINS, payload_kg=math.nan)


def test_a_gap_is_no_motion() -> None:
    """A pause of the recorder splits a recording; its two sides are not compared."""
    good = moved(40.0)
    late = np.where(np.arange(len(good.times)) >= 600, 100.0, 0.0)
    fit = fit_contacts(SO101_ARM, CHAIN, TOOL, [replace(good, times=good.times + late)], GAINS)
    assert (fit.readings, fit.alarms) == (1196, 0)
