"""Draw preference pairs of recorded chats, write them, and train a reward model on them (R6.4, R3.1)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hal import SourceError
from recorder.log.preferences import count_votes, read_judgements
from rlenv_language.chat.transcripts import Transcript, read_transcripts
from rlenv_robot.source import SourceData

__all__ = ["Preference", "WordRewardModel", "preferences", "relabel_chats", "write_preferences"]

_WORD = re.compile(r"\w+|[^\w\s]")


class Preference(NamedTuple):
    """A pair of chats, the first of which is preferred.

    Attributes:
        chosen: the preferred chat.
        rejected: the other chat.
        controversy: how disputed the preference is, from 0 for the clearest pair to 1 for the most disputed one.
    """

    chosen: Transcript
    rejected: Transcript
    controversy: float


def preferences(
    chats: Sequence[Transcript],
    size: int,
    by: str = "return",
    priority: str = "",
    seed: int = 0,
    same_start: bool = False,
) -> list[Preference]:
    """Draw preference pairs from recorded chats.

    Args:
        chats: the chats, at least two of them different.
        size: number of pairs.
        by: what decides the preference: ``return``, ``success`` (by the task, or by a recorded verdict or label), or
            ``person`` (preferences given at the console, which are stored beside the logs).
        priority: ``controversy`` draws disputed pairs more often: those with similar returns, or, by person, those on
            which people disagree. Empty draws uniformly.
        seed: seed of the draws.
        same_start: whether to pair only chats with the same messages up to the agent's first answer.

    Raises:
        SourceError: ``by`` or ``priority`` is unknown, or no two chats differ.
        LogError: the preferences can't be read.
    """
    if by not in ("return", "success", "person") or priority not in ("", "controversy"):
        raise SourceError(
            f"by is {by!r} and priority {priority!r}, allowed are 'return', 'success', 'person'; '', 'controversy'"
        )
    better, worse, controversy = _by_person(chats) if by == "person" else _by_score(chats, by)
    if same_start:
        starts = [_start(one) for one in chats]
        alike = np.array([starts[a] == starts[b] for a, b in zip(better, worse, strict=True)], bool)
        better, worse, controversy = better[alike], worse[alike], controversy[alike]
    if not len(better):
        raise SourceError(
            f"no preference compares two of the {len(chats)} chats; let people do so at `rlenv-robot operate console`"
            if by == "person"
            else f"no two of the {len(chats)} chats {'with the same start ' * same_start}differ in their {by}, so none "
            "is preferred"
        )
    weight = controversy + 1e-3 if priority else np.ones(len(better))
    drawn = np.random.default_rng(seed).choice(len(better), size, p=weight / weight.sum())
    return [Preference(chats[better[n]], chats[worse[n]], float(controversy[n])) for n in drawn.tolist()]


_Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Indices of the preferred and of the rejected chat of each pair, and the pair's controversy, (P,) each."""


def _by_score(chats: Sequence[Transcript], by: str) -> _Pairs:
    numbers = np.array([n for n, one in enumerate(chats) if by == "return" or one.success is not None], np.intp)
    total = np.array([chats[n].total for n in numbers])
    score = total if by == "return" else np.array([float(bool(chats[n].success)) for n in numbers])
    better, worse = np.nonzero(score[:, None] > score[None, :])
    gap = np.abs(total[better] - total[worse])
    return numbers[better], numbers[worse], 1.0 - gap / max(float(gap.max(initial=0.0)), 1e-12)


def _by_person(chats: Sequence[Transcript]) -> _Pairs:
    place = {one.episode: n for n, one in enumerate(chats) if one.episode is not None}
    pairs = []
    for (first, second), votes in count_votes(read_judgements(run for run, _ in place)).items():
        if votes.first != votes.second and first in place and second in place:
            sides = (place[first], place[second])
            pairs.append((*(sides if votes.first > votes.second else sides[::-1]), votes.controversy))
    better, worse, controversy = np.array(pairs, float).reshape(-1, 3).T
    return better.astype(np.intp), worse.astype(np.intp), controversy


def _start(chat: Transcript) -> tuple[str, ...]:
    first = next(place for place, message in enumerate(chat.messages) if message["role"] == "assistant")
    return tuple(f"{message['role']} {message['content']}" for message in chat.messages[:first])


