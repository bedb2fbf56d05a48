"""Let agents act one at a time: turn a world of joint actions into one of sequential decisions (R6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np

from hal import Field, Spec
from hal.field import JsonDict, JsonObject
from recorder.frame_layout import FrameLayout
from rlenv_robot.env import Environment
from rlenv_robot.tables import Options
from rlenv_robot.tasks.agents import Agent, agents_of, joint_action, own_observation
from rlenv_robot.world import NOTHING, EnvDescription, TimeStep, TurnBasedWorld, World, WorldWrapper

__all__ = ["OneAtATime", "one_at_a_time"]


class OneAtATime(WorldWrapper, TurnBasedWorld):
    """A world of several agents, in which one agent per frame gets its own observation and chooses its own action.

    ``extra_info["agent"]`` says whose turn it is. The choices are kept until the last agent has chosen, and are then
    carried out together as one joint action, so that a robot takes as long as before. Rewards are by agent: 0 until
    then, and those of the joint action in the frame that carries it out.

    An environment has one spec for observations and one for actions, so agents with different fields share a spec with
    the fields of all. A field that several agents describe equally occurs once; a field of another meaning under the
    same name becomes ``<agent>_<name>``. ``extra_info["fields"]``, {observation, action}, lists the names that count in
    this turn. The other fields hold zero, or the value nearest to zero in range; in an action they are checked but not
    carried out.

    The inner world gets the ``extra_info`` of the last agent's turn with the joint action; a recording holds that of
    every turn.

    Args:
        world: a world of several agents, which is closed with this one.

    Raises:
        ValueError: there are no agents.
    """

    def __init__(self, world: World) -> None:
        agents = agents_of(world)
        if not agents:
            raise ValueError(f"{world.name!r} has no agents that could take turns: its actions are one agent's")
        super().__init__(world)
        self._agents, self._by_name = agents, {agent.name: agent for agent in agents}
        self.players = tuple(self._by_name)
        self._observation, self._seen_as = _common(
            "observation", {agent.name: agent.observation(world.observation) for agent in agents}
        )
        self._action, self._done_as = _common("action", {agent.name: agent.action(world.action) for agent in agents})
        self._are_alike = all(
            len(names) == len(spec)
            for spec, agents_names in ((self._observation, self._seen_as), (self._action, self._done_as))
            for names in agents_names.values()
        )
        self._padding = {field.name: field.nothing for field in self._observation}
        self._chosen: dict[str, Mapping[str, np.ndarray]] = {}
        self._whole: TimeStep | None = None

    @property
    def observation(self) -> Spec:
        """The spec of one agent's own observation."""
        return self._observation

    @property
    def action(self) -> Spec:
        """The spec of one agent's own action."""
        return self._action

    @property
    def masks(self) -> Spec:
        """An empty spec: the masks of a joint action do not apply to a single agent."""
        return Spec("masks")

    @property
    def description(self) -> EnvDescription:
        """The whole world's description, and whose turn it is."""
        whole = self._world.description
        extra_info = dict(whole.extra_info)
        extra_info["agents"] = (
            "agent -> its own name -> name in the observation, which holds the values of the agent whose turn it is"
        )
        extra_info["messages"] = "sender -> the message in its last action, where agents send any"
        if not self._are_alike:
            extra_info["fields"] = "observation, action -> the fields that count in this agent's turn"
        return replace(whole, extra_info={"agent": f"whose turn it is: {', '.join(self.players)}", **extra_info})

    @property
    def layout(self) -> FrameLayout:
        """One agent's observation and action, whose turn it is, rewards by agent, the robot's commands and sensors."""
        whole = self._world.layout
        return replace(whole, observation=self.observation, action=self.action, agents=self.players, turns=True)

    def episode_info(self) -> JsonDict:
        """Return the whole world's information, with the names of the messages' fields in one agent's action."""
        sent = {
            agent.name: {
                "message": self._done_as[agent.name][agent.message],
                "addressee": self._done_as[agent.name].get(agent.addressee, ""),
            }
            for agent in self._agents
            if agent.message
        }
        return {**self._world.episode_info(), **({"messages": sent} if sent else {})}

    def reset(self, options: Options) -> TimeStep:
        """Reset the whole world; the first agent's turn begins."""
        self._chosen = {}
        return self._seen(self._world.reset(options))

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Keep the choice of the agent whose turn it is; with the last agent's, carry out all of them."""
        agent, whole = self._agents[len(self._chosen)], self._whole
        assert whole is not None  # the environment resets first
        # A copy: the choice is kept while the others choose, and the caller's arrays stay the caller's.
        own = {mine: np.array(action[name]) for mine, name in self._done_as[agent.name].items()}
        chosen = {**self._chosen, agent.name: own}
        if len(chosen) == len(self._agents):
            timestep = self._world.step(joint_action(self._agents, chosen), extra_info)
            self._chosen = {}
            return self._seen(timestep)
        self._chosen = chosen
        return self._seen(whole._replace(reward=dict.fromkeys(self.players, 0.0)))

    def _seen(self, whole: TimeStep) -> TimeStep:
        """Return the time step as the agent sees it whose turn it is."""
        self._whole = whole
        agent = self._agents[len(self._chosen)]
        # A copy: the same extra information is shown again in the next agent's turn.
        extra = deepcopy({n: value for n, value in whole.extra_info.items() if n not in ("agents", "messages")})
        extra["agent"] = agent.name
        extra["agents"] = {name: dict(names) for name, names in self._seen_as.items()}
        if not self._are_alike:
            extra["fields"] = {"observation": list(self._seen_as[agent.name].values()),
                               "action": list(self._done_as[agent.name].values())}  # fmt: skip
        messages = whole.extra_info.get("messages", NOTHING).get(agent.name)
        if messages:
            extra["messages"] = messages
        return whole._replace(observation=self._observed(whole, agent), extra_info=extra)

    def _observed(self, whole: TimeStep, agent: Agent) -> dict[str, np.ndarray]:
        own = own_observation(whole.observation, agent.sees)
        if self._are_alike:
            return own
        named = {name: own[mine] for mine, name in self._seen_as[agent.name].items()}
        return {name: named.get(name, nothing) for name, nothing in self._padding.items()}

    def seen_by(self, player: str) -> dict[str, np.ndarray]:
        """Return an agent's current observation by the names of `observation`, which the caller may write into.

        Raises:
            KeyError: there is no such agent.
        """
        assert self._whole is not None
        return {name: value.copy() for name, value in self._observed(self._whole, self._by_name[player]).items()}


