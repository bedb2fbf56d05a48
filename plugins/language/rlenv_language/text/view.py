"""Convert an environment to one with text as observation and as action, one turn per step."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from hal import Field, IllegalAction, RobotError, Spec, Violation
from hal.field import JsonDict, JsonObject
from recorder.frame_layout import FrameLayout
from rlenv_language.text.grammar import FORMAT, IGNORED, Grammar, ParsedText
from rlenv_language.text.template import Template
from rlenv_robot.data.chats import TEXT, decode, encode
from rlenv_robot.env import Environment
from rlenv_robot.tables import ExtraInfo, Options
from rlenv_robot.tasks.task import task_world
from rlenv_robot.tasks.text_hints import HasTextHints, TextHints
from rlenv_robot.world import EnvDescription, TimeStep, World, WorldWrapper

__all__ = ["AGGREGATION", "TextRules", "TextWorld", "speaks_text", "text_field", "text_hints_of", "to_text"]

AGGREGATION: Mapping[str, str] = {
    "action_is_effective": "mean", "action_is_valid": "mean", "success": "last", "format_penalty": "mean",
}  # fmt: skip
"""Metric of a turn -> its aggregation over an episode, as in the environments of ROLL (alibaba/ROLL)."""

_INFO = {
    "metrics": "of the turn: action_is_valid, action_is_effective, success, format_penalty; at the end the world's too",
    "metrics_agg_mode": "metric -> mean or last: how it is aggregated over an episode",
    "action_desc": "the turn in words",
    "env_instruction": "at the beginning of an episode: the task and the commands, in words",
    "command": "name of the command that was carried out",
    "text_error": "{code, field, index, message} of a text that was not carried out, where such a text is a turn",
}

_OF_AN_ACTION = frozenset({*_INFO, "effective", "skill"})
"""Entries of ``extra_info`` that do not apply to a text that was not carried out."""


@dataclass(frozen=True, slots=True)
class TextRules:
    """The rules for texts that are not legal actions.

    Attributes:
        penalty: reward of such a text, at most 0. If the text is not a turn, it is added to the next turn's reward.
        invalid_is_turn: whether such a text is a turn with its own frame, as in multi-turn training. Otherwise it is
            refused, as the standard requires (R1.2): same frame, reward 0. It is never carried out.
        turns: number of turns after which an episode is truncated; 0 for the world's limit only.
        observation_size: longest text of an observation, characters.
        action_size: longest text of an action, characters.
        pattern: a regular expression in place of the tags, whose last group is the command; see
            `rlenv_language.text.grammar.Grammar`. Empty: the last pair of ``<answer>`` tags after any thinking.
        ignored: marks of a chat template that are removed from a text before it is read.

    Raises:
        ValueError: a value is out of range.
    """

    penalty: float = -0.1
    invalid_is_turn: bool = True
    turns: int = 0
    observation_size: int = 4096
    action_size: int = 4096
    pattern: str = ""
    ignored: tuple[str, ...] = IGNORED

    def __post_init__(self) -> None:
        if not -1e6 <= self.penalty <= 0:
            raise ValueError(f"penalty is {self.penalty}, it must be from -1e6 to 0")
        if self.turns < 0:
            raise ValueError(f"turns is {self.turns}, it must be at least 0 (no limit)")
        for name in ("observation_size", "action_size"):
            if not 64 <= getattr(self, name) <= 1 << 20:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be from 64 to {1 << 20}")


def text_field(size: int, meaning: str) -> Field:
    """Return a field for a text.

    Args:
        size: longest text, characters.
        meaning: the field's meaning, one sentence.
    """
    return Field(TEXT, (), "text", meaning=meaning, characters=size)


def speaks_text(world: World) -> bool:
    """Return whether a world's observation and action are one text each."""
    return all(spec.names == (TEXT,) and spec[TEXT].is_text for spec in (world.observation, world.action))


def text_hints_of(world: World) -> TextHints:
    """Return the text hints of a world, or of its task if the world takes the task's actions, otherwise empty hints."""
    if isinstance(world, HasTextHints):
        return world.text_hints()
    inner = task_world(world)
    if inner is not None and isinstance(inner.task, HasTextHints) and inner.task.action is world.action:
        return inner.task.text_hints()
    return TextHints()


