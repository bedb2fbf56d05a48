"""The life of a stop (docs/safety.md) as a state machine, played against a real server over real sockets and files.

Two clients that were written from the wire's page race with each other; the server is ended, killed and started again,
the driver fails and the disk too. A second machine kills a server of a process of its own. Planted faults show that the
machine notices what it is there for.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from hal import RobotState
from hal.errors import StopReason
from hal.guarding import stop_file, stop_latch
from hal.guarding.stop_file import KeptStop, StopFile
from hal.guarding.stop_latch import LatchState, StopLatch
from real import Server
from real.server import request_handler
from tests.fakes import AT_100_HZ, LatchingPuppet, until
from tests.real.page_client import DONE, ERROR, READING, STEP, PageClient

# -- servers that can be killed ------------------------------------------------------------------------------


class Driver(LatchingPuppet):
    """A driver whose ``stop`` raises or blocks where a rule says so."""

    def __init__(self) -> None:
        super().__init__(step_s=0.0002)
        self.raises = False
        self.free = threading.Event()
        self.free.set()

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        robot_state = super().reset(options)
        time.sleep(0.01)  # so that a stop can come meanwhile
        return robot_state

    def stop(self, reason: str) -> None:
        super().stop(reason)
        self.free.wait(30)
        if self.raises:
            raise OSError("the port is gone")


class HereServer:
    """A server in this process. A kill leaves its file as it is at that instant."""

    can_fail = True

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "latch" / f"stop-{AT_100_HZ.name}.json"
        self.disk_fails = False
        self._pwrite = os.pwrite
        stop_file.os.pwrite = self._write  # type: ignore[attr-defined]

    def _write(self, descriptor: int, data: bytes, offset: int) -> int:
        if self.disk_fails:
            raise OSError(28, "No space left on device")
        return self._pwrite(descriptor, data, offset)

    def start(self) -> str:
        self.driver = Driver()
        settings: dict[str, Any] = {"latch": self.folder / "latch", "watchdog_s": 60.0, "max_command_age_s": None}
        self.server = Server(self.driver, **settings).start()
        return self.server.address

    def steps(self) -> int:
        return len(self.driver.told)

    def end(self) -> None:
        self.driver.free.set()
        self.server.close()

    def kill(self) -> None:
        content = self.path.read_bytes() if self.path.exists() else None
        self.end()
        self.path.unlink(missing_ok=True)
        if content is not None:
            self.path.write_bytes(content)
            self.path.chmod(0o600)

    def close(self) -> None:
        self.disk_fails = False
        self.end()
        stop_file.os.pwrite = self._pwrite  # type: ignore[attr-defined]


PROGRAM = """
import sys
from real import Server
from tests.fakes import LatchingPuppet

class Driver(LatchingPuppet):
    def step(self, command):
        with open(sys.argv[1] + "/steps", "ab") as file:
            file.write(b"!")
        return super().step(command)

with Server(Driver(step_s=0.0002), latch=sys.argv[1] + "/latch", watchdog_s=60.0, max_command_age_s=None) as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""


