"""Adapt Gymnasium environments to the standard's contract, and share a base class with PettingZoo's adapter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from hal import Field, RobotError, Spec
from hal.errors import wrong_type
from rlenv_robot.env import Environment
from rlenv_robot.tables import ExtraInfo, Options, check_options
from rlenv_robot.tasks.episode_rules import check_seed
from rlenv_robot.world import EnvDescription, TimeStep, World

__all__ = [
    "Foreign", "ForeignWorld", "GymnasiumWorld", "SpaceFields", "answer_parts", "check_flags", "copied_info",
    "field_name", "from_gymnasium", "plain_mapping", "plain_number",
]  # fmt: skip

Foreign: TypeAlias = Any
"""An environment of another project, or a value that it returned, before it is checked."""

_OPTIONS = {
    "seed": "whole number from 0: given to the environment's reset",
    "options": "mapping: given to the environment's reset as its options",
}
_REWARD = Field("reward", (), "float64", meaning="as the environment gives it")


def field_name(name: str) -> str:
    """Return a field's name for a key of a Gymnasium space."""
    plain = re.sub(r"[^a-z0-9]+", "_", str(name).lower()).strip("_") or "value"
    return plain if plain[0].isalpha() else f"n{plain}"


class SpaceFields:
    """Convert between values of a Gymnasium space and named fields.

    Args:
        space: a Box, Discrete, MultiDiscrete, MultiBinary or Text space, or a Dict or Tuple of such spaces.
        name: name of a single field, or prefix of the names of several.

    Raises:
        ValueError: the space is of another kind, such as a graph.
    """

    def __init__(self, space: spaces.Space, name: str) -> None:
        self.space = space
        self._parts: dict[Foreign, SpaceFields] = {}
        self.fields: tuple[Field, ...]
        if isinstance(space, spaces.Dict | spaces.Tuple):
            items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
            self._parts = {key: SpaceFields(part, f"{name}_{field_name(str(key))}") for key, part in items}
            self.fields = tuple(field for part in self._parts.values() for field in part.fields)
        else:
            self.fields = (_field(space, name),)

    def to_fields(self, value: Foreign, where: str) -> dict[str, np.ndarray]:
        """Convert a value of the space to fields.

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
        if isinstance(self.space, spaces.Text) and not isinstance(value, str):
            raise TypeError(f"{where} is a {type(value).__name__}, its space expects a text")
        array = np.asarray(value)
        if self.space.dtype == bool and array.dtype == bool:
            array = array.astype(np.uint8)
        if isinstance(self.space, spaces.Discrete):
            if isinstance(value, bool) or array.shape != () or array.dtype.kind not in "iu":
                raise TypeError(f"{where} is {value!r}, its space expects a whole number")
            array = array.astype(np.int64)
        return {self.fields[0].name: array}

    def to_value(self, named: Mapping[str, np.ndarray]) -> Foreign:
        """Convert validated fields to a value of the space."""
        if self._parts:
            values = {key: part.to_value(named) for key, part in self._parts.items()}
            return tuple(values.values()) if isinstance(self.space, spaces.Tuple) else values
        value = named[self.fields[0].name]
        if isinstance(self.space, spaces.Text):
            return str(value)
        if self.space.dtype == bool:
            return np.asarray(value, bool)
        return self.space.dtype.type(value) if isinstance(self.space, spaces.Discrete) else np.array(value)


def _field(space: spaces.Space, name: str) -> Field:
    meaning = f"as their {type(space).__name__} space"
    if isinstance(space, spaces.Box):
        dtype = "uint8" if space.dtype == bool else str(space.dtype)
        low, high = (tuple(np.ravel(bound).astype(float).tolist()) for bound in (space.low, space.high))
        if not space.shape:
            return Field(name, (), dtype, low[0], high[0], meaning=meaning)
        return Field(name, space.shape, dtype, low, high, meaning=meaning)
    if isinstance(space, spaces.Discrete):
        return Field(name, (), "int64", int(space.start), int(space.start + space.n - 1), meaning=meaning)
    if isinstance(space, spaces.MultiDiscrete):
        start = np.ravel(space.start).astype(float)
        ends = tuple(start.tolist()), tuple((start + np.ravel(space.nvec) - 1).tolist())
        return Field(name, space.nvec.shape, str(space.dtype), ends[0], ends[1], meaning=meaning)
    if isinstance(space, spaces.MultiBinary):
        return Field(name, space.shape, str(space.dtype), 0, 1, meaning=meaning)
    if isinstance(space, spaces.Text):
        return Field(name, (), "text", meaning=meaning, characters=space.max_length)
    raise ValueError(
        f"{name}: a {type(space).__name__} space can't be described by fields of a fixed size; allowed are Box, "
        "Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"
    )


class ForeignWorld(World):
    """Members of `World` that environments of Gymnasium and PettingZoo share."""

    observation: Spec = Spec("observation")
    action: Spec = Spec("action")
    _env: Foreign

    @cached_property
    def remarks(self) -> dict[str, None]:
        """Sentences, as the keys of a dict, on harmless deviations that the environment's own project would report."""
        return {}

    def remark_on_types(self, numbers: Mapping[str, Foreign], flags: Mapping[str, Foreign]) -> None:
        """Add remarks about NumPy scalars in place of Python numbers and flags."""
        for values, plain, wanted in ((numbers, int | float, "Python's numbers"), (flags, bool, "True and False")):
            for name, value in values.items():
                if not isinstance(value, plain):
                    self.remarks[f"{name} is a NumPy {type(value).__name__}; some trainers take {wanted} alone"] = None

    @property
    def foreign(self) -> Foreign:
        """The adapted environment. A checker asks it for the arrays that the adapter copies."""
        return self._env

    @property
    def name(self) -> str:
        """The environment's id if it is registered, otherwise the name of its class."""
        spec = getattr(self._env, "spec", None)
        return getattr(spec, "id", None) or type(getattr(self._env, "unwrapped", self._env)).__name__

    @property
    def description(self) -> EnvDescription:
        """The name, and the options of a reset."""
        about = f"An environment of {type(self._env).__module__.split('.')[0]}: {self.name}."
        return EnvDescription(about, _REWARD, _OPTIONS, extra_info={"info": "the environment's own"})

    def image(self, options: Options) -> np.ndarray:
        """Return the image from the environment's ``render``.

        Raises:
            RobotError: the environment was not made with ``render_mode="rgb_array"``.
            TypeError: ``render`` does not return an image.
        """
        if getattr(self._env, "render_mode", None) != "rgb_array":
            raise RobotError('no image: the environment was not made with render_mode="rgb_array"')
        image = self._env.render()
        if not isinstance(image, np.ndarray):
            raise TypeError(f"render gave a {type(image).__name__}, rgb_array expects an array")
        return image

    def close(self) -> None:
        """Close the adapted environment."""
        self._env.close()

    def _request(self, options: Options) -> dict[str, Foreign]:
        check_options(options, "reset", '{"seed": 7}', _OPTIONS)
        seed: Foreign = options.get("seed")
        return {"seed": None if seed is None else check_seed(seed), "options": options.get("options")}

    def check_reset(self, options: Options) -> None:
        """Check the names of a reset's options and its seed without any effect.

        Raises:
            ValueError: an option is unknown, or the seed is not a whole number of at least 0.
        """
        self._request(options)


