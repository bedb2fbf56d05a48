"""Prove to a power cut that a server's control loop lives, and stop the robot when the supply was cut."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from hal.errors import ConnectionLost
from rlenv_power_cut.control_socket import ControlSocket
from rlenv_power_cut.firmware.power_cut import LONGEST_MS, NEEDED_PROOFS, SHORTEST_MS
from rlenv_power_cut.link import ANSWER_S, PowerCutError, PowerCutLink, Status

if TYPE_CHECKING:
    from real.server.server import Server

__all__ = ["Monitor", "PowerCutExtension"]

_log = logging.getLogger(__name__)

_LOOK_S = 0.05
"""Longest wait for a status between two looks at commands, seconds."""

_END_S = 5.0
"""Longest wait for the end of the thread, seconds: it may be opening the board, or stopping the driver."""

_RETRY_S = 0.5
"""Time between two attempts to open a port that was lost, seconds."""

_OUTSIDE_EPISODES_S = 2.0
"""Longest silence of the control loop outside of episodes, seconds: opening a robot, or reading one without supply,
takes more than a period (`real.control.heartbeat.HUNG_S`)."""

_STATUSES_TO_WAIT = 4
"""Statuses without the supply on after which a command to switch on counts as refused: one may have been under way."""


class PowerCutExtension:
    """Watch a server by a power cut: the extension ``power-cut`` of a profile.

    Args:
        port: serial port of the power cut, such as ``/dev/serial/by-id/...``.
        cut_ms: longest silence of this process, ms, 20 to 2000; the board is set to it.
        loop_ms: longest silence of the control loop in an episode, ms, at least 150; then the heartbeat stays away.
        confirm: whether the board's confirm button must be pressed before each switching on.
        cut_at_stop: whether a stop cuts the supply too; the arm then falls at every stop.

    Raises:
        ValueError: a value is not allowed.
    """

    def __init__(
        self, port: str, cut_ms: int = 200, loop_ms: int = 250, confirm: bool = False, cut_at_stop: bool = False
    ) -> None:
        for name, value, low, high in (("cut_ms", cut_ms, SHORTEST_MS, LONGEST_MS), ("loop_ms", loop_ms, 150, 10_000)):
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"setting {name} is {value!r}, allowed are whole numbers from {low} to {high}")
        for name, flag in (("confirm", confirm), ("cut_at_stop", cut_at_stop)):
            if type(flag) is not bool:
                raise ValueError(f"setting {name} is {flag!r}, allowed are true and false")
        if not isinstance(port, str) or not port:
            raise ValueError(f"setting port is {port!r}, it must be the path of a serial port")
        self.port, self.cut_ms, self.loop_ms = port, cut_ms, loop_ms
        self.confirm, self.cut_at_stop = confirm, cut_at_stop

    @contextmanager
    def attach(self, server: Server, announce: Callable[[str], None]) -> Iterator[Monitor]:
        """Open the board, set it, and prove that the server lives until the context ends, which cuts the supply.

        Raises:
            PowerCutError: the board is absent, has another firmware, or can't be set.
            ConnectionLost: the port is missing, not permitted or in use.
        """
        link = PowerCutLink(self.port)
        try:
            link.first_status()
            status = link.set(self.cut_ms, self.confirm)
            monitor = Monitor(link, server, self)
        except BaseException:
            link.close()
            raise
        try:
            commands = ControlSocket(self.port, monitor.answer)
            monitor.start()
            try:
                announce(f"power cut at {self.port}: {status.describe()}; {_switch_on_hint(self.port, status)}")
                yield monitor
            finally:
                commands.close()
        finally:
            monitor.close()


def _switch_on_hint(port: str, status: Status) -> str:
    return f"look at the robot, then: rlenv-robot robot power-cut on {port} --cut {status.cuts}"


class Monitor:
    """Answer each challenge of a power cut while the control loop works, from one thread.

    A killed or frozen process, a stalled interpreter, and a dead or stuck control loop are silent alike. If the supply
    was cut, or the port is lost, the robot is stopped.

    Args:
        link: the port of the power cut, with a status; this monitor closes it.
        server: the server whose control loop is watched.
        settings: the settings of the extension.
    """

    def __init__(self, link: PowerCutLink, server: Server, settings: PowerCutExtension) -> None:
        self._server, self._settings = server, settings
        self._link: PowerCutLink | None = link
        self._status = link.first_status()
        self._silent: str | None = None
        self._was_stopped = server.stopped is not None
        self._requests: SimpleQueue[tuple[int, Future[Status]]] = SimpleQueue()
        self._waiting: tuple[Future[Status], int] | None = None  # who waits for the supply, and for how many statuses
        self._off = self._over = False
        self._beats = 0  # in a row
        self._lost: str | None = None
        self._thread = threading.Thread(target=self._run, name="power cut", daemon=True)

    @property
    def status(self) -> Status:
        """The newest status."""
        return self._status

    def start(self) -> None:
        """Start the thread. The supply stays as it is."""
        self._thread.start()

    def answer(self, command: Mapping[str, object]) -> dict[str, object]:
        """Carry out a command of a person: ``{"verb": "status" | "on" | "off", "cut": number}``; from any thread.

        Raises:
            PowerCutError: the command is unknown, or the board refused it.
        """
        match command.get("verb"):
            case "on":
                number = command.get("cut")
                if type(number) is not int or not 0 <= number <= 0xFFFF:
                    raise PowerCutError(f"cut is {number!r}, expected is the number of the newest cut")
                self.switch_on(number)
            case "off":
                self._off = True
                end_s = time.monotonic() + ANSWER_S
                while self._status.is_on and time.monotonic() < end_s:
                    time.sleep(0.005)
            case "status":
                pass
            case verb:
                raise PowerCutError(f"verb is {verb!r}, allowed are 'on', 'off' and 'status'")
        status = self._status
        return {
            "state": f"lost: {self._lost}" if self._lost else status.describe(), "on": status.is_on and not self._lost,
            "cut": status.cuts, "cut_ms": status.cut_ms, "silent": self._silent, "watchdog_s":
            self._server.settings.watchdog_s,
        }  # fmt: skip

    def switch_on(self, number: int) -> Status:
        """Switch the supply on after the cut of this number, and return the status; from any thread but the monitor's.

        Raises:
            PowerCutError: the board refused, or the port is lost.
        """
        future: Future[Status] = Future()
        self._requests.put((number, future))
        try:
            return future.result(2 * ANSWER_S)
        except TimeoutError:
            if future.cancel():
                why = self._lost or self._silent or "too few heartbeats went out"
                raise PowerCutError(f"not switched on, and nothing will be later: {why}") from None
            raise PowerCutError("the board did not answer: see rlenv-robot robot power-cut status") from None

    def _run(self) -> None:
        from real.control.realtime import ask_real_time

        if priority := self._server.settings.priority:  # as the control loop, which must not starve its own heartbeat
            _log.info("real time of the power cut's heartbeat: %s", ask_real_time(priority).message)
        while not self._over:
            try:
                self._look()
            except ConnectionLost as error:
                self._lose(str(error))
            except PowerCutError as error:  # another board was plugged in
                self._lose(str(error))

    def _look(self) -> None:
        if self._link is None:
            time.sleep(_RETRY_S)
            self._reopen()
            return
        statuses = self._link.receive(_LOOK_S)
        for status in statuses:
            self._take(status)
        if statuses:
            self._silent = self._why_silent()
            self._beats = self._beats + 1 if self._silent is None else 0
            if self._silent is None:
                self._begin_switching_on()  # first: a heartbeat uses its challenge up
                self._link.beat()
        stopped = self._server.stopped is not None
        if self._off or (self._settings.cut_at_stop and stopped and not self._was_stopped):
            self._off = False
            self._link.switch_off()
        self._was_stopped = stopped

    def _why_silent(self) -> str | None:
        """Return why the control loop does not deserve a heartbeat, or None."""
        from real.control.lifecycle import State

        in_episode = self._server.lifecycle.state in (State.READY, State.RUNNING, State.HOLDING)
        limit_s = self._settings.loop_ms / 1e3 if in_episode else _OUTSIDE_EPISODES_S
        return self._server.loop_silence(limit_s)

    def _begin_switching_on(self) -> None:
        if self._link is None or self._waiting is not None or self._beats <= NEEDED_PROOFS + 1:
            return
        try:
            number, future = self._requests.get_nowait()
        except Empty:
            return
        if not future.set_running_or_notify_cancel():
            return  # the person has been told that it failed
        self._waiting = future, _STATUSES_TO_WAIT
        self._link.switch_on(number)

    def _take(self, status: Status) -> None:
        before, self._status = self._status, status
        if self._waiting is not None:
            future, left = self._waiting
            self._waiting = (future, left - 1) if left and not status.is_on else None
            if status.is_on:
                future.set_result(status)
            elif not left:
                future.set_exception(PowerCutError(f"not switched on: {status.refusal or 'the board gave no reason'}"))
        if status.cuts != before.cuts or (before.is_on and not status.is_on):
            why = f" ({self._silent})" if self._silent else ""
            hint = _switch_on_hint(self._settings.port, status)
            self._report(f"the power cut at {self._settings.port} cut the supply: {status.cause}{why}; "
                         f"cut {status.cuts}; {hint}")  # fmt: skip
        elif status.is_on and not before.is_on:
            _log.warning("the power cut at %s switched the supply on", self._settings.port)

    def _report(self, why: str) -> None:
        _log.critical("%s", why)
        self._server.stop(why)

    def _lose(self, why: str) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        self._beats = 0
        if self._waiting is not None:
            self._waiting[0].set_exception(PowerCutError(why))
            self._waiting = None
        if self._lost is None:
            self._lost = why
            hint = f"rlenv-robot robot power-cut status {self._settings.port}"
            self._report(f"the power cut is lost, so it cuts the supply by itself: {why}; then: {hint}")

    def _reopen(self) -> None:
        """Open the port again; the supply is off, and stays off."""
        self._link = PowerCutLink(self._settings.port)
        status = self._link.first_status()
        if not status.is_on:  # after a restart its settings may be others
            status = self._link.set(self._settings.cut_ms, self._settings.confirm)
        self._status, self._lost = status, None
        _log.warning("the power cut at %s is back: %s", self._settings.port, status.describe())

    def close(self) -> None:
        """Cut the supply, end the thread and release the port. Safe to call more than once."""
        self._over = True
        if self._thread.is_alive():
            self._thread.join(_END_S)
        if self._link is not None:
            try:
                self._link.switch_off()
            except ConnectionLost as error:
                _log.error("the power cut can't be asked to cut the supply, and does so by itself: %s", error)
            self._link.close()
            self._link = None
