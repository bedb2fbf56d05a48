"""Faults that once moved an arm or left it deaf, each as often as ``--trials`` says; each prints how many went wrong.

    pytest tests/real/test_fault_trials.py --trials 1000 -s

The races of stops with resets, grants, faults and ends are in `tests/real/control/test_stop_races.py` and, over the
network, in `tests/system/test_stop_races_network.py`; the keys of other movers in `server/test_authenticator.py`; stop
buttons among strangers' connections in `server/test_connections.py`.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from hal import (
    Answer,
    Automatic,
    CommandTooOld,
    Guard,
    Homing,
    HomingSettings,
    ResetFailed,
    RobotError,
    RobotState,
    RobotStopped,
)
from hal.reset.command import Command
from real import Connection, ControlLoop, LoopSettings, MessageKind, RemoteRobot, Server
from real.control.lifecycle import State
from real.protocol.messages import encode, send_frames
from real.server import request_handler
from tests.fakes import INTEGRATOR, TWO_JOINTS, Integrator, ManualClock, Puppet, looked, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.requirement("R6.6")]

QUICK = HomingSettings(velocity=20.0, settle_s=0.004, tolerance=0.2)


def report(what: str, wrong: list[Any], trials: int) -> None:
    """Print the count, and fail where anything went wrong."""
    print(f"{what}: {len(wrong)} of {trials} went wrong")
    assert not wrong, f"{what}: {wrong[:5]}"


class Loop:
    """A robot in its control loop, asked one thing at a time."""

    def __init__(self, robot: Any, **settings: Any) -> None:
        self._outcomes: SimpleQueue[Any] = SimpleQueue()
        clock = settings.pop("now", time.monotonic)
        self.loop = ControlLoop(
            robot,
            lambda _, outcome: self._outcomes.put(outcome),
            LoopSettings(**{"paced_by_robot": True, "watchdog_s": 60.0, **settings}),
            now=clock,
        )
        self.loop.start()

    def reset(self, **options: Any) -> Any:
        self.loop.reset(0, options)
        return self._outcomes.get(timeout=20)

    def step(self, *values: float) -> Any:
        self.loop.step(1, {"target": np.float32(values)})
        return self._outcomes.get(timeout=20)


# -- A wrong encoder moves no held goal -----------------------------------------------------------------------


class WrongEncoder(Puppet):
    """An arm whose encoder of one joint is wrong by ``shift``."""

    shift, joint = 0.0, 0

    def _robot_state(self) -> RobotState:
        state, wrong = super()._robot_state(), np.zeros(2, np.float32)
        wrong[self.joint] = self.shift
        return state._replace(sensors={"angle": state.sensors["angle"] + wrong})


def test_a_wrong_encoder(trials: int) -> None:
    """Wraps of a servo and slipped horns, at rest and on the way home: the robot is stopped, and goes nowhere else."""
    dice, wrong = random.Random(1), []
    bound = TWO_JOINTS.limits.max_lead["target"]
    assert isinstance(bound, float)
    for trial in range(trials):
        at, joint = dice.uniform(-0.9, 0.9), dice.randrange(2)
        robot = WrongEncoder(at=(at, 0.0) if joint == 0 else (0.0, at))
        guard = Guard(robot)
        guard.reset({})
        held = robot.applied.copy()
        robot.joint = joint
        robot.shift = dice.choice((2 * np.pi, -2 * np.pi, dice.choice((-1, 1)) * dice.uniform(1.2 * bound, 3.0)))
        goal = held if dice.random() < 0.5 else np.zeros(2, np.float32)
        try:
            for _ in range(20):
                guard.step({"target": goal})
        except RobotStopped:
            pass
        way = np.array([held, *robot.told])
        outside = (way < np.minimum(held, goal) - 1e-6) | (way > np.maximum(held, goal) + 1e-6)
        if guard.stopped is None or outside.any():
            wrong.append((trial, robot.shift, way.tolist()))
    report("a wrong encoder", wrong, trials)


# -- Text and exceptions do not end the network thread --------------------------------------------------------


class Judge(Automatic):
    """A confirmation whose note and refusal are under the test's control."""

    text, refuses = "", False

    def ask(self, request: Any) -> Answer:
        if self.refuses:
            raise ResetFailed(self.text)
        return Answer("fixture", self.text)

    def judge(self, request: Any) -> Answer:
        return Answer("fixture", self.text, "success")