class GymnasiumWorld(ForeignWorld):
    """A `World` around a Gymnasium environment. Values that break Gymnasium's interface raise TypeError.

    Args:
        env: a ``gymnasium.Env``, which is closed with the adapter.

    Raises:
        ValueError: a space has no fields of a fixed size.
    """

    def __init__(self, env: Foreign) -> None:
        self._env = env
        self._observed = SpaceFields(env.observation_space, "observation")
        self._acting = SpaceFields(env.action_space, "action")
        self.observation = Spec("observation", self._observed.fields)
        self.action = Spec("action", self._acting.fields)

    def reset(self, options: Options) -> TimeStep:
        """Reset the Gymnasium environment.

        Raises:
            ValueError: an option is unknown.
            TypeError: the result is not an observation and a dictionary.
        """
        answer = self._env.reset(**self._request(options))
        observation, info = answer_parts(answer, 2, "reset", "an observation and info")
        return self._timestep(observation, 0.0, False, False, info)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Step the Gymnasium environment.

        Raises:
            TypeError: the result does not conform to Gymnasium's interface.
        """
        answer = self._env.step(self._acting.to_value(action))
        expected = "observation, reward, terminated, truncated and info"
        observation, reward, terminated, truncated, info = answer_parts(answer, 5, "step", expected)
        timestep = self._timestep(observation, plain_number(reward, "reward"), terminated, truncated, info)
        self.remark_on_types({"reward": reward}, {"terminated": terminated, "truncated": truncated})
        return timestep

    def _timestep(
        self, observation: Foreign, reward: float, terminated: Foreign, truncated: Foreign, info: Foreign
    ) -> TimeStep:
        check_flags(terminated=terminated, truncated=truncated)
        named = self._observed.to_fields(observation, "observation")
        extra: ExtraInfo = {"info": copied_info(plain_mapping(info, "info"))}
        return TimeStep(named, reward, bool(terminated), bool(truncated), extra)


def answer_parts(answer: Foreign, count: int, call: str, expected: str) -> tuple[Foreign, ...]:
    """Return the parts of the result of a reset or step, after checking their number."""
    if not isinstance(answer, tuple) or len(answer) != count:
        raise TypeError(f"{call} gave {answer!r:.80}, expected {expected}")
    return answer


def plain_number(value: Foreign, name: str) -> float:
    """Check that a value is a number, and return it as a float.

    Raises:
        TypeError: the value has another type.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} is {value!r:.80} ({type(value).__name__}), expected a number")
    return float(value)


def plain_mapping(value: Foreign, name: str) -> dict[Foreign, Foreign]:
    """Check that a value is a dictionary, and return it.

    Raises:
        TypeError: the value has another type.
    """
    if not isinstance(value, dict):
        raise TypeError(f"{name} is a {type(value).__name__}, expected a dictionary")
    return value


def check_flags(**flags: Foreign) -> None:
    """Check that flags are True or False.

    Raises:
        TypeError: a flag is something else; the message names the first such flag.
    """
    for name, flag in flags.items():
        if not isinstance(flag, bool | np.bool_):
            raise TypeError(f"{name} is {flag!r} ({type(flag).__name__}), expected True or False")


def copied_info(value: Foreign) -> Foreign:
    """Return a deep copy of an ``info``, including its arrays."""
    if isinstance(value, np.ndarray):
        return value.copy()
    return {key: copied_info(item) for key, item in value.items()} if isinstance(value, dict) else value


def from_gymnasium(env: Foreign, env_id: str | None = None) -> Environment:
    """Adapt a Gymnasium environment to the standard's contract.

    Args:
        env: a ``gymnasium.Env``, which is closed with the adapter.
        env_id: 1 to 36 characters; by default a new one.

    Raises:
        ValueError: a space has no fields of a fixed size.
    """
    if not hasattr(env, "observation_space"):
        raise wrong_type("env", env, "a gymnasium.Env: gymnasium.make('CartPole-v1')")
    return Environment(GymnasiumWorld(env), env_id)
