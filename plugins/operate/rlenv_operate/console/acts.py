"""Carry out the acts of visitors after checking their rights, and log each act with the visitor's name."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from hal import ConnectionLost, RobotError
from real import RemoteRobot
from real.protocol.text import printable
from rlenv_operate.console.access import Visitor
from rlenv_operate.console.loop import Loop
from rlenv_operate.console.messages import Act, Job
from rlenv_operate.console.mover import Mover
from rlenv_operate.console.policy_run import PolicyRun
from rlenv_operate.console.questions import QuestionBox
from rlenv_robot.serving.stopper import Stopper

__all__ = ["ActLog", "ActRecord", "Acts"]

_log = logging.getLogger(__name__)

_KEPT = 200


@dataclass(frozen=True, slots=True)
class ActRecord:
    """One act of a visitor, as logged.

    Attributes:
        wall_s: time of day, seconds since 1970.
        name: the name of the person.
        role: the role of the person.
        act: its name.
        text: the reason or remark that the person gave.
        ok: whether it was carried out.
        outcome: a message for the person.
    """

    wall_s: float
    name: str
    role: str
    act: str
    text: str
    ok: bool
    outcome: str


class ActLog:
    """Write each act as a line of JSON, which is on disk when `add` returns. All methods are thread-safe.

    Args:
        path: the path of the file, which is appended to; None keeps the acts in memory only.

    Raises:
        OSError: the file can't be written.
    """

    def __init__(self, path: str | Path | None) -> None:
        self._recent: deque[ActRecord] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._trouble = ""

    @property
    def recent(self) -> tuple[ActRecord, ...]:
        """The newest acts, oldest first."""
        with self._lock:
            return tuple(self._recent)

    def add(self, record: ActRecord) -> None:
        """Add an act. If writing the file fails, the first failure is logged and nothing is raised."""
        _log.info(
            "%s (%s): %s%s: %s", record.name, record.role, record.act, f" ({record.text})" * bool(record.text),
            record.outcome,
        )  # fmt: skip
        with self._lock:
            self._recent.append(record)
            if self._file is None:
                return
            try:
                os.write(self._file, (json.dumps(asdict(record)) + "\n").encode())
                os.fsync(self._file)
            except OSError as error:
                if not self._trouble:
                    _log.error("the log of acts can't be written: %s", error)
                self._trouble = str(error)

    def close(self) -> None:
        """Close the file. Safe to call more than once."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None


class Acts:
    """Carry out acts. All methods are thread-safe; an act waits for its outcome, but a stop waits for no other act.

    Args:
        address: the address of the robot's server.
        keys: folder of this machine's keys.
        mover: moves the robot for visitors.
        questions: the open questions of the robot's server.
        log: the log of acts.
        wall: returns the time of day, seconds since 1970.
        loop: the flow whose commands the visitors may start; None for none.
    """

    def __init__(
        self,
        address: str,
        keys: str | Path | None,
        mover: Mover,
        questions: QuestionBox,
        log: ActLog,
        wall: Callable[[], float] = time.time,
        loop: Loop | None = None,
    ) -> None:
        self._address, self._keys, self._loop = address, keys, loop
        self._mover, self._questions, self._log, self._wall = mover, questions, log, wall
        self._stopper = Stopper(address, keys)

    def start(self) -> None:
        """Open a connection for stops, which stays open until `close`."""
        self._stopper.start()

    def close(self) -> None:
        """Close the connection for stops. Safe to call more than once."""
        self._stopper.close()

    def carry_out(self, act: Act, visitor: Visitor) -> ActRecord:
        """Carry out one act, and return its record; an error is described in the outcome."""
        text = printable(act.text, 500)
        shown = f"{act.policy}{f': {text}' if text else ''}" if act.policy else text
        return self._recorded(
            "run" if act.policy else act.act, visitor, lambda: (shown, self._allowed(act, visitor, text)), shown
        )

    def carry_out_job(self, job: Job, visitor: Visitor) -> ActRecord:
        """Start, end or answer a command of the flow, and return the record; an error is described in the outcome."""

        def carried_out() -> tuple[str, str]:
            self._mover.check("job", visitor)
            if self._loop is None:
                raise ValueError("the console was started without --folder")
            command, outcome = self._loop.carry_out(job, visitor.name)
            return command or job.step, outcome

        return self._recorded(job.do, visitor, carried_out, job.step)

    def _recorded(self, act: str, visitor: Visitor, carry_out: Callable[[], tuple[str, str]], text: str) -> ActRecord:
        """Carry an act out, and log it with the text that it returns, or with another one where it fails."""
        try:
            ok, (text, outcome) = True, carry_out()
        except (RobotError, ValueError, OSError) as error:
            ok, outcome = False, str(error)
        except Exception as error:  # the person must learn that nothing was done
            _log.exception("an act could not be carried out")
            ok, outcome = False, f"{type(error).__name__}: {error}"
        record = ActRecord(self._wall(), visitor.name, visitor.role.value, act, text, ok, printable(outcome, 1000))
        self._log.add(record)
        return record

    def _allowed(self, act: Act, visitor: Visitor, text: str) -> str:
        name, mover = visitor.name, self._mover
        match act.act:
            case "stop":
                mover.check("stop", visitor)
                return self._stop(name, text)
            case "arm":
                mover.check("arm with take" if act.take else "arm", visitor)
                return self._arm(act, visitor, text)
            case "hold":
                return self._hold(visitor, take=act.take)
            case "reset_done" | "reset_refused":
                mover.check(act.act, visitor)
                self._questions.answer_reset(name, ready=act.act == "reset_done", note=text)
                return "answered"
            case verdict:
                question = self._questions.pending
                if question is None or question.owner:
                    return mover.judge(visitor, verdict, text)
                mover.check("verdict for the robot", visitor)
                return self._questions.answer_verdict(name, verdict, text)

    def _stop(self, name: str, text: str) -> str:
        began_s = time.monotonic()
        if self._loop is not None and self._loop.stop_calibration():
            return "stopped: the calibration has ended, and lets the arm down; no robot is served"
        self._stopper.stop(f"{name} at the console: {text or 'Stop'}")
        return f"stopped; the robot confirmed after {(time.monotonic() - began_s) * 1e3:.0f} ms"

    def _arm(self, act: Act, visitor: Visitor, text: str) -> str:
        run = None
        if act.policy:
            if self._loop is None:
                raise ValueError("the console was started without --folder")
            run = PolicyRun(path=self._loop.policy(act.policy), episodes=act.episodes, ask=act.ask)
        status = self._stopper.status()
        number = status.get("stop_number")
        if status.get("state") != "stopped":
            return self._mover.arm(visitor, take=act.take, run=run)
        if not text:
            raise ValueError("the robot is stopped; say what was found there, and why it may move again")
        if act.stop_number != number:
            raise ValueError("another stop has come since the page showed the robot's state; look again")
        return self._mover.arm(visitor, f"{visitor.name}: {text}", act.stop_number, take=act.take, run=run)

    def _hold(self, visitor: Visitor, *, take: bool) -> str:
        if self._mover.hold(visitor, take=take):
            return "held"
        with closing(RemoteRobot(self._address, keys=self._keys, take="force" if take else "no")) as remote:
            try:
                remote.hold()
            except ConnectionLost as error:
                raise ValueError(f"{error}. Stop is always possible; take needs the role operate") from None
        return "held"
