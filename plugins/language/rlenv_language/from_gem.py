"""Adapt text environments of gem and of ROLL to the standard's contract, and record their metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from hal import Field, RobotError, Spec
from hal.field import JsonDict, JsonObject
from rlenv_language.text.view import text_field
from rlenv_robot.data.chats import TEXT, decode, encode
from rlenv_robot.env import Environment
from rlenv_robot.tables import ExtraInfo, Options
from rlenv_robot.tasks.episode_rules import SeedOption
from rlenv_robot.world import EnvDescription, TimeStep, World

__all__ = ["GemWorld", "aggregate", "from_gem"]

Foreign: TypeAlias = Any
"""A gem environment, or a value that it returned, before it is checked."""

_MODES: Mapping[str, Callable[[list[float]], float]] = {
    "mean": lambda values: float(np.mean(values)), "last": lambda values: values[-1], "max": max, "min": min,
    "sum": lambda values: float(np.sum(values)),
}  # fmt: skip


def aggregate(turns: list[Mapping[str, float]], modes: Mapping[str, str]) -> dict[str, float]:
    """Return the metrics of an episode from those of its turns.

    Args:
        turns: metrics of each turn, by name.
        modes: metric -> ``mean``, ``last``, ``max``, ``min`` or ``sum``; by default ``mean``, as in ROLL.

    Raises:
        ValueError: a mode is unknown.
    """
    values: dict[str, list[float]] = {}
    for metrics in turns:
        for name, value in metrics.items():
            values.setdefault(name, []).append(float(value))
    unknown = {modes.get(name, "mean") for name in values} - _MODES.keys()
    if unknown:
        raise ValueError(f"metrics aggregate as {', '.join(sorted(unknown))}, allowed are {', '.join(_MODES)}")
    return {name: _MODES[modes.get(name, "mean")](numbers) for name, numbers in values.items()}


class GemWorld(SeedOption, World):
    """A `World` around a text environment with gem's interface. Values that break the interface raise TypeError.

    Args:
        env: an environment with ``reset(seed)`` and ``step(text)``; the world takes ownership of it.
        name: the world's name; by default gem's id, or the name of the environment's class.
        observation_size: the longest text of an observation, characters.
        action_size: the longest text of an action, characters.
    """

    def __init__(
        self, env: Foreign, name: str | None = None, observation_size: int = 1 << 14, action_size: int = 1 << 13
    ) -> None:
        self._env = env
        self._name = name or getattr(env, "env_id", None) or type(env).__name__
        self._room = observation_size, action_size
        self._turns: list[Mapping[str, float]] = []
        self._modes: dict[str, str] = {}
        self._seed: int | None = None

    @property
    def name(self) -> str:
        """The environment's id in gem, or the name of its class."""
        return str(self._name)

    @cached_property
    def observation(self) -> Spec:
        """The observation: one text."""
        return Spec("gem_observation", (text_field(self._room[0], "what the environment says"),))

    @cached_property
    def action(self) -> Spec:
        """The action: one text."""
        return Spec("gem_action", (text_field(self._room[1], "what the agent answers"),))

    @property
    def description(self) -> EnvDescription:
        """The name, as gem's interface offers nothing more before a reset."""
        return EnvDescription(
            f"A text environment of {type(self._env).__module__.split('.')[0]}: {self.name}.",
            Field("reward", (), "float64", meaning="as the environment gives it"),
            {"seed": "whole number from 0: given to the environment's reset"},
            extra_info={"info": "the environment's own", "metrics": "of the turn, as the environment gives them",
                        "success": "whether the environment says so, where it does",
                        "truncated_by": "`the environment`: it cut the episode"},
        )  # fmt: skip

    def reset(self, options: Options) -> TimeStep:
        """Reset the gem environment.

        Raises:
            ValueError: an option is unknown.
            TypeError: the answer is not a string and a dictionary.
        """
        self.check_reset(options)
        seed: Any = options.get("seed")
        self._seed = None if seed is None else int(seed)
        answer = self._env.reset(seed=self._seed)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise TypeError(f"reset gave {answer!r:.80}, expected a text and info")
        self._turns, self._modes = [], {}
        return self._timestep(answer[0], 0.0, False, False, answer[1])

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Step the gem environment with a text.

        Raises:
            TypeError: the answer is not text, reward, terminated, truncated and info.
        """
        answer = self._env.step(decode(action[TEXT]))
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise TypeError(f"step gave {answer!r:.80}, expected text, reward, terminated, truncated and info")
        text, reward, terminated, truncated, info = answer
        timestep = self._timestep(text, float(reward), bool(terminated), bool(truncated), info)
        metrics = timestep.extra_info.get("metrics")
        if metrics:
            self._turns.append(metrics)
            self._modes |= {str(name): str(mode) for name, mode in info.get("metrics_agg_mode", {}).items()}
        return timestep

    def _timestep(self, text: Foreign, reward: float, terminated: bool, truncated: bool, info: Foreign) -> TimeStep:
        if not isinstance(text, str):
            raise TypeError(f"the observation is a {type(text).__name__}, expected a text")
        if not isinstance(info, dict):
            raise TypeError(f"info is a {type(info).__name__}, expected a dictionary")
        extra: ExtraInfo = {"info": dict(info)}
        metrics = info.get("metrics")
        if isinstance(metrics, dict):
            extra["metrics"] = {str(name): float(value) for name, value in metrics.items()}
            if "success" in metrics:
                extra["success"] = bool(metrics["success"])
        if truncated and not terminated:
            extra["truncated_by"] = "the environment"
        try:
            observation = {TEXT: encode(text, self.observation[TEXT])}
        except ValueError as error:
            raise RobotError(f"{self.name}: {error}; increase observation_size") from None
        # Gem's environments may say both; here a time step that the task ended is not truncated.
        return TimeStep(observation, reward, terminated, truncated and not terminated, extra)

    def episode_info(self) -> JsonDict:
        """Return the name, the seed, and the metrics of the turns so far in the environment's aggregation."""
        metrics = aggregate(self._turns, self._modes)
        success = {"success": bool(metrics["success"])} if "success" in metrics else {}
        return {"task": self.name, "seed": self._seed, "metrics": metrics, **success}

    def sample_random_action(self) -> str:
        """Return the text of a random action from the gem environment.

        Raises:
            RobotError: the environment draws none.
        """
        sample = getattr(self._env, "sample_random_action", None)
        if sample is None:
            raise RobotError(f"{self.name!r} draws no random actions")
        return str(sample())

    def image(self, options: Options) -> np.ndarray:
        """Return the image from the gem environment's ``render``.

        Raises:
            RobotError: the environment renders no image.
        """
        render = getattr(self._env, "render", None)
        image = None if render is None else render(mode="rgb_array")
        if not isinstance(image, np.ndarray):
            raise RobotError(f"{self.name!r} has no image")
        return image

    def close(self) -> None:
        """Close the gem environment if it has a ``close`` method."""
        close = getattr(self._env, "close", None)
        if close is not None:
            close()


def from_gem(
    env: Foreign,
    env_id: str | None = None,
    record: str | Path | None = None,
    info: JsonObject | None = None,
    **room: int,
) -> Environment:
    """Adapt a text environment of gem or ROLL to the standard's contract.

    Args:
        env: an environment with gem's interface; the result takes ownership of it.
        env_id: 1 to 36 characters; by default a new one.
        record: a folder; every episode is recorded into a new run inside it.
        info: metadata of every recorded episode, such as ``{"policy": "v3"}``.
        room: ``observation_size`` and ``action_size``, as for `GemWorld`.
    """
    world, observer = GemWorld(env, None, **room), None
    if record is not None:
        from rlenv_robot.recording.observer import record_to

        observer = record_to(Path(record), world, info)
    return Environment(world, env_id, observer)
