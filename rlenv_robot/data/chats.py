"""Read recorded episodes of text as chats."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from hal import Field

__all__ = ["TEXT", "Message", "decode", "encode", "read_messages"]

TEXT = "text"
"""The only field of a text observation or text action."""


def encode(text: str, field: Field) -> np.ndarray:
    """Encode a text as a value of a field; characters without a UTF-8 form become question marks.

    Raises:
        ValueError: the text is longer than the field allows.
    """
    if len(text) > field.characters:
        raise ValueError(f"a text has {len(text)} characters, there is room for {field.characters}")
    if not text.isascii() or "\0" in text:
        text = text.replace("\0", "?").encode("utf-8", "replace").decode("utf-8")
    return np.array(text, field.numpy_dtype)


def decode(array: np.ndarray) -> str:
    """Return the text in a field's value."""
    return str(np.asarray(array)[()])


class Message(TypedDict):
    """One message of a chat.

    Attributes:
        role: ``system``, ``user`` (the environment) or ``assistant`` (the agent).
        content: its text.
    """

    role: str
    content: str


def read_messages(rows: np.ndarray) -> tuple[list[Message], str]:
    """Return an episode as a chat, user and assistant alternating, and the observation after the last message.

    The chat ends before the first step with an unknown effect.

    Args:
        rows: (T + 1,), an episode's frames, with a text as observation and as action.
    """
    observations = [decode(text) for text in rows[f"observation_{TEXT}"]]
    acted = rows["acted"][1:].astype(bool)
    turns = len(acted) if acted.all() else int(np.argmin(acted))
    messages: list[Message] = []
    for number in range(turns):
        messages.append({"role": "user", "content": observations[number]})
        messages.append({"role": "assistant", "content": decode(rows[f"action_{TEXT}"][number + 1])})
    return messages, observations[turns]
