"""Measure how soon a power cut opens the supply after each kind of death of its host."""

from __future__ import annotations

import contextlib
import os
import random
import select
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from rlenv_power_cut.link import PowerCutError, PowerCutLink

__all__ = ["KINDS", "PERIOD_MS", "Outcome", "Program", "measure"]

KINDS = ("killed", "frozen", "unplugged", "interpreter", "loop")
"""Kinds of death: SIGKILL; SIGSTOP; the serial port gone; Python's lock held by a call; the driver hung in a step."""

_SIGNALS = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP, "interpreter": signal.SIGUSR1, "loop": signal.SIGUSR2}
_READY_S, _BEYOND_S, _AFTER_S = 90.0, 3.0, 0.1
"""Longest wait for a host, for a cut beyond the set time, and how long a revived host is watched, seconds."""

PERIOD_MS = 34
"""Longest time between the order to hang and the control loop's last sign of life, ms: a period of the SO-101 at 30
Hz."""

_END_S = 5.0
_ATTEMPTS = 20
"""Attempts for one death: the supply of a host that was starved before its death is cut already."""


@dataclass
class Outcome:
    """The deaths of one kind.

    Attributes:
        kind: one of `KINDS`.
        set_ms: the time within which the supply must be off, ms.
        delays_ms: from the death to the open switch, ms, of each death.
        waited_ms: for how much of it the virtual board, this process while it sent the signal, or the host before it
            took the signal, waited for a processor, ms.
        never: deaths after which the supply stayed on.
        revived: frozen hosts after whose revival the supply came back.
        early: cuts before a death, of hosts that this machine starved; such a death was tried again.
    """

    kind: str
    set_ms: int
    delays_ms: list[float] = field(default_factory=list)
    waited_ms: list[float] = field(default_factory=list)
    never: int = 0
    revived: int = 0
    early: int = 0

    @property
    def within(self) -> int:
        """The number of cuts within the set time."""
        return sum(delay <= self.set_ms for delay in self.delays_ms)

    @property
    def within_without_waits(self) -> int:
        """The number of cuts within the set time, less the waits for a processor."""
        pairs = zip(self.delays_ms, self.waited_ms, strict=True)
        return sum(delay - waited <= self.set_ms for delay, waited in pairs)

    @property
    def passed(self) -> bool:
        """Whether every death cut the supply in time, and no revived host got it back."""
        return not self.never and not self.revived and self.within_without_waits == len(self.delays_ms) > 0


class Program:
    """A program of its own, whose lines are awaited with a deadline.

    Args:
        command: the program and its arguments.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout, self._rest = self._process.stdin, self._process.stdout, b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)

    def tell(self, line: str = "") -> None:
        """Send a line."""
        self._stdin.write(f"{line}\n".encode())
        self._stdin.flush()

    def line(self, timeout_s: float) -> str | None:
        """Return the next line, or None if none came in time.

        Raises:
            PowerCutError: the program has ended.
        """
        end_s = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            if not self._selector.select(max(0.0, end_s - time.monotonic())):
                return None
            part = os.read(self._stdout.fileno(), 4096)
            if not part:
                raise PowerCutError(f"the trial's program {self._process.args!r} ended")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def line_with(self, word: str, timeout_s: float) -> str | None:
        """Return the next line that begins with a word, or None if none came in time; drop the others."""
        end_s = time.monotonic() + timeout_s
        while (line := self.line(max(0.0, end_s - time.monotonic()))) is not None:
            if line.startswith(word):
                return line
        return None

    def close(self) -> None:
        """End the program. Safe to call more than once."""
        self._selector.close()
        self._process.terminate()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdin.close()
        self._stdout.close()


class _VirtualSwitch:
    """Watch the switch of a virtual board in its own process."""

    def __init__(self, link: str) -> None:
        self.port = link
        self.board = Program([sys.executable, "-m", "rlenv_robot", "robot", "power-cut", "virtual", "--link", link])
        if self.board.line_with("virtual power cut", _READY_S) is None:
            raise PowerCutError("the virtual board did not start")

    def begin(self) -> None:
        if self.board.line_with("supply on", _READY_S) is None:
            raise PowerCutError("the virtual board did not switch on")

    def opened(self, timeout_s: float) -> tuple[int, int] | None:
        """Return when the switch opened and for how long the board had waited, ns; None if it stays closed."""
        line = self.board.line_with("supply off", timeout_s)
        return None if line is None else (int(line.split()[2]), int(line.split()[3]))

    def closed_again(self) -> bool:
        return self.board.line_with("supply on", _AFTER_S) is not None

    def unplug(self) -> None:
        self.board.tell("unplug")

    def plug(self) -> None:
        self.board.tell("plug")
        while not Path(self.port).exists():
            time.sleep(0.005)

    def close(self) -> None:
        self.board.close()


class _RealSwitch:
    """Ask a real board, after its host's death, for how long its supply has been off: right to about 2 ms."""

    def __init__(self, port: str) -> None:
        self.port = port

    def begin(self) -> None:
        pass

    def opened(self, timeout_s: float) -> tuple[int, int] | None:
        if timeout_s < 1.0:  # the host still holds the port
            time.sleep(timeout_s)
            return None
        with closing(PowerCutLink(self.port)) as link:
            status, now_ns = link.first_status(), time.monotonic_ns()
        return None if status.is_on else (now_ns - status.since_ms * 1_000_000, 0)

    def closed_again(self) -> bool:
        return False  # the next host's start, which names the number of cuts, would fail

    def close(self) -> None:
        pass


