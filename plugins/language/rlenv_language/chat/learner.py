"""Train a small language model on an environment in language: fine-tuning, then PPO or RLOO over whole episodes.

The method is that of Ammanabrolu and Wang 2025 (arXiv:2510.01132): supervised fine-tuning on demonstrations, then
reinforcement learning with each turn's reward on its end token. This module needs PyTorch and the package
``tokenizers``. The model starts from random weights and the tokenizer is trained on the demonstrations, so nothing is
downloaded.
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

from rlenv_language.chat.advantages import gae, leave_one_out
from rlenv_language.chat.tokens import BEGIN, END, TokenEpisode, render, tokenize
from rlenv_language.chat.transcripts import Message, Transcript
from rlenv_language.chat.transformer import ChatTransformer
from rlenv_language.gem import GemEnv

__all__ = ["CachedEnv", "ChatLearner", "LearnerSettings", "train_tokenizer"]


_HELD_OUT, _CHECK_STEPS, _PATIENCE = 5, 20, 3
"""Fine-tuning holds out every fifth chat, and ends after three evaluations without progress, 20 batches apart."""


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """The settings of a `ChatLearner`.

    Attributes:
        method: ``ppo`` (token advantages from a value function) or ``rloo`` (return minus the mean return of the other
            episodes with the same seed).
        width: width of the transformer.
        layers: layers of the transformer.
        heads: attention heads of the transformer.
        context: largest number of tokens of an episode.
        answer_tokens: largest number of tokens of an answer.
        turns: largest number of turns of an episode.
        sft_steps: largest number of batches in fine-tuning.
        sft_rate: step size of fine-tuning.
        rate: step size of reinforcement learning; None for 3e-4 with PPO and 1e-3 with RLOO.
        epochs: passes over each batch.
        minibatch: episodes in one gradient.
        clip: clip range of PPO.
        kl_limit: estimated KL divergence from the policy that played the batch, beyond which the batch's remaining
            gradients are skipped; None for 0.06 with PPO and no limit with RLOO.
        discount: discount factor per token (`rlenv_language.chat.advantages.gae`).
        decay: lambda (`rlenv_language.chat.advantages.gae`).
        turn_discount: additional discount factor per turn (`rlenv_language.chat.advantages.gae`).
        value_weight: weight of the value loss.
        entropy_weight: weight of the entropy bonus.
        group: number of episodes per seed in a batch.
        seed: seed of the weights and all draws.
    """

    method: Literal["ppo", "rloo"] = "ppo"
    width: int = 64
    layers: int = 2
    heads: int = 4
    context: int = 768
    answer_tokens: int = 12
    turns: int = 3
    sft_steps: int = 400
    sft_rate: float = 1e-3
    rate: float | None = None
    epochs: int = 4
    minibatch: int = 16
    clip: float = 0.2
    kl_limit: float | None = None
    discount: float = 1.0
    decay: float = 1.0
    turn_discount: float = 1.0
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    group: int = 4
    seed: int = 0


_RATE = {"ppo": 3e-4, "rloo": 1e-3}
_KL_LIMIT = {"ppo": 0.06, "rloo": float("inf")}
"""With RLOO's step size PPO failed in its first batch: the policy's KL divergence was 0.5 after sixteen Adam steps
(benchmarks/README.md, learning in language)."""


def train_tokenizer(texts: Sequence[str], size: int = 640) -> Tokenizer:
    """Train a byte-level BPE tokenizer on texts, with the marks of ChatML as special tokens.

    Args:
        texts: training data.
        size: number of tokens of the vocabulary.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[BEGIN, END], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


