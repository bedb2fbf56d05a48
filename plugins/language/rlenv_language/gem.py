"""Adapt environments in language to the interface of gem (axon-rl/gem), which ROLL, Oat, verl and Tinker use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from hal import EpisodeError, RobotError
from rlenv_language.roll_settings import from_roll
from rlenv_language.text.view import AGGREGATION, TextRules, TextWorld, speaks_text, text_hints_of, to_text
from rlenv_robot.data.chats import TEXT, decode, encode
from rlenv_robot.env import Environment
from rlenv_robot.registry import TaskLike, environment_names, make, on_register
from rlenv_robot.tables import ExtraInfo, ObservationTable, check_options

__all__ = ["NAMESPACE", "GemEnv", "register_with_gem"]

NAMESPACE = "rlenv_robot"
"""The namespace of our environments in gem's ids, such as ``rlenv_robot/sokoban``."""

_HERE = "rlenv_language.gem"

_STANDARD = ("applied", "state", "images", "used", "agents", "messages")
"""Entries of ``extra_info`` that a language model does not need and that are not plain data."""


class GemEnv:
    """An environment in language with gem's interface, which works without gem installed.

    ``reset(seed)`` returns the observation's text and an info with ``env_instruction``. ``step(text)`` returns text,
    reward, terminated, truncated and an info in the form of ROLL's environments: ``metrics``, ``metrics_agg_mode``,
    ``action_desc``. After a text that is not a legal action, the info has ``text_error``, or ``error`` if such a text
    is not a turn. A text that is longer than there is room for is recorded without its middle; its command counts.

    As in gem's and ROLL's environments, both ``terminated`` and ``truncated`` are true where a limit ends an episode,
    and ``terminated`` alone where the task does.

    Args:
        name: a task as for `rlenv_robot.make`, or an environment, of which it takes ownership; also one whose
            observation and action are texts already, such as that of `rlenv_language.from_gem.from_gem`.
        seed: seed of the first episode if `reset` gives none.
        rules: rules for texts that are not legal actions, or their settings by name.
        template: as for `rlenv_language.text.view.TextWorld`.
        options: options of `rlenv_robot.make`, such as ``record``, and the task's settings; also the keys of ROLL's
            ``env_config``, see `rlenv_language.roll_settings.from_roll`.

    Raises:
        ValueError: as for `rlenv_robot.make`, `rlenv_language.text.view.to_text` and `from_roll`.
    """

    def __init__(
        self,
        name: TaskLike | Environment,
        seed: int | None = None,
        rules: TextRules | dict[str, Any] | None = None,
        template: str | None = None,
        **options: Any,
    ) -> None:
        if isinstance(name, Environment) and options:
            raise ValueError(f"the environment exists already, so it takes no settings ({', '.join(options)})")
        self._given = {"name": name, "seed": seed, "rules": rules, "template": template, **options}
        record, info = options.pop("record", None), options.pop("info", None)
        rules = TextRules(**rules) if isinstance(rules, dict) else rules or TextRules()
        options, rules, change = from_roll(name if isinstance(name, str) else "", options, rules)
        env = name if isinstance(name, Environment) else make(name, **options)
        if not speaks_text(env.world):
            env = to_text(env, rules, template, change(text_hints_of(env.world)), record=record, info=info)
        self.env = env
        self.text_world = env.world
        self._seed = seed
        self._history: list[str] = []
        self._begun: int | None = None
        self._table: ObservationTable | None = None
        self._rng = np.random.default_rng(seed)

    # -- gem's interface -----------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, **options: Any) -> tuple[str, dict[str, Any]]:
        """Begin an episode, and return its first observation and its info.

        Args:
            seed: seed of the episode; None continues the sequence of episodes of the last seed.
            options: options of the environment's reset.

        Raises:
            ValueError: an option is unknown or has a wrong value.
        """
        check_options(options, "reset", "seed=7", self.env.description.reset_options)
        if seed is None:
            seed, self._seed = self._seed, None
        if seed is not None:
            options["seed"] = seed
            self._rng = np.random.default_rng(seed)
        self._begun, self._history = seed, []
        self._table = self.env.reset(options)
        return self._text(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out the command in a text.

        Raises:
            EpisodeError: no episode is in progress.
            TypeError: the action is not a string.
        """
        if not isinstance(action, str):
            raise TypeError(f"action is a {type(action).__name__}, expected a text")
        if self._table is None:
            raise EpisodeError("step before reset: call reset first")
        field = self.env.action[TEXT]
        if isinstance(self.text_world, TextWorld):
            text = self.text_world.grammar.shorten(action)
        else:
            text = action[-field.characters :]
        values = encode(text, field)
        request = {"env_id": self.env.env_id, "frame_no": self._table["frame_no"], "action": {TEXT: values}}
        self._table, reward = self.env.step(request)
        self._history.append(action)
        number = reward["reward"]
        assert not isinstance(number, Mapping)  # a text view has one agent
        truncated = bool(self._table["truncated"])
        return self._text(), float(number), truncated or bool(self._table["terminated"]), truncated, self._info()

    def sample_random_action(self) -> str:
        """Return the text of a random legal command.

        Raises:
            RobotError: the environment has texts of its own, and draws none.
        """
        if isinstance(self.text_world, TextWorld):
            return self.text_world.grammar.sample(self._rng)
        sample = getattr(self.text_world, "sample_random_action", None)
        if sample is None:
            raise RobotError(f"{self.text_world.name!r} draws no random actions")
        return str(sample())

    def get_state(self) -> dict[str, Any]:
        """Return the episode's seed and the texts of its turns, from which `set_state` reaches the same state.

        Raises:
            ValueError: the episode began without a seed.
            EpisodeError: there is no state before the first reset.
        """
        if self._table is None:
            raise EpisodeError("there is no state before the first reset")
        if self._begun is None:
            raise ValueError("a state needs an episode that was begun with a seed: reset(seed=7)")
        return {"seed": self._begun, "texts": list(self._history), "observation": self._text()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Begin the episode of a state again, and replay its texts.

        Raises:
            RobotError: the texts led to another state.
        """
        text, _ = self.reset(state["seed"])
        for action in state["texts"]:
            text = self.step(action)[0]
        if text != state["observation"]:
            raise RobotError(f"{self.text_world.name}: the same seed and texts led to another state")

    def spawn(self, same_state: bool = False, **changes: Any) -> GemEnv:
        """Return another environment with the same settings.

        Args:
            same_state: whether to bring the new environment to this one's state, by replaying its seed and texts.
            changes: settings that differ from this environment's.

        Raises:
            ValueError: the episode began without a seed, so that its state can't be replayed; or this environment was
                passed in, not made by name.
            RobotError: replaying the texts led to another state.
        """
        if isinstance(self._given["name"], Environment):
            raise ValueError("spawn makes another environment by its name, and this one was passed in ready-made")
        twin = GemEnv(**{**self._given, **changes})
        if same_state and self._table is not None:
            twin.set_state(self.get_state())
        return twin

    @property
    def unwrapped(self) -> GemEnv:
        """The environment itself, which is not a gem wrapper."""
        return self

    # -- beside it -----------------------------------------------------------------------------------------

    def get_instructions(self) -> str:
        """Return the task and the commands, in words; empty where an environment of texts gives none."""
        return self.text_world.instructions if isinstance(self.text_world, TextWorld) else ""

    def render(self, mode: str = "text") -> Any:
        """Return the current state as text, or as an RGB image, uint8 (height, width, 3), with ``mode="rgb_array"``.

        Raises:
            ValueError: the mode is unknown.
            RobotError: the environment has no image.
        """
        if mode == "text":
            return self._text()
        if mode != "rgb_array":
            raise ValueError(f"mode is {mode!r}, allowed are 'text' and 'rgb_array'")
        return self.text_world.image({})

    def close(self) -> None:
        """Close the environment. Safe to call more than once."""
        self.env.close()

    def _text(self) -> str:
        if self._table is None:
            raise EpisodeError("there is no state before the first reset")
        return decode(self._table["observation"][TEXT])

    def _info(self) -> dict[str, Any]:
        assert self._table is not None
        extra: ExtraInfo = self._table.get("extra_info", {})
        info = {name: value for name, value in extra.items() if name not in _STANDARD}
        if isinstance(info.get("info"), dict):  # that of an adapted environment
            info |= info.pop("info")
        if "error" in info:  # refused, and no turn
            success = bool(extra.get("success", False))
            refused = {
                "action_is_effective": False,
                "action_is_valid": False,
                "success": success,
                "format_penalty": 0.0,
            }
            info |= {"metrics": refused, "metrics_agg_mode": dict(AGGREGATION), "action_desc": info["error"]["message"]}
        return info


def register_with_gem() -> None:
    """Register every environment of `rlenv_robot.make` with gem, as ``rlenv_robot/<name>``.

    Environments registered later with `rlenv_robot` are added automatically. Calling it again is allowed. Environments
    of several agents are also registered, but making one raises an error.

    Raises:
        ImportError: gem is not installed (``pip install gem-llm``).
    """
    from gem.envs import registration

    def add(name: str) -> None:
        env_id = f"{NAMESPACE}/{name}"
        if re.fullmatch(r"[\w.-]+", name) and env_id not in registration.ENV_REGISTRY:
            registration.register(env_id, f"{_HERE}:GemEnv", name=name)

    for name in environment_names():
        add(name)
    on_register(add, key=_HERE)
