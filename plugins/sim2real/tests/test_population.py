"""Arms are identified one by one, and data that tell nothing about an arm are refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from hal.robots.so101 import JOINTS
from plugins.sim2real.tests.conftest import recorded_on, wandering
from rlenv_robot.config.population import Population, PopulationArm
from rlenv_robot.robot_models import find_robot_model
from rlenv_sim2real import population
from rlenv_sim2real.identify import Identification, Judgement
from rlenv_sim2real.motion import RecordedMotion
from rlenv_sim2real.open_loop import without_contacts
from rlenv_sim2real.population import ArmFit, arm_row, empty_population, joint_names, next_held_out
from rlenv_sim2real.servo_replay import ServoReplay
from sim.robots.so101 import so101
from sim.robots.twin import so101_twin

ARM = so101(looks=False)


@pytest.fixture(scope="module")
def motions() -> list[RecordedMotion]:
    twin = without_contacts(so101_twin(3))
    return [recorded_on(twin, wandering(6.0, seed), seed) for seed in range(3)]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], list[RecordedMotion]]:
    """Replace the fit by the nominal arm, judged as a share of the nominal error; returns the fitted motions."""
    fitted: list[RecordedMotion] = []

    def begin(share: float) -> list[RecordedMotion]:
        def fit(
            sim_model: object, motions: list[RecordedMotion], kinds: object, leave_out: list[str], **_: object
        ) -> object:
            fitted.extend(motions)
            joints = tuple(joint for joint in JOINTS if joint not in leave_out)
            return Identification("so101", JOINTS, joints, (), (), ServoReplay(ARM, 1).nominal(), ())

        def judged(_: object, __: object, motions: list[RecordedMotion], ___: int) -> Judgement:
            episodes = tuple(motion.episode for motion in motions)
            return Judgement(episodes, JOINTS, np.full(6, share), np.ones(6), np.ones(6))

        monkeypatch.setattr(population, "identify", fit)
        monkeypatch.setattr(population, "judge", judged)
        return fitted

    return begin


def row_of(motions: list[RecordedMotion], **settings: object) -> PopulationArm:
    return arm_row(ARM, motions, "mine", "a test", ArmFit(**settings))  # type: ignore[arg-type]


def test_every_second_episode_is_fitted_and_the_others_judge(
    motions: list[RecordedMotion], quick: Callable[[float], list[RecordedMotion]]
) -> None:
    fitted = quick(0.5)
    row = row_of(motions, leave_out=["gripper"])
    assert [motion.episode for motion in fitted] == [0, 2]
    assert (row.episodes, row.frames, row.fitted) == (2, sum(map(len, fitted)), list(JOINTS[:5]))
    assert (row.error_rad.identified, row.error_rad.nominal) == (0.5, 1.0)
    assert row.values.stiffness == ServoReplay(ARM, 1).nominal()["stiffness"].tolist()


def test_one_episode_is_cut_in_two_and_long_ones_are_fitted_in_part(
    motions: list[RecordedMotion], quick: Callable[[float], list[RecordedMotion]]
) -> None:
    long = recorded_on(without_contacts(ARM), wandering(20.0))
    fitted = quick(0.5)
    assert row_of([long]).frames == len(long) // 2
    fitted.clear()
    assert row_of([long, *motions], most_s=4.0).frames <= 120
    fitted.clear()
    row_of([replace(long, episode=number) for number in range(40)], most_s=40.0)
    assert [motion.episode for motion in fitted] == [0, 12, 26, 38], "from all over the recording"


def test_data_that_tell_nothing_are_refused(
    motions: list[RecordedMotion], quick: Callable[[float], list[RecordedMotion]]
) -> None:
    quick(0.5)
    one = motions[0]
    away = one.measured + np.array([0, 0, 2.5, 0, 0, 0])
    still = replace(one, measured=one.measured[:1] + 0 * one.measured, goals=one.goals)
    for data, text in (
        ([one.cut(0, 60)], r"1\.0 s to fit"),
        ([one, one.cut(0, 60)], r"2\.0 s to judge"),
        ([still, still], "only 0 joints move"),
        ([replace(one, measured=away)] * 2, "elbow_flex was measured .* degrees beyond"),
        ([replace(one, goals=np.roll(one.measured, -1, axis=0))] * 2, "only 0 joints|goals are the measured"),
        ([replace(one, goals=one.measured)] * 2, "no goals were recorded"),
        ([replace(one, goals=np.full_like(one.goals, np.nan))] * 2, "not a finite number"),
        ([replace(one, goals=one.goals + 1.0)] * 2, "follow their goals"),
    ):
        with pytest.raises(SourceError, match=text):
            row_of(data)
    quick(0.91)
    with pytest.raises(SourceError, match=r"error of 910\.0 mrad, the nominal servos with 1000\.0"):
        row_of(motions)


def test_a_friction_with_which_no_servo_moves_is_refused(
    motions: list[RecordedMotion], quick: Callable[[float], list[RecordedMotion]], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(0.5)
    fit = population.identify

    def stuck(*words: Any, **settings: Any) -> Identification:
        found = fit(*words, **settings)
        return replace(found, values={**found.values, "friction": found.values["friction"] + [0, 0, 1.0, 0, 0, 0]})

    monkeypatch.setattr(population, "identify", stuck)
    with pytest.raises(SourceError, match=r"elbow_flex a friction of 1\.1\d N m"):
        row_of(motions)


def test_a_joint_that_does_not_move_keeps_its_nominal_values(
    motions: list[RecordedMotion], quick: Callable[[float], list[RecordedMotion]]
) -> None:
    quick(0.5)
    held = [replace(motion, measured=motion.measured * np.array([1, 1, 1, 1, 0, 1])) for motion in motions]
    assert row_of(held).fitted == [joint for joint in JOINTS if joint != "wrist_roll"]


def test_every_fourth_arm_is_held_out_and_earlier_ones_stay(
    motions: list[RecordedMotion], quick: Callable[[float], list[RecordedMotion]]
) -> None:
    quick(0.5)
    grown = empty_population(ARM)
    for number in range(9):
        row = replace(row_of(motions), name=str(number), held_out=next_held_out(grown, 0.25))
        grown = replace(grown, arms=[*grown.arms, row])
    assert [arm.name for arm in grown.held_out.arms] == ["3", "7"]
    assert not next_held_out(Population("so101", list(JOINTS)), 0.9)


@pytest.mark.plugin("tabletop")
def test_robots_that_a_population_can_not_describe_are_refused() -> None:
    assert joint_names(ARM) == JOINTS
    with pytest.raises(SourceError, match="one command joint_target"):
        joint_names(find_robot_model("so101-pair").make_sim_model(looks=False))
    with pytest.raises(SourceError, match=r"one command|free base|gain on the speed"):
        joint_names(find_robot_model("go2").make_sim_model(looks=False))