class CachedEnv:
    """A deterministic environment with a cache that returns the earlier result for equal seeds and texts.

    Use it for simulations only, since a robot is not deterministic.

    Args:
        make: makes the environment.

    Attributes:
        steps: number of environment steps, without those from the cache.
    """

    def __init__(self, make: Callable[[], GemEnv]) -> None:
        self._env = make()
        self._first: dict[int, str] = {}
        self._cache: dict[tuple[int, tuple[str, ...]], tuple[str, float, bool, bool, bool]] = {}
        self._at: tuple[int, tuple[str, ...]] | None = None
        self.steps = 0

    def reset(self, seed: int) -> str:
        """Return the first observation of the episode with this seed."""
        if seed not in self._first:
            self._first[seed] = self._env.reset(seed=seed)[0]
            self._at = (seed, ())
        return self._first[seed]

    def step(self, seed: int, texts: tuple[str, ...]) -> tuple[str, float, bool, bool, bool]:
        """Return observation, reward, terminated, truncated and success after the last of an episode's texts."""
        key = (seed, texts)
        if key not in self._cache:
            if self._at != (seed, texts[:-1]):
                self._env.reset(seed=seed)
                for text in texts[:-1]:
                    self._env.step(text)
            observation, reward, terminated, truncated, info = self._env.step(texts[-1])
            self._cache[key] = (observation, reward, terminated, truncated, bool(info["metrics"]["success"]))
            self._at = None if terminated or truncated else key
            self.steps += 1
        return self._cache[key]

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