def measure(
    kinds: Sequence[str],
    count: int,
    cut_ms: int,
    loop_ms: int = 250,
    port: str | None = None,
    *,
    seed: int = 0,
    on_death: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Let a host of each kind die so many times, and measure when the supply was off.

    The times are those of this process, which sends the signal, and of the virtual board's process, not the host's.

    Args:
        kinds: of `KINDS`.
        count: deaths of each kind.
        cut_ms: the cut time, ms.
        loop_ms: longest silence of the control loop, ms; the set time of the kind ``loop`` is the sum, and a period.
        port: serial port of a real board; None runs the firmware on a virtual one.
        seed: draws the moments of death.
        on_death: called after each.

    Raises:
        PowerCutError: a host can't be started or its supply not be switched on, the kind is unknown, or a real board
            shall be unplugged by this program.
    """
    if not set(kinds) <= set(KINDS) or count < 1:
        raise PowerCutError(
            f"kinds are {', '.join(kinds)} and count is {count}, allowed are {', '.join(KINDS)}, 1 or more"
        )
    if port is not None and "unplugged" in kinds:
        raise PowerCutError(
            "this program can't unplug a real board: leave the kind 'unplugged' out, and pull it by hand"
        )
    draw, outcomes = random.Random(seed), []
    with ExitStack() as ends:
        if port is None:
            folder = ends.enter_context(tempfile.TemporaryDirectory())
            switch: _VirtualSwitch | _RealSwitch = _VirtualSwitch(f"{folder}/power-cut")
        else:
            switch = _RealSwitch(port)
        ends.callback(switch.close)
        command = [sys.executable, "-m", "rlenv_power_cut.trial_host", switch.port, str(cut_ms), str(loop_ms)]
        hosts = Program(command)
        ends.callback(hosts.close)
        for kind in kinds:
            outcome = Outcome(kind, cut_ms + (loop_ms + PERIOD_MS if kind == "loop" else 0))
            outcomes.append(outcome)
            for _ in range(count):
                _let_one_die(outcome, hosts, switch, draw)
                on_death(outcome)
    return outcomes


def _let_one_die(outcome: Outcome, hosts: Program, switch: _VirtualSwitch | _RealSwitch, draw: random.Random) -> None:
    for _ in range(_ATTEMPTS):
        hosts.tell()
        line = hosts.line_with("", _READY_S)
        if line is not None and line.startswith("failed"):
            if "not switched on" in line or "not set" in line:  # it was starved, as below
                outcome.early += 1
                continue
            raise PowerCutError(f"the host of the trial failed: {line.removeprefix('failed ')}")
        if line is None or not line.startswith("ready "):
            raise PowerCutError(f"the host of the trial did not start: {line or 'it was silent'}")
        host = _Host(int(line.split()[1]))
        try:
            switch.begin()
            if switch.opened(draw.uniform(0.05, 0.25)) is not None:
                outcome.early += 1
                continue
            if _die(outcome, host, hosts, switch):
                return
        finally:
            host.end()
            if outcome.kind == "unplugged" and isinstance(switch, _VirtualSwitch):
                switch.plug()
        outcome.early += 1
    raise PowerCutError(
        f"the supply was cut before {_ATTEMPTS} deaths in a row: this machine is too busy for this cut time"
    )


class _Host:
    """A process that some other one has forked; its number is never mistaken for a later process's."""

    def __init__(self, number: int) -> None:
        self._fd = os.pidfd_open(number)

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has been killed
            signal.pidfd_send_signal(self._fd, number)

    def end(self) -> None:
        self.send(signal.SIGKILL)
        select.select([self._fd], [], [], _END_S)  # until it has released its port
        os.close(self._fd)


def _die(outcome: Outcome, host: _Host, hosts: Program, switch: _VirtualSwitch | _RealSwitch) -> bool:
    """Let the host die and take the time; return False if the supply was cut before."""
    began_ns = time.monotonic_ns()
    if outcome.kind == "unplugged":
        assert isinstance(switch, _VirtualSwitch)
        switch.unplug()
    else:
        host.send(_SIGNALS[outcome.kind])
    sent_ns = time.monotonic_ns() - began_ns
    if outcome.kind in ("interpreter", "loop"):
        line = hosts.line_with("dies", _BEYOND_S)
        if line is None:
            raise PowerCutError("the host did not take the signal by which it should die")
        sent_ns = int(line.split()[1]) - began_ns
    if isinstance(switch, _RealSwitch):  # its port is free once the host is gone
        time.sleep(outcome.set_ms / 1e3 + 0.5)
        host.send(signal.SIGKILL)
        time.sleep(0.1)
    opened = switch.opened(outcome.set_ms / 1e3 + _BEYOND_S)
    if opened is None:
        outcome.never += 1
        return True
    if opened[0] < began_ns:
        return False
    outcome.delays_ms.append((opened[0] - began_ns) / 1e6)
    outcome.waited_ms.append((opened[1] + sent_ns) / 1e6)
    if outcome.kind == "frozen" and isinstance(switch, _VirtualSwitch):
        host.send(signal.SIGCONT)
        outcome.revived += switch.closed_again()
    return True
