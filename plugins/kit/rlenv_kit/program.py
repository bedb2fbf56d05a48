"""Exchange JSON messages, one a line, with a program under test over its standard streams or a socket (6.4 a; R4.3)."""

from __future__ import annotations

import json
import math
import os
import select
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Protocol

import numpy as np

from hal.field import JsonDict
from rlenv_kit.supervisor import SubjectLost, WrongAnswer
from rlenv_kit.tables import Unchecked
from rlenv_robot.adapters.json_messages import CALLS, parse_json

__all__ = ["Channel", "Dialogue", "open_program"]

_POLL_S = 0.1

_END_S = 30.0
"""Longest time in which a program ends after its input has ended, seconds; generous, for a busy machine."""

_EXIT_0, _CLOSED = "ended itself with exit code 0", "closed the connection"
"""States of a program that has ended in good order."""

_LARGEST = 1 << 28
"""Largest answer, bytes."""


class Channel(Protocol):
    """Carry lines to and from a program.

    Attributes:
        reading: file descriptor of the program's answers.
        writing: file descriptor of its requests.
    """

    reading: int
    writing: int

    def state(self) -> str:
        """Describe how the program ended its side of the channel."""
        ...

    def spent_s(self) -> float:
        """Return the time that the program has spent, seconds: of its processor, or what its clock passed."""
        ...

    def finish(self) -> str:
        """End the program's input, wait until it has ended, and describe what is wrong; empty if nothing is."""
        ...

    def kill(self) -> None:
        """End the program at once. Safe to call more than once."""
        ...


class _Process:
    """Run a program as a process group of its own, whose standard error goes to that of this process.

    Args:
        command: the program and its arguments.

    Raises:
        OSError: the program can't be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self.reading, self.writing = self._answers.fileno(), self._requests.fileno()
        os.set_blocking(self.writing, False)
        self._spent_s = 0.0

    def state(self) -> str:
        """Describe how the program ended its side of the channel."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        if code is None:
            return "closed its standard input or output and went on"
        if code < 0:
            with suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
            return f"was ended by signal {-code}"
        return f"ended itself with exit code {code}" if code else _EXIT_0

    def spent_s(self) -> float:
        """Return the processor time of the program, seconds, where the system tells it; 0 elsewhere."""
        with suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii", errors="replace")
            user, system = text.rpartition(")")[2].split()[11:13]
            self._spent_s = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        return self._spent_s

    def finish(self) -> str:
        """End the program's input, wait until it has ended, and describe what is wrong; empty if nothing is."""
        self.spent_s()
        self._requests.close()
        rest, end_s = b"", time.monotonic() + _END_S
        while time.monotonic() < end_s:
            ready, _, _ = select.select([self.reading], [], [], _POLL_S)
            data = os.read(self.reading, 1 << 16) if ready else b""
            rest = (rest + data)[:_LARGEST]
            if ready and not data:
                break
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, end_s - time.monotonic()))
        code, left = self._process.poll(), _group_lives(self._process.pid)
        self.kill()
        if code is None:
            return f"the program went on for {_END_S:g} s after its input had ended; it ends with its input"
        if rest.strip():
            return f"the program wrote a line that no request asked for: {rest[:80]!r}"
        if code:
            return f"the program {self.state()} after close; it ends with exit code 0"
        return "the program left processes of its own behind; it ends what it started" if left else ""

    def kill(self) -> None:
        """Kill the program and the processes of its group, and close the channel."""
        if _group_lives(self._process.pid) or self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._requests, self._answers):
            with suppress(OSError):
                stream.close()