def _common(what: str, specs: Mapping[str, Spec]) -> tuple[Spec, dict[str, dict[str, str]]]:
    """Return the spec that all agents share, and for each agent: its own name of a field -> the name in that spec.

    Args:
        what: ``observation`` or ``action``.
        specs: agent -> its own part.
    """
    first, fields = next(iter(specs)), dict[str, Field]()
    names: dict[str, dict[str, str]] = {agent: {} for agent in specs}
    for agent, spec in specs.items():
        for field in spec:
            alike = [other[field.name] for other in specs.values() if field.name in other]
            same = all(replace(other, meaning="") == replace(field, meaning="") for other in alike)
            name = field.name if same else f"{agent}_{field.name}"
            names[agent][field.name] = name
            shown = field.meaning.removeprefix(f"{first} arm: ") if same else field.meaning
            fields.setdefault(name, replace(field, name=name, meaning=shown))
    for agent, spec in specs.items():
        for field in spec:
            if field.counted_by:  # under the counter's own name here
                name = names[agent][field.name]
                fields[name] = replace(fields[name], counted_by=names[agent][field.counted_by])
    return Spec(f"{what}_of_one", tuple(fields.values())), names


def one_at_a_time(env: Environment, record: str | Path | None = None, info: JsonObject | None = None) -> Environment:
    """Turn an environment of several agents into one in which they act in turn; see `OneAtATime`.

    Args:
        env: the environment, which is closed with the result. It must not record, since its frames differ from the
            agents' frames.
        record: a folder; every episode is recorded into a new run inside it, a frame for each agent's turn.
        info: metadata of every recorded episode, such as ``{"policy": "v3"}``.

    Raises:
        ValueError: there are no agents, or the environment records.
    """
    if env.is_recorded:
        raise ValueError(
            "this environment records joint actions: leave record out of make, and give it to "
            'one_at_a_time(env, record="runs")'
        )
    world, observer = OneAtATime(env.world), None
    if record is not None:
        from rlenv_robot.recording.observer import record_to

        observer = record_to(Path(record), world, info, behaviour=env.behaviour)
    return Environment(world, env.env_id, observer, env.behaviour)