class ChatLearner:
    """A language model, and its training on an environment in language.

    Args:
        tokenizer: a tokenizer of the package ``tokenizers`` with the marks of ChatML.
        settings: settings of model and training; None for the defaults.
    """

    def __init__(self, tokenizer: Tokenizer, settings: LearnerSettings | None = None) -> None:
        self.tokenizer, self.settings = tokenizer, settings or LearnerSettings()
        torch.manual_seed(self.settings.seed)
        self._random = torch.Generator().manual_seed(self.settings.seed)
        made = self.settings
        self._model = ChatTransformer(tokenizer.get_vocab_size(), made.width, made.layers, made.heads, made.context)
        self._end = tokenizer.token_to_id(END)
        self._optimiser = torch.optim.Adam(
            self._model.parameters(), _RATE[made.method] if made.rate is None else made.rate
        )
        self._kl_limit = _KL_LIMIT[made.method] if made.kl_limit is None else made.kl_limit

    # -- demonstrations ----------------------------------------------------------------------------------

    def fine_tune(self, demonstrations: Sequence[Transcript], batch: int = 16) -> float:
        """Imitate the agent's tokens in chats until the loss on held-out chats stops falling.

        Every ``_HELD_OUT``-th chat is held out. Their loss is evaluated every ``_CHECK_STEPS`` batches, and the weights
        with the lowest loss are kept: a model that has memorised its demonstrations no longer explores.

        Args:
            demonstrations: the chats to imitate.
            batch: chats in one gradient.

        Returns:
            The loss on the held-out chats.

        Raises:
            ValueError: there are fewer than two demonstrations, or one has more tokens than the context.
        """
        if len(demonstrations) < 2:
            raise ValueError(f"there are {len(demonstrations)} demonstrations to imitate, at least 2 are needed")
        episodes = [tokenize(one, self.tokenizer) for one in demonstrations]
        held_out = episodes[::_HELD_OUT]
        training = [one for number, one in enumerate(episodes) if number % _HELD_OUT]
        rng, best, weights = np.random.default_rng(self.settings.seed), np.inf, self._model.state_dict()
        optimiser, worse = torch.optim.Adam(self._model.parameters(), self.settings.sft_rate), 0
        for number in range(1, self.settings.sft_steps + 1):
            loss = self._imitation_loss([training[at] for at in rng.integers(len(training), size=batch).tolist()])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if number % _CHECK_STEPS == 0 or number == self.settings.sft_steps:
                with torch.no_grad():
                    loss = self._imitation_loss(held_out)
                worse = 0 if loss < best else worse + 1
                if loss < best:
                    best = float(loss)
                    weights = {name: value.clone() for name, value in self._model.state_dict().items()}
                if worse == _PATIENCE:
                    break
        self._model.load_state_dict(weights)
        return float(best)

    def _imitation_loss(self, episodes: Sequence[TokenEpisode]) -> torch.Tensor:
        ids, mask = self._padded(episodes)
        chosen = mask[:, 1:]
        logits = self._model.head(self._model.hidden(ids[:, :-1])[chosen])
        return cross_entropy(logits, ids[:, 1:][chosen])

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
        """Return the agent's next message in each chat, sampled or, if ``greedy``, of the most likely tokens."""
        with torch.no_grad():
            return self._answer(chats, greedy)

    def _answer(self, chats: Sequence[Sequence[Message]], greedy: bool) -> list[str]:
        """Continue all chats in parallel: process the prompts at once, then append one token to each at a time."""
        prompts = [self.tokenizer.encode(render(chat, prompt=True)[0]).ids for chat in chats]
        longest, context = max(map(len, prompts)), self.settings.context
        if longest > context:
            raise ValueError(f"a chat has {longest} tokens, the context has {context}")
        ids = torch.zeros(len(prompts), longest, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        places = torch.arange(longest).expand(len(prompts), longest)
        cache = self._model.cache(len(prompts), min(longest + self.settings.answer_tokens, context))
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        last = self._model.extend(ids, places, cache)[torch.arange(len(prompts)), lengths - 1]
        tokens, running = [list[int]() for _ in prompts], np.arange(len(prompts))
        for number in range(self.settings.answer_tokens):
            drawn = last.argmax(-1)
            if not greedy:
                drawn = torch.multinomial(last.softmax(-1), 1, generator=self._random)[:, 0]
            for row, token in zip(running.tolist(), drawn.tolist(), strict=True):
                if token != self._end:
                    tokens[row].append(token)
            unfinished = torch.nonzero((drawn != self._end) & (lengths + number < context))[:, 0]
            if not len(unfinished) or number == self.settings.answer_tokens - 1:
                break
            if len(unfinished) < len(drawn):
                running, lengths, drawn = running[unfinished.numpy()], lengths[unfinished], drawn[unfinished]
                cache = [(keys[unfinished], values[unfinished]) for keys, values in cache]
            last = self._model.extend(drawn[:, None], (lengths + number)[:, None], cache)[:, 0]
        return [self.tokenizer.decode(ids) for ids in tokens]

    def play(self, world: CachedEnv, seeds: Sequence[int], greedy: bool = False) -> list[Transcript]:
        """Play one episode from each seed, and return the transcripts."""
        chats: list[list[Message]] = [[{"role": "user", "content": world.reset(seed)}] for seed in seeds]
        texts: list[tuple[str, ...]] = [() for _ in seeds]
        rewards: list[list[float]] = [[] for _ in seeds]
        last: list[tuple[str, bool, bool]] = [("", False, False) for _ in seeds]
        running = list(range(len(seeds)))
        for _ in range(self.settings.turns):
            answers = self.answer([chats[row] for row in running], greedy)
            unfinished = []
            for row, text in zip(running, answers, strict=True):
                texts[row] = (*texts[row], text)
                observation, reward, terminated, truncated, success = world.step(seeds[row], texts[row])
                chats[row].append({"role": "assistant", "content": text})
                rewards[row].append(reward)
                last[row] = (observation, terminated, success)
                if not (terminated or truncated) and len(rewards[row]) < self.settings.turns:
                    chats[row].append({"role": "user", "content": observation})
                    unfinished.append(row)
            running = unfinished
            if not running:
                break
        return [
            Transcript(tuple(chat), tuple(reward), end[0], end[1], end[2], seed)
            for chat, reward, end, seed in zip(chats, rewards, last, seeds, strict=True)
        ]

    # -- learning ----------------------------------------------------------------------------------------

    def update(self, transcripts: Sequence[Transcript]) -> dict[str, float]:
        """Make one update from a batch of the agent's episodes, and return the batch's metrics by name."""
        episodes = [tokenize(one, self.tokenizer) for one in transcripts]
        ids, mask = self._padded(episodes)
        agent_mask = mask[:, 1:]
        with torch.no_grad():
            hidden = self._model.hidden(ids[:, :-1])
            values = self._model.value(hidden)[..., 0]
            old_log_prob = torch.zeros(agent_mask.shape)
            old_log_prob[agent_mask] = _log_probability(self._model.head(hidden[agent_mask]), ids[:, 1:][agent_mask])
        advantage, target = self._advantages(transcripts, episodes, values.double().numpy(), agent_mask.numpy())
        advantages, targets = torch.zeros(agent_mask.shape), torch.zeros(agent_mask.shape)
        advantages[agent_mask] = torch.from_numpy((advantage - advantage.mean()) / (advantage.std() + 1e-6)).float()
        targets[agent_mask] = torch.from_numpy(target).float()
        lengths, steps, divergence = np.array([len(one.ids) for one in episodes]), 0, 0.0
        for rows in [rows for _ in range(self.settings.epochs) for rows in self._minibatches(lengths)]:
            width = int(lengths[rows].max())
            divergence = self._improve(
                ids[rows, :width], agent_mask[rows, : width - 1], old_log_prob[rows, : width - 1],
                advantages[rows, : width - 1], targets[rows, : width - 1],
            )  # fmt: skip
            if divergence > self._kl_limit:
                break
            steps += 1
        return {
            "return": float(np.mean([one.total for one in transcripts])),
            "success": float(np.mean([bool(one.success) for one in transcripts])),
            "kl": divergence,
            "steps": steps,
        }

    def _minibatches(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Return random groups of rows of episodes; for RLOO, groups of similar lengths, which need little padding.

        Episodes of similar lengths often have similar rewards. A value function that learns from one such group after
        the other oscillates, so PPO has groups of any lengths.
        """
        ordered = torch.randperm(len(lengths), generator=self._random).numpy()
        if self.settings.method == "rloo":
            ordered = ordered[np.argsort(lengths[ordered], kind="stable")]
        groups = [ordered[at : at + self.settings.minibatch] for at in range(0, len(ordered), self.settings.minibatch)]
        return [groups[at] for at in torch.randperm(len(groups), generator=self._random).tolist()]

    def _improve(
        self, ids: torch.Tensor, agent_mask: torch.Tensor, old_log_prob: torch.Tensor, advantages: torch.Tensor,
        targets: torch.Tensor,
    ) -> float:  # fmt: skip
        """Make one gradient step unless the divergence exceeds the limit.

        Args:
            ids: tokens of episodes, (B, L).
            agent_mask: mask of the agent's tokens among all but the first, (B, L - 1).
            old_log_prob: log-probabilities under the policy that played the episodes, of the same shape.
            advantages: advantages, of the same shape.
            targets: value targets, of the same shape.

        Returns:
            The divergence from the policy that played the episodes, estimated as the mean of r - 1 - log r (Schulman
            2020, joschu.net/blog/kl-approx.html).
        """
        settings = self.settings
        hidden = self._model.hidden(ids[:, :-1])[agent_mask]
        logits = self._model.head(hidden)
        log_ratio = _log_probability(logits, ids[:, 1:][agent_mask]) - old_log_prob[agent_mask]
        ratio = log_ratio.exp()
        divergence = float((ratio - 1 - log_ratio).detach().mean())
        if divergence > self._kl_limit:
            return divergence
        clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
        policy_loss = -torch.minimum(ratio * advantages[agent_mask], clipped * advantages[agent_mask]).mean()
        probability = logits.log_softmax(-1)
        entropy = -(probability.exp() * probability).sum(-1).mean()
        loss = policy_loss - settings.entropy_weight * entropy
        if settings.method == "ppo":
            value_loss = (self._model.value(hidden)[..., 0] - targets[agent_mask]).square().mean()
            loss = loss + settings.value_weight * value_loss
        self._optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimiser.step()
        return divergence

    def _advantages(
        self, transcripts: Sequence[Transcript], episodes: Sequence[TokenEpisode], values: Any, agent_mask: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return advantages and value targets of the agent's tokens, row by row.

        The value before a token is the model's value after the token before it.
        """
        settings = self.settings
        if settings.method == "rloo":
            advantages = leave_one_out([one.total for one in transcripts], [one.seed or 0 for one in transcripts])
            tokens = agent_mask.sum(axis=1)
            return np.repeat(advantages, tokens), np.zeros(int(tokens.sum()))
        parts = []
        for row, one in enumerate(episodes):
            value = values[row][agent_mask[row]]
            parts.append(
                gae(
                    one.rewards[one.mask], value, self._last_value(transcripts[row]), settings.discount, settings.decay,
                    one.turns[one.mask], settings.turn_discount,
                )
            )  # fmt: skip
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _last_value(self, transcript: Transcript) -> float:
        """Return the value of the state after the last message; 0 if the task ended the episode."""
        if transcript.terminated:
            return 0.0
        chat = [*transcript.messages, Message(role="user", content=transcript.last)]
        ids = self.tokenizer.encode(render(chat, prompt=True)[0]).ids[: self.settings.context]
        with torch.no_grad():
            return float(self._model(torch.tensor([ids]))[1][0, -1])


def _log_probability(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    picked: torch.Tensor = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    return picked
