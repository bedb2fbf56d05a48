"""Judge a subject that runs in another process, so that its crash, exit or hang is reported as a finding.

This process holds the plan, the results as they arrive, the reports and the exit code. The subject, and the calls to
it, run in a separate process (`rlenv_kit.judged`). The output of that process goes to standard error, so that standard
output holds the judge's text only. Results come through a pipe that no print statement reaches.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any

from rlenv_kit.judged import BOX_BYTES, ENDING, read_box
from rlenv_kit.report import Check, Note, Report
from rlenv_kit.robot_probe import MotionBounds
from rlenv_kit.supervisor import Deadlines

__all__ = ["judge"]

_POLL_S = 0.05

_GRACE_S = 15.0
"""Time in which the subject's process ends a call that hangs, stops and closes the subject, and ends, in seconds."""

_MAKING_S = 600.0
"""Longest time in which the subject is found and made the first time, imports included, in seconds."""

_CODE = "import sys; sys.path[:0] = {path!r}; from rlenv_kit.judged import main; main()"


@dataclass
class _Part:
    """Collect the messages about one part: robot, environment, batch or source."""

    name: str
    plan: list[Mapping[str, Any]] = field(default_factory=list)
    checks: dict[int, Check] = field(default_factory=dict)
    report: Mapping[str, Any] | None = None
    began_s: float = field(default_factory=time.monotonic)
    ended_s: float = 0.0

    def to_report(self, subject: str, problem: str, current: int, how: str) -> Report:
        """Return the report.

        Args:
            subject: its name, where no report came.
            problem: what ended the process before its time; empty if nothing did.
            current: number of the check that was in progress.
            how: what was done before.
        """
        missing = [one["number"] for one in self.plan if one["number"] not in self.checks]
        blamed = current if current in missing else next(iter(missing), 0)
        checks = [self.checks[0]] if 0 in self.checks else []
        checks += [self.checks.get(one["number"]) or _without_result(one, problem, one["number"] == blamed, how)
                   for one in self.plan]  # fmt: skip
        if not checks or (problem and not missing):
            name = "the process goes on to its end" if checks else "the subject can be made"
            checks.append(Check(name, "contract", False, problem or "no check was planned", how))
        told = self.report or {}
        notes = tuple(Note(**note) for note in told.get("notes", ()))
        seconds = (self.ended_s or time.monotonic()) - self.began_s
        shown = {"source": "source data"}.get(self.name, self.name)
        return Report(
            told.get("subject", f"{shown} {subject}"), tuple(checks), notes, seconds, told.get("robot_digest", ""),
            told.get("spec_digest", ""), told.get("steps", 0),
        )  # fmt: skip


def judge(
    name: str,
    where: str = "sim",
    keys: str | None = None,
    *,
    num_envs: int = 0,
    steps: int = 30,
    seed: int = 0,
    bounds: MotionBounds | None = None,
    part: str = "",
    only: int = 0,
    time_limit_s: float = math.inf,
    may_go: Callable[[bool, list[str]], None] = lambda is_real, motion: None,
) -> list[Report]:
    """Check the subject that a name stands for, in a separate process.

    Args:
        name: as for `rlenv_kit.subject.subject_of`.
        where: as for `subject_of`.
        keys: as for `subject_of`.
        num_envs: as for `subject_of`.
        steps: as for `rlenv_kit.subject.Subject.check`.
        seed: as for `Subject.check`.
        bounds: as for `Subject.check`.
        part: as for `Subject.check`.
        only: as for `Subject.check`.
        time_limit_s: as for `Subject.check`.
        may_go: called before the first check, with whether a real machine may move and a line for each command that
            says how far; raises an exception to refuse.

    Returns:
        The reports, at least one. A report contains a failure if the subject's process crashed, exited or hung.

    Raises:
        ValueError: the name stands for nothing that can be checked; the message says why.
        KeyboardInterrupt: SIGINT arrived; the subject was stopped and closed, and its process has ended.
        SystemExit: another signal arrived; the subject was stopped and closed, and its process has ended.
        Exception: raised by ``may_go``; nothing was checked.
    """
    request = {
        "name": name, "where": where, "keys": None if keys is None else str(keys), "num_envs": num_envs, "steps": steps,
        "seed": seed, "bounds": asdict(bounds or MotionBounds()), "part": part, "only": only,
        "time_limit_s": None if math.isinf(time_limit_s) else time_limit_s,
    }  # fmt: skip
    with tempfile.TemporaryFile() as box_file:
        box_file.truncate(BOX_BYTES)
        with mmap.mmap(box_file.fileno(), BOX_BYTES) as box, _started(request, box_file.fileno()) as (child, pipe, go):
            judged = _Judged(name, child, pipe, box, only, time_limit_s)
            with judged.forwarding():
                is_real, motion = judged.made()
            may_go(is_real, motion)
            with judged.forwarding():
                with suppress(BrokenPipeError):
                    os.write(go, b"g")
                judged.watch(is_real)
                return judged.reports()


