"""Read chat transcripts from recorded episodes, and write them for fine-tuning."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hal import SourceError
from recorder.log.labels import is_success
from recorder.log.preferences import EpisodeId
from rlenv_robot.data.chats import TEXT, Message, read_messages
from rlenv_robot.source import SourceData

__all__ = ["Message", "Transcript", "read_transcripts", "write_sft"]


@dataclass(frozen=True, slots=True)
class Transcript:
    """One episode as a chat: user and assistant alternate, beginning with the first observation.

    Attributes:
        messages: messages up to the agent's last answer, with an optional system message first.
        rewards: reward of each of the agent's messages.
        last: the observation after the last message.
        terminated: whether the task ended the episode; the last state of a truncated episode is bootstrapped.
        success: success according to a person's verdict or label, otherwise to the task; None if unknown.
        seed: seed of the episode, if recorded.
        episode: the recorded episode; None if it was not recorded.
    """

    messages: tuple[Message, ...]
    rewards: tuple[float, ...]
    last: str = ""
    terminated: bool = True
    success: bool | None = None
    seed: int | None = None
    episode: EpisodeId | None = None

    @property
    def total(self) -> float:
        """The sum of the rewards."""
        return float(sum(self.rewards))


def read_transcripts(source: SourceData, system: str = "") -> list[Transcript]:
    """Return the transcript of each recorded episode that has at least one turn.

    Args:
        source: recordings of an environment in language (`rlenv_language.text.view.to_text`, a dialogue, or a gem
            environment).
        system: content of a system message, such as the environment's instructions; empty for none.

    Raises:
        SourceError: the data have no texts.
    """
    table = source.table
    if TEXT not in table.layout.observation or TEXT not in table.layout.action:
        raise SourceError(f"{table.origin} has no observations and actions of the field {TEXT!r}: record to_text(env)")
    first: tuple[Message, ...] = ({"role": "system", "content": system},) if system else ()
    transcripts = []
    bounds = zip(table.starts.tolist(), table.stops.tolist(), table.episodes, strict=True)
    for number, (start, stop, record) in enumerate(bounds):
        rows = table.rows[start:stop]
        messages, last = read_messages(rows)
        if messages:
            rewards = tuple(rows["reward"][1 : 1 + len(messages) // 2].tolist())
            over, success, seed = bool(rows["terminated"][-1]), is_success(record), record.get("seed")
            identity = table.episode_id(number)
            transcripts.append(Transcript((*first, *messages), rewards, last, over, success, seed, identity))
    return transcripts


def write_sft(
    transcripts: Sequence[Transcript], path: str | Path, keep: Callable[[Transcript], bool] | None = None
) -> int:
    """Write chats for supervised fine-tuning in TRL's format: a JSON object with ``messages`` on each line.

    Args:
        transcripts: the chats to write.
        path: the file (``.jsonl``), which is overwritten.
        keep: returns whether to write a chat; None writes all.

    Returns:
        The number of lines.
    """
    lines = [json.dumps({"messages": list(one.messages)}) for one in transcripts if keep is None or keep(one)]
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)
