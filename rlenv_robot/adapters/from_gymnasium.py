"""Put environments of Gymnasium and PettingZoo under the standard's contract."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from hal import Field, RobotError, Spec
from hal.field import JsonDict
from hal.frame_layout import FrameLayout
from rlenv_robot.env import Environment
from rlenv_robot.tables import ExtraInfo, Options, check_options
from rlenv_robot.tasks.agents import Agent, observed_fields
from rlenv_robot.world import EnvDescription, TimeStep

__all__ = ["GymnasiumWorld", "PettingZooWorld", "from_gymnasium", "from_pettingzoo"]

_OPTIONS = {
    "seed": "whole number from 0: given to the environment's reset",
    "options": "mapping: given to the environment's reset as its options",
}
_REWARD = Field("reward", (), "float64", meaning="as the environment gives it")


def _named(name: str) -> str:
    """Return a field's name for a key of theirs."""
    plain = re.sub(r"[^a-z0-9]+", "_", str(name).lower()).strip("_") or "value"
    return plain if plain[0].isalpha() else f"n{plain}"


class _Leaves:
    """Convert between a space of theirs and named fields.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of such.
        name: of the only field, or before the names of several.

    Raises:
        ValueError: a space of another kind, such as text or a graph.
    """

    def __init__(self, space: spaces.Space, name: str) -> None:
        self.space = space
        self._parts: dict[Any, _Leaves] = {}
        self.fields: tuple[Field, ...]
        if isinstance(space, spaces.Dict | spaces.Tuple):
            items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
            self._parts = {key: _Leaves(part, f"{name}_{_named(str(key))}") for key, part in items}
            self.fields = tuple(field for part in self._parts.values() for field in part.fields)
        else:
            self.fields = (_field(space, name),)

    def to_fields(self, value: Any, where: str) -> dict[str, np.ndarray]:
        """Return a value of the space by field.

        Raises:
            TypeError: the value is not in the space.
        """
        if self._parts:
            keys = value.keys() if isinstance(value, Mapping) else range(len(value)) if isinstance(value, tuple) else ()
            if set(keys) != set(self._parts):
                raise TypeError(f"{where} has the entries {sorted(map(str, keys))}, its space has {list(self._parts)}")
            named: dict[str, np.ndarray] = {}
            for key, part in self._parts.items():
                named |= part.to_fields(value[key], f"{where}[{key!r}]")
            return named
        if isinstance(self.space, spaces.Box) and not isinstance(value, np.ndarray):
            raise TypeError(f"{where} is a {type(value).__name__}, its space expects an array")
        array = np.asarray(value)
        if isinstance(self.space, spaces.Discrete):
            if isinstance(value, bool) or array.shape != () or array.dtype.kind not in "iu":
                raise TypeError(f"{where} is {value!r}, its space expects a whole number")
            array = array.astype(np.int64)
        return {self.fields[0].name: array}

    def to_value(self, named: Mapping[str, np.ndarray]) -> Any:
        """Return the value of the space for validated fields."""
        if self._parts:
            values = {key: part.to_value(named) for key, part in self._parts.items()}
            return tuple(values.values()) if isinstance(self.space, spaces.Tuple) else values
        value = named[self.fields[0].name]
        return self.space.dtype.type(value) if isinstance(self.space, spaces.Discrete) else np.array(value)


def _field(space: spaces.Space, name: str) -> Field:
    meaning = f"as their {type(space).__name__} space"
    if isinstance(space, spaces.Box):
        low, high = (tuple(np.ravel(bound).astype(float).tolist()) for bound in (space.low, space.high))
        if not space.shape:
            return Field(name, (), str(space.dtype), low[0], high[0], meaning=meaning)
        return Field(name, space.shape, str(space.dtype), low, high, meaning=meaning)
    if isinstance(space, spaces.Discrete):
        return Field(name, (), "int64", int(space.start), int(space.start + space.n - 1), meaning=meaning)
    if isinstance(space, spaces.MultiDiscrete):
        start = np.ravel(space.start).astype(float)
        ends = tuple(start.tolist()), tuple((start + np.ravel(space.nvec) - 1).tolist())
        return Field(name, space.nvec.shape, str(space.dtype), ends[0], ends[1], meaning=meaning)
    if isinstance(space, spaces.MultiBinary):
        return Field(name, space.shape, str(space.dtype), 0, 1, meaning=meaning)
    raise ValueError(
        f"{name}: a {type(space).__name__} space can't be described by fields of a fixed size; allowed are Box, "
        "Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"
    )


