"""Run checks so that the subject is always stopped and closed, however they end, and that every call has a deadline."""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np

from rlenv_kit.report import Check, run_check

__all__ = [
    "CallLog", "Deadlines", "PlannedCheck", "Supervisor", "Witness", "check", "declared", "in_order", "short",
]  # fmt: skip

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., None])

_POLL_S = 0.02
"""Interval at which the supervisor looks at the call in progress."""

_GRACE_S = 2.0
"""Longest time of a stop, a close and the last call when the run is given up."""

_PATIENCE_S = 4 * _GRACE_S
"""Longest time in which the thread of the checks waits for the stop before it closes the subject."""

_KEPT_CALLS = 40
"""The newest calls that a finding shows."""


class _GivenUp(BaseException):
    """Leave the checks: the run was given up. No `Exception`, so that no code under test holds it up."""


class _TimeOver(BaseException):
    """Leave the checks: the time limit of the run was reached. No `Exception`, for the same reason."""


@dataclass(frozen=True)
class Deadlines:
    """Maximum durations of calls to the subject, and of all checks together, in seconds.

    Attributes:
        step: the limit for ``step``, ``stop``, ``render``, ``close`` and all other calls.
        reset: the limit for ``reset``, which may wait for a person on a real robot, and for making the subject.
        total: the limit for the whole run. No call begins after it; a call in progress has until its own deadline. The
            check that exceeds it fails, and the report lists the checks after it as not reached.
    """

    step: float = 10.0
    reset: float = 120.0
    total: float = math.inf

    def of(self, call: str) -> float:
        """Return the deadline of a call by its name."""
        return self.reset if call in ("reset", "make") else self.step

    @classmethod
    def of_subject(cls, is_real: bool, total: float = math.inf) -> Deadlines:
        """Return the deadlines of a subject. A call in simulation has 60 s, since the machine may be busy.

        Args:
            is_real: whether the subject may move a real machine, for which a hang is not waited out.
            total: the limit for the whole run, seconds.
        """
        return cls(total=total) if is_real else cls(step=60.0, total=total)


class Witness(Protocol):
    """Record the progress of a run, so that another process knows it if this one crashes."""

    def planned(self, plan: Sequence[PlannedCheck], only: int) -> None:
        """Record the planned checks before the first one; ``only`` is as for `Supervisor.run`."""
        ...

    def begins(self, number: int) -> None:
        """Record the number of the check that begins; 0 stands for making the subject."""
        ...

    def calls(self, call: str, how: str) -> None:
        """Record a call to the subject that begins, and the calls before it."""
        ...

    def returned(self) -> None:
        """Record that the call has returned."""
        ...

    def made(self, check: Check) -> None:
        """Record the result of a check."""
        ...


class _Nobody:
    """Record nothing."""

    def planned(self, plan: Sequence[PlannedCheck], only: int) -> None: ...
    def begins(self, number: int) -> None: ...
    def calls(self, call: str, how: str) -> None: ...
    def returned(self) -> None: ...
    def made(self, check: Check) -> None: ...


class _Call(NamedTuple):
    name: str
    arguments: tuple[Any, ...]
    began_s: float


