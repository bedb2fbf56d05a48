"""Adapt PettingZoo environments, parallel or turn-based (AEC), to the standard's contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from gymnasium import spaces

from hal import IllegalAction, Spec, Violation
from recorder.frame_layout import FrameLayout
from rlenv_bridges.from_gymnasium import (
    Foreign,
    ForeignWorld,
    SpaceFields,
    answer_parts,
    check_flags,
    copied_info,
    field_name,
    plain_mapping,
    plain_number,
)
from rlenv_robot.env import Environment
from rlenv_robot.tables import ExtraInfo, Options
from rlenv_robot.tasks.agents import Agent, observed_fields
from rlenv_robot.world import EnvDescription, TimeStep

__all__ = ["PettingZooWorld", "TurnsWorld", "from_pettingzoo"]

_AT_ONCE = ("observations", "rewards", "terminations", "truncations", "infos")
_PARTS = ("rewards", "terminations", "truncations", "infos")
_MASK = "action_mask"
_CODES = {"rule": "the action mask forbids the action"}


class PettingZooWorld(ForeignWorld):
    """A `World` around a parallel PettingZoo environment. Values that break PettingZoo's interface raise TypeError.

    An agent that has left the episode observes zeros, or the nearest values in range, and gets reward 0; its actions
    are ignored. The episode ends with its last agent.

    Args:
        env: a ``pettingzoo.ParallelEnv``, which is closed with the world.

    Raises:
        ValueError: a space has no fields of a fixed size, or there are no agents.
    """

    def __init__(self, env: Foreign) -> None:
        self._env = env
        if not env.possible_agents:
            raise ValueError("the environment names no possible_agents, so its agents can't be described")
        self._names = {agent: field_name(agent) for agent in env.possible_agents}
        self._observed = {a: SpaceFields(env.observation_space(a), f"{n}_observation") for a, n in self._names.items()}
        self._acting = {a: SpaceFields(env.action_space(a), f"{n}_action") for a, n in self._names.items()}
        self.observation = Spec("observation", tuple(f for part in self._observed.values() for f in part.fields))
        self.action = Spec("action", tuple(f for part in self._acting.values() for f in part.fields))
        self.agents = tuple(
            Agent(
                agent,
                {field.name.removeprefix(f"{name}_"): field.name for field in self._observed[agent].fields},
                {field.name.removeprefix(f"{name}_"): field.name for field in self._acting[agent].fields},
            )
            for agent, name in self._names.items()
        )

    @property
    def description(self) -> EnvDescription:
        """The name, the options of a reset, and what each agent observes."""
        extra = {"agents": "agent -> its own name -> name in this observation", "info": "agent -> its own"}
        return replace(super().description, extra_info=extra)

    @property
    def layout(self) -> FrameLayout:
        """Observation, action, and rewards by agent."""
        return FrameLayout(self.observation, self.action, tuple(self._names))

    def reset(self, options: Options) -> TimeStep:
        """Reset the PettingZoo environment.

        Raises:
            ValueError: an option is unknown.
            TypeError: the result is not observations and infos by agent.
        """
        answer = answer_parts(self._env.reset(**self._request(options)), 2, "reset", "observations and infos")
        self._check_agents()
        live = list(self._env.agents)
        observations, infos = (_by_agent(part, live, name) for part, name in zip(answer, _AT_ONCE[::4], strict=True))
        return self._timestep(observations, dict.fromkeys(live, 0.0), False, False, infos)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Step all agents that are in the episode.

        Raises:
            TypeError: the result does not conform to PettingZoo's interface.
        """
        live = list(self._env.agents)
        answer = self._env.step({agent: self._acting[agent].to_value(action) for agent in live})
        observations, rewards, terminated, truncated, infos = (
            _by_agent(part, live, name)
            for part, name in zip(answer_parts(answer, 5, "step", ", ".join(_AT_ONCE)), _AT_ONCE, strict=True)
        )
        for agent in live:
            check_flags(**{f"terminations[{agent!r}]": terminated[agent], f"truncations[{agent!r}]": truncated[agent]})
            self.remark_on_types({"a reward": rewards[agent]}, {"terminated": terminated[agent]})
        for name, part in zip(_AT_ONCE, answer, strict=True):
            if set(part) - set(live):
                self.remarks[f"{name} name agents that are not in the episode"] = None
        if set(self._env.agents) != {agent for agent in live if not (terminated[agent] or truncated[agent])}:
            raise TypeError(f"agents are {self._env.agents} after a step, expected those that did not end")
        over = not self._env.agents
        cut = over and any(truncated.values())
        numbers = {agent: plain_number(rewards[agent], f"rewards[{agent!r}]") for agent in live}
        return self._timestep(observations, numbers, over and not cut, cut, infos)

    def _check_agents(self) -> None:
        """Check that agents are known, and that their spaces are the ones that were described."""
        unknown = [agent for agent in self._env.agents if agent not in self._names]
        if unknown:
            raise TypeError(f"agents has {unknown[0]!r}, possible_agents has {', '.join(map(str, self._names))}")
        for agent in self._env.agents:
            for name, leaves in (("observation_space", self._observed[agent]), ("action_space", self._acting[agent])):
                if getattr(self._env, name)(agent) is not leaves.space:
                    raise TypeError(f"{name}({agent!r}) returns another object at each call, expected the same")

    def _timestep(
        self, observations: Mapping[str, Foreign], rewards: Mapping[str, float], terminated: bool, truncated: bool,
        infos: Mapping[str, Foreign],
    ) -> TimeStep:  # fmt: skip
        named: dict[str, np.ndarray] = {}
        for agent, leaves in self._observed.items():
            if agent in observations:
                named |= leaves.to_fields(observations[agent], f"observations[{agent!r}]")
            else:
                named |= {f.name: f.nothing.copy() for f in leaves.fields}
        own = {agent: copied_info(plain_mapping(info, f"infos[{agent!r}]")) for agent, info in infos.items()}
        extra: ExtraInfo = {"agents": observed_fields(self.agents), "info": own}
        everyone = {agent: rewards.get(agent, 0.0) for agent in self._names}
        return TimeStep(named, everyone, terminated, truncated, extra)