class TextWorld(WorldWrapper):
    """A world whose observations and actions are text.

    Args:
        world: the inner world, with a single reward; this world takes ownership of it.
        rules: rules for texts that are not legal actions.
        template: the text of an observation with places for values (`rlenv_language.text.template.Template`); by
            default that of the world's hints, otherwise one line per field.
        hints: text hints that replace the world's.

    Attributes:
        grammar: the grammar of actions.
        rules: the rules for texts that are not legal actions.

    Raises:
        ValueError: the world has several agents, or a template or hints do not fit its specs.
    """

    def __init__(
        self, world: World, rules: TextRules | None = None, template: str | None = None, hints: TextHints | None = None
    ) -> None:
        super().__init__(world)
        if world.layout.agents:
            raise ValueError(f"{world.name!r} has several agents with rewards of their own, a text view has one")
        self.rules = rules or TextRules()
        self._hints = hints = hints or text_hints_of(world)
        self.grammar = Grammar(
            world.action, hints.commands, hints.names, longest=self.rules.action_size, ignored=self.rules.ignored,
            pattern=self.rules.pattern,
        )  # fmt: skip
        self._template = None
        if hints.write is None or template is not None:
            self._template = Template(world.observation, template, hints.units, hints.digits, hints.omit)
        self._turn, self._owed = 0, 0.0
        self._last: TimeStep | None = None

    # -- description -------------------------------------------------------------------------------------

    @cached_property
    def observation(self) -> Spec:
        """The observation: one text."""
        meaning = "what the agent observes, in words"
        return Spec("text_observation", (text_field(self.rules.observation_size, meaning),))

    @cached_property
    def action(self) -> Spec:
        """The action: one text."""
        meaning = "a command, with or without other text around it"
        return Spec("text_action", (text_field(self.rules.action_size, meaning),))

    @property
    def instructions(self) -> str:
        """The task and the commands, in words."""
        listed = ", ".join(f"{symbol}: {meaning}" for symbol, meaning in self._hints.symbols.items())
        symbols = f"The symbols are: {listed}." if listed else ""
        return "\n".join(part for part in (self._hints.instruction, symbols, self.grammar.instructions) if part)

    @property
    def description(self) -> EnvDescription:
        """The inner world's description, and the commands and rules of the text."""
        inner = self._world.description
        return replace(
            inner,
            about=f"{inner.about}\n\nObservations and actions are text.\n\n{self.instructions}",
            reward=replace(inner.reward, dtype="float64", low=-np.inf, high=np.inf),
            extra_info={**inner.extra_info, **_INFO},
            error_codes={**inner.error_codes, FORMAT: "the text is no command of the grammar"},
        )

    @cached_property
    def layout(self) -> FrameLayout:
        """The texts, and the inner world's commands and sensors."""
        return replace(self._world.layout, observation=self.observation, action=self.action, policy=Spec("policy"))

    # -- reset and step ----------------------------------------------------------------------------------

    def reset(self, options: Options) -> TimeStep:
        """Reset the inner world, and write its observation as text.

        Raises:
            ValueError: as for the inner world, or the text is too long.
        """
        timestep = self._world.reset(options)
        self._turn, self._owed = 0, 0.0
        extra = {**timestep.extra_info, "env_instruction": self.instructions}
        return self._answer(timestep._replace(extra_info=extra))

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Carry out the command in a text.

        Raises:
            IllegalAction: the text is not a legal action and such a text is not a turn; nothing changed.
            ValueError: as for `reset`.
        """
        text = decode(action[TEXT])
        try:
            parsed = self.grammar.parse(text)
            timestep = self._world.step(parsed.action, extra_info)
        except IllegalAction as refused:
            if self.rules.invalid_is_turn:
                return self._invalid(refused.violation)
            self._owed += self.rules.penalty
            raise
        self._turn += 1
        return self._carried_out(timestep, parsed)

    def _carried_out(self, timestep: TimeStep, parsed: ParsedText) -> TimeStep:
        before = self._last
        assert before is not None  # the environment resets first
        effective = timestep.extra_info.get("effective")
        if effective is None:
            effective = _differ(before.observation, timestep.observation)
        penalty, self._owed = self._owed, 0.0
        effect = "which is effective" if effective else "which is not effective yet"
        extra: ExtraInfo = {
            **timestep.extra_info,
            "command": parsed.command,
            **self._metrics(timestep.extra_info, True, bool(effective), penalty),
            "action_desc": f"At turn {self._turn}, you did {parsed.content}, {effect}.",
        }
        assert not isinstance(timestep.reward, Mapping)  # there is one agent
        return self._answer(timestep._replace(reward=float(timestep.reward) + penalty, extra_info=extra))

    def _invalid(self, violation: Violation) -> TimeStep:
        """Return the time step of a text that was not carried out."""
        last, self._turn = self._last, self._turn + 1
        assert last is not None  # the environment resets first
        words = f"At turn {self._turn}, you did not provide a valid action: {violation.message}."
        extra: ExtraInfo = {
            **deepcopy({name: value for name, value in last.extra_info.items() if name not in _OF_AN_ACTION}),
            "text_error": violation.to_dict(),
            **self._metrics({}, False, False, self.rules.penalty),
            "action_desc": words,
        }
        timestep = last._replace(reward=self.rules.penalty, terminated=False, truncated=False, extra_info=extra)
        return self._answer(timestep, words)

    def _metrics(self, extra: ExtraInfo, valid: bool, effective: bool, penalty: float) -> JsonDict:
        metrics = {
            "action_is_effective": effective,
            "action_is_valid": valid,
            "success": bool(extra.get("success", False)),
            "format_penalty": penalty,
        }
        world_metrics = dict(extra.get("metrics", {}))
        return {
            "metrics": {**world_metrics, **metrics},
            "metrics_agg_mode": {**dict.fromkeys(world_metrics, "last"), **AGGREGATION},
        }

    def _answer(self, timestep: TimeStep, remark: str = "") -> TimeStep:
        """Return a time step with its observation as text, and keep the inner one."""
        over = timestep.terminated or timestep.truncated
        if self.rules.turns and self._turn >= self.rules.turns and not over:
            extra = {**timestep.extra_info, "truncated_by": "turns"}
            timestep = timestep._replace(truncated=True, extra_info=extra)
        self._last = timestep
        text = self.write(timestep.observation)
        return timestep._replace(observation={TEXT: self._room(f"{remark}\n{text}" if remark else text)})

    def write(self, observation: Mapping[str, np.ndarray]) -> str:
        """Return the text of an observation of the inner world."""
        if self._template is not None:
            return self._template.write(observation)
        assert self._hints.write is not None
        return self._hints.write(observation)

    def _room(self, text: str) -> np.ndarray:
        try:
            return encode(text, self.observation[TEXT])
        except ValueError as error:
            raise RobotError(f"{self.name}: {error}; give TextRules(observation_size=...) more") from None


def _differ(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    return any(not np.array_equal(value, other[name]) for name, value in one.items())


def to_text(
    env: Environment,
    rules: TextRules | None = None,
    template: str | None = None,
    hints: TextHints | None = None,
    record: str | Path | None = None,
    info: JsonObject | None = None,
) -> Environment:
    """Return an environment with text as observation and as action; see `TextWorld`.

    Args:
        env: the environment, of which the result takes ownership. It must not record, since its frames differ from
            those that the agent sees.
        rules: as for `TextWorld`.
        template: as for `TextWorld`.
        hints: as for `TextWorld`.
        record: a folder; every episode is recorded into a new run inside it, one frame per turn.
        info: metadata of every recorded episode, such as ``{"policy": "v3"}``.

    Raises:
        ValueError: as for `TextWorld`, or the environment records, or speaks text already.
    """
    if speaks_text(env.world):
        raise ValueError(f"the observation and action of {env.world.name!r} are texts already: use it as it is")
    if env.is_recorded:
        raise ValueError(
            'this environment records numbers: leave record out of make, and give it to to_text(env, record="runs")'
        )
    world, observer = TextWorld(env.world, rules, template, hints), None
    if record is not None:
        from rlenv_robot.recording.observer import record_to

        observer = record_to(Path(record), world, info)
    return Environment(world, env.env_id, observer)