class _Foreign:
    """The members of `World` that environments of both kinds share."""

    observation: Spec
    action: Spec
    _env: Any

    @property
    def name(self) -> str:
        """The environment's id where it is registered, else the name of its class."""
        spec = getattr(self._env, "spec", None)
        return getattr(spec, "id", None) or type(getattr(self._env, "unwrapped", self._env)).__name__

    @property
    def description(self) -> EnvDescription:
        """The name, and the options of a reset: their interface tells little beyond the spaces."""
        about = f"An environment of {type(self._env).__module__.split('.')[0]}: {self.name}."
        return EnvDescription(about, _REWARD, _OPTIONS, extra_info={"info": "the environment's own"})

    @property
    def layout(self) -> FrameLayout:
        """Observation and action."""
        return FrameLayout(self.observation, self.action)

    def episode_info(self) -> JsonDict:
        """Return the environment's name."""
        return {"task": self.name}

    def image(self, options: Options) -> np.ndarray:
        """Return what their ``render`` gives.

        Raises:
            RobotError: the environment was not made with ``render_mode="rgb_array"``.
            TypeError: their render gives something else than an image.
        """
        if getattr(self._env, "render_mode", None) != "rgb_array":
            raise RobotError('no image: the environment was not made with render_mode="rgb_array"')
        image = self._env.render()
        if not isinstance(image, np.ndarray):
            raise TypeError(f"render gave a {type(image).__name__}, rgb_array expects an array")
        return image

    def stop(self, reason: str) -> None:
        """Do nothing: nothing real moves."""

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _request(self, options: Options) -> dict[str, Any]:
        check_options(options, "reset", '{"seed": 7}', _OPTIONS)
        seed: Any = options.get("seed")
        return {"seed": None if seed is None else int(seed), "options": options.get("options")}


class GymnasiumWorld(_Foreign):
    """A `World` around an environment of Gymnasium; what breaks Gymnasium's interface raises TypeError.

    Args:
        env: a ``gymnasium.Env``; owned from now on.

    Raises:
        ValueError: a space has no fields of a fixed size.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._observed = _Leaves(env.observation_space, "observation")
        self._acting = _Leaves(env.action_space, "action")
        self.observation = Spec("observation", self._observed.fields)
        self.action = Spec("action", self._acting.fields)

    def reset(self, options: Options) -> TimeStep:
        """Reset their environment.

        Raises:
            ValueError: an unknown option.
            TypeError: the answer is not an observation and a dictionary.
        """
        answer = self._env.reset(**self._request(options))
        observation, info = _parts(answer, 2, "reset", "an observation and info")
        return self._timestep(observation, 0.0, False, False, info)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Step their environment.

        Raises:
            TypeError: the answer is not as Gymnasium's interface says.
        """
        answer = self._env.step(self._acting.to_value(action))
        expected = "observation, reward, terminated, truncated and info"
        observation, reward, terminated, truncated, info = _parts(answer, 5, "step", expected)
        return self._timestep(observation, _number(reward, "reward"), terminated, truncated, info)

    def _timestep(self, observation: Any, reward: float, terminated: Any, truncated: Any, info: Any) -> TimeStep:
        _check_flags(terminated=terminated, truncated=truncated)
        named = self._observed.to_fields(observation, "observation")
        extra: ExtraInfo = {"info": _copied(_mapping(info, "info"))}
        return TimeStep(named, reward, bool(terminated), bool(truncated), extra)


