"""Confirm resets by an external program that resets the scene."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from hal.errors import DeadlineExceeded, ResetFailed
from hal.field import JsonObject
from hal.reset.confirmation import Answer, ResetRequest, VerdictRequest, verdict_of

__all__ = ["Command"]

_TAIL_BYTES = 4096
"""Number of bytes at the end of the program's output in which its last line is looked for."""

_GRACE_S = 1.0
"""Time between SIGTERM and SIGKILL, in seconds, in which a program can stop what it moves."""

_KILLS = 20
"""Time between two looks for the programs that a killed program started, in seconds."""

_MARK = "RLENV_ROBOT_RESET"
"""Environment variable that marks the processes of one request."""

_POLL_S = 0.02


class Command:
    """Confirm resets and ask for verdicts by running a program, without a shell, for each request.

    The program reads the request as one JSON object from standard input (the request of `Fixture`, without the id).
    Exit code 0 says that the scene is ready; any other code refuses, with the last line of standard error as the
    reason. The last line of standard output may be a JSON object with ``note`` and ``verdict``. At the deadline, and
    if the reset is cancelled, the program and all programs that it started get SIGTERM, and a second later SIGKILL. On
    Linux that includes programs in their own sessions.

    Args:
        argv: the program and its arguments, such as ``["/opt/fixture/reset", "--fast"]``.

    Raises:
        ValueError: ``argv`` is empty, or one of its items is not a string.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        if isinstance(argv, str) or not argv or not all(isinstance(word, str) and word for word in argv):
            raise ValueError(f"a command is {argv!r}, it must be a list of texts: the program and its arguments")
        self.argv = tuple(argv)
        self._cancelled = threading.Event()

    def ask(self, request: ResetRequest) -> Answer:
        """Run the program until it ends.

        Raises:
            DeadlineExceeded: the program did not end in time, and was killed.
            ResetFailed: the program can't be run, or it refused.
        """
        answer = self._run(request)
        return Answer("command", _note(answer), verdict_of(answer, self._name) if request.verdict else None)

    def judge(self, request: VerdictRequest) -> Answer:
        """Run the program until it ends, for a verdict on an episode. Raises as `ask` does."""
        answer = self._run(request)
        return Answer("command", _note(answer), verdict_of(answer, self._name))

    @property
    def _name(self) -> str:
        return f"the command {self.argv[0]!r}"

    def _run(self, request: ResetRequest | VerdictRequest) -> JsonObject:
        self._cancelled.clear()
        # Files instead of pipes: a program can't block on a full file, and a program left behind keeps none open.
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            stdin.write(json.dumps(request.to_dict()).encode() + b"\n")
            stdin.seek(0)
            mark = uuid.uuid4().hex
            try:
                process = subprocess.Popen(
                    self.argv, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True,
                    env={**os.environ, _MARK: mark},
                )  # fmt: skip
            except (OSError, ValueError) as error:
                raise ResetFailed(f"{self._name} can't be run: {error}") from error
            try:
                code = self._wait(process, request.deadline_s)
            except subprocess.TimeoutExpired:
                reason = _last_line(stderr)
                hint = f"it was ended{f', its last words were {reason!r}' if reason else ''}"
                raise DeadlineExceeded(f"{self._name} did not end", request.deadline_s, hint) from None
            finally:  # whatever ends the wait, Ctrl-C too
                if process.returncode is None:
                    _end_all(process, mark)
            if code:
                raise ResetFailed(f"{self._name} could not reset the scene: {_reason(code, _last_line(stderr))}")
            return _parse(_last_line(stdout))

    def _wait(self, process: subprocess.Popen[bytes], deadline_s: float) -> int:
        """Return the program's exit code.

        Raises:
            subprocess.TimeoutExpired: the program did not end in time.
            ResetFailed: the request was cancelled.
        """
        end = time.monotonic() + deadline_s
        while True:
            try:
                return process.wait(max(0.0, min(_POLL_S, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                if self._cancelled.is_set():
                    raise ResetFailed(f"{self._name} was ended: its request was cancelled") from None
                if time.monotonic() >= end:
                    raise

    def cancel(self) -> None:
        """End the running program, if any, and all programs that it started. May be called from any thread."""
        self._cancelled.set()

    def close(self) -> None:
        """Do nothing: no program outlives its request."""


def _end_all(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a program and all that it started; reap the program only afterwards, so that its id stays taken.

    A program may leave the process group by a session of its own; it is found by the mark in its environment.
    """
    _signal_group(process.pid, signal.SIGTERM)
    _signal_marked(mark, signal.SIGTERM)
    end = time.monotonic() + _GRACE_S
    while time.monotonic() < end and (_runs(process) or _marked(mark)):
        time.sleep(_POLL_S)
    for _ in range(_KILLS):  # again: a program may have started another just now
        _signal_group(process.pid, signal.SIGKILL)
        if not _signal_marked(mark, signal.SIGKILL):
            break
    process.wait()


def _runs(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _signal_marked(mark: str, number: int) -> bool:
    """Signal every process with the mark, and return whether there was one."""
    pids = _marked(mark)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return bool(pids)


def _marked(mark: str) -> list[int]:
    """Return the processes whose environment holds the mark; none where the system does not tell (no ``/proc``)."""
    word, pids = f"{_MARK}={mark}".encode(), []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            if word in environ.read_bytes().split(b"\0"):
                pids.append(int(environ.parent.name))
    return pids


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _last_line(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL_BYTES))
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _reason(code: int, line: str) -> str:
    how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{line} ({how})" if line else how


def _parse(line: str) -> JsonObject:
    """Return the JSON object on the line; an empty one for any other line, since a program may print anything."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _note(answer: JsonObject) -> str:
    return str(answer.get("note", ""))
