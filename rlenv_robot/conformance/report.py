"""What a conformance run found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Check", "Failed", "NotTried", "Report", "run_check"]


class Failed(Exception):
    """A check's finding: what was wanted, what was got."""


class NotTried(Exception):
    """Why a check could not be made here. It counts as neither passed nor failed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried.

    Attributes:
        name: what must hold.
        requirement: the number of the requirement (docs/requirements.md), or ``robot`` for `hal.Robot`'s contract.
        passed: True or False; None where it could not be tried.
        message: what was found, if it did not pass.
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
    """All checks of one run.

    Attributes:
        subject: what was checked.
        checks: in the order in which they were made.
    """

    subject: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """What failed."""
        return tuple(check for check in self.checks if check.passed is False)

    def raise_if_failed(self) -> None:
        """For tests.

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
    """Make one check. Whatever is raised but `NotTried` is a failure: the subject is a stranger's code."""
    try:
        check()
    except NotTried as reason:
        return Check(name, requirement, None, str(reason))
    except Failed as finding:
        return Check(name, requirement, False, str(finding))
    except Exception as error:
        return Check(name, requirement, False, f"raised {type(error).__name__}: {error}")
    return Check(name, requirement, True)
