"""Tokenise chats, with a mask of the agent's tokens and the rewards of its turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rlenv_language.chat.transcripts import Message, Transcript

__all__ = ["BEGIN", "CHAT_TEMPLATE", "END", "TokenEpisode", "Tokenizer", "render", "tokenize", "write_rl"]

BEGIN, END = "<|im_start|>", "<|im_end|>"
"""Marks of a message in ChatML, the format of Ammanabrolu and Wang 2025 (arXiv:2510.01132). Each must be one special
token of the tokenizer."""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The same format as a chat template of ``transformers``, with the ``generation`` marks for the assistant mask."""


class _Encoding(Protocol):
    ids: list[int]
    offsets: list[tuple[int, int]]


class Tokenizer(Protocol):
    """A tokenizer of the package ``tokenizers``, such as ``backend_tokenizer`` of a fast ``transformers`` one."""

    def encode(self, sequence: str, *, add_special_tokens: bool = True) -> Any:
        """Return an encoding with ``ids`` and ``offsets`` in characters."""
        ...


@dataclass(frozen=True, slots=True)
class TokenEpisode:
    """The tokens of one episode, a sequence of length L.

    Attributes:
        ids: int64 (L,).
        mask: mask of the agent's tokens, including the end mark of each message, bool (L,).
        rewards: a turn's reward at the token that ends its message, otherwise 0, float64 (L,).
        turns: turn number of each of the agent's tokens, -1 for other tokens, int64 (L,).
        terminated: whether the task ended the episode.
    """

    ids: np.ndarray
    mask: np.ndarray
    rewards: np.ndarray
    turns: np.ndarray
    terminated: bool


def render(messages: Sequence[Message], prompt: bool = False) -> tuple[str, list[tuple[int, int]]]:
    """Return a chat as one text, and the character spans of the agent's messages, including their end marks.

    Args:
        messages: messages of the chat.
        prompt: whether to append the beginning of the agent's next message.
    """
    text, spans = "", []
    for message in messages:
        text += f"{BEGIN}{message['role']}\n"
        if message["role"] == "assistant":
            spans.append((len(text), len(text) + len(message["content"]) + len(END)))
        text += f"{message['content']}{END}\n"
    return text + (f"{BEGIN}assistant\n" if prompt else ""), spans


def tokenize(transcript: Transcript, tokenizer: Tokenizer) -> TokenEpisode:
    """Tokenise an episode.

    Raises:
        ValueError: a token extends beyond an agent's message, so that no mask is exact, or the end mark of a message is
            not one token.
    """
    text, spans = render(transcript.messages)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    ids = np.array(encoding.ids, np.int64)
    begins, ends = np.array(encoding.offsets, np.int64).reshape(-1, 2).T
    turns = np.full(len(ids), -1, np.int64)
    rewards = np.zeros(len(ids))
    for number, ((start, stop), reward) in enumerate(zip(spans, transcript.rewards, strict=True)):
        inside = (begins >= start) & (ends <= stop) & (ends > start)
        across = (begins < stop) & (ends > start) & ~inside
        if across.any():
            raise ValueError(f"turn {number}: a token lies across the border of the message: {text[start:stop]!r:.80}")
        last = np.flatnonzero(inside)[-1]
        if begins[last] != stop - len(END):
            raise ValueError(f"turn {number}: {END} is not a single token: add it to the tokenizer as a special token")
        turns[inside] = number
        rewards[last] = reward
    return TokenEpisode(ids, turns >= 0, rewards, turns, transcript.terminated)


def write_rl(transcripts: Sequence[Transcript], tokenizer: Tokenizer, path: str | Path) -> int:
    """Write episodes as tokens for reinforcement learning, one JSON object per line.

    An object has ``messages``, and the fields of `TokenEpisode` as ``input_ids``, ``loss_mask``, ``rewards`` and
    ``terminated``.

    Args:
        transcripts: the episodes.
        tokenizer: as for `tokenize`.
        path: the file (``.jsonl``), which is overwritten.

    Returns:
        The number of lines.

    Raises:
        ValueError: as for `tokenize`.
    """
    lines = []
    for transcript in transcripts:
        episode = tokenize(transcript, tokenizer)
        lines.append(
            json.dumps(
                {
                    "messages": list(transcript.messages),
                    "input_ids": episode.ids.tolist(),
                    "loss_mask": episode.mask.astype(int).tolist(),
                    "rewards": episode.rewards.tolist(),
                    "terminated": episode.terminated,
                }
            )
        )
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)
