"""A small language model that learns an environment in language: fine-tuning, then PPO or RLOO over whole episodes.

The recipe is that of Ammanabrolu and Wang 2025 (arXiv:2510.01132): supervised fine-tuning on demonstrations, then
reinforcement learning with a turn's reward on its end token. Plain PyTorch and the package ``tokenizers``;
the model begins with random weights and the tokenizer is trained on the demonstrations, so nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn.functional import cross_entropy

from rlenv_robot.adapters.gem import GemEnv
from rlenv_robot.training.chat.advantages import gae, leave_one_out
from rlenv_robot.training.chat.tokens import BEGIN, END, TokenEpisode, render, tokenize
from rlenv_robot.training.chat.transcripts import Message, Transcript

__all__ = ["ChatLearner", "LearnerSettings", "Rehearsal", "train_tokenizer"]


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """The settings of a `ChatLearner`.

    Attributes:
        method: ``ppo`` (token advantages by a value function) or ``rloo`` (returns less those of the same seed).
        width, layers, heads: of the transformer.
        context: most tokens of an episode.
        answer_tokens: most tokens of an answer.
        turns: most turns of an episode.
        sft_steps, sft_rate: batches of fine-tuning, and their step size.
        rate, epochs, clip: step size, passes over each batch and clip range of PPO.
        discount, decay, turn_discount: as for `rlenv_robot.training.chat.advantages.gae`.
        value_weight, entropy_weight: of the losses beside the policy's.
        group: episodes from each seed in a batch.
        seed: of weights and draws.
    """

    method: Literal["ppo", "rloo"] = "ppo"
    width: int = 64
    layers: int = 2
    heads: int = 4
    context: int = 768
    answer_tokens: int = 12
    turns: int = 3
    sft_steps: int = 150
    sft_rate: float = 2e-3
    rate: float = 5e-4
    epochs: int = 2
    clip: float = 0.2
    discount: float = 1.0
    decay: float = 0.95
    turn_discount: float = 1.0
    value_weight: float = 0.5
    entropy_weight: float = 0.003
    group: int = 4
    seed: int = 0


def train_tokenizer(texts: Sequence[str], size: int = 320) -> Tokenizer:
    """Return a byte-level BPE tokenizer with the marks of ChatML as special tokens, trained on these texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[BEGIN, END], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