class ProcessServer:
    """A server in a process of its own, which is really killed."""

    can_fail = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "steps").write_bytes(b"")

    def start(self) -> str:
        command = [sys.executable, "-c", PROGRAM, str(self.folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def steps(self) -> int:
        return (self.folder / "steps").stat().st_size

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        self._close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self._close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


# -- the machine ---------------------------------------------------------------------------------------------

_ONE_OF_TWO = st.integers(0, 1)
_TARGET = struct.pack("<2f", 0.01, 0.01)


class LifeOfAStop(RuleBasedStateMachine):
    """Events at a served robot in any order, and the rules that its stops must keep."""

    make: Callable[[Path], HereServer | ProcessServer] = HereServer

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="stops-"))
        self.served = type(self).make(self.folder)
        self.newest = 0  # number of the newest stop that was answered or shown
        self.latched = False  # whether a stop was answered with DONE and not cleared by its number since
        self.is_lost = False  # whether the server has said that a kill would lose the stop, or its disk fails
        self._begin()
        self._look()

    def _begin(self) -> None:
        address = self.served.start()
        self.clients = [PageClient(address), PageClient(address)]
        self.buttons = [client.stop_endpoint() for client in self.clients]
        self.holder: int | None = None
        self.moved = self.served.steps()

    def _leave(self) -> None:
        for client in (*self.clients, *self.buttons):
            client.close()

    def teardown(self) -> None:
        self._leave()
        self.served.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- stops -----------------------------------------------------------------------------------------------

    @rule(who=_ONE_OF_TWO, at_endpoint=st.booleans())
    def stop(self, who: int, at_endpoint: bool) -> None:
        """Anybody stops, on either way."""
        self._take_stop((self.buttons if at_endpoint else self.clients)[who].stop("a hand"))

    def _take_stop(self, answer: tuple[int, Any]) -> None:
        kind, detail = answer
        assert kind == DONE, detail
        assert detail["stop_number"] > self.newest, "numbers rise"
        assert detail["first"] is not self.latched
        self.is_lost = "would be lost" in str(detail["trouble"])
        self.newest, self.latched, self.moved = detail["stop_number"], True, self.served.steps()

    # -- resets ----------------------------------------------------------------------------------------------

    def _hold(self, who: int) -> PageClient:
        client = self.clients[who]
        if self.holder != who:
            assert client.hello()[0] != ERROR
            self.holder = who
        return client

    def _reset(self, who: int, why: str | None, number: int | None) -> tuple[int, Any]:
        client = self._hold(who)
        return client.receive(client.reset(why, number))

    @property
    def _is_blocked(self) -> bool:
        """Whether the driver's stop() was called and does not return."""
        if not isinstance(self.served, HereServer) or self.served.driver.free.is_set():
            return False
        return self.served.server._loop._stopper._called_s is not None

    @rule(who=_ONE_OF_TWO)
    def reset_with_the_right_number(self, who: int) -> None:
        """The person saw the newest stop, and clears it; a driver whose stop() hangs is not reset."""
        is_blocked = self._is_blocked
        kind, detail = self._reset(who, "looked", self.newest)
        if is_blocked:
            assert kind == ERROR
            return
        assert kind == READING, detail
        self.latched = False

    @rule(who=_ONE_OF_TWO, behind=st.integers(1, 3))
    def reset_with_an_old_number(self, who: int, behind: int) -> None:
        """The person saw an older stop."""
        kind, detail = self._reset(who, "looked", self.newest - behind)
        assert kind == ERROR, detail
        if not self._is_blocked:
            assert detail[0] == ("RobotStopped" if self.latched else "EpisodeError"), detail
            assert detail[3]["stop_number"] == self.newest

    @rule(who=_ONE_OF_TWO)
    def reset_with_a_number_to_come(self, who: int) -> None:
        """Nobody can have seen a stop that has not come."""
        assert self._reset(who, "looked", self.newest + 1)[0] == ERROR

    @rule(who=_ONE_OF_TWO)
    def reset_without_a_number(self, who: int) -> None:
        """The person names no stop."""
        kind, detail = self._reset(who, "looked", None)
        assert (kind, detail[0]) == (ERROR, "WireError"), detail

    @rule(who=_ONE_OF_TWO, why=st.sampled_from([None, "", "  "]))
    def reset_without_a_reason(self, who: int, why: str | None) -> None:
        """The reset of a policy, which clears nothing."""
        kind, detail = self._reset(who, why, None)
        if self.latched:
            assert kind == ERROR, detail
        elif not self._is_blocked:
            assert kind == READING, detail

    @rule(who=_ONE_OF_TWO, later=st.booleans())
    def race(self, who: int, later: bool) -> None:
        """A reset with the right number and a stop are on their way at once."""
        client, button = self._hold(who), self.buttons[1 - who]
        seen, sequence = self.newest, client.reset("looked", self.newest)
        if later:  # the server may have begun with the reset, or finished it
            client.socket.poll(1)
        kind, detail = button.stop("a hand, meanwhile")
        assert kind == DONE
        assert detail["stop_number"] > seen
        self.newest, self.latched, self.moved = detail["stop_number"], True, self.served.steps()
        self.is_lost = "would be lost" in str(detail["trouble"])
        client.receive(sequence)

    @rule(who=_ONE_OF_TWO)
    def step(self, who: int) -> None:
        """A command: of a stopped robot it moves nothing."""
        client, before = self._hold(who), self.served.steps()
        kind, _ = client.receive(client.send(STEP, None, _TARGET))
        if self.latched:
            assert kind == ERROR
            assert self.served.steps() == before

    # -- ends ------------------------------------------------------------------------------------------------

    @rule()
    def end_and_start_again(self) -> None:
        """An orderly end keeps a stop, and makes none, unless the disk fails."""
        was_latched, was_lost = self.latched, self.is_lost
        self._leave()
        self._free()
        self.served.end()
        self._mend()
        self._begin()
        if self._look() == "stopped":
            assert was_latched or was_lost
            self.latched = True
        else:
            assert not was_latched or was_lost, "an orderly end has lost the stop"
            self.latched = False
        self.is_lost = False

    @rule()
    def kill_and_start_again(self) -> None:
        """A server that was killed begins stopped, also where nothing was stopped."""
        was_lost = self.is_lost
        self._leave()
        self._free()
        self.served.kill()
        self._mend()
        self._begin()
        state = self._look()
        assert state == "stopped" or was_lost, "a kill has lost the stop"
        self.latched, self.is_lost = state == "stopped", False

    def _look(self) -> str:
        """Return the state, as a person who starts the server sees it, with the number of its stop."""
        status = self.clients[0].status()
        assert status["stop_number"] >= self.newest, "numbers rise over restarts"
        if status["state"] == "stopped":
            assert status["stop_number"] > self.newest or self.newest == 0, "a stop taken up has a number of its own"
        self.newest = status["stop_number"]
        return str(status["state"])

    # -- drivers and disks that fail -------------------------------------------------------------------------

    def _free(self) -> None:
        if isinstance(self.served, HereServer):
            self.served.driver.free.set()
            self.served.driver.raises = False

    def _mend(self) -> None:
        if isinstance(self.served, HereServer):
            self.served.disk_fails = False

    @precondition(lambda self: self.served.can_fail)
    @rule(raises=st.booleans())
    def let_the_drivers_stop_raise(self, raises: bool) -> None:
        """The driver's stop() fails from now on, or works again."""
        self.served.driver.raises = raises

    @precondition(lambda self: self.served.can_fail)
    @rule(blocks=st.booleans())
    def let_the_drivers_stop_block(self, blocks: bool) -> None:
        """The driver's stop() does not return from now on, or returns at last."""
        driver = self.served.driver
        if blocks:
            driver.free.clear()
            return
        driver.free.set()
        stopper = self.served.server._loop._stopper
        until(lambda: stopper._called_s is None)

    @precondition(lambda self: self.served.can_fail)
    @rule(fails=st.booleans())
    def let_the_disk_fail(self, fails: bool) -> None:
        """The disk takes nothing from now on, or works again."""
        self.served.disk_fails = fails
        self.is_lost = self.is_lost or fails
        if not fails:
            self._settle()

    @precondition(lambda self: self.served.can_fail)
    @rule()
    def delete_the_folder(self) -> None:
        """Somebody tidies up. The file is there again within a second."""
        shutil.rmtree(self.folder / "latch")
        if self.served.disk_fails:
            self.is_lost = True
        else:
            self._settle()

    def _settle(self) -> None:
        file = self.served.server._loop.latch.file
        until(lambda: file.lost_if(0) is None and self.served.path.exists())
        self.is_lost = False

    # -- what holds at any time ------------------------------------------------------------------------------

    @invariant()
    def a_stop_that_was_answered_stays(self) -> None:
        """It is never undone but by a reset that names it."""
        if self.latched:
            status = self.clients[0].status()
            assert status["state"] == "stopped", "a stop was undone"
            assert status["stop_number"] == self.newest

    @invariant()
    def nothing_moves_after_a_stop(self) -> None:
        """The driver carries out nothing after the answer to a stop, until a reset clears it."""
        if self.latched:
            assert self.served.steps() == self.moved, "the robot moved after its stop"
        else:
            self.moved = self.served.steps()


