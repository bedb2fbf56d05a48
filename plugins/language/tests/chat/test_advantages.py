"""Token-level advantages against cases that were worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlenv_language.chat.advantages import gae, leave_one_out


def test_two_turns_by_hand() -> None:
    # Turn 1: two tokens and an end with reward 1; turn 2: a token and an end with reward 2. Discount 0.5, lambda 0.5.
    # delta = r + 0.5 V' - V: 0+1-4 = -3; 0+0.5-2 = -1.5; 1+1.5-1 = 1.5; 0+0.5-3 = -2.5; 2+0-1 = 1
    # A = delta + 0.25 A': 1; -2.5+0.25 = -2.25; 1.5-0.5625 = 0.9375; -1.5+0.234375 = -1.265625; -3-0.31640625
    advantage, target = gae([0, 0, 1, 0, 2], [4, 2, 1, 3, 1], 0.0, 0.5, 0.5)
    np.testing.assert_allclose(advantage, [-3.31640625, -1.265625, 0.9375, -2.25, 1.0])
    np.testing.assert_allclose(target, [0.68359375, 0.734375, 1.9375, 0.75, 2.0])


def test_a_truncated_episode_bootstraps_and_a_terminated_one_does_not() -> None:
    ended, _ = gae([0, 1], [0.5, 0.5])
    np.testing.assert_allclose(ended, [0.5, 0.5])
    cut, target = gae([0, 1], [0.5, 0.5], last_value=2.0)
    np.testing.assert_allclose(cut, [2.5, 2.5])
    np.testing.assert_allclose(target, [3.0, 3.0])


def test_a_turn_s_discount_counts_at_its_end_alone() -> None:
    # Values 0, lambda 1: an advantage is the discounted return. Two turns of two tokens, reward 8 at the very end.
    advantage, _ = gae([0, 0, 0, 8], [0, 0, 0, 0], turns=[0, 0, 1, 1], turn_discount=0.5)
    np.testing.assert_allclose(advantage, [4, 4, 8, 8])
    with pytest.raises(ValueError, match="turns"):
        gae([1], [0], turn_discount=0.5)


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=12), st.floats(-3, 3))
def test_without_discount_or_decay_it_is_the_return_less_the_value(
    tokens: list[tuple[float, float]], last: float
) -> None:
    rewards, values = np.array(tokens).T
    advantage, target = gae(rewards, values, last)
    returns = np.cumsum(rewards[::-1])[::-1] + last
    np.testing.assert_allclose(advantage, returns - values, atol=1e-9)
    np.testing.assert_allclose(target, returns, atol=1e-9)
    one_step, _ = gae(rewards, values, last, decay=0.0)
    np.testing.assert_allclose(one_step, rewards + np.append(values[1:], last) - values, atol=1e-9)


def test_leave_one_out_by_hand() -> None:
    # Seed 7: returns 1, 0, 0.5; seed 8: 3, 1; seed 9: alone.
    result = leave_one_out([1, 3, 0, 0.5, 1, 4], [7, 8, 7, 7, 8, 9])
    np.testing.assert_allclose(result, [0.75, 2.0, -0.75, 0.0, -2.0, 0.0])


@pytest.mark.parametrize("wrong", [{"rewards": [1, 2], "values": [1]}, {"discount": 1.5}, {"decay": -0.1}])
def test_wrong_arguments_are_refused(wrong: dict) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=r"\w"):
        gae(**{"rewards": [1.0], "values": [0.0], **wrong})