def write_preferences(pairs: Sequence[Preference], path: str | Path) -> int:
    """Write pairs for preference learning such as DPO, as TRL reads them.

    Each line is a JSON object with ``prompt``, ``chosen`` and ``rejected``. The prompt is the common beginning of both
    chats; chosen and rejected are the first messages of the agent that differ. Later messages are left out, so that all
    trained tokens are the agent's. Pairs that differ in an earlier observation are also left out: draw pairs with
    ``same_start``.

    Args:
        pairs: the pairs.
        path: the file (``.jsonl``), which is overwritten.

    Returns:
        The number of lines.
    """
    lines = []
    for pair in pairs:
        both = list(zip(pair.chosen.messages, pair.rejected.messages, strict=False))
        place = next((number for number, (one, other) in enumerate(both) if one != other), None)
        if place is None or {message["role"] for message in both[place]} != {"assistant"}:
            continue
        prompt = list(pair.chosen.messages[:place])
        lines.append(json.dumps({"prompt": prompt, "chosen": [both[place][0]], "rejected": [both[place][1]]}))
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


@dataclass
class WordRewardModel:
    """A Bradley-Terry model of the words in the agent's messages, in NumPy, which trains within a second.

    The probability that one chat is preferred over another is the logistic function of the difference of their scores.
    A score is linear in log(1 + count) of each word.

    Attributes:
        words: word -> its index in the weights.
        weights: weight of each word, (W,).
    """

    words: dict[str, int]
    weights: np.ndarray

    @classmethod
    def train(
        cls, pairs: Sequence[Preference], steps: int = 300, rate: float = 0.5, decay: float = 1e-3
    ) -> WordRewardModel:
        """Fit a model to preferences by gradient ascent on their likelihood.

        Args:
            pairs: the pairs, at least one.
            steps: number of steps of the ascent.
            rate: step size of the ascent.
            decay: weight decay, which keeps the weights of rare words small.

        Raises:
            SourceError: there are no pairs.
        """
        if not pairs:
            raise SourceError("there is no pair to learn from")
        vocabulary = sorted({word for pair in pairs for chat in pair[:2] for word in _counts(chat)})
        model = cls({word: place for place, word in enumerate(vocabulary)}, np.zeros(len(vocabulary)))
        difference = np.array([model._features(pair.chosen) - model._features(pair.rejected) for pair in pairs])
        for _ in range(steps):
            wrong = 1.0 / (1.0 + np.exp(difference @ model.weights))
            model.weights += rate * (difference.T @ wrong / len(pairs) - decay * model.weights)
        return model

    def _features(self, chat: Transcript) -> np.ndarray:
        vector = np.zeros(len(self.words))
        for word, count in _counts(chat).items():
            if word in self.words:
                vector[self.words[word]] = np.log1p(count)
        return vector

    def score(self, chat: Transcript) -> float:
        """Return the score of a chat."""
        return float(self._features(chat) @ self.weights)


def _counts(chat: Transcript) -> Counter[str]:
    texts = [message["content"].lower() for message in chat.messages if message["role"] == "assistant"]
    return Counter(word for text in texts for word in _WORD.findall(text))


def relabel_chats(source: SourceData, score: Callable[[Transcript], float]) -> SourceData:
    """Return recorded chats with new rewards: the whole chat's score in its last step, and 0 before (R3.1).

    Args:
        source: record of an environment in language.
        score: function that returns a chat's score, such as `WordRewardModel.score`.

    Raises:
        SourceError: the data have no texts, an episode has a step of unknown effect, or a score is not finite.
    """
    table = source.table
    rows, episodes = table.rows.copy(), [dict(record) for record in table.episodes]
    chats = iter(read_transcripts(source))
    for number, (start, stop) in enumerate(zip(table.starts.tolist(), table.stops.tolist(), strict=True)):
        if stop - start < 2:
            continue
        chat = next(chats, None)
        if chat is None or len(chat.rewards) != stop - start - 1:
            raise SourceError(f"episode {number} has a step of unknown effect, so it can't be judged as a whole")
        value = score(chat)
        if not np.isfinite(value):
            raise SourceError(f"episode {number}: the score is {value}, expected a finite number")
        rows["reward"][start:stop] = 0.0
        rows["reward"][stop - 1] = value
        episodes[number]["return"] = value
    notes = [*table.notes, "rewards are computed anew by a reward model"]
    return SourceData(replace(table, rows=rows, episodes=tuple(episodes), notes=tuple(notes)), discount=source.discount)
