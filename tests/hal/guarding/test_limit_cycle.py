"""The limit cycle: the amplitude of what goes to and fro, and nothing of what a robot does on purpose."""

from __future__ import annotations

import numpy as np
import pytest

from hal import Field
from hal.guarding.limit_cycle import joint_targets, limit_cycle

PERIOD_S = 1 / 30
FRAMES = np.arange(30)
TIME_S = FRAMES * PERIOD_S


def test_targets_that_turn_in_every_period_have_their_amplitude() -> None:
    buzz = 0.3 + 0.05 * (-1.0) ** FRAMES
    still = np.zeros(30)
    np.testing.assert_allclose(limit_cycle(np.stack([buzz, still], axis=1), PERIOD_S), [0.05, 0.0])


@pytest.mark.parametrize("hz", [4.5, 6.0, 11.0])
def test_slower_oscillations_have_theirs_too(hz: float) -> None:
    amplitude = limit_cycle(0.1 * np.sin(2 * np.pi * hz * TIME_S + 0.4), PERIOD_S)
    assert 0.07 <= float(amplitude) <= 0.1  # the samples miss the peaks


def test_what_rides_on_a_motion_counts_and_the_motion_does_not() -> None:
    ramp = 0.5 * TIME_S
    assert float(limit_cycle(ramp, PERIOD_S)) == 0
    assert float(limit_cycle(ramp + 0.05 * (-1.0) ** FRAMES, PERIOD_S)) == pytest.approx(0.05, rel=0.2)


@pytest.mark.parametrize("hz", [0.5, 1.0, 2.0, 3.0])
def test_gestures_and_gaits_are_none(hz: float) -> None:
    assert float(limit_cycle(0.5 * np.sin(2 * np.pi * hz * TIME_S), PERIOD_S)) == 0


def test_a_jump_amid_noise_leaves_the_noise() -> None:
    noise = np.random.default_rng(0).normal(0, 1e-3, 30)
    assert float(limit_cycle(noise + (FRAMES > 14), PERIOD_S)) < 3e-3


def test_pauses_and_values_that_are_not_finite_are_no_turns() -> None:
    stairs = np.repeat(np.arange(15.0), 2)
    assert float(limit_cycle(stairs, PERIOD_S)) == 0
    stairs[7] = np.nan
    assert float(limit_cycle(stairs, PERIOD_S)) == 0


def test_robots_of_a_batch_are_measured_one_by_one() -> None:
    targets = np.zeros((30, 2, 3))
    targets[:, 1, 2] = 0.02 * (-1.0) ** FRAMES
    amplitudes = limit_cycle(targets, PERIOD_S)
    assert amplitudes.shape == (2, 3)
    assert amplitudes[1, 2] == pytest.approx(0.02)
    assert amplitudes.sum() == amplitudes[1, 2]


def test_the_rate_of_the_commands_does_not_matter() -> None:
    for rate_hz in (30, 50, 200):
        time_s = np.arange(rate_hz) / rate_hz
        assert float(limit_cycle(0.1 * np.sin(2 * np.pi * 6 * time_s + 0.4), 1 / rate_hz)) == pytest.approx(
            0.1, rel=0.2
        )


def test_too_few_commands_tell_nothing() -> None:
    assert float(limit_cycle(np.array([0.0, 1.0, 0.0]), PERIOD_S)) == 0
    assert limit_cycle(np.zeros((0, 2)), PERIOD_S).tolist() == [0, 0]


def test_joint_targets_are_angles() -> None:
    fields = [Field("joint_target", (2,), unit="rad"), Field("speed", (), unit="m/s"), Field("gear", (), "int32")]
    assert [field.name for field in joint_targets(fields)] == ["joint_target"]
