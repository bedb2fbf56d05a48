"""Ask a person which of two recorded episodes is better, the most disputed pairs first, and save the answer."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hal import RobotError
from hal.field import JsonDict
from real.protocol.access import role_refusal
from real.protocol.text import printable
from recorder.log.preferences import Choice, EpisodeId, Judgement, add_judgement, count_votes, read_judgements
from recorder.table.table import Table
from rlenv_operate.console.access import Visitor
from rlenv_operate.console.acts import ActLog, ActRecord
from rlenv_operate.console.messages import Compare
from rlenv_operate.console.replay import Replays
from rlenv_robot.data.chats import TEXT, read_messages
from rlenv_robot.rendering.show import find_episode

__all__ = ["Comparisons", "Pair", "ShownPair", "compare"]

_MOST_COMPARED = 300
"""The newest episodes that are compared with each other, of each task and, in chats, of each prompt."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two episodes for a person to compare.

    Attributes:
        left: identity of the episode on the left.
        right: identity of the episode on the right.
        numbers: their numbers in the folder, left and right.
        controversy: how disputed the two are, 0 to 1.
        kind: ``motion`` or ``chat``.
    """

    left: EpisodeId
    right: EpisodeId
    numbers: tuple[int, int]
    controversy: float
    kind: str


class Comparisons:
    """The comparisons of a folder's episodes, which are read again at each question. One thread at a time may use it.

    Two episodes are comparable if they have the same task and robot or, in chats, the same prompt. Pairs with votes are
    as disputed as the votes (`Votes.controversy`); among the others, the smaller the difference of the returns, the
    more disputed the pair.

    Args:
        folder: the folder of the runs, or another project's data set.
        seed: decides which episode of a pair is shown on the left, so that neither side is better on average.
    """

    def __init__(self, folder: str | Path, seed: int | None = None) -> None:
        self._folder, self._sides = folder, np.random.default_rng(seed)
        self._replays = Replays(folder)

    def next(self, who: str) -> Pair | None:
        """Return the most disputed pair that a person has neither judged nor skipped, or None.

        Raises:
            SourceError: there are no episodes.
            LogError: the saved preferences can't be read.
        """
        table, _ = find_episode(self._folder, -1)
        ids = [table.episode_id(number) for number in range(len(table.starts))]
        judgements = read_judgements(run for run, _ in ids)
        done = {frozenset((one.left, one.right)) for one in judgements if one.who == who}
        for first, second, controversy in _ordered(table, ids, judgements):
            if frozenset((ids[first], ids[second])) in done:
                continue
            numbers = (second, first) if self._sides.random() < 0.5 else (first, second)
            kind = "chat" if _is_chat(table) else "motion"
            return Pair(ids[numbers[0]], ids[numbers[1]], numbers, controversy, kind)
        return None

    def show(self, pair: Pair) -> JsonDict:
        """Return a pair for the page: ``kind``, and ``left`` and ``right``, each a log (`Replays.load`) or messages.

        Raises:
            SourceError: an episode no longer exists, or its robot can't be drawn.
        """
        left, right = (self._side(number, pair.kind) for number in pair.numbers)
        return {"kind": pair.kind, "left": left, "right": right}

    def _side(self, number: int, kind: str) -> JsonDict:
        if kind == "motion":
            return self._replays.load(number)
        table, number = find_episode(self._folder, number)
        return {"messages": read_messages(table.rows[int(table.starts[number]) : int(table.stops[number])])[0]}

    def answer(self, pair: Pair, choice: Choice, who: str) -> str:
        """Save a person's answer beside the log of the left episode, and return a message about it.

        Raises:
            LogError: the answer can't be saved.
        """
        add_judgement(pair.left, pair.right, choice, who)
        left, right = (f"{Path(run).name}:{number}" for run, number in (pair.left, pair.right))
        return f"{choice} of {left} and {right}"


@dataclass(frozen=True, slots=True)
class ShownPair:
    """The pair that a page shows.

    Attributes:
        number: the number under which the page received the pair, from 1.
        pair: the two episodes.
    """

    number: int
    pair: Pair


def compare(
    comparisons: Comparisons | None, question: Compare, shown: ShownPair | None, visitor: Visitor, log: ActLog
) -> tuple[str, ShownPair | None]:
    """Process a page's answer on the pair that it shows, if it sent one, and return the next pair.

    Args:
        comparisons: the comparisons of the recorded episodes; None if the console has no folder of runs.
        question: the page's message.
        shown: the pair that the page shows, or None.
        visitor: the person, who needs the role ``operate``.
        log: logs each answer as an act, including refused ones.

    Returns:
        A JSON message with ``pair`` (its number; 0 if there is none), ``problem``, ``outcome`` and `Comparisons.show`;
        and the pair that the page shows from now on.
    """
    message: JsonDict = {"t": "compare", "pair": 0, "problem": "", "outcome": ""}
    try:
        if question.choice is not None:
            message["outcome"] = _answer(comparisons, question, shown, visitor, log)
        pair = _allowed(comparisons, visitor).next(visitor.name)
        shown = None if pair is None else ShownPair((0 if shown is None else shown.number) + 1, pair)
        if comparisons is not None and shown is not None:
            message["pair"] = shown.number
            message |= comparisons.show(shown.pair)
    except (RobotError, ValueError, OSError) as error:
        message |= {"problem": str(error), "pair": 0 if shown is None else shown.number}
    return json.dumps(message, separators=(",", ":"), allow_nan=False), shown


def _allowed(comparisons: Comparisons | None, visitor: Visitor) -> Comparisons:
    if (why := role_refusal("compare", visitor.role)) is not None:
        raise ValueError(f"{visitor.name} {why}")
    if comparisons is None:
        raise ValueError("the console was started without --runs FOLDER")
    return comparisons


def _answer(
    comparisons: Comparisons | None, question: Compare, shown: ShownPair | None, visitor: Visitor, log: ActLog
) -> str:
    assert question.choice is not None
    ok, outcome = False, ""
    try:
        allowed = _allowed(comparisons, visitor)
        if shown is None or shown.number != question.pair:
            raise ValueError("the answer is on a pair that this page does not show; look again")
        outcome = allowed.answer(shown.pair, question.choice, visitor.name)
        ok = True
    except (RobotError, ValueError, OSError) as error:
        outcome = str(error)
        raise
    finally:
        log.add(
            ActRecord(
                time.time(), visitor.name, visitor.role.value, "prefer", question.choice, ok, printable(outcome, 1000)
            )
        )
    return outcome


def _is_chat(table: Table) -> bool:
    return TEXT in table.layout.observation and TEXT in table.layout.action


def _ordered(table: Table, ids: list[EpisodeId], judgements: list[Judgement]) -> Iterator[tuple[int, int, float]]:
    """Yield the numbers of two episodes and their controversy, the most disputed first."""
    groups = defaultdict[Hashable, list[int]](list)
    for number in range(len(ids) - 1, -1, -1):
        info = table.episodes[number]
        group = None if info.get("part") or info.get("verdict") == "discard" else _group(table, number)
        if group is not None and len(groups[group]) < _MOST_COMPARED:
            groups[group].append(number)
    votes = count_votes(judgements)
    firsts, seconds, disputes = [], [], []
    for numbers in groups.values():
        members = np.array(numbers)
        returns = np.array([_return(table, number) for number in numbers])
        first, second = np.triu_indices(len(members), 1)
        gap = np.abs(returns[first] - returns[second])
        firsts.append(members[first])
        seconds.append(members[second])
        disputes.append(1.0 - gap / max(float(gap.max(initial=0.0)), 1e-12))
    if not firsts:
        return
    one, other, dispute = (np.concatenate(parts) for parts in (firsts, seconds, disputes))
    place = {identity: number for number, identity in enumerate(ids)}
    where = {pair: n for n, pair in enumerate(zip(one.tolist(), other.tolist(), strict=True))} if votes else {}
    for (first_id, second_id), counted in votes.items():
        pair = place.get(first_id, -1), place.get(second_id, -1)
        if (at := where.get((max(pair), min(pair)))) is not None:
            dispute[at] = counted.controversy
    for at in np.argsort(-dispute, kind="stable").tolist():
        yield int(one[at]), int(other[at]), float(dispute[at])


def _return(table: Table, number: int) -> float:
    """Return the sum of an episode's rewards; 0 where several agents are rewarded."""
    if "reward" not in (table.rows.dtype.names or ()):
        return 0.0
    return float(np.nansum(table.rows["reward"][int(table.starts[number]) + 1 : int(table.stops[number])]))


def _group(table: Table, number: int) -> Hashable:
    """Return what two episodes must have in common to be compared, or None where one is not compared at all."""
    start, stop = int(table.starts[number]), int(table.stops[number])
    if stop - start < 2:
        return None
    info = table.episodes[number]
    task = str(info.get("task") or info.get("world") or ""), str(info.get("robot") or "")
    if not _is_chat(table):
        return task
    return (*task, str(table.rows[f"observation_{TEXT}"][start])) if table.rows["acted"][start + 1] else None
