"""Serve an arm in a process of its own, move it, watch it, and end its server in every way."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np

from hal.errors import ConnectionLost, RobotError
from hal.robot import RobotState
from real.client.robot import RemoteRobot
from real.telemetry.state import Snapshot, Watcher
from rlenv_kit.bench.motion import COMMAND, SENSOR, Rest, Sample, Swing, rest_after, speed

__all__ = ["FAST_DEG_S", "BenchError", "NotFast", "Program", "Rig"]

_START_S, _ANSWER_S, _END_S, _STEP_S = 90.0, 10.0, 60.0, 5.0
FAST_DEG_S = 30.0
"""Speed at which a moving arm is stopped; a swing makes 54 degrees a second."""

_LEASE_S = 10.0
"""Longest wait for the lease of a client that was killed, seconds."""

_HEIGHT = "gripper_position"
_KEPT_S = 120.0
"""Time for which messages of telemetry are kept, seconds."""


class BenchError(RobotError):
    """A part of the bench did not do what a step needs."""


class NotFast(BenchError):
    """A swing did not reach the speed at which it is to be stopped."""


class Program:
    """A program of its own session, so that Ctrl-C at the terminal does not reach it.

    Args:
        command: program and arguments.
        log: receives its standard error.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        self.log = log
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="bench reader", daemon=True).start()

    def _read(self) -> None:
        for line in cast("TextIO", self.process.stdout):
            self._lines.put(line)
        self._lines.put(None)

    def tell(self, line: str) -> None:
        """Send a line to its standard input.

        Raises:
            BenchError: it has ended.
        """
        try:
            stdin = cast("TextIO", self.process.stdin)
            stdin.write(f"{line}\n")
            stdin.flush()
        except (OSError, ValueError) as error:  # the second: its pipe is closed
            raise BenchError(f"{self.process.args!r:.80} has ended: {self.last_words()}") from error

    def line_with(self, word: str, timeout_s: float) -> str:
        """Wait for the next line that begins with a word, and return the rest of it; drop other lines.

        Raises:
            BenchError: none came in time, or the program has ended.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, end_s - time.monotonic()))
            except queue.Empty:
                raise BenchError(f"no line {word!r} within {timeout_s:g} s: {self.last_words()}") from None
            if line is None:
                self._lines.put(None)
                raise BenchError(f"the program that says {word!r} has ended: {self.last_words()}")
            if line.startswith(word):
                return line.removeprefix(word).strip()

    def last_words(self) -> str:
        """Return the last line of its standard error."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def end(self, number: int, timeout_s: float = _END_S) -> int:
        """Send a signal, wait for the end, and return the exit code; kill a program that does not end."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                cast("TextIO", stream).close()
        return code


class Rig:
    """An arm on its bench: its server, a client that moves it, a client that stops it, and its telemetry.

    Args:
        profile: the owner's profile.
        folder: for logs, and for stops if the profile names no place.
    """

    def __init__(self, profile: Path, folder: Path) -> None:
        self.profile, self.folder = profile, folder
        self.samples: list[Sample] = []
        self._server: Program | None = None
        self._mover: RemoteRobot | None = None
        self._button: RemoteRobot | None = None
        self._over = threading.Event()
        self._watch: threading.Thread | None = None
        self.address = ""

    # -- the server ------------------------------------------------------------------------------------------------

    @property
    def serves(self) -> bool:
        """Whether the server runs."""
        return self._server is not None and self._server.process.poll() is None

    def start(self) -> None:
        """Start the server if it does not run, and watch it; nothing moves.

        Raises:
            BenchError: it does not start; the message has its last words.
        """
        if self.serves:
            return
        self._disconnect()
        command = [sys.executable, "-m", "rlenv_kit.bench.child", "serve", str(self.profile), str(self.folder)]
        self._server = Program(command, self.folder / "server.log")
        ready = json.loads(self._server.line_with("ready", _START_S))
        self.address = ready["address"]
        self._mover, self._button = self._client(), self._client()
        self._button.stand_by()
        self._over = threading.Event()
        watcher = Watcher(ready["telemetry"], self._button.spec)
        self._watch = threading.Thread(target=self._listen, args=(watcher, self._over), name="bench watch", daemon=True)
        self._watch.start()

    def end_server(self, number: int) -> tuple[int, float]:
        """End the server by a signal; return its exit code, and the seconds until it had ended."""
        server = self._opened()
        began_s = time.monotonic()
        code = server.end(number)
        seconds = time.monotonic() - began_s
        self._server = None
        self._disconnect()
        return code, seconds

    def _disconnect(self) -> None:
        self._over.set()
        if self._watch is not None:
            self._watch.join(_ANSWER_S)
        for remote in (self._mover, self._button):
            if remote is not None:
                with contextlib.suppress(RobotError):
                    remote.close()
        self._watch = self._mover = self._button = None

    def _opened(self) -> Program:
        if self._server is None:
            raise BenchError("the server does not run")
        return self._server

    def about(self) -> dict[str, Any]:
        """Return the driver's report (`hal.wrapper.RobotWrapper.about`), with ``virtual``."""
        server = self._opened()
        server.tell("about")
        answer: dict[str, Any] = json.loads(server.line_with("about", _ANSWER_S))
        return answer

    def hold(self) -> str:
        """Stop the arm and end the server, which leaves the arm held; return a sentence. Raises nothing.

        A server that does not end is killed: the servos then hold their last goal.
        """
        if not self.serves:
            self._disconnect()
            return "no server runs; the servos hold their last goal, or are without torque as the last step left them"
        said = "the arm is stopped and holds with torque"
        try:
            self.button.stop("the bench was interrupted")
        except RobotError as error:
            said = f"{error}; the arm holds what it was told last"
        code, _ = self.end_server(signal.SIGTERM)
        return f"{said}; its server has ended (code {code}). Support the arm, then cut its supply"

    @property
    def stopped(self) -> str | None:
        """The reason why the arm is stopped, by the newest message; None if it is not, or no server runs."""
        newest = self.samples[-1] if self.samples and self.serves else None
        return newest.why if newest is not None and newest.state == "stopped" else None

    # -- clients ---------------------------------------------------------------------------------------------------

    @property
    def button(self) -> RemoteRobot:
        """The client that stops."""
        if self._button is None:
            raise BenchError("the server does not run")
        return self._button

    @property
    def mover(self) -> RemoteRobot:
        """The client that moves."""
        if self._mover is None:
            raise BenchError("the server does not run")
        return self._mover

    def reset(self, reason: str, **options: Any) -> RobotState:
        """Bring the arm home, and clear the stop that is latched, if there is one.

        Args:
            reason: for clearing a stop.
            options: of the reset, such as ``start="present"``.
        """
        status = self.button.status()
        if status.get("state") == "stopped":
            options |= {"clear_stop": f"bench: {reason}", "stop_number": status["stop_number"]}
        end_s = time.monotonic() + _LEASE_S
        while True:
            try:
                return self.mover.reset(options)
            except ConnectionLost as error:
                if "held by" not in str(error) or time.monotonic() > end_s:
                    raise
                time.sleep(0.2)  # a client that was killed keeps the robot until its lease ends

    def _client(self) -> RemoteRobot:
        return RemoteRobot(self.address, step_timeout_s=_STEP_S)

    def free_mover(self) -> None:
        """Let another client move the arm."""
        self.mover.close()
        self._mover = self._client()

    def go(self, state: RobotState, target: np.ndarray, seconds: float) -> RobotState:
        """Lead the arm to a pose in a straight line, within some seconds, and return the last reading."""
        rate_hz, begin = self.mover.spec.rate_hz, np.asarray(state.applied[COMMAND], float)
        low, high = self.mover.spec.commands[COMMAND].bounds
        count = max(round(seconds * rate_hz), 1)
        for number in range(1, count + 1):
            pose = np.clip(begin + (target - begin) * number / count, low, high)
            state = self.mover.step({COMMAND: pose.astype(np.float32)})
        return state

    @contextmanager
    def moving(
        self, state: RobotState, joints: Sequence[int] = (0,), settle_s: float = 2.0, fast_deg_s: float = 0.0
    ) -> Iterator[list[RobotError]]:
        """Swing the arm in another thread inside a ``with`` block, which begins after a while, and once it is fast.

        Args:
            state: where the arm is.
            joints: joints that swing.
            settle_s: time before the block, seconds.
            fast_deg_s: speed at which the block may begin, degrees a second; 0 does not wait for one.

        Yields:
            A list that receives the error that ended the motion, such as a stop.

        Raises:
            NotFast: it did not become fast.
            RobotError: the motion ended before it was.
        """
        ended: list[RobotError] = []
        over, mover = threading.Event(), self.mover
        swing = Swing(mover.spec, state, joints)

        def swings() -> None:
            try:
                for command in swing.commands():
                    if over.is_set():
                        return
                    mover.step(command)
            except RobotError as error:
                ended.append(error)

        thread = threading.Thread(target=swings, name="bench swing", daemon=True)
        thread.start()
        try:
            time.sleep(settle_s)
            if fast_deg_s:
                self._until_fast(fast_deg_s, ended)
            yield ended
        finally:
            over.set()
            thread.join(_ANSWER_S)
            if self._mover is mover and not ended:
                with contextlib.suppress(RobotError):
                    mover.end_episode("a swing of the bench is over")

    def _until_fast(self, fast_deg_s: float, ended: Sequence[RobotError]) -> None:
        end_s = time.monotonic() + _ANSWER_S
        while speed(list(self.samples)) < fast_deg_s:
            if ended:
                raise ended[0]
            if time.monotonic() > end_s:
                raise NotFast(f"no joint came to {fast_deg_s:g} degrees a second")
            time.sleep(0.005)

    @contextmanager
    def stranger(self, seconds: float) -> Iterator[Program]:
        """Swing the arm by a client in a process of its own, inside a ``with`` block, which begins as it is fast."""
        self.free_mover()
        command = [sys.executable, "-m", "rlenv_kit.bench.child", "swing", self.address, str(seconds)]
        program = Program(command, self.folder / "client.log")
        try:
            program.line_with("step", _START_S)
            time.sleep(2.0)
            self._until_fast(FAST_DEG_S, [])
            yield program
        finally:
            program.end(signal.SIGKILL)

    # -- telemetry -------------------------------------------------------------------------------------------------

    def _listen(self, watcher: Watcher, over: threading.Event) -> None:
        with closing(watcher):
            while not over.is_set():
                with contextlib.suppress(RobotError):  # a server that is killed says nothing
                    self.samples.append(_sample(watcher.next(0.5)))
                    if len(self.samples) > 64 and self.samples[0].at_s < self.samples[-1].at_s - _KEPT_S:
                        del self.samples[:32]

    def pose(self, timeout_s: float = _ANSWER_S) -> Sample:
        """Wait for the next message with joint positions, and return it.

        Raises:
            BenchError: none came in time.
        """
        began_s = time.monotonic()
        while time.monotonic() < began_s + timeout_s:
            newest = self.samples[-1] if self.samples else None
            if newest is not None and newest.degrees is not None and newest.at_s > began_s:
                return newest
            time.sleep(0.01)
        unread = self.button.status().get("unread")
        raise BenchError(f"the server reports no joint positions{f': {unread}' if unread else ''}")

    def until(self, state: str, timeout_s: float, since_s: float) -> Sample:
        """Wait for the first message since a time in which the robot has a state, and return it.

        Raises:
            BenchError: none came in time.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            for sample in list(self.samples):
                if sample.at_s >= since_s and sample.state == state:
                    return sample
            if time.monotonic() > end_s:
                now = self.samples[-1].state if self.samples else "silent"
                raise BenchError(f"the robot was not {state} within {timeout_s:g} s, it was {now}")
            time.sleep(0.005)

    def rest(self, cause_s: float, seconds: float = 1.5) -> Rest:
        """Watch the arm until some seconds after a cause, and judge how it came to rest."""
        time.sleep(max(cause_s + seconds - time.monotonic(), 0.0))
        return rest_after(list(self.samples), cause_s)


def _sample(snapshot: Snapshot) -> Sample:
    sensors: Mapping[str, np.ndarray] = snapshot.sensors
    position, place = sensors.get(SENSOR), sensors.get(_HEIGHT)
    return Sample(
        snapshot.sent_ns / 1e9, snapshot.state, snapshot.why,
        None if position is None else np.degrees(np.asarray(position, float)),
        float(place[2]) if place is not None and np.shape(place) == (3,) else None,
    )  # fmt: skip
