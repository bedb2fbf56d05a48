"""Put environments of Gymnasium and PettingZoo under the standard's contract."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
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

__all__ = [
    "ForeignWorld", "GymnasiumWorld", "PettingZooWorld", "SpaceFields", "by_agent", "check_flags", "copied_info",
    "field_name", "from_gymnasium", "from_pettingzoo", "plain_mapping", "plain_number",
]  # fmt: skip

_OPTIONS = {
    "seed": "whole number from 0: given to the environment's reset",
    "options": "mapping: given to the environment's reset as its options",
}
_REWARD = Field("reward", (), "float64", meaning="as the environment gives it")


def field_name(name: str) -> str:
    """Return a field's name for a key of theirs."""
    plain = re.sub(r"[^a-z0-9]+", "_", str(name).lower()).strip("_") or "value"
    return plain if plain[0].isalpha() else f"n{plain}"


class SpaceFields:
    """Convert between a space of theirs and named fields.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of such.
        name: of the only field, or before the names of several.

    Raises:
        ValueError: a space of another kind, such as text or a graph.
    """

    def __init__(self, space: spaces.Space, name: str) -> None:
        self.space = space
        self._parts: dict[Any, SpaceFields] = {}
        self.fields: tuple[Field, ...]
        if isinstance(space, spaces.Dict | spaces.Tuple):
            items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
            self._parts = {key: SpaceFields(part, f"{name}_{field_name(str(key))}") for key, part in items}
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


class ForeignWorld:
    """Members of `World` that environments of Gymnasium and PettingZoo share."""

    observation: Spec
    action: Spec
    _env: Any

    @cached_property
    def remarks(self) -> dict[str, None]:
        """Sentences on what the environment does that its own project's checkers warn of, and that works here."""
        return {}

    def remark_on_types(self, numbers: Mapping[str, Any], flags: Mapping[str, Any]) -> None:
        """Remark on NumPy's scalars in place of Python's numbers and flags."""
        for name, value in numbers.items():
            if not isinstance(value, int | float):
                self.remarks[f"{name} is a NumPy {type(value).__name__}; some trainers take Python's numbers alone"] = (
                    None
                )
        for name, value in flags.items():
            if not isinstance(value, bool):
                self.remarks[f"{name} is a NumPy {type(value).__name__}; some trainers take True and False alone"] = (
                    None
                )

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


class GymnasiumWorld(ForeignWorld):
    """A `World` around an environment of Gymnasium; what breaks Gymnasium's interface raises TypeError.

    Args:
        env: a ``gymnasium.Env``; owned from now on.

    Raises:
        ValueError: a space has no fields of a fixed size.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._observed = SpaceFields(env.observation_space, "observation")
        self._acting = SpaceFields(env.action_space, "action")
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
        timestep = self._timestep(observation, plain_number(reward, "reward"), terminated, truncated, info)
        self.remark_on_types({"reward": reward}, {"terminated": terminated, "truncated": truncated})
        return timestep

    def _timestep(self, observation: Any, reward: float, terminated: Any, truncated: Any, info: Any) -> TimeStep:
        check_flags(terminated=terminated, truncated=truncated)
        named = self._observed.to_fields(observation, "observation")
        extra: ExtraInfo = {"info": copied_info(plain_mapping(info, "info"))}
        return TimeStep(named, reward, bool(terminated), bool(truncated), extra)


class PettingZooWorld(ForeignWorld):
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
        self._check_agents()
        live = list(self._env.agents)
        observations, infos = (by_agent(part, live, name) for part, name in zip(answer, _PARTS[::4], strict=True))
        return self._timestep(observations, dict.fromkeys(live, 0.0), False, False, infos)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Step all their agents that are in the episode.

        Raises:
            TypeError: the answer is not as PettingZoo's interface says.
        """
        live = list(self._env.agents)
        answer = self._env.step({agent: self._acting[agent].to_value(action) for agent in live})
        observations, rewards, terminated, truncated, infos = (
            by_agent(part, live, name)
            for part, name in zip(_parts(answer, 5, "step", ", ".join(_PARTS)), _PARTS, strict=True)
        )
        for agent in live:
            check_flags(**{f"terminations[{agent!r}]": terminated[agent], f"truncations[{agent!r}]": truncated[agent]})
            self.remark_on_types({"a reward": rewards[agent]}, {"terminated": terminated[agent]})
        for name, part in zip(_PARTS, answer, strict=True):
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
                    raise TypeError(f"{name}({agent!r}) is another object at each call, expected one and the same")

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
        own = {agent: copied_info(plain_mapping(info, f"infos[{agent!r}]")) for agent, info in infos.items()}
        extra: ExtraInfo = {"agents": observed_fields(self.agents), "info": own}
        everyone = {agent: rewards.get(agent, 0.0) for agent in self._names}
        return TimeStep(named, everyone, terminated, truncated, extra)


_PARTS = ("observations", "rewards", "terminations", "truncations", "infos")


def _parts(answer: Any, count: int, call: str, expected: str) -> tuple[Any, ...]:
    """Return the parts of what their reset or step gave, if they are as many as the interface says."""
    if not isinstance(answer, tuple) or len(answer) != count:
        raise TypeError(f"{call} gave {answer!r:.80}, expected {expected}")
    return answer


def by_agent(part: Any, agents: list[str], name: str) -> Mapping[str, Any]:
    """Return one of their mappings, if it has an entry for each of these agents.

    Raises:
        TypeError: it has not.
    """
    if not isinstance(part, Mapping) or not set(agents) <= set(part):
        raise TypeError(f"{name} are {part!r:.80}, expected one for each of {', '.join(map(str, agents))}")
    return part


def plain_number(value: Any, name: str) -> float:
    """Return a number of theirs.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} is {value!r:.80} ({type(value).__name__}), expected a number")
    return float(value)


def plain_mapping(value: Any, name: str) -> dict[Any, Any]:
    """Return a dictionary of theirs.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, dict):
        raise TypeError(f"{name} is a {type(value).__name__}, expected a dictionary")
    return value


def check_flags(**flags: Any) -> None:
    """Refuse flags that are neither True nor False.

    Raises:
        TypeError: naming the first of them.
    """
    for name, flag in flags.items():
        if not isinstance(flag, bool | np.bool_):
            raise TypeError(f"{name} is {flag!r} ({type(flag).__name__}), expected True or False")


def copied_info(value: Any) -> Any:
    """Return a copy of an ``info``, down to its arrays."""
    if isinstance(value, np.ndarray):
        return value.copy()
    return {key: copied_info(item) for key, item in value.items()} if isinstance(value, dict) else value


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
        env: a ``ParallelEnv``, whose agents act at once, or an ``AECEnv``, whose agents act in turn; owned from now on.
        env_id: 1 to 36 characters; by default a new one.

    Raises:
        ValueError: a space has no fields of a fixed size, or there are no possible_agents.
    """
    if hasattr(env, "agent_iter"):
        from rlenv_robot.adapters.from_pettingzoo_turns import TurnsWorld

        return Environment(TurnsWorld(env), env_id)
    return Environment(PettingZooWorld(env), env_id)
