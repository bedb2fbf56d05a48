"""An external program that resets the scene."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Any

from hal.errors import DeadlineExceeded, ResetFailed
from hal.reset.confirmation import Answer, ResetRequest, VerdictRequest, verdict_of

__all__ = ["Command"]

_LAST_WORDS = 4096
"""Bytes of the program's output that are looked at, from its end."""

_GRACE_S = 1.0
"""Between the request to end (SIGTERM) and the end (SIGKILL): time in which a program can stop what it moves."""

_LOOK_S = 0.02


class Command:
    """A program that is run for each question. No shell is involved.

    It reads the request as one JSON object from standard input (the same as a `Fixture` is asked, without the id). Exit
    code 0 says that the scene is ready; any other refuses, with the last line of its standard error as the reason. The
    last line of its standard output may be a JSON object with ``note`` and ``verdict``. At the deadline the program is
    ended together with the programs that it started: its process group gets SIGTERM, and a second later SIGKILL.

    Args:
        argv: the program and its arguments, such as ``["/opt/fixture/reset", "--fast"]``.

    Raises:
        ValueError: argv is empty or holds something that is no text.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        if isinstance(argv, str) or not argv or not all(isinstance(word, str) and word for word in argv):
            raise ValueError(f"a command is {argv!r}, it must be a list of texts: the program and its arguments")
        self.argv = tuple(argv)

    def ask(self, request: ResetRequest) -> Answer:
        """Run the program until it ends.

        Raises:
            DeadlineExceeded: it did not end in time; it was ended.
            ResetFailed: it can't be run, or said no.
        """
        said = self._run(request)
        return Answer("command", _note(said), verdict_of(said, self._name) if request.verdict else None)

    def judge(self, request: VerdictRequest) -> Answer:
        """As `ask`, about an episode."""
        said = self._run(request)
        return Answer("command", _note(said), verdict_of(said, self._name))

    @property
    def _name(self) -> str:
        return f"the command {self.argv[0]!r}"

    def _run(self, request: ResetRequest | VerdictRequest) -> dict[str, Any]:
        # Files, not pipes: no program blocks on a full one, and one that it leaves behind does not hold it open.
        with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as errors:
            asked.write(json.dumps(request.to_dict()).encode() + b"\n")
            asked.seek(0)
            try:
                process = subprocess.Popen(self.argv, stdin=asked, stdout=told, stderr=errors, start_new_session=True)
            except (OSError, ValueError) as error:
                raise ResetFailed(f"{self._name} can't be run: {error}") from error
            try:
                code = process.wait(request.deadline_s)
            except subprocess.TimeoutExpired:
                reason = _last_line(errors)
                hint = f"it was ended{f', its last words were {reason!r}' if reason else ''}"
                raise DeadlineExceeded(f"{self._name} did not end", request.deadline_s, hint) from None
            finally:  # whatever ends the wait, Ctrl-C too
                if process.returncode is None:
                    _end_group(process)
            if code:
                raise ResetFailed(f"{self._name} could not reset the scene: {_reason(code, _last_line(errors))}")
            return _parse(_last_line(told))

    def close(self) -> None:
        """Nothing to close: no program outlives its question."""


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a program and all of its group; it is waited for only afterwards, so that its number stays its own."""
    _signal_group(process.pid, signal.SIGTERM)
    end = time.monotonic() + _GRACE_S
    while time.monotonic() < end and os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(_LOOK_S)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _last_line(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LAST_WORDS))
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _reason(code: int, line: str) -> str:
    how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{line} ({how})" if line else how


def _parse(line: str) -> dict[str, Any]:
    """The last line of output, where that is a JSON object; a program may print what it likes."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _note(said: dict[str, Any]) -> str:
    return str(said.get("note", ""))