@contextmanager
def _started(request: Mapping[str, Any], box: int) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """Start the subject's process, and end it with the block.

    It is in a session of its own, so that a Ctrl-C at the terminal reaches it once, through the judge.
    """
    results, out = os.pipe()
    orders, go = os.pipe()
    code = _CODE.format(path=[path for path in sys.path if path])
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(request), str(out), str(orders), str(box)],
            stdout=2, pass_fds=(out, orders, box), start_new_session=True,
        )  # fmt: skip
    except BaseException:
        for number in (results, out, orders, go):
            os.close(number)
        raise
    os.close(out)
    os.close(orders)
    try:
        yield child, results, go
    finally:
        os.close(go)  # without a word on it the subject's process ends, or stops and closes the subject
        _end(child)
        os.close(results)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Wait until the process has ended; kill it with what it started if it does not end in time."""
    try:
        child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        _kill(child)


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


class _Judged:
    """Watch the subject's process, and collect its results."""

    def __init__(
        self, name: str, child: subprocess.Popen[bytes], pipe: int, box: mmap.mmap, only: int, time_limit_s: float
    ) -> None:
        self._name, self._child, self._pipe, self._box, self._only = name, child, pipe, box, only
        self._time_limit_s, self._buffer, self._over = time_limit_s, b"", False
        self._parts: list[_Part] = []
        self._problem, self._signal = "", 0
        self._subject: Mapping[str, Any] | None = None
        self._signalled_s = math.inf

    # -- signals ---------------------------------------------------------------------------------------------

    @contextmanager
    def forwarding(self) -> Iterator[None]:
        """Pass a signal that ends the check on to the subject's process, once, and end when it has ended."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread gets signals
            return
        before = {number: signal.signal(number, self._pass_on) for number in (signal.SIGINT, *ENDING)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self._signal:
            raise SystemExit(128 + self._signal)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if not self._signal:  # a second one would interrupt the stop
            self._signal, self._signalled_s = number, time.monotonic()
            with suppress(ProcessLookupError):
                self._child.send_signal(number)

    # -- messages --------------------------------------------------------------------------------------------

    def made(self) -> tuple[bool, list[str]]:
        """Return whether the subject is real, and its motions, once it was made the first time.

        Raises:
            ValueError: it can't be checked.
        """
        end_s = time.monotonic() + _MAKING_S
        while self._subject is None and not self._over and not self._problem:
            self._receive()
            if time.monotonic() > end_s:
                self._give_up(f"it was not made within {_MAKING_S:g} s")
            self._look_at_signal()
        if self._subject is None and self._problem:
            self._problem += " (while it was made and closed for a first look)"
        told = self._subject or {}
        return bool(told.get("is_real")), list(told.get("motion", ()))

    def watch(self, is_real: bool) -> None:
        """Take results until the process says that the run is over, or ends, or hangs."""
        deadlines, began_s = Deadlines.of_subject(is_real), time.monotonic()
        while not self._over and not self._problem:
            self._receive()
            now = time.monotonic()
            _, runs, call_began_s, call, _ = read_box(self._box)
            limit_s = deadlines.of(call) + _GRACE_S
            if runs and now - call_began_s > limit_s:
                self._give_up(f"{call} did not return within {limit_s:g} s, and could not be interrupted")
            elif now - began_s > self._time_limit_s + deadlines.reset + _GRACE_S:
                self._give_up(f"the run reached its time limit of {self._time_limit_s:.4g} s, and did not end")
            self._look_at_signal()
        if self._over:
            self._look_at_exit()

    def _look_at_signal(self) -> None:
        if time.monotonic() - self._signalled_s > _GRACE_S:
            self._give_up("the check was interrupted, and the subject did not end")

    def _give_up(self, problem: str) -> None:
        _kill(self._child)
        self._problem = self._problem or f"{problem}; its process was killed, and nothing else has stopped the subject"

    def _receive(self) -> None:
        """Read the messages that have come, and find out whether the process has ended."""
        ended = self._child.poll() is not None  # before the look into the pipe, so that its last words count
        ready, _, _ = select.select([self._pipe], [], [], 0.0 if ended else _POLL_S)
        data = os.read(self._pipe, 1 << 16) if ready else b""
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._take(line)
        if not data and not self._over:
            if ended:
                self._problem = self._problem or _how_it_ended(self._child.returncode, self._box)
            elif ready:  # the pipe is closed, and the process lives
                with suppress(subprocess.TimeoutExpired):
                    self._child.wait(_POLL_S)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            kind = message.pop("kind")
            if kind == "refused":
                raise _Refused(message)
            if kind == "subject":
                self._subject = message
            elif kind == "part":
                self._parts.append(_Part(str(message["part"])))
            elif kind == "plan":
                self._parts[-1].plan = list(message["checks"])
            elif kind == "check":
                check = Check(**{**message["check"], "calls": tuple(message["check"]["calls"])})
                self._parts[-1].checks.setdefault(check.number, check)
            elif kind == "report":
                self._parts[-1].report, self._parts[-1].ended_s = message, time.monotonic()
            elif kind == "end":
                self._over = True
        except _Refused as refused:
            self._over = True
            if refused.message["mendable"]:
                raise ValueError(refused.message["error"]) from None
            self._problem = f"raised {refused.message['type']}: {refused.message['error']}"
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            self._give_up(f"its process wrote something that is not a message into the judge's pipe: {line[:80]!r}")

    def _look_at_exit(self) -> None:
        """Report a process that is killed after the last check; a check names the threads of one that does not end."""
        with suppress(subprocess.TimeoutExpired):
            code = self._child.wait(_GRACE_S)
            if code < 0 and not self._problem:
                self._problem = f"the process ended by {_signal_name(-code)} after the last check"

    # -- the verdict -----------------------------------------------------------------------------------------

    def reports(self) -> list[Report]:
        """Return the reports; whatever came out of order is a finding of the last one."""
        number, *_, how = read_box(self._box)
        parts = self._parts or [_Part("subject")]
        return [
            part.to_report(self._name, self._problem if part is parts[-1] else "", number, how) for part in parts
        ]  # fmt: skip


def _without_result(planned: Mapping[str, Any], problem: str, blamed: bool, how: str) -> Check:
    """Return the finding for the planned check that the process ended in; a check after it was not reached."""
    failed = blamed or not problem
    message = (problem or "its result did not come") if failed else "the subject's process ended before"
    return Check(
        planned["name"], planned["clause"], False if failed else None, message, how if failed else "",
        planned["number"], (), planned["key"], reached=failed,
    )  # fmt: skip


class _Refused(Exception):
    """The subject can't be checked; its process says why in ``message``."""

    def __init__(self, message: Mapping[str, Any]) -> None:
        super().__init__()
        self.message = message


def _how_it_ended(code: int, box: mmap.mmap) -> str:
    _, runs, _, call, _ = read_box(box)
    where = f"in {call}" if runs else "between two calls"
    what = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended itself with exit code {code}"
    return f"the subject's process {what}, {where}; no call ends the process"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
