"""Results of a conformance run: checks, findings and notes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Check", "Failed", "NotTried", "Note", "Report", "run_check"]

_INDENT = " " * 26
"""Indentation of the lines in which a line goes on: that of its sentence, behind word, number and clause."""


def _shown(clause: str) -> str:
    """Return a clause as a line's column: its first statement, without a table's row."""
    first, table, row = clause.split()[0].partition("-T")
    return f"{first + table + row.partition('.')[0]:10}"


class Failed(Exception):
    """Say that a check failed.

    Args:
        found: what was found, and what was expected.
        allowed: what is allowed, if ``found`` does not say it.
        how: what was done before; by default the newest calls in the check's call log.
    """

    def __init__(self, found: str, allowed: str = "", how: str = "") -> None:
        super().__init__(f"{found}; {allowed}" if allowed else found)
        self.found, self.allowed, self.how = found, allowed, how


class NotTried(Exception):
    """Say that a check can't be made here, and why. The check counts as neither passed nor failed."""


@dataclass(frozen=True, slots=True)
class Note:
    """A remark on something that the standard leaves open. It is not a failure.

    Attributes:
        clause: what it concerns, as `Check.clause`.
        text: one sentence: what the subject does, and how that differs from this project's environments.
    """

    clause: str
    text: str

    def __str__(self) -> str:
        return f"note           {_shown(self.clause)} {self.text}"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes:
        name: what must hold.
        clause: ids of the standard's statements (`rlenv_kit.standard`), separated by spaces; or ``contract`` for what
            this project asks beyond the standard, or ``robot`` for `hal.Robot`'s contract.
        passed: None if the check could not be made.
        message: what was found and what is allowed, if the check did not pass.
        how: what was done before the finding: seed, step and call.
        number: the number of the check, counted from 1; ``--reproduce`` takes it.
        calls: the newest calls before the finding, oldest first, a line each.
        key: short name of the check, which stays when its sentence changes.
        raised: whether the finding is an exception that the check did not expect.
        allowed: what is allowed, the last part of ``message``; empty if the message says it.
        reached: False if the run ended before or during this check.
    """

    name: str
    clause: str
    passed: bool | None
    message: str = ""
    how: str = ""
    number: int = 0
    calls: tuple[str, ...] = ()
    key: str = ""
    raised: bool = False
    allowed: str = ""
    reached: bool = True

    @property
    def found(self) -> str:
        """The finding, without the part that says what is allowed."""
        return self.message.removesuffix(f"; {self.allowed}") if self.allowed else self.message

    @property
    def word(self) -> str:
        """The result as a word: ok, FAILED, not tried or unreached."""
        if not self.reached:
            return "unreached"
        return {True: "ok", False: "FAILED", None: "not tried"}[self.passed]

    def __str__(self) -> str:
        number = f"#{self.number:<3} " if self.number else ""
        line = f"{self.word:9} {number}{_shown(self.clause)} {self.name}"
        if self.message:
            line += f": {self.message}" + (f" [{self.how}]" if self.how else "")
        return line


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all checks of one run.

    Attributes:
        subject: what was checked.
        checks: in the order of the run.
        notes: the subject's behaviour where the standard leaves it open.
        seconds: how long the run took.
        robot_digest: digest of the checked robot's spec; empty if no robot was checked.
        spec_digest: digest of an environment's observation and action; empty for another part.
        steps: number of calls of step.
    """

    subject: str
    checks: tuple[Check, ...]
    notes: tuple[Note, ...] = ()
    seconds: float = 0.0
    robot_digest: str = ""
    spec_digest: str = ""
    steps: int = 0

    @property
    def part(self) -> str:
        """The part that was checked, as ``--reproduce`` takes it: environment, robot, batch or source."""
        return self.subject.split(maxsplit=1)[0]

    @property
    def passed(self) -> bool:
        """Whether all checks were reached and none failed."""
        return not self.failures and not self.unreached

    @property
    def failures(self) -> tuple[Check, ...]:
        """The failed checks."""
        return tuple(check for check in self.checks if check.passed is False)

    @property
    def unreached(self) -> tuple[Check, ...]:
        """The checks that were not made because the run ended early: by a time limit, or by a call that hung."""
        return tuple(check for check in self.checks if not check.reached)

    def raise_if_failed(self) -> None:
        """Raise an error if a check failed.

        Raises:
            AssertionError: with a line for each failure.
        """
        if self.failures:
            lines = "\n".join(map(str, self.failures))
            raise AssertionError(f"{self.subject} breaks its contract:\n{lines}")

    @property
    def summary(self) -> str:
        """One line with the numbers of passed, failed and other checks, and the duration."""
        counts = {word: sum(check.word == word for check in self.checks) for word in ("ok", "FAILED", "not tried")}
        text = f"{self.subject}: {counts['ok']} passed, {counts['FAILED']} failed, {counts['not tried']} not tried"
        text += f", {len(self.unreached)} not reached" if self.unreached else ""
        count = len(self.notes)
        notes = f", {count} note{'' if count == 1 else 's'}" if count else ""
        return text + notes + (f", {self.seconds:.1f} s" if self.seconds else "")

    def lines(self, verbose: bool = True, width: int = 0) -> list[str]:
        """Return the report as lines of text, one for each check and note.

        Args:
            verbose: whether to list passed and unreached checks too.
            width: columns after which a line is wrapped and indented; 0 wraps none.
        """
        checks = [str(check) for check in self.checks if verbose or (check.passed is not True and check.reached)]
        if self.unreached and not verbose:
            names = "; ".join(f"#{check.number} {check.name}" for check in self.unreached)
            checks.append(f"unreached {len(self.unreached)} checks: {self.unreached[0].message}: {names}")
        lines = [*checks, *map(str, self.notes), self.summary]
        if not width:
            return lines
        return [
            part
            for line in lines
            for part in textwrap.wrap(line, width, subsequent_indent=_INDENT, break_on_hyphens=False)
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def run_check(
    name: str,
    clause: str,
    check: Callable[[], None],
    number: int = 0,
    how: Callable[[], str] = str,
    calls: Callable[[], Sequence[str]] = tuple,
    key: str = "",
) -> Check:
    """Run one check. Any exception but `NotTried` is a failure, because the code under test may raise anything.

    Args:
        name: what must hold.
        clause: as `Check.clause`.
        check: raises `Failed` or `NotTried`, or returns.
        number: the number of the check, counted from 1.
        how: returns what was done; called after a failure.
        calls: returns the newest calls; called after a failure.
        key: the key of the check.
    """
    try:
        check()
    except NotTried as reason:
        return Check(name, clause, None, str(reason), number=number, key=key)
    except Failed as finding:
        return Check(
            name, clause, False, str(finding), finding.how or how(), number, tuple(calls()), key,
            allowed=finding.allowed,
        )  # fmt: skip
    except Exception as error:
        message = f"raised {type(error).__name__}: {error}"
        return Check(name, clause, False, message, how(), number, tuple(calls()), key, raised=True)
    return Check(name, clause, True, number=number, key=key)