class LifeOfAStopInAProcess(LifeOfAStop):
    """The same with a process that is really killed."""

    make = ProcessServer


def play(machine: type[LifeOfAStop], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=True, database=None,
            phases=[Phase.generate], suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.requirement("R6.6")
def test_the_life_of_a_stop_is_the_one_on_the_page(trials: int) -> None:
    """Play 1,000 lives with ``--trials 8000``."""
    play(LifeOfAStop, max(1, trials // 8), 30)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(3600)
def test_the_life_of_a_stop_in_a_process_that_is_killed(repeats: int) -> None:
    play(LifeOfAStopInAProcess, max(1, repeats // 2), 12)


# -- faults that the machine must see ------------------------------------------------------------------------


def _take_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault of the version before: without a number, a reset clears whatever was latched when it was read."""
    monkeypatch.setattr(request_handler, "gives_reason", lambda options: False)


def _ignore_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_handler, "_stop_to_clear", lambda message, options: None)


def _clear_later_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    clear = StopLatch.clear
    monkeypatch.setattr(StopLatch, "clear", lambda latch, why, seen: clear(latch, why, latch.number))
    monkeypatch.setattr(stop_latch.Clearance, "check", lambda clearance: None)


def _clear_without_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_latch, "check_clears", lambda stopped, options: None)
    monkeypatch.setattr(stop_latch, "gives_reason", lambda options: True)


def _lose_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StopFile, "_write", lambda file, record: None)
    monkeypatch.setattr(StopFile, "_read", lambda file: KeptStop(0, None))


def _forgive_an_unclean_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read = StopFile._read

    def forgive(file: StopFile) -> KeptStop:
        kept = read(file)
        return kept._replace(reason=None) if "good order" in str(kept.reason) else kept

    monkeypatch.setattr(StopFile, "_read", forgive)


def _count_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    read = StopFile._read
    monkeypatch.setattr(StopLatch, "count_from", lambda latch, number: None)
    monkeypatch.setattr(StopFile, "_read", lambda file: read(file)._replace(number=0))


def _count_only_first_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = StopLatch.stop

    def once(latch: StopLatch, reason: str | StopReason) -> int:
        return latch.number if latch.reason is not None else stop(latch, reason)

    monkeypatch.setattr(StopLatch, "stop", once)


def _end_as_if_nothing_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    put = StopFile.put
    monkeypatch.setattr(StopFile, "put", lambda file, number, stop: put(file, number, None))


def _hide_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is deleted is not made anew, and nobody is told."""
    monkeypatch.setattr(StopFile, "_is_there", lambda file: True)
    monkeypatch.setattr(StopFile, "lost_if", lambda file, seconds: None)


def _forget_the_latch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reset that fails leaves the robot unstopped."""
    original = StopLatch.resetting

    def resetting(latch: StopLatch, options: Any, seen: int | None = None) -> Any:
        latch.state = LatchState(latch.number, None)
        return original(latch, options, seen)

    monkeypatch.setattr(StopLatch, "resetting", resetting)


PLANTS = [
    _take_any_number, _ignore_the_number, _clear_later_stops, _clear_without_a_reason, _lose_the_file,
    _forgive_an_unclean_end, _count_from_nothing, _count_only_first_stops, _end_as_if_nothing_was_stopped,
    _hide_a_full_disk, _forget_the_latch,
]  # fmt: skip


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("plant", PLANTS)
def test_the_machine_sees_a_planted_fault(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, FlakyFailure)):  # flaky: the same life again may race otherwise
        play(LifeOfAStop, 100, 30)
