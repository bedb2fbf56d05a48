"""Taking over and handing back never jump, whatever policy and person want."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, Spec, SpecError
from rlenv_robot.robot_env.intervention import ActionBlender

SPEC = Spec("pose", (Field("joint", (2,), "float32", -1, 1, "rad"), Field("grip", (), "float64", 0, 3, "rad")))
VELOCITY, PERIOD = 1.5, 0.1
BOUND = VELOCITY * PERIOD

legal = st.tuples(st.floats(-1, 1, width=32), st.floats(-1, 1, width=32), st.floats(0, 3))
anything = st.tuples(*[st.floats(width=32)] * 2, st.floats())  # far out of range, infinite, not a number


def pose(values: tuple[float, float, float]) -> dict[str, np.ndarray]:
    return {"joint": np.array(values[:2], np.float32), "grip": np.array(values[2])}


def farthest(one: Any, other: Any) -> float:
    return max(float(np.abs(np.asarray(one[name], float) - other[name]).max()) for name in SPEC.names)


@pytest.mark.requirement("R6.6")
@given(st.lists(st.tuples(legal, st.none() | anything, legal), min_size=1, max_size=40), legal)
def test_no_action_of_an_intervention_or_of_its_way_back_lies_farther_than_the_bound(steps: Any, start: Any) -> None:
    """A guard may apply another action than the chosen one; now and then, the third value stands for it."""
    blender = ActionBlender(SPEC, VELOCITY, PERIOD)
    present, intervened = pose(start), False
    for number, (policy, person, guarded) in enumerate(steps):
        wanted = pose(policy)
        action, who = blender.choose(wanted, None if person is None else pose(person), present)
        intervened = intervened or person is not None
        if intervened:
            assert farthest(action, present) <= BOUND * (1 + 1e-6)
        else:
            assert action is wanted
        assert (who == "person") == (person is not None)
        if who == "policy":  # from here on the policy is free again, and from here on alone
            assert action is wanted
            intervened = False
        SPEC.validate({name: np.asarray(action[name]) for name in SPEC.names})
        present = pose(guarded) if number % 7 == 6 else dict(action)


@given(legal, legal)
def test_a_policy_that_waits_is_caught_up_with_in_the_time_that_the_bound_allows(start: Any, goal: Any) -> None:
    blender = ActionBlender(SPEC, VELOCITY, PERIOD)
    here, wanted = pose(start), pose(goal)
    blender.choose(wanted, here, here)  # a person has it, and stays
    gap = farthest(here, wanted)
    steps = 0
    while True:
        here, who = blender.choose(wanted, None, here)
        steps += 1
        if who == "policy":
            break
        assert who == "returning"
    assert steps <= gap / BOUND * (1 + 1e-5) + 1
    assert blender.choose(wanted, None, here).action is wanted


def test_a_person_who_gives_no_number_holds_that_element() -> None:
    blender = ActionBlender(SPEC, VELOCITY, PERIOD)
    person = {"joint": np.array([np.nan, 0.05]), "grip": np.array(np.inf)}
    action = blender.choose(pose((0, 0, 0)), person, pose((0.5, 0.0, 1.0))).action
    np.testing.assert_allclose(action["joint"], [0.5, 0.05])
    np.testing.assert_allclose(action["grip"], 1.0 + BOUND)


def test_an_episode_begins_with_the_policy() -> None:
    blender = ActionBlender(SPEC, VELOCITY, PERIOD)
    far = pose((1, 1, 3))
    blender.choose(far, pose((0, 0, 0)), pose((0, 0, 0)))
    assert blender.choose(far, None, pose((0, 0, 0))).who == "returning"
    blender.restart()
    assert blender.choose(far, None, pose((0, 0, 0))).action is far


def test_only_targets_between_which_there_is_a_way_can_be_taken_over() -> None:
    with pytest.raises(SpecError, match="'moves': 'gear' is int8"):
        ActionBlender(Spec("moves", (Field("gear", (), "int8", 1, 3),)), 1.0, 0.1)


@pytest.mark.parametrize("velocity", [0, -1, float("nan")])
def test_the_velocity_is_above_zero(velocity: float) -> None:
    with pytest.raises(ValueError, match=r"velocity of an intervention is .* above 0"):
        ActionBlender(SPEC, velocity, 0.1)
