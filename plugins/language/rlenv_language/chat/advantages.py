"""Compute advantages of an agent's tokens from rewards on the tokens that end its turns.

Both estimators are those of Ammanabrolu and Wang 2025 (arXiv:2510.01132). A turn's reward is on its end token. A value
function (PPO), or the returns of other episodes with the same start (RLOO), assign credit to the other tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["gae", "leave_one_out"]


def gae(
    rewards: ArrayLike,
    values: ArrayLike,
    last_value: float = 0.0,
    discount: float = 1.0,
    decay: float = 1.0,
    turns: ArrayLike | None = None,
    turn_discount: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the generalised advantages of the agent's tokens in an episode (Schulman et al. 2016, arXiv:1506.02438).

    ``delta_i = r_i + g_i V_{i+1} - V_i`` and ``A_i = sum_l (prod of g decay) delta_{i+l}`` over the agent's tokens
    alone: the token after the end of a turn is the first of the next turn. ``g_i`` is ``discount``, times
    ``turn_discount`` where token i ends a turn.

    Args:
        rewards: rewards of the agent's tokens in order, (M,), without other tokens of the chat.
        values: V before each of these tokens, (M,).
        last_value: V after the last token: 0 if the task ended the episode, the last state's value if it was truncated.
        discount: discount factor per token, 0 to 1.
        decay: lambda, 0 to 1.
        turns: number of each token's turn, (M,), which ``turn_discount`` needs.
        turn_discount: additional discount factor per turn, 0 to 1.

    Returns:
        Advantages (M,), and value targets ``A_i + V_i`` (M,).

    Raises:
        ValueError: shapes differ, a factor is out of range, or ``turns`` is missing.
    """
    reward, value = np.asarray(rewards, float), np.asarray(values, float)
    if reward.shape != value.shape or reward.ndim != 1:
        raise ValueError(f"rewards have shape {reward.shape}, values {value.shape}; both must be (M,)")
    for name, factor in (("discount", discount), ("decay", decay), ("turn_discount", turn_discount)):
        if not 0 <= factor <= 1:
            raise ValueError(f"{name} is {factor}, it must be from 0 to 1")
    factors = np.full(len(reward), discount)
    if turns is not None:
        number = np.asarray(turns)
        factors[:-1] = np.where(number[1:] != number[:-1], discount * turn_discount, discount)
        factors[-1:] = discount * turn_discount
    elif turn_discount != 1.0:
        raise ValueError("turn_discount needs turns: the number of each token's turn")
    following = np.append(value[1:], last_value)
    deltas = reward + factors * following - value
    advantage = np.zeros(len(reward))
    carried = 0.0
    for place in range(len(reward) - 1, -1, -1):
        carried = deltas[place] + factors[place] * decay * carried
        advantage[place] = carried
    return advantage, advantage + value


def leave_one_out(returns: ArrayLike, groups: ArrayLike) -> np.ndarray:
    """Return each episode's return minus the mean return of the others in its group (RLOO; arXiv:2402.14740).

    Args:
        returns: the episodes' returns, (K,).
        groups: identifier of each episode's start, such as its seed, (K,). The advantage of a single episode is 0.
    """
    value, group = np.asarray(returns, float), np.asarray(groups)
    result = np.zeros(len(value))
    for name in np.unique(group):
        members = np.flatnonzero(group == name)
        if len(members) > 1:
            total = value[members].sum()
            result[members] = value[members] - (total - value[members]) / (len(members) - 1)
    return result