class Mute(Exception):
    """An exception whose text can't be asked for."""

    def __str__(self) -> str:
        raise ValueError("no text")


def _text(number: int) -> str:
    """Return a text that UTF-8 can't carry, with what forges lines of a log."""
    dice = random.Random(number)
    parts = ["\ud83d", "\udcff", "\n2026-01-01 WARNING stop cleared", "\x1b[2J", "\u202e", "\x00", "e\u0301" * 50]
    return "".join(dice.sample(parts, dice.randrange(len(parts) + 1))) + dice.choice("\ud800\udfff\udcff")


def test_texts_and_exceptions(repeats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In notes, refusals, drivers' exceptions, stops and ticks: looks and stops are answered after each."""
    robot, judge, wrong = Integrator(), Judge(), []
    homing = Homing(Guard(robot), judge, QUICK, on_event=lambda state, detail: server.report(state, detail))
    dice, raises = random.Random(2), [False]

    def tick(handler: Any, original: Callable[[Any], None] = request_handler.RequestHandler.tick) -> None:
        if raises[0]:
            raise Mute
        original(handler)

    monkeypatch.setattr(request_handler.RequestHandler, "tick", tick)
    server = Server(homing, max_command_age_s=None, watchdog_s=60.0)
    with server, closing(RemoteRobot(server.address)) as remote, closing(RemoteRobot(server.address)) as button:
        button.stand_by()
        for trial in range(repeats):
            judge.text, judge.refuses, robot.on_step = _text(trial), dice.random() < 0.2, lambda: None
            raises[0] = dice.random() < 0.2
            fault = dice.choice((Mute(), OSError(_text(trial)), KeyError(_text(trial))))

            def lost(fault: Exception = fault) -> None:
                raise fault

            try:
                remote.reset(looked(button))
                remote.judge(_text(trial + 1).encode(errors="replace").decode(), 5.0)
                robot.on_step = lost
                remote.step({"target": np.float32((0.1, 0))})
            except RobotError:
                pass
            button.stop(_text(trial))
            if server.network_dead or server.stopped is None or button.status()["state"] != "stopped":
                wrong.append((trial, judge.text, fault))
        robot.on_step, raises[0] = (lambda: None), False
    report("texts and exceptions", wrong, repeats)


# -- A driver whose stop or close blocks ----------------------------------------------------------------------


class Blocking(Puppet):
    """An arm whose ``stop`` or ``close`` blocks until it is released."""

    def __init__(self) -> None:
        super().__init__(replace(TWO_JOINTS, rate_hz=100.0))
        self.blocks_in, self.released = "", threading.Event()

    def stop(self, reason: str) -> None:
        super().stop(reason)
        if self.blocks_in == "stop":
            self.released.wait()

    def close(self) -> None:
        if self.blocks_in == "close":
            self.released.wait()
        super().close()


def _threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in (name, "rlenv-robot control")]


@pytest.mark.parametrize("call", ["stop", "close"])
def test_a_driver_that_blocks(repeats: int, call: str) -> None:
    """Stops are latched and answered, the loop moves nothing, and its end does not wait for the driver."""
    wrong = []
    for trial in range(repeats):
        arm = Blocking()
        served = Loop(arm)
        served.reset()
        served.step(0.1, 0.0)
        arm.blocks_in = call
        troubles = [served.loop.stop("a hand"), served.loop.stop("another")] if call == "stop" else []
        steps = len(arm.told)
        ended = threading.Thread(target=served.loop.close, args=(0.02,))
        ended.start()
        ended.join(10.0)
        if call == "close":  # its stop came within the call
            steps = len(arm.told)
            time.sleep(0.003)
        outcome = ended.is_alive(), served.loop.abandoned, len(arm.told) - steps, troubles
        said = all("has not returned" in str(each) for each in troubles)
        abandoned = str(served.loop.abandoned)
        if ended.is_alive() or "did not return" not in abandoned or len(arm.told) > steps or not said:
            wrong.append((trial, outcome))
        arm.released.set()
        until(lambda: "close" in arm.calls or "close()" not in abandoned)  # noqa: B023
        until(lambda: not _threads(f"rlenv-robot {call}"))
    report(f"a driver that blocks in {call}", wrong, repeats)


