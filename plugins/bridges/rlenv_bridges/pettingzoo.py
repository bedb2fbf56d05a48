"""Adapt an `Environment` of several agents to PettingZoo's parallel or turn-based (AEC) interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

from hal import Field, IllegalAction, Spec
from rlenv_robot.adapters.gymnasium import FieldSpace, action_space_of, scaled_action, space_of
from rlenv_robot.env import Environment
from rlenv_robot.tables import ExtraInfo, ObservationTable, Options, Reward
from rlenv_robot.tasks.agents import agents_of, joint_action, own_observation
from rlenv_robot.world import TurnBasedWorld

__all__ = ["JointEnv", "TurnsEnv", "to_pettingzoo", "to_pettingzoo_aec"]

ByAgent: TypeAlias = dict[str, dict[str, np.ndarray]]
"""Agent -> the fields of its observation."""

_NOT_FOR_ALL = frozenset({"agents", "agent", "messages", "state"})


class _Acting:
    """Convert one agent's action between PettingZoo's space and the environment's own values."""

    def __init__(self, spec: Spec, normalise: bool) -> None:
        self._spec = spec
        self.space, self._scaled = action_space_of(spec, normalise)

    def values(self, action: object) -> Mapping[str, object]:
        """Return the action by the names of the spec.

        Raises:
            IllegalAction: it is to be scaled, and no array in [-1, 1] of the right shape.
        """
        if isinstance(self.space, spaces.Dict):
            return dict(cast("Mapping[str, object]", action))  # anything else raises TypeError
        field: Field = self._spec.fields[0]
        if self._scaled is None:
            return {field.name: action}
        return {field.name: scaled_action(field, self._scaled.validate(action, "action"))}


def _metadata(env: Environment) -> dict[str, object]:
    return {"name": env.world.name, "render_modes": ["rgb_array"], "is_parallelizable": True}


def _begin(env: Environment, seed: int | None, options: Options | None) -> ObservationTable:
    """Reset and return Table 1. PettingZoo sends any options: unknown ones are named, and left out."""
    allowed, asked = env.description.reset_options, dict(options or {})
    ignored = sorted(str(name) for name in asked if name not in allowed)
    request = {name: value for name, value in asked.items() if name in allowed}
    table = env.reset({**request, **({} if seed is None else {"seed": seed})})
    if ignored:
        table["extra_info"]["ignored_options"] = ignored
    return table


def _before_reset(env: Environment) -> ObservationTable:
    return {
        "env_id": env.env_id, "frame_no": 0, "observation": {}, "extra_info": {}, "terminated": 0, "truncated": 0,
    }  # fmt: skip


