"""Agents that act one at a time: a world of joint actions as one of sequential decisions (R6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np

from hal import Spec, SpecMismatch
from hal.field import JsonObject
from hal.frame_layout import FrameLayout
from rlenv_robot.env import Environment
from rlenv_robot.tables import Options
from rlenv_robot.tasks.agents import agents_of, joint_action, own_observation
from rlenv_robot.world import NOTHING, EnvDescription, TimeStep, TurnBasedWorld, World, WorldWrapper

__all__ = ["OneAtATime", "one_at_a_time"]


class OneAtATime(WorldWrapper, TurnBasedWorld):
    """A world of several agents, one of which sees its own observation and chooses its own action in each frame.

    ``extra_info["agent"]`` says whose turn it is. The choices are kept until the last agent has chosen; then they
    are carried out together as one joint action, so a robot takes as long as before. Rewards are by agent: 0 until
    then, and the joint action's in the frame that carried it out.

    Args:
        world: its agents must be of one kind, as an environment has one action spec; owned from now on.

    Raises:
        ValueError: there are no agents.
        SpecMismatch: they are of different kinds, with the difference.
    """

    def __init__(self, world: World) -> None:
        agents = agents_of(world)
        if not agents:
            raise ValueError(f"{world.name!r} has no agents that could take turns: its actions are one agent's")
        super().__init__(world)
        self._agents, self._by_name = agents, {agent.name: agent for agent in agents}
        self.players = tuple(self._by_name)
        self._observation = self._common("observation", [agent.observation(world.observation) for agent in agents])
        self._action = self._common("action", [agent.action(world.action) for agent in agents])
        self._chosen: dict[str, Mapping[str, np.ndarray]] = {}
        self._whole: TimeStep | None = None

    def _common(self, what: str, specs: list[Spec]) -> Spec:
        for player, spec in zip(self.players, specs, strict=True):
            if spec.digest != specs[0].digest:
                difference = specs[0].difference(spec)
                raise SpecMismatch(f"{what}s of {self.players[0]!r} and {player!r} differ, so they can't share one",
                                   difference)  # fmt: skip
        fields = [replace(field, meaning=field.meaning.removeprefix(f"{self.players[0]} arm: ")) for field in specs[0]]
        return Spec(f"{what}_of_one", tuple(fields))

    @property
    def observation(self) -> Spec:
        """The spec of one agent's own observation."""
        return self._observation

    @property
    def action(self) -> Spec:
        """The spec of one agent's own action."""
        return self._action

    @property
    def description(self) -> EnvDescription:
        """The whole world's description, and whose turn it is."""
        whole = self._world.description
        extra_info = {name: text for name, text in whole.extra_info.items() if name != "agents"}
        extra_info["messages"] = "sender -> the message in its last action, where agents send any"
        return replace(whole, extra_info={"agent": f"whose turn it is: {', '.join(self.players)}", **extra_info})

    @property
    def layout(self) -> FrameLayout:
        """One agent's observation and action, whose turn it is, rewards by agent, the robot's commands and sensors."""
        whole = self._world.layout
        return replace(whole, observation=self.observation, action=self.action, agents=self.players, turns=True)

    def reset(self, options: Options) -> TimeStep:
        """Reset the whole world; the first agent's turn begins."""
        self._chosen = {}
        return self._seen(self._world.reset(options))

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Keep the choice of the agent whose turn it is; with the last agent's, carry out all of them."""
        agent, whole = self._agents[len(self._chosen)], self._whole
        assert whole is not None  # the environment resets first
        # A copy: the choice is kept while the others choose, and the caller's arrays stay the caller's.
        chosen = {**self._chosen, agent.name: {name: np.array(value) for name, value in action.items()}}
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
        messages = whole.extra_info.get("messages", NOTHING).get(agent.name)
        if messages:
            extra["messages"] = messages
        return whole._replace(observation=own_observation(whole.observation, agent.sees), extra_info=extra)

    def seen_by(self, player: str) -> dict[str, np.ndarray]:
        """Return what any agent sees now, by its own names.

        Raises:
            KeyError: there is no such agent.
        """
        assert self._whole is not None
        return own_observation(self._whole.observation, self._by_name[player].sees)


def one_at_a_time(env: Environment, record: str | Path | None = None, info: JsonObject | None = None) -> Environment:
    """Turn an environment of several agents into one in which they act in turn; see `OneAtATime`.

    Args:
        env: owned from now on; it must not record, as its frames are not the ones that are then seen.
        record: a folder; every episode is recorded into a new run inside it, a frame for each agent's turn.
        info: metadata of every recorded episode, such as ``{"policy": "v3"}``.

    Raises:
        ValueError: there are no agents, or the environment records by itself.
        SpecMismatch: the agents are of different kinds.
    """
    if env.is_recorded:
        raise ValueError(
            "this environment records joint actions: leave record out of make, and give it to "
            'one_at_a_time(env, record="runs")'
        )
    world, observer = OneAtATime(env.world), None
    if record is not None:
        from rlenv_robot.recording.observer import record_to

        observer = record_to(Path(record), world, info)
    return Environment(world, env.env_id, observer)
