"""Read the agents' messages of recorded transitions from their actions (B.5), in the form of Table 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonObject
from recorder.table.transitions import Transitions
from rlenv_robot.tasks.agents import MessageFields, agents_with_messages, messages, reaches

__all__ = ["RecordedMessages", "message_fields_of"]


def message_fields_of(records: Sequence[JsonObject], layout: FrameLayout) -> MessageFields:
    """Return the fields of the messages, as the records of all episodes name them.

    Args:
        records: the records of all episodes, with ``messages`` as `rlenv_robot.tasks.agents.message_fields` returns it.
        layout: the layout of the recorded frames.

    Returns:
        Sender -> its fields; empty if the records name none or different ones, or if the frames have no such fields.
    """
    named = records[0].get("messages") if records else None
    if not isinstance(named, Mapping) or any(record.get("messages") != named for record in records):
        return {}
    fits = all(
        sender in layout.agents
        and isinstance(fields, Mapping)
        and fields.keys() == {"message", "addressee"}
        and fields["message"] in layout.action
        and (fields["addressee"] == "" or fields["addressee"] in layout.action)
        for sender, fields in named.items()
    )
    return named if fits else {}


class RecordedMessages:
    """Return the messages that came with recorded observations.

    Args:
        transitions: the recorded transitions.
        fields: sender -> the fields of its message and addressee in the recorded action.
    """

    def __init__(self, transitions: Transitions, fields: MessageFields) -> None:
        self._transitions = transitions
        self._agents = agents_with_messages(transitions.table.layout.agents, fields)

    def at(self, row: np.ndarray) -> dict[str, Any]:
        """Return the messages that came with the observations of frame rows.

        Args:
            row: (B,) the numbers of the rows.

        Returns:
            Receiver -> sender -> message, (B, ...); with agents in turn, sender -> message for the agent whose turn it
            is. Rows without a message hold zeros, or empty texts.
        """
        if self._transitions.table.layout.turns:
            return self._in_turn(row)
        rows = self._transitions.table.rows
        # Row n holds the action that led to its observation; the first row of an episode holds zeros.
        action = {name: rows[f"action_{name}"][row] for agent in self._agents for name in agent.does.values()}
        return messages(self._agents, action, complete=True)

    def _in_turn(self, row: np.ndarray) -> dict[str, Any]:
        """Return sender -> message: all agents choose, one row each, before their messages arrive."""
        rows, count = self._transitions.table.rows, len(self._agents)
        turn, frame_no = rows["agent"][row], rows["frame_no"][row].astype(np.int64)
        received: dict[str, Any] = {}
        for place, sender in enumerate(self._agents):
            if not sender.message:
                continue
            back = turn + count - 1 - place  # rows since the one with this agent's last joint choice
            said = np.maximum(row - back, 0)
            was_said = (frame_no > back) & (rows["frame_no"][said] == frame_no - back) & (turn != place)
            message = rows[f"action_{sender.does[sender.message]}"][said]
            if sender.addressee:
                was_said &= reaches(rows[f"action_{sender.does[sender.addressee]}"][said], turn, count)
            received[sender.name] = _kept(message, was_said)
        return received


def _kept(message: np.ndarray, where: np.ndarray) -> np.ndarray:
    spread = where.reshape(where.shape + (1,) * (message.ndim - where.ndim))
    return np.where(spread, message, np.zeros_like(message))