# -- A measurement that is no number, in nested guards --------------------------------------------------------


class Blind(Puppet):
    """An arm with a watchdog in its device, which measures no number from its n-th step on."""

    def __init__(self, blind_from: int) -> None:
        super().__init__(replace(TWO_JOINTS, rate_hz=100.0), at=(0.3, 0.0))
        self.blind_from, self.armed = blind_from, False

    def step(self, command: Any) -> RobotState:
        time.sleep(0.0002)
        robot_state = super().step(command)
        if len(self.told) < self.blind_from:
            return robot_state
        return robot_state._replace(sensors={"angle": np.float32([0.0, np.nan])})

    def arm_watchdog(self, timeout_s: float) -> bool:
        self.armed = True
        return True

    def disarm_watchdog(self) -> None:
        self.armed = False


def test_a_measurement_that_is_no_number(repeats: int) -> None:
    """On the way home and in an episode: the state, the latch and the device's watchdog agree, and the loop rests."""
    dice, wrong = random.Random(3), []
    for trial in range(repeats):
        arm = Blind(dice.randrange(1, 30))
        served = Loop(Guard(Homing(Guard(arm), Automatic(), HomingSettings(velocity=3.0, settle_s=0.05))))
        served.reset()
        until(lambda: served.loop.stopped and not arm.armed and served.loop.nothing_waits())  # noqa: B023
        time.sleep(0.005)
        calls = len(arm.calls)
        time.sleep(0.02)
        if len(arm.calls) != calls or served.loop.lifecycle.state is not State.STOPPED or served.loop.broken:
            wrong.append((trial, arm.blind_from, served.loop.lifecycle.state))
        served.loop.close()
    report("a measurement that is no number", wrong, repeats)


# -- A refused reset, and a kill, leave the stop --------------------------------------------------------------


def test_a_reset_that_is_refused(trials: int) -> None:
    """The fixture says no, and the reset after it gives no reason: the stop is still there, and nothing moves."""
    arm, judge, wrong = Puppet(replace(TWO_JOINTS, rate_hz=100.0)), Judge(), []
    served = Loop(Homing(Guard(arm), judge, QUICK))
    for trial in range(trials):
        judge.refuses = False
        served.reset(clear_stop="the next trial")
        served.loop.stop("smoke")
        until(lambda: served.loop.nothing_waits())
        steps, judge.refuses = len(arm.told), True
        refused = served.reset(clear_stop="looked")
        judge.refuses = False
        plain = served.reset()
        if not isinstance(refused, ResetFailed) or not isinstance(plain, RobotStopped) or len(arm.told) > steps:
            wrong.append((trial, refused, plain, len(arm.told) - steps))
    served.loop.close()
    report("a reset that is refused", wrong, trials)


KILLED = """
import os, random, signal, sys, time
from hal.guarding.stop_file import StopFile
from hal.guarding.stop_latch import StopLatch

folder, trials, lost = sys.argv[1], int(sys.argv[2]), []
dice = random.Random(4)
for trial in range(trials):
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        latch = StopLatch()
        latch.keep_in(StopFile(folder, "arm"))
        latch.clear("the next trial", latch.number)
        latch.stop(f"smoke {trial}.")
        os.write(told, b"kept" if latch.file.wait(20) else b"late")
        while True:
            latch.stop("more smoke")
    assert os.read(heard, 4) == b"kept"
    time.sleep(dice.random() * 0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(heard)
    os.close(told)
    file = StopFile(folder, "arm")
    reason = file.open().reason
    file.close(orderly=False)
    if reason is None or f"smoke {trial}." not in reason.text:
        lost.append((trial, reason))
print(len(lost), lost[:3])
"""


