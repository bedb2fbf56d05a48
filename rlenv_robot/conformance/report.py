"""The report of a conformance run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Check", "Failed", "NotTried", "Report", "run_check"]


class Failed(Exception):
    """A check failed; the message says what was expected and what was found."""


class NotTried(Exception):
    """A check can't be made here, for the reason in the message. It counts as neither passed nor failed."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes:
        name: what must hold.
        requirement: the number of the requirement (docs/requirements.md), or ``robot`` for `hal.Robot`'s contract.
        passed: None if the check could not be made.
        message: what was found, if the check did not pass.
    """

    name: str
    requirement: str
    passed: bool | None
    message: str = ""

    def __str__(self) -> str:
        word = {True: "ok", False: "FAILED", None: "not tried"}[self.passed]
        return f"{word:9} {self.requirement:5} {self.name}" + (f": {self.message}" if self.message else "")


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all checks of one run.

    Attributes:
        subject: what was checked.
        checks: in the order of the run.
    """

    subject: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The failed checks."""
        return tuple(check for check in self.checks if check.passed is False)

    def raise_if_failed(self) -> None:
        """Raise if a check failed.

        Raises:
            AssertionError: with a line for each failure.
        """
        if self.failures:
            lines = "\n".join(map(str, self.failures))
            raise AssertionError(f"{self.subject} breaks its contract:\n{lines}")

    def __str__(self) -> str:
        counts = {word: sum(check.passed is word for check in self.checks) for word in (True, False, None)}
        summary = f"{self.subject}: {counts[True]} passed, {counts[False]} failed, {counts[None]} not tried"
        return "\n".join([*map(str, self.checks), summary])


def run_check(name: str, requirement: str, check: Callable[[], None]) -> Check:
    """Make one check. Any exception but `NotTried` is a failure, because the code under test may raise anything."""
    try:
        check()
    except NotTried as reason:
        return Check(name, requirement, None, str(reason))
    except Failed as finding:
        return Check(name, requirement, False, str(finding))
    except Exception as error:
        return Check(name, requirement, False, f"raised {type(error).__name__}: {error}")
    return Check(name, requirement, True)
