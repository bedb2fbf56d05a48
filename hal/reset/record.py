"""Record a reset as a state machine: its states, their durations and its outcome."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from hal.errors import DeadlineExceeded, EpisodeError, ResetFailed, RobotStopped
from hal.field import JsonDict
from hal.reset.confirmation import VERDICTS, Answer

__all__ = ["Outcome", "ResetProgress", "ResetRecord", "ResetState"]

_SHORT, _LONG = 100, 300
"""Largest lengths of foreign strings in a record, characters; as JSON it must fit into an event of 1000 bytes."""


class ResetState(StrEnum):
    """The states of a reset, in the order in which a successful reset passes them."""

    CALLED = "called"  # the robot is opened and read; a latched stop refuses here
    ASKED = "asked"  # the person or the fixture has been asked
    READY = "ready"  # the answer was yes
    HOMING = "homing"  # on the way to the start
    REACHED = "reached"  # at the start, not still yet
    SETTLED = "settled"  # over: the episode may begin
    FAILED = "failed"  # over: it may not


class Outcome(StrEnum):
    """The result of a reset: success, or the kind of failure."""

    DONE = "done"
    REFUSED = "refused"  # the answer was no, or nobody could be asked
    LATE = "late"  # no answer by the deadline
    BLOCKED = "blocked"  # the start was not reached by the deadline
    STOPPED = "stopped"  # somebody stopped the robot meanwhile
    BROKEN = "broken"  # the robot itself failed


_S = ResetState
_NEXT: Mapping[ResetState, frozenset[ResetState]] = {
    _S.CALLED: frozenset({_S.ASKED, _S.FAILED}),
    _S.ASKED: frozenset({_S.READY, _S.FAILED}),
    _S.READY: frozenset({_S.HOMING, _S.FAILED}),
    _S.HOMING: frozenset({_S.REACHED, _S.FAILED}),
    _S.REACHED: frozenset({_S.HOMING, _S.SETTLED, _S.FAILED}),  # back: pushed away before it was still
    _S.SETTLED: frozenset(),
    _S.FAILED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class ResetRecord:
    """The record of a finished reset, which is kept with the episode.

    Attributes:
        outcome: one of `Outcome`.
        detail: the reason for a failure, or the distance from the start at which the robot settled.
        by: the person or machine that answered; empty without an answer.
        note: a remark with the answer.
        verdict: the answer's verdict on the last episode, one of `hal.VERDICTS`, or None.
        seconds: state -> its duration.
        episode: number of the episode that began with this reset, counted in requested resets.
        judged: number of the episode that the verdict is on; None without a verdict.
    """

    outcome: str
    detail: str = ""
    by: str = ""
    note: str = ""
    verdict: str | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    episode: int = 0
    judged: int | None = None

    def without_verdict(self) -> ResetRecord:
        """Return the record without its verdict."""
        return replace(self, verdict=None, judged=None)

    def to_dict(self) -> JsonDict:
        """Return plain data, for JSON."""
        return {**asdict(self), "seconds": dict(self.seconds)}

    def to_json(self) -> str:
        """Return one line of JSON of at most 1000 characters."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> ResetRecord | None:
        """Make a record from the text of `to_json`; return None if the text is not a record."""
        try:
            plain = json.loads(text)
            seconds = {str(state): float(value) for state, value in plain["seconds"].items()}
            texts = [plain[key] for key in ("outcome", "detail", "by", "note")]
            verdict, episode, judged = plain["verdict"], plain["episode"], plain["judged"]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        if not all(isinstance(text, str) for text in texts) or verdict not in (None, *VERDICTS):
            return None
        if type(episode) is not int or (judged is not None and type(judged) is not int):
            return None
        return ResetRecord(texts[0], texts[1], texts[2], texts[3], verdict, seconds, episode, judged)


class ResetProgress:
    """Follow one reset through its states, and make its record.

    Args:
        on_event: called with each state after the first as (state, detail).
        episode: number of the episode that the reset begins.
        judged: number of the episode that a verdict would be on.
        now: monotonic clock, seconds.

    Attributes:
        state: the present state.
        record: the record, once the reset has ended.
    """

    def __init__(
        self,
        on_event: Callable[[str, str], None],
        episode: int = 0,
        judged: int | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = ResetState.CALLED
        self.record: ResetRecord | None = None
        self._on_event, self._now = on_event, now
        self._episode, self._judged = episode, judged
        self._since = now()
        self._seconds: dict[str, float] = {}
        self._answer = Answer("")
        self._asked = False

    @property
    def asked(self) -> bool:
        """Whether the person or machine was asked. A reset that fails earlier leaves no record, only its error."""
        return self._asked

    def go(self, state: ResetState, detail: str = "") -> None:
        """Enter the next state.

        Raises:
            EpisodeError: no transition leads there from the present state, which indicates a bug.
        """
        self._leave(state)
        self._on_event(state, detail)

    def answered(self, answer: Answer) -> None:
        """Record the answer that the scene is ready."""
        self._answer = answer
        self.go(ResetState.READY, answer.by)

    def done(self, detail: str) -> ResetRecord:
        """Record that the reset succeeded: the robot is settled at its start."""
        self._leave(ResetState.SETTLED)
        self.record = self._record(Outcome.DONE, detail)
        self._on_event(ResetState.SETTLED, detail)
        return self.record

    def failed(self, error: BaseException) -> ResetRecord:
        """Record that the reset failed, with its error."""
        outcome = self._outcome(error)
        self._leave(ResetState.FAILED)
        self.record = self._record(outcome, str(error) or type(error).__name__)
        if self._asked:
            self._on_event(ResetState.FAILED, self.record.detail)
        return self.record

    def _outcome(self, error: BaseException) -> Outcome:
        if isinstance(error, RobotStopped):
            return Outcome.STOPPED
        if self.state is ResetState.ASKED:
            return Outcome.LATE if isinstance(error, DeadlineExceeded) else Outcome.REFUSED
        moving = self.state in (ResetState.HOMING, ResetState.REACHED)
        return Outcome.BLOCKED if moving and isinstance(error, ResetFailed) else Outcome.BROKEN

    def _leave(self, state: ResetState) -> None:
        if state not in _NEXT[self.state]:
            raise EpisodeError(f"a reset does not go from {self.state} to {state}")
        now = self._now()
        spent = self._seconds.get(self.state, 0.0) + now - self._since
        self._seconds[self.state.value] = round(spent, 6)
        self.state, self._since = state, now
        self._asked = self._asked or state is ResetState.ASKED

    def _record(self, outcome: Outcome, detail: str) -> ResetRecord:
        answer = self._answer
        return ResetRecord(
            outcome.value, _short(detail, _LONG), _short(answer.by, _SHORT), _short(answer.note, _SHORT),
            answer.verdict, dict(self._seconds), self._episode, None if answer.verdict is None else self._judged,
        )  # fmt: skip


def _short(text: str, most: int) -> str:
    """Return one line of printable characters; a quote or a backslash, which JSON doubles, counts for two."""
    line = "".join(char if char.isprintable() else " " for char in text)
    line = " ".join(line.split())
    length = 0
    for number, char in enumerate(line):
        length += 2 if char in '"\\' else 1
        if length > most:
            return line[:number]
    return line
