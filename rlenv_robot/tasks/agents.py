"""Several agents in one environment: what each sees of the whole, does of the whole, and tells the others (R6.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hal import Spec, SpecError

__all__ = ["Agent", "MultiAgent", "agents_of", "each", "joint_action", "mapping", "messages", "own"]

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Agent:
    """One of several.

    Names of its own are mapped to names in the whole, so that agents of one kind have the same specs, and one policy
    can serve them all.

    Attributes:
        name: as in the reward dictionary.
        sees: own name -> name of the field of the whole observation.
        does: own name -> name of the field of the joint action.
        message: own name in ``does`` of what it tells the others, or "".
    """

    name: str
    sees: Mapping[str, str]
    does: Mapping[str, str] = field(default_factory=lambda: _NONE)
    message: str = ""

    def __post_init__(self) -> None:
        if self.message and self.message not in self.does:
            raise SpecError(f"agent {self.name!r}: message {self.message!r} is none of {', '.join(self.does)}")

    def observation(self, whole: Spec) -> Spec:
        """Its part of an observation's spec, under its own names."""
        return _part("observation", self.sees, whole)

    def action(self, joint: Spec) -> Spec:
        """Its part of a joint action's spec, under its own names."""
        return _part("action", self.does, joint)


def _part(what: str, names: Mapping[str, str], whole: Spec) -> Spec:
    return Spec(f"own_{what}", tuple(replace(whole[name], name=mine) for mine, name in names.items()))


@runtime_checkable
class MultiAgent(Protocol):
    """A task or world of several agents; its reward is a mapping from agent to number."""

    @property
    def agents(self) -> Sequence[Agent]:
        """The agents, in the order of their turns."""
        ...


def agents_of(subject: object) -> tuple[Agent, ...]:
    """Return the agents of a task or world; none where it is no `MultiAgent`."""
    return tuple(subject.agents) if isinstance(subject, MultiAgent) else ()


def each(reward: Any, change: Callable[[Any], Any]) -> Any:
    """A reward changed: of each agent in a mapping, or the single one."""
    return {agent: change(value) for agent, value in reward.items()} if isinstance(reward, Mapping) else change(reward)


def mapping(agents: Iterable[Agent]) -> dict[str, dict[str, str]]:
    """What ``extra_info["agents"]`` of Table 1 holds (R2.1): agent -> own name -> name in the whole observation."""
    return {agent.name: dict(agent.sees) for agent in agents}


def own(observation: Mapping[str, np.ndarray], sees: Mapping[str, str]) -> dict[str, np.ndarray]:
    """An agent's own observation, with any leading axes.

    Args:
        observation: the whole one.
        sees: this agent's part of ``extra_info["agents"]``.
    """
    return {mine: observation[name] for mine, name in sees.items()}


def joint_action(agents: Sequence[Agent], chosen: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One joint action of what each agent chose.

    Args:
        agents: all of them.
        chosen: agent -> own name -> value.

    Raises:
        ValueError: an agent chose nothing, or an unknown one did.
    """
    names = [agent.name for agent in agents]
    if chosen.keys() != set(names):
        raise ValueError(f"actions are of {sorted(chosen)}, wanted is one of each agent: {', '.join(names)}")
    action: dict[str, Any] = {}
    for agent in agents:
        action.update({agent.does.get(mine, mine): value for mine, value in chosen[agent.name].items()})
    return action


def messages(agents: Sequence[Agent], action: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """What ``extra_info["messages"]`` holds after a joint action: receiver -> sender -> message.

    A message is part of its sender's action and reaches the others with the next observation (B.5).
    """
    said = {agent.name: action[agent.does[agent.message]] for agent in agents if agent.message}
    return {agent.name: {sender: value for sender, value in said.items() if sender != agent.name} for agent in agents}