class CallLog:
    """Pass calls on to the subject, and remember the newest ones.

    Args:
        deadlines: limits on the calls.
        witness: receives each call.

    Attributes:
        deadlines: limits on the calls.
        witness: receives each call.
        running: the call in progress, or None.
        given_up: once True, no further call reaches the subject.
        steps: number of calls of step in the whole run.
    """

    def __init__(self, deadlines: Deadlines, witness: Witness | None = None) -> None:
        self.deadlines = deadlines
        self.witness: Witness = witness or _Nobody()
        self._witnessed = witness is not None
        self.running: _Call | None = None
        self.given_up = False
        self.steps = 0
        self._calls: deque[_Call] = deque(maxlen=_KEPT_CALLS)
        self._begin: _Call | None = None
        self._steps = 0
        self._began_s = time.monotonic()

    @property
    def over_s(self) -> float:
        """Seconds since the run reached its time limit; negative before that."""
        return time.monotonic() - self._began_s - self.deadlines.total

    def call(self, name: str, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call a function of the subject. After the time limit of the run, only ``close`` reaches the subject."""
        if self.given_up:
            raise _GivenUp
        if name != "close" and self.over_s >= 0:
            raise _TimeOver
        self.running = call = _Call(name, arguments, time.monotonic())
        self._calls.append(call)
        if name in ("reset", "init"):
            self._begin, self._steps = call, 0
        elif name == "step":
            self._steps += 1
            self.steps += 1
        if self._witnessed:
            self.witness.calls(name, self.how())
        try:
            return function(*arguments)
        finally:
            self.running = None
            self.witness.returned()

    def how(self) -> str:
        """Describe what was done: the last reset or init, the number of steps since, and the newest call."""
        if not self._calls:
            return ""
        newest, begin = self._calls[-1], self._begin
        parts = [] if begin is None else [f"{begin.name}({short(begin.arguments[0] if begin.arguments else {})})"]
        if newest is not begin:
            parts += [f"step call {self._steps}"] if self._steps else []
            shown = newest.name if self._steps else f"{newest.name}({', '.join(map(short, newest.arguments))})"
            parts.append(f"newest call {shown}")
        return ", ".join(parts)

    def lines(self) -> list[str]:
        """Return the newest calls, a line each, oldest first."""
        return [f"{call.name}({', '.join(map(short, call.arguments))})" for call in self._calls]

    def clear(self) -> None:
        """Forget the calls, at the beginning of a check."""
        self._calls.clear()
        self._begin, self._steps = None, 0


@dataclass(frozen=True)
class PlannedCheck:
    """A check to be made, and its prerequisites.

    Attributes:
        key: a short name, by which other checks refer to it.
        name: what must hold.
        clause: as `Check.clause`.
        check: makes the check; raises `Failed` or `NotTried`.
        needs: keys of prerequisite checks. If one of them fails, or one that it needs, this check isn't made, so that
            one fault gives one finding.
    """

    key: str
    name: str
    clause: str
    check: Callable[[], None]
    needs: tuple[str, ...] = ()


def check(key: str, name: str, clause: str, *needs: str) -> Callable[[_F], _F]:
    """Return a decorator that declares a function or method to be a check; for its arguments see `PlannedCheck`."""

    def declare(function: _F) -> _F:
        function.__dict__["declared_check"] = key, name, clause, needs
        return function

    return declare


def declared(namespace: Mapping[str, Any], *arguments: object) -> list[PlannedCheck]:
    """Return the checks that a namespace declares with `check`.

    Args:
        namespace: the namespace of a module or a class (`vars`).
        arguments: passed to each of its checks.
    """
    plan = []
    for function in namespace.values():
        if declaration := getattr(function, "declared_check", None):
            key, name, clause, needs = declaration
            plan.append(PlannedCheck(key, name, clause, partial(function, *arguments), needs))
    return plan


def in_order(keys: Sequence[str], checks: Iterable[PlannedCheck]) -> list[PlannedCheck]:
    """Sort checks into the order of the keys.

    Raises:
        KeyError: a key belongs to no check, or a check has none of the keys.
    """
    by_key = {planned.key: planned for planned in checks}
    plan = [by_key.pop(key) for key in keys]
    if by_key:
        raise KeyError(f"the order lacks the checks {', '.join(by_key)}, expected each of them once")
    return plan


@dataclass
class Supervisor:
    """Run planned checks on a separate thread, and watch it.

    A subject that `run` makes is made, used and closed on that one thread, because a database, a graphics context or a
    serial port may require it. Only a stop comes from other threads, and a close if that thread hangs.

    Args:
        log: passes all calls on.
        stop: stops the subject from any thread, with a reason; None if it has no stop, or is not made yet.
        close: closes the subject.
        cautious: whether an exception that no check expected ends the run, as on a real robot, where the driver's state
            is unknown after it.
    """

    log: CallLog
    stop: Callable[[str], None] | None = None
    close: Callable[[], None] = lambda: None
    cautious: bool = False
    _checks: list[Check] = field(default_factory=list)
    _plan: Sequence[PlannedCheck] = ()
    _left: threading.Event = field(default_factory=threading.Event)
    _may_close: threading.Event = field(default_factory=threading.Event)
    _error: BaseException | None = None
    _current: tuple[int, PlannedCheck] | None = None
    _only: int = 0

    def run(
        self, plan: Sequence[PlannedCheck] | Callable[[], Sequence[PlannedCheck]], only: int | str = 0
    ) -> tuple[Check, ...]:
        """Run the checks, stop and close the subject, and return the results.

        A call that exceeds its deadline ends the run: the subject is stopped and closed, and the call is the last
        finding. An exit (``sys.exit``, ``os._exit``), the time limit of the run and an interruption end it in the same
        way; an interruption is raised again afterwards. The remaining checks are listed as not reached.

        Args:
            plan: the checks in their order; or a function that makes the subject, sets ``stop`` and ``close``, and
                returns the plan. The function runs on the thread of the checks.
            only: number (from 1) or key of the only check to report, after the checks that it needs; 0 reports all.

        Raises:
            ValueError: no check has that number or key.
            KeyboardInterrupt: the run was interrupted; the subject was stopped and closed first.
            Exception: raised by the function that makes the subject.
        """
        worker = threading.Thread(target=self._work, args=(plan, only), name="conformance checks", daemon=True)
        reason = "the conformance check was interrupted"
        finished = False
        try:
            worker.start()
            with _exits_are_raised():
                late = self._watch(worker)
            if late is not None:
                reason = f"the conformance check gave up: {late.name} did not return"
                self._add(self._hung(late))
            elif isinstance(self._error, _TimeOver):
                reason = f"the conformance check {_limit(self.log)}"
            elif self._error is None:
                finished = True
            elif isinstance(self._error, SystemExit):
                self._add(self._ended(self._error))
        finally:
            if not finished:
                with _exits_are_raised():
                    self._give_up(worker, reason)
        if self._error is not None and not isinstance(self._error, SystemExit | _GivenUp | _TimeOver):
            raise self._error
        self._add_the_rest(self._plan, self._only)
        return tuple(self._checks)

    def _work(self, made: Sequence[PlannedCheck] | Callable[[], Sequence[PlannedCheck]], only: int | str) -> None:
        """Make the subject, then the checks, then close it, all on this thread."""
        try:
            self._plan = made() if callable(made) else made
            self._only = _number_of(only, self._plan)
            self.log.witness.planned(self._plan, self._only)
            self._make_checks(self._plan, self._only)
            with suppress(Exception):  # how close fails is the finding of a check
                self.log.call("close", self.close)
        except BaseException as error:
            self._error = self._error or error  # of the two, the one that began the end
            self._left.set()
            if self._may_close.wait(_PATIENCE_S):  # the stop comes first
                with suppress(BaseException):
                    self.close()
        finally:
            self._left.set()

    def _make_checks(self, plan: Sequence[PlannedCheck], only: int) -> None:
        failed: dict[str, int] = {}
        first = _needed(plan, plan[only - 1]) if only else set()
        for number, planned in enumerate(plan, 1):
            if self.log.over_s >= 0:
                raise _TimeOver
            if only and number != only:
                if planned.key in first and number < only:
                    self._begin(number, planned)
                    run_check(planned.name, planned.clause, planned.check)
                continue
            self._begin(number, planned)
            needed = _needed(plan, planned)
            blocking = [failed[other.key] for other in plan if other.key in needed and other.key in failed]
            if blocking and not only:
                message = f"it says nothing while #{blocking[0]} fails"
                self._add(Check(planned.name, planned.clause, None, message, number=number, key=planned.key))
                failed[planned.key] = blocking[0]
                continue
            self.log.clear()
            result = run_check(
                planned.name, planned.clause, planned.check, number, self.log.how, self.log.lines, planned.key
            )
            self._add(result)
            if result.passed is False:
                failed[planned.key] = number
                if self.cautious and result.raised:
                    raise _GivenUp

    def _begin(self, number: int, planned: PlannedCheck) -> None:
        self._current = number, planned
        self.log.witness.begins(number)

    def _add(self, check: Check) -> None:
        self._checks.append(check)
        self.log.witness.made(check)

    def _watch(self, worker: threading.Thread) -> _Call | None:
        """Wait for the worker; return the call that passed its deadline, if one did.

        A check that makes no calls for the time of one after the time limit is left too.
        """
        while worker.is_alive() and not self._left.wait(_POLL_S):
            call = self.log.running
            if call is not None and time.monotonic() - call.began_s > self.log.deadlines.of(call.name):
                return call
            if call is None and self.log.over_s > self.log.deadlines.step:
                self._error = _TimeOver()
                return None
        return None

    def _hung(self, call: _Call) -> Check:
        return self._broken(f"{call.name} did not return within {self.log.deadlines.of(call.name):g} s")

    def _ended(self, error: SystemExit) -> Check:
        return self._broken(f"raised SystemExit({error.code!r}), which would have ended the process")

    def _broken(self, message: str) -> Check:
        """Return the finding about a call that ended the run, in the check in which it was made."""
        number, planned = self._current or (0, _EVERY_CALL)
        if any(check.number == number for check in self._checks):  # it came after the last check, such as in close
            number, planned = 0, _EVERY_CALL
        return Check(planned.name, planned.clause, False, message, self.log.how(), number, tuple(self.log.lines()),
                     planned.key)  # fmt: skip

    def _give_up(self, worker: threading.Thread, reason: str) -> None:
        """Stop the subject now, let the worker come back and close it; close it from here if the worker hangs."""
        self.log.given_up = True
        stop = self.stop
        try:
            if stop is not None:
                _bounded(lambda: stop(reason))
        finally:
            try:
                if not self._left.wait(_GRACE_S) and worker.ident is not None:  # an endless loop in Python ends by this
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident), ctypes.py_object(_GivenUp))
                    self._left.wait(_GRACE_S / 4)
            finally:
                if self._left.is_set():
                    self._may_close.set()
                    worker.join(_GRACE_S)
                else:
                    _bounded(self.close)

    def _add_the_rest(self, plan: Sequence[PlannedCheck], only: int) -> None:
        """Add the checks that were not reached; the one in which the time limit was reached has failed."""
        made = {check.number for check in self._checks}
        over = isinstance(self._error, _TimeOver)
        if over and not plan:
            self._add(self._broken(f"the run {_limit(self.log)} before the subject was made"))
        rest = [(number, planned) for number, planned in enumerate(plan, 1)
                if number not in made and only in (0, number)]  # fmt: skip
        for number, planned in rest:
            message, failed = "the run was aborted before", False
            if over:
                failed = number == rest[0][0]
                message = f"the run {_limit(self.log)}, {'in' if failed else 'before'} this check"
            self._add(
                Check(planned.name, planned.clause, False if failed else None, message, number=number,
                      key=planned.key, reached=failed)
            )  # fmt: skip


_EVERY_CALL = PlannedCheck("", "every call returns, and none ends the process", "contract", lambda: None)


def _limit(log: CallLog) -> str:
    return f"reached its time limit of {log.deadlines.total:.4g} s"


def _number_of(check: int | str, plan: Sequence[PlannedCheck]) -> int:
    """Return the number of a check that is given by number or key; 0 stays 0."""
    if isinstance(check, int):
        if check > len(plan):
            raise ValueError(f"there is no check {check}, allowed are 1 to {len(plan)}")
        return check
    keys = [planned.key for planned in plan]
    if check not in keys:
        raise ValueError(f"there is no check {check!r}, allowed are {', '.join(keys)}")
    return keys.index(check) + 1


def _needed(plan: Sequence[PlannedCheck], planned: PlannedCheck) -> set[str]:
    """Return the keys of the checks that a check needs, directly or not."""
    needed = set(planned.needs)
    for other in reversed(plan):
        if other.key in needed:
            needed |= set(other.needs)
    return needed


@contextmanager
def _exits_are_raised() -> Iterator[None]:
    """Raise SystemExit in place of ``os._exit``, which would end the process without a report, exit code 0 included."""
    leave, process = os._exit, os.getpid()

    def raise_exit(status: int) -> NoReturn:
        if os.getpid() != process:  # a process that the subject forked
            leave(status)
        raise SystemExit(status)

    os._exit = raise_exit
    try:
        yield
    finally:
        os._exit = leave


def _bounded(call: Callable[[], object]) -> None:
    """Make a call on a thread of its own, wait a short time for it, and ignore its errors."""

    def attempt() -> None:
        try:
            call()
        except BaseException:
            return

    thread = threading.Thread(target=attempt, daemon=True, name="conformance end")
    thread.start()
    thread.join(_GRACE_S)


def short(value: object) -> str:
    """Return a value as short text for a line of calls."""
    if isinstance(value, np.ndarray):
        numbers = np.array2string(value, precision=9, threshold=24, max_line_width=10**6).replace("\n", "")
        return f"{numbers} {value.dtype}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {short(item)}" for key, item in value.items()) + "}"
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."