@pytest.mark.process
def test_a_kill_after_a_stop(start: Callable[..., Any], tmp_path: Path, trials: int) -> None:
    """Processes that are killed at any instant after their stop was kept: the next one finds it."""
    found = start(KILLED, str(tmp_path), str(trials)).line()
    report("a kill after a stop", [] if found == "0 []" else [found], trials)


# -- Time: drivers that return at once, pauses, clients that are gone -----------------------------------------


def test_a_driver_that_returns_too_early(trials: int) -> None:
    """Limits go by the time that passed: over any stretch of commands no joint is faster than its limit."""
    dice, wrong = random.Random(5), []
    for trial in range(trials):
        clock, hurry = ManualClock(), dice.choice((1e-6, 1e-4, 0.001, 0.01, 0.09))
        robot = Puppet(at=(-1.0, 0.0))
        guard = Guard(robot, clock)
        guard.reset({})
        began, places = clock.now, [-1.0]
        while len(places) < 60:
            clock.advance(hurry * dice.uniform(0.5, 1.5))
            guard.step({"target": np.float32((dice.choice((1.0, 1.0, -1.0)), 0.0))})
            places.append(float(robot.told[-1][0]))
        longest, whole = max(abs(b - a) for a, b in pairwise(places)), max(places) - min(places)
        if longest > 0.2 + 1e-5 or whole > 2.0 * (clock.now - began + 0.1) + 1e-5:  # the first one has a whole period
            wrong.append((trial, hurry, longest, whole))
    report("a driver that returns too early", wrong, trials)


class Frozen(Puppet):
    """An arm in a process that pauses at some tick: its clock jumps."""

    def __init__(self) -> None:
        super().__init__(replace(TWO_JOINTS, rate_hz=500.0, limits=replace(TWO_JOINTS.limits, max_velocity={})))
        self.jump_at, self.offset_s = -1, 0.0

    def now(self) -> float:
        return time.monotonic() + self.offset_s

    def step(self, command: Any) -> RobotState:
        robot_state = super().step(command)
        time.sleep(0.0005)
        if len(self.told) == self.jump_at:
            self.offset_s += 0.5
        return robot_state


def test_a_pause_in_a_command(repeats: int) -> None:
    """The loop freezes within a command's ten ticks: the rest of the command is not carried out."""
    dice, wrong = random.Random(6), []
    arm = Frozen()
    served = Loop(Homing(Guard(arm), Automatic(), QUICK), now=arm.now, control_hz=50.0, max_command_age_s=0.1)
    for trial in range(repeats):
        served.reset(start={"target": (0.0, 0.0)})
        until(lambda: served.loop.nothing_waits())
        begun = len(arm.told)
        arm.jump_at = begun + dice.randrange(2, 9)
        outcome = served.step(0.3, 0.0)
        until(lambda: len(arm.told) > arm.jump_at + 12)
        paused, later = arm.told[arm.jump_at - 1], arm.told[arm.jump_at :]
        if not isinstance(outcome, CommandTooOld) or any(not np.array_equal(paused, each) for each in later):
            wrong.append((trial, arm.jump_at - begun, outcome, len(later)))
        arm.jump_at = -1
    served.loop.close()
    report("a pause in a command", wrong, repeats)


class Slow(Automatic):
    """A person who is asked, and answers when the test says so; whether the answer is still wanted or not."""

    def __init__(self) -> None:
        self.asked, self.answers = threading.Event(), threading.Event()

    def ask(self, request: Any) -> Answer:
        self.asked.set()
        self.answers.wait(20)
        return Answer("a person")


class ToldOfTheEnd(Homing):
    """A reset that notes when it is given up."""

    given_up: threading.Event

    def cancel_reset(self, why: str) -> None:
        super().cancel_reset(why)
        self.given_up.set()


