"""The life of a stop (docs/safety.md) as a state machine of a `PlayedServer`, for a million steps and more."""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from typing import Any, ClassVar

import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.real.page_client import DONE, ERROR, READING, RELEASE, STEP, STOP
from tests.real.played_server import Client, PlayedServer

ROW = np.array([0.01, 0.01], "<f4").tobytes()
POINTS = ("queued", "asked", "reset", "step", "stop", "answered")
"""Points of a reset into which another thread's stop may come: before the loop takes it, at the question, in the
driver's reset, on the way home, in the driver's stop, and between the loop's answer and its way to the client."""

WHO = st.integers(0, 1)
NUMBERS = (*["right"] * 5, "old", "older", "to come", "none", "zero")


class LifeOfAStop(RuleBasedStateMachine):
    """Events at a served robot in any order, and the rules that its stops must keep.

    Attributes:
        counted: number of steps of each rule, in all lives.
    """

    counted: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.robot = PlayedServer()
        self.newest = self.kept = 0  # number of the newest stop that was answered or shown; that is in the file
        self.latched = ""  # "stop" or "orderly" after its answer, until it is cleared by its number
        self.may_be_lost = False  # whether the answer to the stop said so, or the file is deleted
        self.is_odd = False  # whether an end may make a stop: the driver hangs, or the disk fails
        self.last_stop: tuple[int, int] | None = None  # copy's number, stop's number
        self.once = 0
        self._begin()
        assert self._look() != "stopped"

    def _begin(self) -> None:
        self.robot.start()
        self.clients = [self.robot.client(b"a"), self.robot.client(b"b")]
        self.buttons = [self.robot.button(b"c"), self.robot.button(b"d")]
        self.holder: int | None = None
        self.moved = self.robot.moves
        self.last_stop = None

    def teardown(self) -> None:
        self.robot.close()

    # -- stops -----------------------------------------------------------------------------------------------

    @rule(who=WHO, at_endpoint=st.booleans(), kind=st.sampled_from(["stop", "stop", "copies", "orderly", "unnumbered"]))
    def stop(self, who: int, at_endpoint: bool, kind: str) -> None:
        """Anybody stops, on either way."""
        self._stop((self.buttons if at_endpoint else self.clients)[who], kind)

    def _stop(self, client: Client, kind: str = "stop") -> None:
        self.counted["stops"] += 1
        detail: dict[str, Any] = {"reason": "a hand", "orderly": kind == "orderly", "numbered": kind != "unnumbered"}
        if kind == "copies":
            self.once += 1
            detail["once"] = self.once
        answered, outcome = client.ask(STOP, detail)
        assert answered == DONE, outcome
        if kind == "unnumbered":
            number, trouble = self.robot.loop.stops, outcome
        else:
            number, trouble = outcome["stop_number"], outcome["trouble"]
            assert outcome["first"] is (self.latched == "" or (self.latched == "orderly" and kind != "orderly"))
        assert number > self.newest, "numbers rise"
        if kind == "copies":
            self.last_stop = self.once, number
            assert self.buttons[0].ask(STOP, detail)[1]["stop_number"] == number
        self.newest, self.moved = number, self.robot.moves
        if kind != "orderly":
            self.latched, self.may_be_lost = "stop", "would be lost" in str(trouble)
            self.kept = self.kept if self.may_be_lost or self.robot.disk.mode != "works" else number
        else:
            self.latched = self.latched or "orderly"

    @precondition(lambda self: self.last_stop is not None)
    @rule(who=WHO)
    def late_copy(self, who: int) -> None:
        """A copy of an earlier stop arrives: it is answered as the first one, and is no new stop."""
        assert self.last_stop is not None
        once, number = self.last_stop
        detail = {"reason": "a hand", "orderly": False, "numbered": True, "once": once}
        answered, outcome = self.buttons[who].ask(STOP, detail)
        assert (answered, outcome["stop_number"]) == (DONE, number)

    # -- resets ----------------------------------------------------------------------------------------------

    def _hold(self, who: int) -> Client:
        client = self.clients[who]
        if self.holder != who:
            assert client.hello()[0] != ERROR
            self.holder = who
        return client

    @rule(who=WHO, why=st.sampled_from(["looked", "looked", None, "  "]), which=st.sampled_from(NUMBERS))
    def reset(self, who: int, why: str | None, which: str) -> None:
        """A reset with any reason and number: only the right ones clear a stop."""
        number = {
            "right": self.newest, "old": self.newest - 1, "older": self.newest - 7, "to come": self.newest + 1,
            "none": None, "zero": 0,
        }[which]  # fmt: skip
        client, hung = self._hold(who), bool(self.robot.hanging)
        kind, detail = client.receive(client.reset(why, number))
        gives_reason = why == "looked"
        if hung:
            assert kind == ERROR
        elif number is None and gives_reason:
            assert (kind, detail[0]) == (ERROR, "WireError")
        elif number is not None and number != self.newest:
            assert kind == ERROR, detail
            assert detail[0] == ("RobotStopped" if self.latched else "EpisodeError"), detail
            assert detail[3]["stop_number"] == self.newest
        elif self.latched and not gives_reason:
            assert (kind, detail[0]) == (ERROR, "RobotStopped")
        else:
            self._take_reset(kind, detail)

    def _take_reset(self, kind: int, detail: Any) -> None:
        """Take up the end of a reset that may clear the stop: a fault on its way is a new stop."""
        if kind == READING:
            self.latched = ""
        else:
            assert self._is_stopped, detail  # only a fault of the driver fails it
            self.latched = ""
            self._expect_stop()

    @rule(who=WHO, other=WHO, point=st.sampled_from(POINTS), at_endpoint=st.booleans())
    def reset_and_stop(self, who: int, other: int, point: str, at_endpoint: bool) -> None:
        """A stop comes while the reset that clears the stop before it is under way."""
        client, came = self._hold(who), []
        buttons = self.buttons if at_endpoint else [self.robot.client(b"e"), self.robot.client(b"f")]

        def stop() -> None:
            came.append(True)
            latched = self.robot.loop.latch.reason  # the reset may have cleared it
            self.latched = "" if latched is None else "orderly" if latched.orderly else "stop"
            self._stop(buttons[other])

        was_latched, hung, fault = self.latched, bool(self.robot.hanging), self.robot.driver.fault
        if point == "queued":
            sequence = client.reset("looked", self.newest)
            stop()
        else:
            self.robot.meanwhile[point] = stop
            sequence = client.reset("looked", self.newest)
        kind, detail = client.receive(sequence)
        self.robot.meanwhile.clear()
        if came:
            assert kind == ERROR or point == "answered", (point, detail)
            if self.robot.driver.fault != fault:
                self._expect_stop()
        elif hung:
            self.latched = was_latched
        else:
            self._take_reset(kind, detail)

    @rule(who=WHO)
    def reset_and_leave(self, who: int) -> None:
        """The client gives the robot back while its reset waits for the scene: nothing is cleared."""
        client, left, hung = self._hold(who), [], bool(self.robot.hanging)

        def leave() -> None:
            left.append(client.send(RELEASE))
            self.holder = None

        self.robot.meanwhile["asked"] = leave
        kind, detail = client.receive(client.reset("looked", self.newest))
        self.robot.meanwhile.clear()
        if left:
            assert kind == ERROR, "the reset went on for nobody"
            client.session = 0
            if not self.latched:  # a driver that failed meanwhile is stopped
                self._expect_stop()
        elif kind != ERROR:
            raise AssertionError(detail)
        elif not hung:
            self._expect_stop()

    @rule(who=WHO, point=st.sampled_from([None, None, "queued", "step"]), other=WHO)
    def step(self, who: int, point: str | None, other: int) -> None:
        """A command: of a stopped robot it moves nothing; a stop may come before it, or within it."""
        client, before, was_latched = self._hold(who), self.robot.moves, self.latched
        fault = self.robot.driver.fault
        if point == "step" and not was_latched:
            self.robot.meanwhile["step"] = lambda: self._stop(self.buttons[other])
        sequence = client.send(STEP, None, ROW)
        if point == "queued":
            self._stop(self.buttons[other])
            was_latched = self.latched
        kind, _ = client.receive(sequence)
        self.robot.meanwhile.clear()
        if self.robot.driver.fault != fault:
            self._expect_stop()
        if was_latched:
            assert kind == ERROR
            assert self.robot.moves == before

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.3]))
    def wait(self, seconds: float) -> None:
        """Time passes: the robot holds, and after its watchdog's time the episode is over."""
        self.robot.run(seconds)
        self.robot.handler.tick()

    @rule(who=WHO)
    def give_back(self, who: int) -> None:
        """A client ends."""
        if self.holder == who:
            assert self.clients[who].ask(RELEASE)[0] == DONE
            self.clients[who].session, self.holder = 0, None

    # -- drivers that fail, and stop by themselves -----------------------------------------------------------

    @rule(
        fault=st.sampled_from(
            ["raises in step", "own button", "not a number", "raises in reset", "raises in stop", "none"]
        )
    )
    def fault(self, fault: str) -> None:
        """The driver fails at its next call, which is at once where it holds the robot, or stops by its own button."""
        self.robot.driver.fault = "" if fault == "none" else fault
        before = self.robot.moves
        self.robot.run()
        if self.robot.moves > before and fault in ("raises in step", "own button", "not a number"):
            assert self._is_stopped
            self._expect_stop()

    @property
    def _is_stopped(self) -> bool:
        return self.clients[0].status()["state"] == "stopped"

    def _expect_stop(self) -> None:
        """Take up a stop of the robot's own, which the status shows."""
        status = self.clients[0].status()
        if status["state"] == "stopped":
            self.moved = self.moved if self.latched else self.robot.moves
            self.latched = "stop"
            self.may_be_lost = self.may_be_lost or status["stop_file"]["failure"] is not None
        assert status["stop_number"] >= self.newest
        self.newest = status["stop_number"]

    @rule(hangs=st.booleans())
    def let_the_drivers_stop_hang(self, hangs: bool) -> None:
        """The driver's stop() does not return from now on, or returns at last."""
        if hangs:
            self.robot.stop_hangs = True
        else:
            self.robot.let_the_stop_return()

    # -- the disk --------------------------------------------------------------------------------------------

    @rule(mode=st.sampled_from(["works", "works", "full", "hangs", "syncs late"]))
    def change_the_disk(self, mode: str) -> None:
        """The disk is full, hangs or syncs late from now on, or works again."""
        if mode == "works":
            self._settle()
        else:
            self.robot.disk.mode = mode
            self.is_odd = True

    def _settle(self) -> None:
        self.robot.unblock()
        file = self.robot.loop.latch.file
        assert file is not None
        assert file.failure is None
        assert self.robot.path.exists()
        self.may_be_lost = self.is_odd = False

    @rule(folder=st.booleans())
    def delete(self, folder: bool) -> None:
        """Somebody tidies up. A disk that works has the file again within a second."""
        if folder:
            shutil.rmtree(self.robot.path.parent, ignore_errors=True)
        else:
            self.robot.path.unlink(missing_ok=True)
        self.may_be_lost = self.is_odd = True
        if self.robot.disk.mode == "works":
            self._settle()

    @rule(what=st.sampled_from([".part", ".json.tmp", "-other.json"]))
    def leave_a_file(self, what: str) -> None:
        """An earlier version, an editor or another robot leaves a file beside the stop's."""
        if self.robot.path.parent.is_dir():
            self.robot.path.with_name(self.robot.path.stem + what).write_text('{"reason": "fire", "since": "now"}')

    @rule(hours=st.sampled_from([1, 24, -1]))
    def set_the_wall_clock(self, hours: int) -> None:
        """The clock of the machine jumps; back it goes no further than a stop's number would be seen again."""
        self.robot.wall_ns += hours * 3_600_000_000_000

    # -- ends ------------------------------------------------------------------------------------------------

    @rule(disk_stays=st.booleans())
    def end_and_start_again(self, disk_stays: bool) -> None:
        """An orderly end keeps a stop, and makes none, unless the driver or the disk fails."""
        hangs = bool(self.robot.hanging) or self.robot.stop_hangs
        self.robot.end()
        is_odd = self.is_odd or hangs or self.robot.disk.mode != "works"
        self._start_again(disk_stays)
        is_odd = is_odd or self.robot.disk.mode != "works"
        state = self._look()
        if self.latched == "stop":
            assert state == "stopped" or self.may_be_lost, "an orderly end has lost the stop"
        elif state == "stopped":
            assert is_odd, "an orderly end has made a stop"
        self._take_up(state)

    @rule(disk_stays=st.booleans(), power=st.one_of(st.none(), st.integers(0, 255)))
    def kill_and_start_again(self, disk_stays: bool, power: int | None) -> None:
        """A server that was killed, or lost its power, begins stopped, also where nothing was stopped."""
        was_free = self.latched != "stop"
        self.robot.kill(power)
        self._start_again(disk_stays)
        state = self._look(may_fall=power is not None)
        if power is None or not was_free:
            assert state == "stopped" or self.may_be_lost, "a kill has lost the stop"
        self._take_up(state)

    @rule(damage=st.sampled_from(["flip", "short", "earlier", "empty", "zeros"]), at=st.integers(0, 16383))
    def damage_while_ended(self, damage: str, at: int) -> None:
        """The file is damaged, or of an earlier version, when the next server starts: it begins stopped."""
        self.robot.kill()
        if self.robot.path.exists():
            data = bytearray(self.robot.path.read_bytes())
            if damage == "flip":
                at %= max(1, len(data))
                data[at : at + 1] = bytes([data[at] ^ 1]) if data else b""
            content = {
                "flip": bytes(data), "short": bytes(data[:at]), "empty": b"", "zeros": bytes(16384),
                "earlier": json.dumps({"reason": "fire", "since": "2026-01-01"}).encode(),
            }[damage]  # fmt: skip
            self.robot.path.write_bytes(content)
        self._start_again(False)
        state = self._look(may_fall=True)
        assert state == "stopped" or self.may_be_lost, "a damaged file has lost the stop"
        self._take_up(state)

    def _start_again(self, disk_stays: bool) -> None:
        if not disk_stays:
            self.robot.disk.mode = "works"
        self.robot.wall_ns += 1_000_000_000
        self._begin()

    def _look(self, *, may_fall: bool = False) -> str:
        """Return the state, as a person who starts the server sees it, with the number of its stop."""
        status = self.clients[0].status()
        number, state = status["stop_number"], str(status["state"])
        if not (may_fall or self.may_be_lost):
            assert number >= self.kept, "numbers rise over restarts"
            assert state != "stopped" or number > self.kept, "a stop taken up has a number of its own"
        self.newest = number
        self.kept = number if self.robot.disk.mode == "works" else 0
        return state

    def _take_up(self, state: str) -> None:
        self.latched = "stop" if state == "stopped" else ""
        self.may_be_lost = self.robot.disk.mode != "works"
        self.is_odd = self.may_be_lost

    # -- what holds at any time ------------------------------------------------------------------------------

    @invariant()
    def a_stop_that_was_answered_stays(self) -> None:
        """It is never undone but by a reset that names it, and the driver carries out nothing meanwhile."""
        self.counted["steps"] += 1
        self.robot.check()
        status = self.clients[0].status()
        if self.latched:
            assert status["state"] == "stopped", "a stop was undone"
            assert status["stop_number"] == self.newest
            assert self.robot.moves == self.moved, "the robot moved after its stop"
        else:
            assert status["state"] != "stopped", status["why"]
            self.moved = self.robot.moves


def play(
    machine: type[LifeOfAStop], lives: int, steps: int = 100, *, seed: int = 0, shrinks: bool = False
) -> Counter[str]:
    """Play lives of a stop; return the numbers of steps and stops."""
    LifeOfAStop.counted = Counter()
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        run_state_machine_as_test(
            hypothesis.seed(seed)(type(machine.__name__, (machine,), {})),
            settings=settings(
                max_examples=lives, stateful_step_count=steps, deadline=None, database=None,
                phases=[Phase.generate, *([Phase.shrink] if shrinks else [])],
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip
    finally:
        logging.disable(before)
    return LifeOfAStop.counted
