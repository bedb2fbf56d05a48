"""Keep people's preferences between two recorded episodes. They lie beside the log, which is never rewritten.

``preferences.jsonl`` in the run of the left episode has one JSON object a line: ``left`` and ``right`` (each with
``run``, a path from the file's folder, and ``episode``, the number in that run), ``choice``, ``who`` and ``wall_ns``.
Lines are only added; if a person judges the same two episodes again, the later line counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from hal import LogError
from recorder.json_data import append_lines, read_lines
from recorder.names import PREFERENCES

__all__ = ["CHOICES", "Choice", "EpisodeId", "Judgement", "Votes", "add_judgement", "count_votes", "read_judgements"]

Choice = Literal["left", "right", "equal", "skip"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
"""The answers of a person: the left or the right episode is better, both are equally good, or the person can't say."""


class EpisodeId(NamedTuple):
    """The identity of a recorded episode.

    Attributes:
        run: the run's folder, or another project's data set, as an absolute path.
        episode: its number in the run.
    """

    run: str
    episode: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """A person's preference between two episodes.

    Attributes:
        left: the episode that the person saw on the left.
        right: the episode that the person saw on the right.
        choice: one of `CHOICES`.
        who: the person.
        wall_ns: time of the answer, nanoseconds since 1970.
    """

    left: EpisodeId
    right: EpisodeId
    choice: Choice
    who: str
    wall_ns: int


class Votes(NamedTuple):
    """The answers of all people on two episodes, without those who could not say.

    Attributes:
        first: number of people who prefer the first episode.
        second: number of people who prefer the second episode.
        equal: number of people who find both equally good.
    """

    first: int = 0
    second: int = 0
    equal: int = 0

    @property
    def controversy(self) -> float:
        """The disagreement: 0 if all people agree on one of the two or nobody voted, 1 if as many prefer each."""
        count = sum(self)
        return 1.0 - abs(self.first - self.second) / count if count else 0.0


def add_judgement(left: EpisodeId, right: EpisodeId, choice: Choice, who: str, now_ns: int | None = None) -> Path:
    """Add a person's answer; it is on the disk when this returns.

    Args:
        left: an episode; its existence in the run is not checked.
        right: another episode.
        choice: one of `CHOICES`.
        who: the person.
        now_ns: time of the answer, nanoseconds since 1970; by default now.

    Returns:
        The file of preferences.

    Raises:
        LogError: the choice is not allowed, the two episodes are the same, their run does not exist, or the file can't
            be written.
    """
    if choice not in CHOICES:
        raise LogError(f"choice is {choice!r}, allowed are {', '.join(CHOICES)}")
    if left == right:
        raise LogError(f"episode {left.episode} of {left.run} is compared with itself; name two episodes")
    for run in (left.run, right.run):
        if not Path(run).exists():
            raise LogError(f"{run} does not exist; name the folder of one run, or a data set")
    path = _file(Path(left.run))
    line = {
        "left": _stored(left, path.parent), "right": _stored(right, path.parent), "choice": choice, "who": who,
        "wall_ns": time.time_ns() if now_ns is None else now_ns,
    }  # fmt: skip
    append_lines(path, [line])
    return path


def _file(run: Path) -> Path:
    """Return the file of preferences of a run or data set: in its folder, or beside a data set that is one file."""
    return run.with_name(f"{run.name}.{PREFERENCES}") if run.is_file() else run / PREFERENCES


def _stored(episode: EpisodeId, folder: Path) -> dict[str, Any]:
    return {"run": os.path.relpath(episode.run, folder), "episode": episode.episode}


def read_judgements(runs: Iterable[str | Path]) -> list[Judgement]:
    """Return the answers beside some runs, in the order in which they were given.

    A line that can't be read, such as after a crash, is skipped.

    Raises:
        LogError: a file exists and can't be opened.
    """
    judgements = []
    for run in dict.fromkeys(str(Path(run).resolve()) for run in runs):
        path = _file(Path(run))
        for entry in read_lines(path):
            try:
                left, right = (_read(entry[side], path.parent) for side in ("left", "right"))
                choice, who, wall_ns = entry["choice"], str(entry["who"]), int(entry["wall_ns"])
            except (ValueError, KeyError, TypeError):
                continue
            if choice in CHOICES and left != right:
                judgements.append(Judgement(left, right, choice, who, wall_ns))
    return sorted(judgements, key=lambda one: one.wall_ns)


def _read(stored: Mapping[str, Any], folder: Path) -> EpisodeId:
    return EpisodeId(os.path.normpath(folder / str(stored["run"])), int(stored["episode"]))


def count_votes(judgements: Iterable[Judgement]) -> dict[tuple[EpisodeId, EpisodeId], Votes]:
    """Count the votes on each pair of episodes, in ascending order. Of a person's answers only the latest counts.

    Args:
        judgements: the answers in the order in which they were given.
    """
    latest: dict[tuple[EpisodeId, EpisodeId, str], str] = {}
    for one in judgements:
        swapped = one.right < one.left
        first, second = (one.right, one.left) if swapped else (one.left, one.right)
        side = {"left": "second" if swapped else "first", "right": "first" if swapped else "second"}
        latest[first, second, one.who] = side.get(one.choice, one.choice)
    votes: dict[tuple[EpisodeId, EpisodeId], Votes] = {}
    for (first, second, _), side_name in latest.items():
        before = votes.get((first, second), Votes())
        votes[first, second] = (
            before if side_name == "skip" else before._replace(**{side_name: getattr(before, side_name) + 1})
        )
    return {pair: counted for pair, counted in votes.items() if sum(counted)}