class TurnsWorld(ForeignWorld):
    """A `rlenv_robot.world.TurnBasedWorld` around an AEC environment. Values that break its interface raise TypeError.

    ``extra_info["agent"]`` says whose turn it is. Agents with equal spaces share one spec. Otherwise each agent's
    fields bear its name, and the fields of the other agents hold zeros, or the nearest values in range. Rewards are by
    agent, for one step. Agents that left the episode have no turns; the episode ends with its last agent. An action
    that the ``action_mask`` of observation or info forbids is refused.

    Args:
        env: a ``pettingzoo.AECEnv``, which is closed with the world.

    Raises:
        ValueError: a space has no fields of a fixed size, or there are no possible_agents.
    """

    zero_sum = False

    def __init__(self, env: Foreign) -> None:
        self._env = env
        names = list(getattr(env, "possible_agents", ()))
        if not names:
            raise ValueError("the environment names no possible_agents, so its agents can't be described")
        self.players = tuple(names)
        self._observed = _by_player(names, "observation", [env.observation_space(name) for name in names])
        self._acting = _by_player(names, "action", [env.action_space(name) for name in names])
        self.observation, self.action = _spec("observation", self._observed), _spec("action", self._acting)
        self._earned: dict[str, float] = {}
        self._was_cut = False
        self._last: tuple[str, Foreign] = (names[0], None)

    @property
    def description(self) -> EnvDescription:
        """The name, the options of a reset, and whose turn it is."""
        extra = {"agent": f"whose turn it is: {', '.join(self.players)}", "info": "the agent's own"}
        return replace(super().description, extra_info=extra, error_codes=_CODES)

    @property
    def layout(self) -> FrameLayout:
        """Observation, action, and rewards by agent."""
        return FrameLayout(self.observation, self.action, self.players, turns=True)

    def reset(self, options: Options) -> TimeStep:
        """Reset the PettingZoo environment.

        Raises:
            ValueError: an option is unknown.
            TypeError: the environment does not conform to PettingZoo's interface.
        """
        answer = self._env.reset(**self._request(options))
        if answer is not None:
            raise TypeError(f"reset gave {answer!r:.80}, expected nothing: observations come from observe and last")
        self._earned, self._was_cut = dict.fromkeys(self.players, 0.0), False
        for agent in self._env.agents:
            self._check_spaces(agent)
        self._check_parts()
        return self._timestep(dict.fromkeys(self.players, 0.0))

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Step the agent whose turn it is.

        Raises:
            IllegalAction: the action mask forbids the action; nothing changed.
            TypeError: the environment does not conform to PettingZoo's interface.
        """
        agent = self._env.agent_selection
        fields = self._acting[agent]
        own = {field.name: action[field.name] for field in fields.fields}
        self._check_mask(own)
        rewards = self._move(fields.to_value(own))
        if self._env.agents:  # the last agents may leave below, and with them their observations
            self._last = self._env.agent_selection, self._env.observe(self._env.agent_selection)
        while self._env.agents and self._is_over(self._env.agent_selection):
            self._check_last(self._env.agent_selection, self._env.observe(self._env.agent_selection))
            self._move(None)
        return self._timestep({name: rewards.get(name, 0.0) for name in self.players})

    def _move(self, action: Foreign) -> dict[str, float]:
        """Let the agent whose turn it is act, and return what everyone earned by that."""
        mover, live = self._env.agent_selection, list(self._env.agents)
        self._earned[mover] = 0.0
        answer = self._env.step(action)
        if answer is not None:
            raise TypeError(f"step gave {answer!r:.80}, expected nothing: observations come from observe and last")
        if action is None and mover in self._env.agents:
            raise TypeError(f"agent {mover!r} has ended but is still in agents after its last step")
        if set(self._env.agents) - set(live):
            raise TypeError(f"agents has {sorted(set(self._env.agents) - set(live))}, which were not in the episode")
        self._check_parts()
        rewards = {name: plain_number(value, f"rewards[{name!r}]") for name, value in self._env.rewards.items()}
        for name, value in rewards.items():
            self._earned[name] = self._earned.get(name, 0.0) + value
        return rewards if action is not None else {}

    def _is_over(self, agent: str) -> bool:
        self._was_cut |= bool(self._env.truncations[agent])
        return bool(self._env.terminations[agent] or self._env.truncations[agent])

    # -- what their interface promises -----------------------------------------------------------------

    def _check_spaces(self, agent: str) -> None:
        if agent not in self.players:
            raise TypeError(f"agents has {agent!r}, possible_agents has {', '.join(map(str, self.players))}")
        for name, parts in (("observation_space", self._observed), ("action_space", self._acting)):
            if getattr(self._env, name)(agent) is not parts[agent].space:
                raise TypeError(f"{name}({agent!r}) returns another object at each call, expected the same")

    def _check_parts(self) -> None:
        live = list(self._env.agents)
        for name in _PARTS:
            part = _by_agent(getattr(self._env, name), live, name)
            if set(part) != set(live):
                raise TypeError(f"{name} are of {sorted(map(str, part))}, expected of the agents {', '.join(live)}")
        for agent in live:
            flags = {name: getattr(self._env, name)[agent] for name in ("terminations", "truncations")}
            check_flags(**{f"{name}[{agent!r}]": flag for name, flag in flags.items()})
            plain_mapping(self._env.infos[agent], f"infos[{agent!r}]")
            self.remark_on_types({"a reward": self._env.rewards[agent]}, flags)

    def _check_last(self, agent: str, observation: Foreign) -> None:
        """Check ``last`` against the parts that it sums up."""
        observed, earned, terminated, truncated, info = self._env.last()
        parts = (self._env.terminations[agent], self._env.truncations[agent])
        if (terminated, truncated) != parts or info != self._env.infos[agent]:
            raise TypeError(
                f"last() says {terminated}, {truncated} and {info!r:.60} of {agent!r}, its parts something else"
            )
        if abs(plain_number(earned, "last()[1]") - self._earned.get(agent, 0.0)) > 1e-9:
            raise TypeError(f"last() says that {agent!r} earned {earned} since its last action, rewards sum up to "
                            f"{self._earned.get(agent, 0.0)}")  # fmt: skip
        if type(observed) is not type(observation):
            raise TypeError(f"last() gave a {type(observed).__name__}, observe a {type(observation).__name__}")

    # -- tables ----------------------------------------------------------------------------------------

    def _timestep(self, rewards: dict[str, float]) -> TimeStep:
        over = not self._env.agents
        agent, observation = self._last if over else (self._env.agent_selection, None)
        named = {f.name: f.nothing.copy() for f in self.observation}
        extra: dict[str, Foreign] = {"agent": agent}
        if not over:
            observation = self._env.observe(agent)
            self._check_last(agent, observation)
        named |= self._observed[agent].to_fields(observation, f"observe({agent!r})")
        extra["info"] = {} if over else copied_info(self._env.infos[agent])
        return TimeStep(named, rewards, over and not self._was_cut, over and self._was_cut, extra)

    def seen_by(self, player: str) -> Mapping[str, np.ndarray] | None:
        """Return a player's own observation by field.

        Raises:
            KeyError: there is no such player.
        """
        return self._observed[player].to_fields(self._env.observe(player), f"observe({player!r})")

    def legal(self) -> Mapping[str, np.ndarray] | None:
        """Return the mask of legal actions from the observation or the info, or None if there is no mask."""
        if not self._env.agents:
            return None
        agent = self._env.agent_selection
        fields, observation = self._acting[agent], self._env.observe(agent)
        mask = self._env.infos[agent].get(_MASK)
        if isinstance(observation, dict):
            mask = observation.get(_MASK, mask)
        if mask is None or not isinstance(fields.space, spaces.Discrete):
            return None
        return {fields.fields[0].name: np.asarray(mask, bool)}

    def _check_mask(self, own: Mapping[str, np.ndarray]) -> None:
        for name, mask in (self.legal() or {}).items():
            low = int(self.action[name].bounds[0])
            if not mask[int(own[name]) - low]:
                message = f"action.{name} is {int(own[name])}, allowed are {(np.flatnonzero(mask) + low).tolist()}"
                raise IllegalAction(Violation("rule", f"action.{name}", (), message))


def _by_agent(part: Foreign, agents: list[str], name: str) -> Mapping[str, Foreign]:
    """Return one of their mappings, if it has an entry for each of these agents.

    Raises:
        TypeError: it has not.
    """
    if not isinstance(part, Mapping) or not set(agents) <= set(part):
        raise TypeError(f"{name} are {part!r:.80}, expected one for each of {', '.join(map(str, agents))}")
    return part


def _by_player(names: list[str], what: str, found: list[Foreign]) -> dict[str, SpaceFields]:
    """Return the fields of each player's space, under common names where all spaces are equal."""
    alike = all(space == found[0] for space in found)
    return {
        name: SpaceFields(space, what if alike else f"{field_name(name)}_{what}")
        for name, space in zip(names, found, strict=True)
    }


def _spec(name: str, parts: Mapping[str, SpaceFields]) -> Spec:
    return Spec(name, tuple({field.name: field for part in parts.values() for field in part.fields}.values()))


def from_pettingzoo(env: Foreign, env_id: str | None = None) -> Environment:
    """Adapt a PettingZoo environment to the standard's contract.

    Args:
        env: a ``ParallelEnv`` (agents act at once) or an ``AECEnv`` (agents act in turn), which is closed with the
            result.
        env_id: 1 to 36 characters; by default a new one.

    Raises:
        ValueError: a space has no fields of a fixed size, or there are no possible_agents.
    """
    if hasattr(env, "agent_iter"):
        return Environment(TurnsWorld(env), env_id)
    return Environment(PettingZooWorld(env), env_id)
