"""Sums to answer in words, as a world of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import rlenv_robot as rr
from fault_set_c.registry import fault, original
from fault_set_c.shell import SEED, WorldSubject
from rlenv_robot.world import NOTHING

F = rr.Field


@original
class Quiz(WorldSubject):
    style = "world, texts in and out"
    observation = rr.Spec("quiz_observation", (
        F("prompt", (), "text", meaning="the last answer, and the next question", characters=64),
        F("asked", (), "int32", 0, 4, "1", "number of answers so far"),
    ))  # fmt: skip
    action = rr.Spec("quiz_action", (F("answer", (), "text", meaning="a number as text", characters=24),))
    description = rr.EnvDescription(
        "Answer four sums.",
        F("reward", (), "float64", 0, 1, "1", "1 for a right answer"),
        {"seed": SEED},
        extra_info={"score": "number: right answers so far", "answers": "list: the answers so far"},
        error_codes={"empty": "the answer has no character but blanks"},
    )

    def begin(self, options: Mapping[str, Any]) -> None:
        self.sums = self.draw()
        self.answers: list[str] = []
        self.score = 0

    def draw(self) -> list[tuple[int, int]]:
        return [(int(a), int(b)) for a, b in self.rng.integers(1, 30, (5, 2))]

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> rr.TimeStep:
        answer = str(action["answer"])
        if not answer.strip():
            raise rr.IllegalAction(rr.Violation("empty", "action.answer", (), "action.answer is empty"))
        right = answer.strip() == str(sum(self.sums[self.frame]))
        self.score, self.frame = self.score + right, self.frame + 1
        self.answers.append(answer)
        return self.seen(float(right))

    def prompt(self) -> str:
        said = f"You said {self.answers[-1]!s}. " if self.answers else ""
        return said + ("The end." if self.frame == 4 else "{} + {} = ?".format(*self.sums[self.frame]))

    def seen(self, reward) -> rr.TimeStep:
        seen = {"prompt": np.array(self.prompt(), "<U64"), "asked": np.array(self.frame, np.int32)}
        return rr.TimeStep(seen, reward, self.frame == 4, False, self.info())

    def info(self) -> dict[str, Any]:
        return {"score": self.score, "answers": list(self.answers)}


@fault(
    "6.2.3.1-T1.observation",
    "ordinary",
    "after an answer of more than 16 characters the prompt is longer than described",
)
class QuizLongPrompt(Quiz):
    def seen(self, reward) -> rr.TimeStep:
        step = super().seen(reward)
        if self.answers and len(self.answers[-1]) > 16:
            step = step._replace(observation={**step.observation, "prompt": np.array(self.prompt() + " " * 64)})
        return step


@fault("6.2.1-7", "ordinary", "an empty answer raises IndexError out of step")
class QuizEmpty(Quiz):
    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> rr.TimeStep:
        assert str(action["answer"]).split()[0]
        return super().step(action, extra_info)


@fault("6.2.2.1-3", "subtle", "questions are drawn from hash() of a text, which differs between processes")
class QuizHash(Quiz):
    def draw(self) -> list[tuple[int, int]]:
        other = np.random.default_rng(abs(hash(f"sums {self.rng.integers(1000)}")))
        return [(int(a), int(b)) for a, b in other.integers(1, 30, (5, 2))]


@fault("6.2.1-6", "subtle", "an empty answer is refused, and has used up the question: the next one is asked too early")
class QuizSkips(Quiz):
    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> rr.TimeStep:
        try:
            return super().step(action, extra_info)
        except rr.IllegalAction:
            self.sums.append(self.sums.pop(self.frame))
            raise


class _NoNumber(rr.Environment):
    def step(self, action, extra_info=NOTHING):
        seen, paid = super().step(action, extra_info)
        return seen, {name: value for name, value in paid.items() if name != "env_id"}


@fault("6.2.3.3-T3.env_id", "obvious", "Table 3 has no env_id")
class QuizAnonymous(Quiz):
    shell = _NoNumber
