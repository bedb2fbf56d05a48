"""Adapt environments of several agents to Tianshou's multi-agent policy manager. Needs PettingZoo and Tianshou."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
from gymnasium import spaces
from pettingzoo.utils.wrappers import BaseWrapper
from tianshou.env import PettingZooEnv

from rlenv_bridges.pettingzoo import to_pettingzoo_aec
from rlenv_robot.adapters.gymnasium import FieldSpace
from rlenv_robot.env import Environment

__all__ = ["VectorAgents", "to_tianshou_agents"]


class VectorAgents(BaseWrapper[str, object, object]):
    """A PettingZoo turn-based environment with one vector as observation and one as action of each agent.

    An observation holds all fields of the agent in C order, each divided by half its range if both bounds are finite.
    An action of several fields is one vector in [-1, 1]. A whole-number action is unchanged, and its ``action_mask``
    comes with the observation, as Tianshou's manager requires. The class wraps an environment from
    `rlenv_bridges.pettingzoo.to_pettingzoo_aec`.
    """

    def observation_space(self, agent: str) -> spaces.Space:
        """Return the space of one agent's vector, with a mask if its action is a whole number."""
        vector = spaces.Box(-np.inf, np.inf, (sum(map(_size, self._fields(agent).values())),), np.float32)
        action = self.env.action_space(agent)
        if not isinstance(action, spaces.Discrete):
            return vector
        return spaces.Dict({"observation": vector, "action_mask": spaces.Box(0, 1, (int(action.n),), np.int8)})

    def action_space(self, agent: str) -> FieldSpace:
        """Return the space of one agent's action."""
        action: FieldSpace = self.env.action_space(agent)
        if not isinstance(action, spaces.Dict):
            return action
        return spaces.Box(-1.0, 1.0, (sum(map(_size, action.spaces.values())),), np.float32)

    def observe(self, agent: str) -> object:
        """Return an agent's observation as a vector."""
        seen, parts = self.env.observe(agent), []
        for name, box in self._fields(agent).items():
            half = (np.asarray(box.high, np.float64) - np.asarray(box.low, np.float64)) / 2
            scale = np.where(np.isfinite(half) & (half > 0), half, 1.0)
            parts.append(np.ravel(np.asarray(seen[name], np.float64) / scale))
        vector = np.concatenate(parts).astype(np.float32)
        action = self.env.action_space(agent)
        if not isinstance(action, spaces.Discrete):
            return vector
        mask = self.env.infos.get(agent, {}).get("action_mask", np.ones(int(action.n), np.int8))
        return {"observation": vector, "action_mask": np.asarray(mask, np.int8)}

    def step(self, action: object) -> None:
        """Step the agent whose turn it is."""
        space = self.env.action_space(self.env.agent_selection)
        if action is None or not isinstance(space, spaces.Dict):
            self.env.step(None if action is None else _bare(action, space))
            return
        vector, start, fields = np.asarray(action, np.float64), 0, {}
        for name, box in cast("Mapping[str, spaces.Box]", space.spaces).items():
            part = vector[start : start + _size(box)].reshape(box.shape)
            low, high = np.asarray(box.low, np.float64), np.asarray(box.high, np.float64)
            fields[name] = (low + (part + 1) / 2 * (high - low)).astype(box.dtype)
            start += _size(box)
        self.env.step(fields)

    def last(self, observe: bool = True) -> tuple[object, float, bool, bool, dict[str, object]]:
        """Return observation, reward, terminated, truncated and info of the agent whose turn it is."""
        agent = self.env.agent_selection
        _, reward, terminated, truncated, info = self.env.last(observe=False)
        return self.observe(agent), reward, terminated, truncated, info

    def _fields(self, agent: str) -> Mapping[str, spaces.Box]:
        return cast("Mapping[str, spaces.Box]", self.env.observation_space(agent).spaces)


def _size(space: spaces.Space) -> int:
    return int(np.prod(space.shape or ()))


def _bare(action: object, space: FieldSpace) -> object:
    return int(np.asarray(action).item()) if isinstance(space, spaces.Discrete) else np.asarray(action, np.float32)


def to_tianshou_agents(env: Environment) -> PettingZooEnv:
    """Adapt an environment of several agents to Tianshou's multi-agent algorithms.

    Args:
        env: an environment with agents of equal spaces that act in turn or at once; it is closed with the result.
    """
    return PettingZooEnv(VectorAgents(to_pettingzoo_aec(env)))
