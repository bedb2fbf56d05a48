"""Make environments of dialogues: a prompt, turns, and a reward function or reward model that judges them (R6.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypedDict

import numpy as np

from hal import Field, Spec
from hal.field import JsonDict
from rlenv_language.text.view import text_field
from rlenv_robot.data.chats import TEXT, decode, encode
from rlenv_robot.tables import ExtraInfo, Options
from rlenv_robot.tasks.episode_rules import SeedOption, check_seed, episode_rng, random_seed
from rlenv_robot.world import EnvDescription, TimeStep, World, first_part

__all__ = ["Dialogue", "Said"]


class Said(TypedDict):
    """One message of a dialogue.

    Attributes:
        role: ``user``, or ``assistant`` for the agent.
        content: the message's text.
    """

    role: str
    content: str


class Dialogue(SeedOption, World):
    """A dialogue of one or more turns, in which the agent answers a prompt and is judged at the end.

    An observation is the user's message, an action the agent's answer. The reward is 0 until the dialogue ends, and
    then the score that ``judge`` gives to all messages. The dialogue ends after ``turns`` answers, or when ``respond``
    returns None.

    Args:
        prompts: the first messages; the seed draws one for each episode.
        judge: a reward function or a reward model: messages -> a finite number.
        respond: function from the messages so far to the user's next message, or None to end; without it a dialogue has
            one turn.
        turns: largest number of answers.
        size: longest text, characters.

    Raises:
        ValueError: there is no prompt, a prompt is too long, or ``turns`` is below 1.
    """

    def __init__(
        self,
        prompts: Sequence[str],
        judge: Callable[[Sequence[Said]], float],
        respond: Callable[[Sequence[Said]], str | None] | None = None,
        turns: int = 8,
        size: int = 4096,
    ) -> None:
        if not prompts or max(map(len, prompts)) > size:
            raise ValueError(
                f"there are {len(prompts)} prompts, expected at least one, of up to {size} characters each"
            )
        if turns < 1:
            raise ValueError(f"turns is {turns}, it must be at least 1")
        self._prompts, self._judge, self._respond = tuple(prompts), judge, respond
        self._turns, self._size = turns, size
        self._seed, self._episodes = random_seed(), 0
        self._messages: list[Said] = []

    @cached_property
    def observation(self) -> Spec:
        """The observation: the user's message."""
        return Spec("dialogue_observation", (text_field(self._size, "what the user says"),))

    @cached_property
    def action(self) -> Spec:
        """The action: the agent's answer."""
        return Spec("dialogue_action", (text_field(self._size, "what the agent answers"),))

    @property
    def description(self) -> EnvDescription:
        """The rules of the dialogue."""
        return EnvDescription(
            f"{first_part(self)}\n\nHere: {len(self._prompts)} prompts, up to {self._turns} answers.",
            Field("reward", (), "float64", meaning="the judge's, of the whole dialogue, at its end; else 0"),
            {"seed": "whole number from 0: draws the prompts from here on"},
            extra_info={"score": "the judge's, at the end"},
        )

    def reset(self, options: Options) -> TimeStep:
        """Draw a prompt.

        Raises:
            ValueError: an option is unknown, or the seed is wrong.
        """
        self.check_reset(options)
        if options.get("seed") is not None:
            self._seed, self._episodes = check_seed(options["seed"]), 0
        rng = episode_rng(self._seed, 0, self._episodes)
        self._episodes += 1
        self._messages = [{"role": "user", "content": self._prompts[int(rng.integers(len(self._prompts)))]}]
        return self._timestep(0.0, False, {})

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Take the agent's answer, then the user's response or the judge's score.

        Raises:
            ValueError: the judge's score is not finite, or the user's message is too long.
        """
        self._messages.append({"role": "assistant", "content": decode(action[TEXT])})
        answers = sum(one["role"] == "assistant" for one in self._messages)
        answer = None if self._respond is None or answers >= self._turns else self._respond(tuple(self._messages))
        if answer is not None:
            self._messages.append({"role": "user", "content": answer})
            return self._timestep(0.0, False, {})
        score = float(self._judge(tuple(self._messages)))
        if not np.isfinite(score):
            raise ValueError(f"the judge gave {score}, expected a finite number")
        return self._timestep(score, True, {"score": score})

    def _timestep(self, reward: float, over: bool, extra: ExtraInfo) -> TimeStep:
        text = "" if over else self._messages[-1]["content"]
        return TimeStep({TEXT: encode(text, self.observation[TEXT])}, reward, over, False, extra)

    def episode_info(self) -> JsonDict:
        """Return name and seed."""
        return {"task": self.name, "seed": self._seed, "draw": self._episodes - 1}