class _Model(nn.Module):
    """A causal transformer with a head for tokens and one for values."""

    def __init__(self, words: int, settings: LearnerSettings) -> None:
        super().__init__()
        width = settings.width
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(settings.context, width)
        layer = nn.TransformerEncoderLayer(
            width, settings.heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, settings.layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head, self.value = nn.Linear(width, words), nn.Linear(width, 1)
        nn.init.zeros_(self.value.weight)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (B, L, words) and values (B, L) of the state after each token."""
        length = ids.shape[1]
        inside = self.words(ids) + self.places(torch.arange(length))
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        hidden = self.body(inside, mask=mask, is_causal=True)
        return self.head(hidden), self.value(hidden)[..., 0]


class Rehearsal:
    """Environments that repeat: equal texts from an equal seed lead to equal answers, which are remembered.

    Only for simulations; a robot does not repeat.

    Args:
        make: returns an environment.
    """

    def __init__(self, make: Callable[[], GemEnv]) -> None:
        self._env = make()
        self._first: dict[int, str] = {}
        self._known: dict[tuple[int, tuple[str, ...]], tuple[str, float, bool, bool, bool]] = {}
        self._at: tuple[int, tuple[str, ...]] | None = None
        self.steps = 0

    def reset(self, seed: int) -> str:
        """Return the first observation."""
        if seed not in self._first:
            self._first[seed] = self._env.reset(seed=seed)[0]
            self._at = (seed, ())
        return self._first[seed]

    def step(self, seed: int, texts: tuple[str, ...]) -> tuple[str, float, bool, bool, bool]:
        """Return observation, reward, terminated, truncated and success after the last of these texts."""
        key = (seed, texts)
        if key not in self._known:
            if self._at != (seed, texts[:-1]):
                self._env.reset(seed=seed)
                for text in texts[:-1]:
                    self._env.step(text)
            observation, reward, terminated, truncated, info = self._env.step(texts[-1])
            self._known[key] = (observation, reward, terminated, truncated, bool(info["metrics"]["success"]))
            self._at = None if terminated or truncated else key
            self.steps += 1
        return self._known[key]

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


class ChatLearner:
    """Learn to answer an environment in language.

    Args:
        tokenizer: of the package ``tokenizers``, with the marks of ChatML.
        settings: see `LearnerSettings`.
    """

    def __init__(self, tokenizer: Tokenizer, settings: LearnerSettings | None = None) -> None:
        self.tokenizer, self.settings = tokenizer, settings or LearnerSettings()
        torch.manual_seed(self.settings.seed)
        self._random = torch.Generator().manual_seed(self.settings.seed)
        self._model = _Model(tokenizer.get_vocab_size(), self.settings)
        self._end = tokenizer.token_to_id(END)
        self._optimiser = torch.optim.Adam(self._model.parameters(), self.settings.rate)

    # -- demonstrations ----------------------------------------------------------------------------------

    def fine_tune(self, demonstrations: Sequence[Transcript], batch: int = 16) -> float:
        """Imitate the agent's tokens of chats, and return the last batch's loss.

        Raises:
            ValueError: there is no demonstration, or one has more tokens than the context.
        """
        if not demonstrations:
            raise ValueError("there is no demonstration to imitate")
        episodes = [tokenize(one, self.tokenizer) for one in demonstrations]
        rng, loss = np.random.default_rng(self.settings.seed), torch.zeros(())
        optimiser = torch.optim.Adam(self._model.parameters(), self.settings.sft_rate)
        for _ in range(self.settings.sft_steps):
            drawn = [episodes[number] for number in rng.integers(len(episodes), size=batch).tolist()]
            ids, mask = self._padded(drawn)
            logits, _ = self._model(ids[:, :-1])
            chosen = mask[:, 1:]
            loss = cross_entropy(logits[chosen], ids[:, 1:][chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return float(loss.detach())

    def _padded(self, episodes: Sequence[TokenEpisode]) -> tuple[torch.Tensor, torch.Tensor]:
        longest = max(len(one.ids) for one in episodes)
        if longest > self.settings.context:
            raise ValueError(f"an episode has {longest} tokens, the context has {self.settings.context}")
        ids = torch.zeros(len(episodes), longest, dtype=torch.long)
        mask = torch.zeros(len(episodes), longest, dtype=torch.bool)
        for row, one in enumerate(episodes):
            ids[row, : len(one.ids)] = torch.from_numpy(one.ids)
            mask[row, : len(one.ids)] = torch.from_numpy(one.mask)
        return ids, mask

    # -- playing -----------------------------------------------------------------------------------------

    def answer(self, chats: Sequence[Sequence[Message]], greedy: bool = False) -> list[str]:
        """Return the agent's next message to each chat; the most likely one if greedy."""
        with torch.no_grad():
            return self._answer(chats, greedy)

    def _answer(self, chats: Sequence[Sequence[Message]], greedy: bool) -> list[str]:
        prompts = [self.tokenizer.encode(render(chat, prompt=True)[0]).ids for chat in chats]
        rows, written = [list(prompt) for prompt in prompts], [list[int]() for _ in prompts]
        open_rows = list(range(len(rows)))
        for _ in range(self.settings.answer_tokens):
            open_rows = [row for row in open_rows if len(rows[row]) < self.settings.context]
            if not open_rows:
                break
            longest = max(len(rows[row]) for row in open_rows)
            ids = torch.zeros(len(open_rows), longest, dtype=torch.long)
            for place, row in enumerate(open_rows):
                ids[place, : len(rows[row])] = torch.tensor(rows[row])
            logits, _ = self._model(ids)
            ends = torch.tensor([len(rows[row]) - 1 for row in open_rows])
            last = logits[torch.arange(len(open_rows)), ends]
            drawn = last.argmax(-1, keepdim=True)
            if not greedy:
                drawn = torch.multinomial(last.softmax(-1), 1, generator=self._random)
            remaining = []
            for row, token in zip(open_rows, drawn[:, 0].tolist(), strict=True):
                if token != self._end:
                    rows[row].append(token)
                    written[row].append(token)
                    remaining.append(row)
            open_rows = remaining
        return [self.tokenizer.decode(tokens) for tokens in written]

    def play(self, world: Rehearsal, seeds: Sequence[int], greedy: bool = False) -> list[Transcript]:
        """Play an episode from each seed and return the transcripts."""
        chats: list[list[Message]] = [[{"role": "user", "content": world.reset(seed)}] for seed in seeds]
        texts: list[tuple[str, ...]] = [() for _ in seeds]
        rewards: list[list[float]] = [[] for _ in seeds]
        last: list[tuple[str, bool, bool]] = [("", False, False) for _ in seeds]
        running = list(range(len(seeds)))
        for _ in range(self.settings.turns):
            answers = self.answer([chats[row] for row in running], greedy)
            going = []
            for row, text in zip(running, answers, strict=True):
                texts[row] = (*texts[row], text)
                observation, reward, terminated, truncated, success = world.step(seeds[row], texts[row])
                chats[row].append({"role": "assistant", "content": text})
                rewards[row].append(reward)
                last[row] = (observation, terminated, success)
                if not (terminated or truncated) and len(rewards[row]) < self.settings.turns:
                    chats[row].append({"role": "user", "content": observation})
                    going.append(row)
            running = going
            if not running:
                break
        return [
            Transcript(tuple(chat), tuple(reward), end[0], end[1], end[2], seed)
            for chat, reward, end, seed in zip(chats, rewards, last, seeds, strict=True)
        ]

    # -- learning ----------------------------------------------------------------------------------------

    def update(self, transcripts: Sequence[Transcript]) -> dict[str, float]:
        """Improve the answers by one batch of the agent's own episodes, and return figures of the batch."""
        settings = self.settings
        episodes = [tokenize(one, self.tokenizer) for one in transcripts]
        ids, mask = self._padded(episodes)
        chosen = mask[:, 1:]
        with torch.no_grad():
            logits, values = self._model(ids[:, :-1])
            before = _log_probability(logits, ids[:, 1:])[chosen]
        advantage, target = self._advantages(transcripts, episodes, values.double().numpy(), chosen.numpy())
        advantages = torch.from_numpy(advantage).float()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        targets = torch.from_numpy(target).float()
        for _ in range(settings.epochs):
            logits, values = self._model(ids[:, :-1])
            now = _log_probability(logits, ids[:, 1:])[chosen]
            ratio = (now - before).exp()
            clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            policy = -torch.minimum(ratio * advantages, clipped * advantages).mean()
            probability = logits[chosen].log_softmax(-1)
            entropy = -(probability.exp() * probability).sum(-1).mean()
            loss = policy - settings.entropy_weight * entropy
            if settings.method == "ppo":
                loss = loss + settings.value_weight * (values[chosen] - targets).square().mean()
            self._optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
            self._optimiser.step()
        return {
            "return": float(np.mean([one.total for one in transcripts])),
            "success": float(np.mean([bool(one.success) for one in transcripts])),
        }

    def _advantages(
        self, transcripts: Sequence[Transcript], episodes: Sequence[TokenEpisode], values: Any, chosen: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return advantages and targets of all chosen tokens, row by row.

        The value before a token is the model's value after the token before it.
        """
        settings = self.settings
        if settings.method == "rloo":
            each = leave_one_out([one.total for one in transcripts], [one.seed or 0 for one in transcripts])
            tokens = chosen.sum(axis=1)
            return np.repeat(each, tokens), np.zeros(int(tokens.sum()))
        parts = []
        for row, one in enumerate(episodes):
            value = values[row][chosen[row]]
            parts.append(
                gae(
                    one.rewards[one.mask], value, self._last_value(transcripts[row]), settings.discount, settings.decay,
                    one.turns[one.mask], settings.turn_discount,
                )
            )  # fmt: skip
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _last_value(self, transcript: Transcript) -> float:
        """Return the value of the state after the last message: 0 where the task ended the episode."""
        if transcript.terminated:
            return 0.0
        chat = [*transcript.messages, Message(role="user", content=transcript.last)]
        ids = self.tokenizer.encode(render(chat, prompt=True)[0]).ids[: self.settings.context]
        with torch.no_grad():
            return float(self._model(torch.tensor([ids]))[1][0, -1])


def _log_probability(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    picked: torch.Tensor = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    return picked
