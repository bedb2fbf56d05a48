from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hal import Limits, SpecError
from hal.limits import FOLLOWING_ERROR_FACTOR

ANGLES = hnp.arrays(np.float32, (5, 3), elements=st.floats(-10, 10, width=32))


@given(ANGLES, ANGLES, ANGLES)
def test_speed_and_lead_are_limited_and_other_targets_stay(
    target: np.ndarray, previous: np.ndarray, measured: np.ndarray
) -> None:
    limits = Limits(max_velocity={"q": 2.0}, max_lead={"q": (0.5, 1.0, 4.0)})
    result = limits.apply("q", target, previous, measured, 0.1)
    lead = np.asarray((0.5, 1.0, 4.0), np.float32)
    assert result.dtype == np.float32
    assert (np.abs(result - previous) <= 0.2 + 1e-5).all()
    low, high = np.minimum(measured - lead, previous), np.maximum(measured + lead, previous)
    assert ((result >= low - 1e-5) & (result <= high + 1e-5)).all(), "within the lead, or no farther than it was"
    held = limits.apply("q", previous, previous, measured, 0.1)
    np.testing.assert_array_equal(held, previous)
    free = (np.abs(target - previous) < 0.19) & (np.abs(target - measured) < lead - 0.01)
    np.testing.assert_array_equal(result[free], target[free])


@given(ANGLES, ANGLES, st.lists(st.sampled_from([0.001, 0.01, 0.1, 1.0]), min_size=2, max_size=6))
def test_each_step_goes_by_its_own_time(target: np.ndarray, previous: np.ndarray, periods: list[float]) -> None:
    """Limits keep what they computed for the last period; another one must not move an arm by the last one's stride."""
    limits = Limits(max_velocity={"q": 2.0})
    for period_s in periods:
        result = limits.apply("q", target, previous, None, period_s)
        np.testing.assert_array_equal(result, Limits({"q": 2.0}).apply("q", target, previous, None, period_s))
        assert (np.abs(result - previous) <= 2.0 * period_s + 2e-6).all()


@given(ANGLES, ANGLES, ANGLES, st.sampled_from([1.0, (0.5, 1.0, 4.0)]))
def test_the_lead_is_kept_alone_as_if_there_were_no_speed(
    target: np.ndarray, previous: np.ndarray, measured: np.ndarray, lead: Any
) -> None:
    both, alone = Limits({"q": 0.1}, {"q": lead}), Limits(max_lead={"q": lead})
    wide = previous.astype(np.float64)
    result = both.keep_lead("q", target, wide, measured)
    np.testing.assert_array_equal(result, alone.apply("q", target, wide, measured, 0.1))
    assert result.dtype == target.dtype
    assert both.keep_lead("q", target, previous, None) is target
    assert Limits({"q": 0.1}).keep_lead("q", target, previous, measured) is target


def test_a_command_that_nothing_measures_has_its_speed_limited_and_no_lead() -> None:
    still = np.zeros(2, np.float32)
    result = Limits({"q": 1.0}, {"q": 0.01}).apply("q", np.ones(2, np.float32), still, None, 0.1)
    np.testing.assert_allclose(result, 0.1)


def test_limits_in_place_of_others_apply_at_once() -> None:
    """Limits keep strides that they computed; these are no part of their value, nor of limits made from them."""
    used, fresh = Limits({"q": 2.0}, {"q": 9.0}), Limits({"q": 2.0}, {"q": 9.0})
    far, still = np.full(2, 5.0), np.zeros(2)
    np.testing.assert_allclose(used.apply("q", far, still, still, 0.1), 0.2)
    np.testing.assert_allclose(used.merged(max_velocity={"q": 0.5}).apply("q", far, still, still, 0.1), 0.05)
    assert used == fresh
    assert repr(used) == repr(fresh)


def test_without_a_limit_the_target_itself_is_returned() -> None:
    target = np.ones(3)
    assert Limits().apply("q", target, target, target, 0.1) is target


def test_wider_measurements_do_not_widen_the_command() -> None:
    result = Limits({"q": 1.0}, {"q": 1.0}).apply("q", np.ones(2, np.float32), np.zeros(2), np.zeros(2), 0.1)
    assert result.dtype == np.float32


def test_plain_data_and_back() -> None:
    limits = Limits({"q": np.array([1, 2])}, {"q": 3, "p": 0.5})  # type: ignore[dict-item]
    assert limits.to_dict() == json.loads(json.dumps(limits.to_dict())), "plain to begin with"
    assert Limits.from_dict(json.loads(json.dumps(limits.to_dict()))) == limits
    assert limits.max_velocity == {"q": (1.0, 2.0)}
    assert limits.names == ("q", "p")


