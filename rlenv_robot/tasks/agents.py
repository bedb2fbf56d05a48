"""Describe several agents in one environment: their shares of observation and action, and their messages (R6.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np

from hal import Spec, SpecError

__all__ = [
    "Agent", "MessageFields", "MultiAgent", "RewardValues", "agents_of", "agents_with_messages", "joint_action",
    "map_reward", "mean_reward", "message_fields", "messages", "observed_fields", "own_observation", "reaches",
]  # fmt: skip

_T = TypeVar("_T")
_U = TypeVar("_U")

RewardValues: TypeAlias = float | np.ndarray | Mapping[str, float | np.ndarray]
"""One reward per reading, with the readings' leading axes; for several agents, a mapping from agent to such."""

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Agent:
    """One of several agents.

    An agent has local names for fields of the whole observation and the joint action. Agents of one kind thus have
    equal specs, so one policy can control all of them.

    Attributes:
        name: as in the reward dictionary.
        sees: local name -> name of the field of the whole observation.
        does: local name -> name of the field of the joint action.
        message: local name, in ``does``, of the field that the agent sends to the others; empty for none.
        addressee: local name, in ``does``, of the integer that selects the receiver of the message: its index in the
            list of agents, from 0; any other number is for all. Empty: every message is for all.
    """

    name: str
    sees: Mapping[str, str]
    does: Mapping[str, str] = field(default_factory=lambda: _NONE)
    message: str = ""
    addressee: str = ""

    def __post_init__(self) -> None:
        if self.addressee and (not self.message or self.addressee not in self.does):
            allowed = ", ".join(self.does) if self.message else "none, as the agent sends no message"
            raise SpecError(f"agent {self.name!r}: addressee {self.addressee!r} is not allowed, allowed is {allowed}")
        if self.message and self.message not in self.does:
            raise SpecError(f"agent {self.name!r}: message {self.message!r} is none of {', '.join(self.does)}")

    def observation(self, whole: Spec) -> Spec:
        """Return the spec of the agent's share of the observation, under its local names."""
        return _part("observation", self.sees, whole)

    def action(self, joint: Spec) -> Spec:
        """Return the spec of the agent's share of the joint action, under its local names."""
        return _part("action", self.does, joint)


def _part(what: str, names: Mapping[str, str], whole: Spec) -> Spec:
    own = {name: mine for mine, name in names.items()}
    fields = ((mine, whole[name]) for mine, name in names.items())
    return Spec(f"own_{what}", tuple(
        replace(field, name=mine, counted_by=own.get(field.counted_by, field.counted_by)) for mine, field in fields
    ))  # fmt: skip


@runtime_checkable
class MultiAgent(Protocol):
    """A task or world of several agents; its reward is a mapping from agent to number."""

    @property
    def agents(self) -> Sequence[Agent]:
        """The agents, in the order of their turns."""
        ...


def agents_of(subject: object) -> tuple[Agent, ...]:
    """Return the agents of a task or world; empty if it is not a `MultiAgent`."""
    return tuple(subject.agents) if isinstance(subject, MultiAgent) else ()


def map_reward(reward: RewardValues, change: Callable[[float | np.ndarray], _U]) -> _U | dict[str, _U]:
    """Apply a function to a reward, or to the reward of each agent."""
    return {agent: change(value) for agent, value in reward.items()} if isinstance(reward, Mapping) else change(reward)


def mean_reward(reward: RewardValues) -> float | np.ndarray:
    """Return the reward, averaged over the agents if there are several, with the leading axes of the reward."""
    return sum(reward.values()) / len(reward) if isinstance(reward, Mapping) else reward


def observed_fields(agents: Iterable[Agent]) -> dict[str, dict[str, str]]:
    """Return ``extra_info["agents"]`` of Table 1 (R2.1): agent -> local name -> name in the whole observation."""
    return {agent.name: dict(agent.sees) for agent in agents}


def own_observation(observation: Mapping[str, np.ndarray], sees: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return an agent's share of the observation, with any leading axes.

    Args:
        observation: the whole observation.
        sees: this agent's part of ``extra_info["agents"]``.
    """
    return {mine: observation[name] for mine, name in sees.items()}


def joint_action(agents: Sequence[Agent], chosen: Mapping[str, Mapping[str, _T]]) -> dict[str, _T]:
    """Combine the agents' actions to the joint action.

    Args:
        agents: all of them.
        chosen: agent -> local name -> value.

    Raises:
        ValueError: an agent's action is missing, or an agent is unknown.
    """
    names = [agent.name for agent in agents]
    if chosen.keys() != set(names):
        raise ValueError(f"actions are of {sorted(chosen)}, expected one of each agent: {', '.join(names)}")
    action: dict[str, _T] = {}
    for agent in agents:
        action.update({agent.does.get(mine, mine): value for mine, value in chosen[agent.name].items()})
    return action


MessageFields: TypeAlias = Mapping[str, Mapping[str, str]]
"""Sender -> ``message`` and ``addressee``: the names of these fields in the joint action; no addressee is empty."""


def message_fields(agents: Sequence[Agent]) -> dict[str, dict[str, str]]:
    """Return the fields of the messages, for the records of episodes; empty if no agent sends any."""
    return {
        agent.name: {"message": agent.does[agent.message], "addressee": agent.does.get(agent.addressee, "")}
        for agent in agents
        if agent.message
    }


def agents_with_messages(names: Sequence[str], fields: MessageFields) -> tuple[Agent, ...]:
    """Return agents by the names of all and the fields of their messages, as `message_fields` returned them."""
    agents = []
    for name in names:
        does = {local: field for local, field in fields.get(name, _NONE).items() if field}
        agents.append(Agent(name, _NONE, does, "message" if does else "", "addressee" if "addressee" in does else ""))
    return tuple(agents)


def reaches(addressee: np.ndarray, place: int | np.ndarray, count: int) -> np.ndarray:
    """Return whether messages reach an agent, bool of the addressees' shape.

    Args:
        addressee: the indices of the receivers; any number that is no agent's index is for all.
        place: the index of the agent.
        count: the number of agents.
    """
    return np.asarray((addressee == place) | (addressee < 0) | (addressee >= count))


def messages(
    agents: Sequence[Agent], action: Mapping[str, np.ndarray], complete: bool = False
) -> dict[str, dict[str, np.ndarray]]:
    """Return ``extra_info["messages"]`` after a joint action: receiver -> sender -> message.

    A message is part of its sender's action and reaches the others with the next observation (B.5). A message with an
    addressee reaches that agent only. With leading axes, the rows of a message that are for other agents hold zeros; a
    receiver to whom no row is addressed gets no message.

    Args:
        agents: all of them.
        action: the joint action, with any leading axes.
        complete: whether a receiver to whom no row is addressed gets a message of zeros instead.
    """
    received: dict[str, dict[str, np.ndarray]] = {agent.name: {} for agent in agents}
    for agent in agents:
        if not agent.message:
            continue
        message = action[agent.does[agent.message]]
        to = np.asarray(action[agent.does[agent.addressee]]) if agent.addressee else None
        for place, receiver in enumerate(agents):
            if receiver is agent:
                continue
            if to is None:
                received[receiver.name][agent.name] = message
                continue
            reached = reaches(to, place, len(agents))
            if reached.all():
                received[receiver.name][agent.name] = message
            elif complete or reached.any():
                rows = reached.reshape(reached.shape + (1,) * (np.ndim(message) - reached.ndim))
                received[receiver.name][agent.name] = np.where(rows, message, np.zeros_like(message))
    return received
