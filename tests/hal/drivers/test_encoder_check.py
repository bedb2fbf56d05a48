"""Encoders that jump are found by what the servo can do; noise, lost answers, late reads and hard stops are not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.drivers.encoder_check import EncoderCheck
from hal.drivers.so101_arm import SO101_ARM
from hal.drivers.sts3215 import STS3215

PERIOD_S, TICK = 1 / 30, 2 * math.pi / 4096
MOST = 3.35 / 0.0284  # rad/s^2: stall torque over armature of the STS3215 (Rhoban's BAM)


def problems(angles: np.ndarray, times_s: np.ndarray, period_s: float = PERIOD_S) -> list[str]:
    """Return the problems of the wrist's readings, while the other joints stand still."""
    check, found = EncoderCheck(SO101_ARM, period_s), []
    for angle, time_s in zip(angles, times_s, strict=True):
        problem = check.check([0.0, 0.0, 0.0, float(angle), 0.0, 0.0], [float(time_s)] * 6)
        found += [problem] if problem else []
    return found


def test_the_limits_are_the_servos() -> None:
    assert STS3215.max_acceleration is not None
    assert STS3215.max_acceleration * TICK == pytest.approx(MOST)


@pytest.mark.parametrize("degrees", [9.0, -9.0, 26.0, 120.0])
def test_a_jump_at_rest_names_the_joint(degrees: float) -> None:
    angles = np.zeros(20)
    angles[10:] = math.radians(degrees)
    (problem, *_) = problems(angles, np.arange(20) * PERIOD_S)
    assert problem.startswith(f"implausible: wrist_flex changed by {degrees:+.1f} degrees in 33 ms")


@given(st.floats(0.1, 4.0), st.floats(0.1, 3.0), st.integers(0, 2**32 - 1), st.sampled_from([30, 50, 100, 200]))
def test_no_motion_that_a_servo_can_make_is_a_jump(size: float, hertz: float, seed: int, rate_hz: int) -> None:
    """Sines up to the servo's rate and half its acceleration, read late, with noise, steps and lost answers."""
    rng = np.random.default_rng(seed)
    count = 2 * rate_hz
    size = min(size, 5.2 / (2 * math.pi * hertz), MOST / 2 / (2 * math.pi * hertz) ** 2)
    late = rng.uniform(0.0, 0.002, count)
    times = np.arange(count) / rate_hz + late
    angles = np.rint((size * np.sin(2 * math.pi * hertz * times) + rng.normal(0, TICK / 3, count)) / TICK) * TICK
    kept = rng.random(count) > 0.2
    stamps = times[np.maximum.accumulate(np.where(kept, np.arange(count), 0))]
    shown = angles[np.maximum.accumulate(np.where(kept, np.arange(count), 0))]
    assert problems(shown, stamps, 1 / rate_hz) == []


def test_a_joint_that_hits_something_stops_at_once_without_a_fault() -> None:
    angles = np.minimum(np.arange(20) * PERIOD_S * 4.5, 1.0)
    assert problems(angles, np.arange(20) * PERIOD_S) == []