def test_following_errors_follow_from_the_lead_and_are_plain_data_only_where_they_are_set() -> None:
    limits = Limits(max_lead={"q": (1.0, 2.0), "p": 1.0}, max_following_error={"p": 0.5})
    assert limits.following_error_bounds() == {"q": pytest.approx((1.1, 2.2)), "p": 0.5}
    assert limits.following_error_bounds(simulated=True) == {"p": 0.5}
    assert Limits(max_lead={"q": 2.0}).following_error_bounds() == {"q": 2.0 * FOLLOWING_ERROR_FACTOR}
    assert FOLLOWING_ERROR_FACTOR > 1, "an arm at its lead is no reason to stop"
    assert Limits.from_dict(json.loads(json.dumps(limits.to_dict()))) == limits
    assert set(Limits(max_lead={"q": 1.0}).to_dict()) == {"max_velocity", "max_lead"}
    ticked = Limits(following_error_ticks=0)
    assert Limits.from_dict(ticked.to_dict()) == ticked
    for ticks in (-1, 1.0, True):
        with pytest.raises(SpecError, match="following_error_ticks"):
            Limits(following_error_ticks=ticks)


@pytest.mark.parametrize("value", [0, -1, np.nan, (1.0, 0.0)])
def test_limits_are_positive(value: float) -> None:
    with pytest.raises(SpecError, match=r"max_lead.q is .* above 0"):
        Limits(max_lead={"q": value})


@given(*[hnp.arrays(np.float32, (3,), elements=st.floats(width=32)) for _ in range(3)])
def test_limiting_equals_clipping_bit_for_bit(target: np.ndarray, previous: np.ndarray, measured: np.ndarray) -> None:
    """The order is lead, then speed; NaN and infinities are included."""
    result = Limits({"q": 2.0}, {"q": 0.5}).apply("q", target, previous, measured, 0.1)
    step = np.float32(2.0) * np.float32(0.1)
    with np.errstate(over="ignore", invalid="ignore"):
        low = np.minimum(measured - np.float32(0.5), previous)
        expected = np.clip(target, low, np.maximum(measured + np.float32(0.5), previous))
        expected = np.clip(expected, previous - step, previous + step)
    np.testing.assert_array_equal(result, expected)


def test_limits_on_motion_and_effort_as_plain_data() -> None:
    limits = Limits({"q": 1.0}, max_acceleration={"q": 2.0}, max_jerk={"q": (3, 4)}, max_effort={"a": 5}, effort_s=0.0)
    assert Limits.from_dict(json.loads(json.dumps(limits.to_dict()))) == limits
    assert limits.to_dict().keys() == {
        "max_velocity", "max_lead", "max_acceleration", "max_jerk", "max_effort", "effort_s"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_acceleration": {"q": 1.0}}, "max_acceleration.q needs max_velocity.q"),
        ({"max_velocity": {"q": 1.0}, "max_jerk": {"q": 1.0}}, "max_jerk.q needs max_acceleration.q"),
        ({"max_velocity": {"q": np.inf}, "max_acceleration": {"q": 1.0}}, "max_velocity.q is inf"),
        ({"max_effort": {"q": -1.0}}, "max_effort.q is -1.0, it must be above 0"),
        ({"max_velocity": {"q": (1.0, np.inf)}, "max_acceleration": {"q": 1.0}}, "max_velocity.q is (1.0, inf)"),
        ({"effort_s": np.nan}, "effort_s is nan"),
        ({"effort_s": np.inf}, "effort_s is inf"),
        ({"effort_s": -0.5}, "effort_s is -0.5"),
    ],
)
def test_a_limit_that_could_not_be_applied_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=re.escape(text)):
        Limits(**options)


def test_without_other_words_a_robot_stops_after_three_readings_or_half_a_second() -> None:
    assert (Limits().following_error_ticks, Limits().effort_s) == (3, 0.5)


def test_limits_in_place_of_others() -> None:
    own = Limits({"q": 1.0, "p": 2.0}, {"q": 3.0}, following_error_ticks=5)
    merged = own.merged(max_velocity={"q": 0.5}, max_acceleration={"q": 9.0}, effort_s=1.0)
    assert merged == Limits(
        {"q": 0.5, "p": 2.0}, {"q": 3.0}, following_error_ticks=5, max_acceleration={"q": 9.0}, effort_s=1.0
    )
    assert own.merged() == own
    with pytest.raises(TypeError, match="no limit 'max_speed'"):
        own.merged(max_speed={"q": 1.0})