def _group_lives(number: int) -> bool:
    """Return whether a process group has processes; one that has ended and was not waited for counts."""
    try:
        os.killpg(number, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class _Connection:
    """Connect to a program that listens on a TCP port. Each connection is an instance of its own.

    Args:
        address: ``tcp://HOST:PORT``.

    Raises:
        ValueError: the address has another form.
        OSError: nobody listens there.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"the address of a program is {address!r}, expected such as tcp://127.0.0.1:5650")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=_END_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self.reading = self.writing = self._socket.fileno()

    def state(self) -> str:
        """Describe how the program ended its side of the channel."""
        return _CLOSED

    def spent_s(self) -> float:
        """Return the time of the clock, seconds, since the program's own processor can't be asked."""
        return time.monotonic()

    def finish(self) -> str:
        """Close the connection. The program goes on, since it may serve others."""
        self.kill()
        return ""

    def kill(self) -> None:
        """Close the connection."""
        self._socket.close()


def open_program(program: Sequence[str] | str) -> Channel:
    """Start a program, or connect to one.

    Args:
        program: a command and its arguments, as words or as one text; or ``tcp://HOST:PORT``.

    Raises:
        ValueError: there is no command.
        OSError: the program can't be started or reached.
    """
    if isinstance(program, str) and program.startswith("tcp://"):
        return _Connection(program)
    command = shlex.split(program) if isinstance(program, str) else [*map(str, program)]
    if not command:
        raise ValueError("the command of a program is empty, expected such as 'node cart.js'")
    return _Process(command)


class Dialogue:
    """Ask a program, and read its answers.

    An answer that breaks the rules of the messages is a finding. The dialogue then goes on with the next request: an
    answer that comes late is passed over by its id.

    Args:
        channel: carries the lines.
        patience_s: the longest wait for an answer, seconds. A check has its own deadlines.
    """

    def __init__(self, channel: Channel, patience_s: float = math.inf) -> None:
        self.channel, self._patience_s = channel, patience_s
        self._number, self._buffer = 0, b""
        self._late = set[int]()
        self.has_ended = self._is_waiting = False

    @property
    def is_in_step(self) -> bool:
        """Whether the program can be asked: it has not ended, and no wait for an answer was broken off."""
        return not self._is_waiting and not self.has_ended

    def ask(self, call: str, **content: object) -> JsonDict:
        """Return the answer of a call without its id: the entries of the call, or ``error``.

        Raises:
            WrongAnswer: the line that came is not the call's answer.
            SubjectLost: the program has ended, or closed a stream.
        """
        if self.has_ended:
            raise SubjectLost(f"{call} can't be asked, the program has ended")
        self._number += 1
        request = {"id": self._number, "call": call, **{name: _encoded(value) for name, value in content.items()}}
        self._check_silence(call)
        self._late.add(self._number)  # until it is read
        self._is_waiting = True
        try:
            answer = self._answer(json.dumps(request, allow_nan=False).encode() + b"\n", call)
        except WrongAnswer:
            self._is_waiting = False  # the program goes on, and its answer may come late
            raise
        self._is_waiting = False
        return _checked(answer, call)

    def ask_odd(self, line: bytes) -> JsonDict:
        """Send a line that need not be a request, and return the answer as it came, its id included.

        Raises:
            WrongAnswer: what came is no JSON object.
            SubjectLost: the program has ended, or closed a stream.
        """
        self._check_silence("an odd request")
        self._write(line + b"\n", "an odd request")
        return self._parsed(self._line("an odd request"), "an odd request")

    def _answer(self, request: bytes, call: str) -> dict[str, Unchecked]:
        """Send a request, and return the answer of its id without the id."""
        self._write(request, call)
        while True:
            answer = self._parsed(self._line(call), call)
            number = answer.pop("id", None)
            if number == self._number:
                self._late.discard(self._number)
                return answer
            if not (isinstance(number, int) and number in self._late):
                raise WrongAnswer(f"the answer of {call} has the id {number!r}, the request has {self._number}",
                                  "an answer repeats the id of its request")  # fmt: skip
            self._late.discard(number)

    def close(self) -> None:
        """End the program.

        Raises:
            WrongAnswer: it did not end as it should.
        """
        if self.has_ended:
            return
        is_in_step, self.has_ended = self.is_in_step, True
        if not is_in_step:
            self.channel.kill()
            return
        lines = [line for line in self._buffer.split(b"\n") if line.strip()]
        problem = self.channel.finish()
        if lines:
            problem = f"the program wrote a line that no request asked for: {lines[0][:80]!r}"
        if problem:
            raise WrongAnswer(problem)

    # -- lines -----------------------------------------------------------------------------------------

    def _check_silence(self, call: str) -> None:
        """Check that nothing came since the last answer, but late answers."""
        while select.select([self.channel.reading], [], [], 0.0)[0]:
            if not self._receive():
                break
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in filter(bytes.strip, lines):
            with suppress(ValueError, AttributeError, TypeError):
                number = parse_json(line).get("id")
                if number in self._late:
                    self._late.discard(number)
                    continue
            raise WrongAnswer(f"before {call} the program wrote a line that no request asked for: {line[:80]!r}",
                              "standard output holds answers alone; other text goes to standard error")  # fmt: skip

    def _line(self, call: str) -> bytes:
        end_s = time.monotonic() + self._patience_s
        while b"\n" not in self._buffer:
            if time.monotonic() > end_s:
                raise SubjectLost(f"{call} was not answered within {self._patience_s:g} s")
            if select.select([self.channel.reading], [], [], _POLL_S)[0] and not self._receive():
                self._lose(call)
            if len(self._buffer) > _LARGEST:
                self.has_ended = True
                self.channel.kill()
                raise SubjectLost(f"the answer of {call} has over {_LARGEST} bytes and no end of line")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _receive(self) -> bool:
        """Read what has come; return whether the program can send more."""
        try:
            data = os.read(self.channel.reading, 1 << 20)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._buffer += data
        return bool(data)

    def _write(self, line: bytes, call: str) -> None:
        """Write a request, and read meanwhile, so that no full buffer stops both sides."""
        reading, writing = self.channel.reading, self.channel.writing
        while line:
            ready, free, _ = select.select([reading], [writing], [], _POLL_S)
            if free:
                try:
                    line = line[os.write(writing, line) :]
                except BlockingIOError:
                    continue
                except OSError:
                    self._lose(call)
            elif ready and not self._receive():
                self._lose(call)

    def _lose(self, call: str) -> NoReturn:
        state = self.channel.state()
        self.has_ended = True
        self.channel.kill()
        orderly = state in (_EXIT_0, _CLOSED)
        raise SubjectLost(f"the program {state}, in {call}; no call but close ends it", orderly)

    def _parsed(self, line: bytes, call: str) -> dict[str, Unchecked]:
        try:
            answer = parse_json(line)
        except ValueError as error:
            raise WrongAnswer(f"the answer of {call} is not JSON ({error}): {_cut(line)}",
                              "each line of standard output is a JSON text, and nothing else is written there",
                              ) from error  # fmt: skip
        if not isinstance(answer, dict):
            raise WrongAnswer(f"the answer of {call} is {_cut(line)}", "it must be a JSON object")
        return answer


def _cut(line: bytes) -> str:
    return repr(line[:80])[1:] + ("..." if len(line) > 80 else "")


def _checked(answer: dict[str, Unchecked], call: str) -> dict[str, Unchecked]:
    """Return an answer if it has the keys of the call's answers."""
    if "error" in answer:
        error = answer["error"]
        named = isinstance(error, Mapping) and all(isinstance(error.get(key), str) for key in ("code", "message"))
        if not named or len(answer) > 1:
            raise WrongAnswer(f"the error of {call} is {answer!s:.120}", "it is an object with code and message")
        return answer
    first = CALLS[call][2]
    keys = {first, *(("reward",) if call == "step" else ())}
    if (keys - answer.keys()) or (call != "describe" and answer.keys() - keys):
        raise WrongAnswer(f"the answer of {call} has the keys {', '.join(sorted(answer)) or 'none'} beside its id",
                          f"its keys are {', '.join(sorted(keys))}, or error")  # fmt: skip
    return answer


def _encoded(value: Unchecked) -> Unchecked:
    """Return a value as JSON data: null for a number that is not finite, an object for what JSON lacks."""
    if isinstance(value, np.ndarray | np.generic):
        return _encoded(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _encoded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else {"not_in_json": str(value)}
