"""Agents that act one at a time: a world of joint actions as one of sequential decisions (R6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hal import SampleSink, Spec, SpecMismatch, StreamSpec
from hal.frame_layout import FrameLayout
from hal.wrapper import pass_on, streams_of
from rlenv_robot.env import Environment
from rlenv_robot.tasks.agents import Agent, agents_of, joint_action, own
from rlenv_robot.world import NOTHING, EnvDescription, TimeStep, World

__all__ = ["OneAtATime", "one_at_a_time"]


class OneAtATime:
    """Around a world of several agents: in each frame one of them sees its own observation and chooses its own action.

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
        self.world, self._agents = world, agents
        self.players = tuple(agent.name for agent in agents)
        self.observation = self._common("observation", [agent.observation(world.observation) for agent in agents])
        self.action = self._common("action", [agent.action(world.action) for agent in agents])
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
    def name(self) -> str:
        """The whole world's."""
        return self.world.name

    @property
    def description(self) -> EnvDescription:
        """The whole world's, and whose turn it is."""
        whole = self.world.description
        told = {name: text for name, text in whole.extra_info.items() if name != "agents"}
        told["messages"] = "sender -> the message in its last action, where agents send any"
        return replace(whole, extra_info={"agent": f"whose turn it is: {', '.join(self.players)}", **told})

    @property
    def layout(self) -> FrameLayout:
        """One agent's observation and action, whose turn it is, rewards by agent, the robot's commands and sensors."""
        whole = self.world.layout
        return replace(whole, observation=self.observation, action=self.action, agents=self.players, turns=True)

    @property
    def robot(self) -> Any:
        """The whole world's; None where it has none."""
        return getattr(self.world, "robot", None)

    @property
    def task(self) -> Any:
        """The whole world's; None where it has none."""
        return getattr(self.world, "task", None)

    @property
    def seed(self) -> int | None:
        """The whole world's; None where it draws nothing."""
        return getattr(self.world, "seed", None)

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """The whole world's."""
        return streams_of(self.world)

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """As the whole world's."""
        pass_on(self.world, sinks)

    def reset(self, options: Mapping[str, Any]) -> TimeStep:
        """As the whole world's; the first agent's turn."""
        self._chosen = {}
        return self._seen(self.world.reset(options))

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, Any]) -> TimeStep:
        """Keep the choice of whose turn it is, and carry all out with the last."""
        agent, whole = self._agents[len(self._chosen)], self._whole
        assert whole is not None  # the environment resets first
        chosen = {**self._chosen, agent.name: action}
        if len(chosen) == len(self._agents):
            timestep = self.world.step(joint_action(self._agents, chosen), extra_info)
            self._chosen = {}
            return self._seen(timestep)
        self._chosen = chosen
        return self._seen(whole._replace(reward=dict.fromkeys(self.players, 0.0)))

    def _seen(self, whole: TimeStep) -> TimeStep:
        """What the agent sees whose turn it is."""
        self._whole = whole
        agent = self._agents[len(self._chosen)]
        extra = {name: value for name, value in whole.extra_info.items() if name not in ("agents", "messages")}
        extra["agent"] = agent.name
        told = whole.extra_info.get("messages", NOTHING).get(agent.name)
        if told:
            extra["messages"] = told
        return whole._replace(observation=own(whole.observation, agent.sees), extra_info=extra)

    def seen_by(self, player: str) -> dict[str, np.ndarray]:
        """What any agent sees now, by its own names.

        Raises:
            KeyError: there is no such agent.
        """
        assert self._whole is not None
        return own(self._whole.observation, self._by_name[player].sees)

    @property
    def _by_name(self) -> dict[str, Agent]:
        return {agent.name: agent for agent in self._agents}

    def episode_info(self) -> dict[str, Any]:
        """The whole world's."""
        return self.world.episode_info()

    def image(self, options: Mapping[str, Any]) -> np.ndarray:
        """The whole world's."""
        return self.world.image(options)

    def stop(self, reason: str) -> None:
        """Stop the whole world."""
        self.world.stop(reason)

    def close(self) -> None:
        """Close the whole world."""
        self.world.close()


def one_at_a_time(
    env: Environment, record: str | Path | None = None, info: Mapping[str, Any] | None = None
) -> Environment:
    """An environment of several agents as one of sequential decisions; see `OneAtATime`.

    Args:
        env: owned from now on; it must not record, as its frames are not the ones that are then seen.
        record: a folder; every episode is recorded into a new run inside it, a frame for each agent's turn.
        info: what every recorded episode shall say of itself, such as ``{"policy": "v3"}``.

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