class JointEnv(ParallelEnv[str, dict[str, np.ndarray], object]):
    """An environment with PettingZoo's parallel interface, in which all agents act at once.

    Each agent gets its own observation, a `Dict` of fields under its own names. With ``normalise`` an action of one
    field is a `Box` in [-1, 1]; otherwise it is a `Dict` of fields in their ranges. Messages from other agents are in
    ``info["messages"]``, sender -> message. After an illegal action no agent moves, rewards are 0, and
    ``info["error"]`` gives the reason, as the standard says. `state` is the task's privileged state as one vector,
    which does not exist in inference.

    Args:
        env: an environment with several agents, which is closed with this one.
        normalise: whether to scale actions to [-1, 1].
        render_mode: None or ``rgb_array``.

    Raises:
        ValueError: the environment has no agents, or an unknown render_mode.
    """

    def __init__(self, env: Environment, normalise: bool = True, render_mode: str | None = None) -> None:
        self._agents = agents_of(env.world)
        if not self._agents:
            raise ValueError(f"{env.world.name!r} has no agents that act at once: use to_gymnasium")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}, allowed are None and 'rgb_array'")
        self.env, self.render_mode, self.metadata = env, render_mode, _metadata(env)
        self.possible_agents = [agent.name for agent in self._agents]
        self.agents: list[str] = []
        self._seen = {agent.name: space_of(agent.observation(env.observation)) for agent in self._agents}
        self._acting = {agent.name: _Acting(agent.action(env.action), normalise) for agent in self._agents}
        self._table = _before_reset(env)

    def observation_space(self, agent: str) -> FieldSpace:
        """Return this space of one agent."""
        return self._seen[agent]

    def action_space(self, agent: str) -> FieldSpace:
        """Return this space of one agent."""
        return self._acting[agent].space

    def reset(self, seed: int | None = None, options: Options | None = None) -> tuple[ByAgent, dict[str, ExtraInfo]]:
        """Reset by PettingZoo's interface; unknown options are named in ``ignored_options``."""
        self._table = _begin(self.env, seed, options)
        self.agents = list(self.possible_agents)
        return self._observations(), self._infos()

    def step(
        self, actions: Mapping[str, object]
    ) -> tuple[ByAgent, dict[str, float], dict[str, bool], dict[str, bool], dict[str, ExtraInfo]]:
        """Step by PettingZoo's interface."""
        try:
            chosen = {agent: self._acting[agent].values(action) for agent, action in actions.items()}
        except IllegalAction as refused:  # in the scaled units that the caller knows
            self._table, reward = self.env.refuse(refused.violation)
        else:
            joint = joint_action(self._agents, chosen)
            request = {"env_id": self.env.env_id, "frame_no": self._table["frame_no"], "action": joint}
            self._table, reward = self.env.step(request)
        terminated, truncated = bool(self._table["terminated"]), bool(self._table["truncated"])
        ends = dict.fromkeys(self.agents, terminated), dict.fromkeys(self.agents, truncated)
        rewards = cast("Mapping[str, float]", reward["reward"])  # since the world has agents
        answer = self._observations(), dict(rewards), *ends, self._infos()
        if terminated or truncated:
            self.agents = []
        return answer

    def _observations(self) -> ByAgent:
        whole = self._table["observation"]
        return {agent.name: own_observation(whole, agent.sees) for agent in self._agents}

    def _infos(self) -> dict[str, ExtraInfo]:
        extra = self._table["extra_info"]
        common = {name: value for name, value in extra.items() if name not in _NOT_FOR_ALL}
        messages = extra.get("messages", {})
        return {
            name: {**common, **({"messages": messages[name]} if name in messages else {})}
            for name in self.possible_agents
        }

    def state(self) -> np.ndarray:
        """Return the task's privileged state as one vector of its fields, float32 (n,).

        Raises:
            ValueError: there is no privileged state, as in inference.
        """
        state = self._table["extra_info"].get("state")
        if not state:
            raise ValueError("no privileged state: it is there in training, after a reset, if the task has any")
        return np.concatenate([np.ravel(value) for value in state.values()]).astype(np.float32)

    def render(self) -> np.ndarray | None:
        """Return an image of the current state with ``render_mode="rgb_array"``, otherwise None."""
        return self.env.world.image({}) if self.render_mode else None

    def close(self) -> None:
        """Close the adapted environment."""
        self.env.close()


