"""The small language model: what it imitates, and how interaction improves on it."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from rlenv_language.chat.learner import (  # noqa: E402  (needs torch and tokenizers)
    CachedEnv,
    ChatLearner,
    LearnerSettings,
    train_tokenizer,
)
from rlenv_language.chat.tokens import render, tokenize  # noqa: E402
from rlenv_language.chat.transcripts import Message, Transcript  # noqa: E402


class Echo:
    """An environment that rewards the word of its prompt, which an even seed makes ``left``."""

    def reset(self, seed: int) -> str:
        return f"Go {self.word(seed)} at {seed % 10}."

    def word(self, seed: int) -> str:
        return "left" if seed % 2 == 0 else "right"

    def step(self, seed: int, texts: tuple[str, ...]) -> tuple[str, float, bool, bool, bool]:
        good = texts[-1] == self.word(seed)
        return "done", float(good), True, False, good


def chat(prompt: str, answer: str, reward: float = 0.0, seed: int | None = None) -> Transcript:
    messages = (Message(role="user", content=prompt), Message(role="assistant", content=answer))
    return Transcript(messages, (reward,), success=reward > 0, seed=seed)


def learner(method: str, demonstrations: list[Transcript], **changes: object) -> ChatLearner:
    settings = {"width": 32, "layers": 1, "context": 64, "answer_tokens": 4, "turns": 1, "method": method, **changes}
    torch.set_num_threads(1)
    texts = [render(one.messages)[0] for one in demonstrations]
    return ChatLearner(train_tokenizer(texts), LearnerSettings(**settings))  # type: ignore[arg-type]


def demonstrated(count: int) -> list[Transcript]:
    """Demonstrations of which about half are right."""
    rng, world = np.random.default_rng(0), Echo()
    return [chat(world.reset(seed), str(rng.choice(["left", "right"]))) for seed in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rloo", "ppo"])
def test_interaction_finds_what_the_demonstrations_leave_to_chance(method: str) -> None:
    demonstrations = demonstrated(60)
    world, made = cast("CachedEnv", Echo()), learner(method, demonstrations, sft_steps=200)
    made.fine_tune(demonstrations)
    words = made.answer([one.messages[:1] for one in demonstrations])
    assert np.mean([word in ("left", "right") for word in words]) > 0.8
    for update in range(15 if method == "rloo" else 40):
        made.update(made.play(world, list(range(10 * update, 10 * update + 10)) * 4))
    held_out = made.play(world, list(range(1000, 1040)), greedy=True)
    assert np.mean([bool(one.success) for one in held_out]) > 0.95


def test_a_batch_ends_where_the_policy_has_moved_too_far() -> None:
    demonstrations = demonstrated(20)
    batch = [chat(one.messages[0]["content"], one.messages[1]["content"], float(n % 2), n // 4)
             for n, one in enumerate(demonstrations)]  # fmt: skip
    free, limited = (learner("ppo", demonstrations, kl_limit=limit, rate=1e-2) for limit in (float("inf"), 1e-3))
    played = free.update(batch)
    assert played["steps"] == 8, "four passes of two groups"
    assert played["kl"] > 1e-3
    assert 1 <= limited.update(batch)["steps"] < 8


def test_each_method_gives_tokens_the_advantages_that_a_hand_would() -> None:
    chats = [chat("Go left.", "left", 1.0, seed=0), chat("Go left.", "right", 0.0, seed=0), chat("Go.", "left", 3.0)]
    made = learner("rloo", chats)
    episodes = [tokenize(one, made.tokenizer) for one in chats]
    counts = [int(one.mask.sum()) for one in episodes]
    chosen = np.zeros((3, 60), bool)
    for row, count in enumerate(counts):
        chosen[row, :count] = True
    values = np.full((3, 60), 0.25)
    seeds = [0, 0, 7]
    chats = [chat(one.messages[0]["content"], one.messages[1]["content"], one.total, seed)
             for one, seed in zip(chats, seeds, strict=True)]  # fmt: skip
    advantage, _ = made._advantages(chats, episodes, values, chosen)
    assert np.allclose(advantage, np.repeat([1.0, -1.0, 0.0], counts)), "less the other of its seed; alone: 0"
    ppo = learner("ppo", chats, decay=1.0)
    advantage, target = ppo._advantages(chats, episodes, values, chosen)
    assert np.allclose(advantage, np.repeat([0.75, -0.25, 2.75], counts)), "the return less the value"
    assert np.allclose(target, np.repeat([1.0, 0.0, 3.0], counts))


def test_too_few_or_too_long_demonstrations_are_refused() -> None:
    made = learner("ppo", demonstrated(4))
    with pytest.raises(ValueError, match="at least 2"):
        made.fine_tune(demonstrated(1))
    with pytest.raises(ValueError, match="context"):
        made.fine_tune([chat("Go left. " * 40, "left")] * 3)