def test_a_client_that_is_gone_when_the_person_says_yes(repeats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_handler, "BEAT_S", 0.02)  # how soon a server notices, at most
    person, robot, wrong = Slow(), Integrator(), []
    hello = {"digest": "", "name": "gone", "move": True, "replaces": 0, "take": "force", "resume": False}
    reset = {"options": {"start": {"target": (0.5, 0.5)}}, "deadline_s": 20.0}
    homing = ToldOfTheEnd(Guard(robot), person, QUICK)
    homing.given_up = threading.Event()
    with Server(homing, max_command_age_s=None) as server:
        for trial in range(repeats):
            for event in (person.asked, person.answers, homing.given_up):
                event.clear()
            gone = Connection(server.address)
            gone.session = gone.ask(MessageKind.HELLO, hello, (), 10.0).session
            send_frames(gone.socket, encode(MessageKind.RESET, gone.session, 100, reset))
            assert person.asked.wait(10)
            gone.close()  # without a goodbye
            assert homing.given_up.wait(20)
            steps = len(robot.commands)
            person.answers.set()
            until(lambda: server.lifecycle.state in (State.HOLDING, State.DISARMED))
            time.sleep(0.005)
            if len(robot.commands) > steps:
                wrong.append((trial, len(robot.commands) - steps))
    report("a client that is gone when the person says yes", wrong, repeats)


def test_a_stop_while_a_reset_program_runs(repeats: int, tmp_path: Path) -> None:
    """The stop reaches the program, which is ended, and its reset moves nothing."""
    alive, dice, wrong = tmp_path / "alive", random.Random(7), []
    arm = Puppet(replace(TWO_JOINTS, rate_hz=100.0))
    program = Command(["/bin/sh", "-c", f"trap 'rm {alive}; exit 1' TERM; touch {alive}; sleep 60 & wait"])
    served = Loop(Homing(Guard(arm), program, QUICK))
    for trial in range(repeats):
        outcomes: list[Any] = []
        asked = threading.Thread(target=lambda: outcomes.append(served.reset(clear_stop="again")))  # noqa: B023
        asked.start()
        until(alive.exists)
        time.sleep(dice.random() * 0.02)
        served.loop.stop("smoke")
        steps = len(arm.told)
        asked.join(20)
        if asked.is_alive() or alive.exists() or len(arm.told) > steps or served.loop.stopped != "smoke":
            wrong.append((trial, outcomes, alive.exists()))
    served.loop.close()
    report("a stop while a reset program runs", wrong, repeats)


# -- Another mover's session ----------------------------------------------------------------------------------


def test_another_movers_session(identities: Callable[..., Path], tmp_path: Path, repeats: int) -> None:
    """A mover's key with the session's number, and with guessed ones, in every kind that moves or takes the robot."""
    from real.protocol.handshake import load_keys

    robot, dice, wrong = Integrator(), random.Random(8), []
    owner_keys, thief_keys = identities("owner"), identities("thief", "operate")
    row = INTEGRATOR.commands.pack({"target": (0.9, 0)})
    with (
        Server(robot, lockstep=True, keys=tmp_path / "server") as server,
        closing(RemoteRobot(server.address, keys=owner_keys, connect_timeout_s=10.0)) as owner,
        closing(Connection(server.address, keys=load_keys(thief_keys))) as thief,
    ):
        owner.reset({})
        kinds: tuple[tuple[MessageKind, Any], ...] = (
            (MessageKind.STEP, None),
            (MessageKind.RESET, {"options": {}, "deadline_s": 1.0}),
            (MessageKind.JUDGE, {"message": "", "deadline_s": 1.0}),
            (MessageKind.CONSENT, {"yes": True}),
            (MessageKind.RELEASE, None),
            (MessageKind.END, {"reason": "stolen"}),
        )
        for trial in range(repeats):
            kind, detail = dice.choice(kinds)
            thief.session = owner._session if dice.random() < 0.7 else dice.getrandbits(62)
            thief.sequence = dice.choice((0, 10**6, 10**12)) + trial
            try:
                thief.ask(kind, detail, (row,), 10.0)
                wrong.append((trial, kind))
            except RobotError:
                pass
            owner.step({"target": np.float32((0.5, 0.0))})
    if set(robot.commands) != {(0.5, 0.0)} or len(robot.commands) != repeats:
        wrong.append(("commands", len(robot.commands)))
    report("another mover's session", wrong, repeats)


@pytest.fixture(autouse=True)
def fine_turns() -> Iterator[None]:
    """Let the threads interleave finely."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(interval_s)