class TurnsEnv(AECEnv[str, dict[str, np.ndarray], object]):
    """An environment with PettingZoo's AEC interface, in which agents act in turn.

    It adapts a `rlenv_robot.world.TurnBasedWorld`, such as Go or `rlenv_bridges.turn_based.OneAtATime`. If the world
    knows the legal moves (``legal``), the ``info`` of the agent to move has an ``action_mask``. After an illegal action
    it is the same agent's turn again, and ``info["error"]`` gives the reason, as the standard says.

    Args:
        env: an environment of such a world, which is closed with this one.
        normalise: whether to scale actions to [-1, 1].
        render_mode: None or ``rgb_array``.

    Raises:
        ValueError: the world has no players, or an unknown render_mode.
    """

    def __init__(self, env: Environment, normalise: bool = True, render_mode: str | None = None) -> None:
        super().__init__()
        if not isinstance(env.world, TurnBasedWorld):
            raise ValueError(
                f"{env.world.name!r} has no players that act in turn: inherit from TurnBasedWorld and name its players"
            )
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}, allowed are None and 'rgb_array'")
        self.env, self.render_mode, self.metadata = env, render_mode, _metadata(env)
        self._world, players = env.world, env.world.players
        self.possible_agents = list(players)
        self.agents: list[str] = []
        self._space = {player: space_of(env.observation) for player in players}
        self._acting = {player: _Acting(env.action, normalise) for player in players}
        self._table = _before_reset(env)

    def observation_space(self, agent: str) -> FieldSpace:
        """Return this space of one agent."""
        return self._space[agent]

    def action_space(self, agent: str) -> FieldSpace:
        """Return this space of one agent."""
        return self._acting[agent].space

    def reset(self, seed: int | None = None, options: Options | None = None) -> None:
        """Reset by PettingZoo's interface; unknown options are named in ``ignored_options``."""
        self._table = _begin(self.env, seed, options)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._tell()

    def step(self, action: object) -> None:
        """Step the agent whose turn it is, by PettingZoo's interface."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0
        try:
            values = self._acting[agent].values(action)
        except IllegalAction as refused:
            self._table, reward = self.env.refuse(refused.violation)
        else:
            request = {"env_id": self.env.env_id, "frame_no": self._table["frame_no"], "action": values}
            self._table, reward = self.env.step(request)
        self.rewards = self._rewards(agent, reward["reward"])
        self.terminations = dict.fromkeys(self.agents, bool(self._table["terminated"]))
        self.truncations = dict.fromkeys(self.agents, bool(self._table["truncated"]))
        self._tell()
        self._accumulate_rewards()

    def _rewards(self, mover: str, reward: Reward) -> dict[str, float]:
        """Return the reward by agent; a single number is the mover's, and in a zero-sum game the others' loss."""
        if isinstance(reward, Mapping):
            return dict(reward)
        others = -reward if self._world.zero_sum else 0
        return {agent: reward if agent == mover else others for agent in self.agents}

    def _tell(self) -> None:
        extra = self._table["extra_info"]
        self.agent_selection = extra["agent"]
        common = {name: value for name, value in extra.items() if name not in _NOT_FOR_ALL}
        self.infos = {agent: dict(common) for agent in self.agents}
        mine = self.infos[self.agent_selection]
        if "messages" in extra:
            mine["messages"] = extra["messages"]
        legal = self._world.legal()
        if legal is not None:
            masks = {name: mask.astype(np.int8) for name, mask in legal.items()}
            discrete = isinstance(self.action_space(self.agent_selection), spaces.Discrete)
            mine["action_mask"] = next(iter(masks.values())) if discrete else masks

    def observe(self, agent: str) -> dict[str, np.ndarray]:
        """Return an agent's current observation."""
        observation = self._world.seen_by(agent)
        return dict(self._table["observation"] if observation is None else observation)

    def render(self) -> np.ndarray | None:
        """Return an image of the current state with ``render_mode="rgb_array"``, otherwise None."""
        return self.env.world.image({}) if self.render_mode else None

    def close(self) -> None:
        """Close the adapted environment."""
        self.env.close()


def to_pettingzoo(env: Environment, *, normalise: bool = True, render_mode: str | None = None) -> JointEnv:
    """Adapt an environment to PettingZoo's parallel interface; see `JointEnv`."""
    return JointEnv(env, normalise, render_mode)


def to_pettingzoo_aec(env: Environment, *, normalise: bool = True, render_mode: str | None = None) -> AECEnv:
    """Adapt an environment to PettingZoo's turn-based (AEC) interface.

    Players that act in turn get a `TurnsEnv`. Agents that act at once get PettingZoo's conversion of a `JointEnv`,
    which collects all actions, as `rlenv_bridges.turn_based.OneAtATime` does.
    """
    if isinstance(env.world, TurnBasedWorld):
        return TurnsEnv(env, normalise, render_mode)
    return parallel_to_aec(JointEnv(env, normalise, render_mode))