class PettingZooWorld(_Foreign):
    """A `World` around a parallel environment of PettingZoo; what breaks its interface raises TypeError.

    An agent that has left the episode observes zeros, or what is nearest in its range, and earns 0; its actions are
    left out. The episode ends with its last agent.

    Args:
        env: a ``pettingzoo.ParallelEnv``; owned from now on.

    Raises:
        ValueError: a space has no fields of a fixed size, or there are no agents.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        if not env.possible_agents:
            raise ValueError("the environment names no possible_agents, so its agents can't be described")
        self._names = {agent: _named(agent) for agent in env.possible_agents}
        self._observed = {a: _Leaves(env.observation_space(a), f"{n}_observation") for a, n in self._names.items()}
        self._acting = {a: _Leaves(env.action_space(a), f"{n}_action") for a, n in self._names.items()}
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
    def layout(self) -> FrameLayout:
        """Observation, action, and rewards by agent."""
        return FrameLayout(self.observation, self.action, tuple(self._names))

    def reset(self, options: Options) -> TimeStep:
        """Reset their environment.

        Raises:
            ValueError: an unknown option.
            TypeError: the answer is not observations and infos by agent.
        """
        answer = _parts(self._env.reset(**self._request(options)), 2, "reset", "observations and infos")
        live = list(self._env.agents)
        observations, infos = (_of(part, live, name) for part, name in zip(answer, _PARTS[::4], strict=True))
        return self._timestep(observations, dict.fromkeys(live, 0.0), False, False, infos)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Step all their agents that are in the episode.

        Raises:
            TypeError: the answer is not as PettingZoo's interface says.
        """
        live = list(self._env.agents)
        answer = self._env.step({agent: self._acting[agent].to_value(action) for agent in live})
        observations, rewards, terminated, truncated, infos = (
            _of(part, live, name)
            for part, name in zip(_parts(answer, 5, "step", ", ".join(_PARTS)), _PARTS, strict=True)
        )
        for agent in live:
            _check_flags(**{f"terminations[{agent!r}]": terminated[agent], f"truncations[{agent!r}]": truncated[agent]})
        if set(self._env.agents) != {agent for agent in live if not (terminated[agent] or truncated[agent])}:
            raise TypeError(f"agents are {self._env.agents} after a step, expected those that did not end")
        over = not self._env.agents
        cut = over and any(truncated.values())
        numbers = {agent: _number(rewards[agent], f"rewards[{agent!r}]") for agent in live}
        return self._timestep(observations, numbers, over and not cut, cut, infos)

    def _timestep(
        self, observations: Mapping[str, Any], rewards: Mapping[str, float], terminated: bool, truncated: bool,
        infos: Mapping[str, Any],
    ) -> TimeStep:  # fmt: skip
        named: dict[str, np.ndarray] = {}
        for agent, leaves in self._observed.items():
            if agent in observations:
                named |= leaves.to_fields(observations[agent], f"observations[{agent!r}]")
            else:
                named |= {f.name: np.zeros(f.shape, f.numpy_dtype).clip(*f.bounds) for f in leaves.fields}
        own = {agent: _copied(_mapping(info, f"infos[{agent!r}]")) for agent, info in infos.items()}
        extra: ExtraInfo = {"agents": observed_fields(self.agents), "info": own}
        everyone = {agent: rewards.get(agent, 0.0) for agent in self._names}
        return TimeStep(named, everyone, terminated, truncated, extra)


_PARTS = ("observations", "rewards", "terminations", "truncations", "infos")


def _parts(answer: Any, count: int, call: str, expected: str) -> tuple[Any, ...]:
    """Return the parts of what their reset or step gave, if they are as many as the interface says."""
    if not isinstance(answer, tuple) or len(answer) != count:
        raise TypeError(f"{call} gave {answer!r:.80}, expected {expected}")
    return answer


def _of(part: Any, agents: list[str], name: str) -> Mapping[str, Any]:
    if not isinstance(part, Mapping) or not set(agents) <= set(part):
        raise TypeError(f"{name} are {part!r:.80}, expected one for each of {', '.join(map(str, agents))}")
    return part


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} is {value!r:.80} ({type(value).__name__}), expected a number")
    return float(value)


def _mapping(value: Any, name: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{name} is a {type(value).__name__}, expected a dictionary")
    return value


def _check_flags(**flags: Any) -> None:
    for name, flag in flags.items():
        if not isinstance(flag, bool | np.bool_):
            raise TypeError(f"{name} is {flag!r} ({type(flag).__name__}), expected True or False")


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return {key: _copied(item) for key, item in value.items()} if isinstance(value, dict) else value


def from_gymnasium(env: Any, env_id: str | None = None) -> Environment:
    """Put an environment of Gymnasium under the standard's contract.

    Args:
        env: a ``gymnasium.Env``; owned from now on.
        env_id: 1 to 36 characters; by default a new one.

    Raises:
        ValueError: a space has no fields of a fixed size.
    """
    return Environment(GymnasiumWorld(env), env_id)


def from_pettingzoo(env: Any, env_id: str | None = None) -> Environment:
    """Put an environment of PettingZoo under the standard's contract.

    Args:
        env: a ``ParallelEnv``, or an ``AECEnv`` that PettingZoo can turn into one; owned from now on.
        env_id: 1 to 36 characters; by default a new one.

    Raises:
        ValueError: a space has no fields of a fixed size, or the agents act in turn and can't act at once.
    """
    if hasattr(env, "agent_iter"):
        from pettingzoo.utils.conversions import aec_to_parallel

        if not env.metadata.get("is_parallelizable", False):
            raise ValueError("the agents act in turn and can't act at once; expected a parallel environment")
        env = aec_to_parallel(env)
    return Environment(PettingZooWorld(env), env_id)
