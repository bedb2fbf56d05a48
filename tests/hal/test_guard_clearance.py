"""What is said to be plainly within its limits is what limiting would return, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, Limits, RobotSpec, RobotState, Spec
from hal.guard import limited, plainly_within

angles = st.lists(st.floats(-3, 3, width=32), min_size=2, max_size=2)
limits = st.none() | st.floats(0.01, 50)


def robot(velocity: float | None, lead: float | None, dtype: str = "float32") -> RobotSpec:
    return RobotSpec(
        name="arm",
        sensors=Spec("sensors", (Field("position", (2,), "float64", -9, 9),)),
        commands=Spec("commands", (Field("target", (2,), dtype, -3, 3),)),
        rate_hz=30.0,
        measured_by={"target": "position"},
        limits=Limits(
            {} if velocity is None else {"target": velocity}, {} if lead is None else {"target": (lead, 2 * lead)}
        ),
    )


def robot_state(applied: list[float], measured: list[float], dtype: str) -> RobotState:
    return RobotState({"position": np.array(measured)}, {"target": np.array(applied, dtype)}, 0)


@given(limits, limits, angles, angles, angles, st.sampled_from(["float32", "float64"]), st.floats(0, 1.5))
def test_what_is_let_through_is_what_limiting_returns(
    velocity: float | None,
    lead: float | None,
    goal: list[float],
    applied: list[float],
    measured: list[float],
    dtype: str,
    near: float,
) -> None:
    """Goals are drawn near the limit, where rounding could make a difference."""
    spec = robot(velocity, lead, dtype)
    start = np.array(applied)
    stride = near * min((velocity or 3.0) * spec.period_s, lead or 3.0)
    target = np.clip(start + np.sign(np.array(goal) - start) * stride, -3, 3).astype(dtype)
    last = robot_state(applied, [a + m / 100 for a, m in zip(applied, measured, strict=True)], dtype)
    within = plainly_within(spec, "target")
    assert within is not None
    if within(target, last.applied["target"], last.sensors["position"]):
        np.testing.assert_array_equal(limited(spec, "target", target, last), target)


@pytest.mark.parametrize("where", ["applied", "measured"])
def test_no_number_is_never_plainly_within(where: str) -> None:
    values = {"applied": [0.0, 0.0], "measured": [0.0, 0.0]}
    values[where][1] = np.nan
    last = robot_state(values["applied"], values["measured"], "float32")
    within = plainly_within(robot(1.0, 1.0), "target")
    assert within is not None
    assert not within(np.zeros(2, np.float32), last.applied["target"], last.sensors["position"])


def test_it_lets_ordinary_commands_through_and_not_fast_ones() -> None:
    within = plainly_within(robot(3.0, 0.5), "target")
    assert within is not None
    still = np.zeros(2, np.float32)
    assert within(np.full(2, 0.099, np.float32), still, still)
    assert not within(np.full(2, 0.101, np.float32), still, still), "3 rad/s are 0.1 rad a period"
    assert not within(still, still, np.array([0.51, 0.0])), "the arm was pushed away"


def test_what_is_no_vector_is_left_to_limiting() -> None:
    spec = replace(
        robot(1.0, None), commands=Spec("commands", (Field("target", (), "float32", -3, 3),)), measured_by={}
    )
    assert plainly_within(spec, "target") is None
