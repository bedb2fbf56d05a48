"""The thread that looks at a server for its log: how its life went on, who holds the robot, how regular its loop is."""

from __future__ import annotations

import logging
import threading
from typing import Any, Protocol

from real.life import Lifecycle, State
from rlenv_robot.controller_log import ControllerLog, Ended

__all__ = ["ServerWatch", "Watched"]

_LOG = logging.getLogger("rlenv_robot.recorder")

LOOK_S = 0.05
"""How often; a change of the life has the stamp of its own moment all the same, a holder that of the look."""

_CADENCE_LOOKS = 20
"""The cadence is written every so many looks: once a second."""

_EPISODE = frozenset({State.READY, State.RUNNING})


class Watched(Protocol):
    """What is looked at; `real.server.Server` is one."""

    @property
    def lifecycle(self) -> Lifecycle:
        """The robot's state and the last transitions."""
        ...

    def about(self) -> dict[str, Any]:
        """As `real.server.Server.about`."""
        ...


class ServerWatch:
    """Writes into a controller's log what no order tells. ``with`` it around the server, or `start` and `close`.

    Args:
        server: is looked at.
        log: is written.
    """

    def __init__(self, server: Watched, log: ControllerLog) -> None:
        self._server, self._log = server, log
        self._seen_ns = 0
        self._holder: str | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot log", daemon=True)

    def start(self) -> ServerWatch:
        """Begin."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Look for the last time, and close the log. Call it after the server was closed; twice is fine."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._look(True)
        self._log.close()

    def _run(self) -> None:
        looks = 0
        while not self._over.wait(LOOK_S):
            looks += 1
            try:
                self._look(looks % _CADENCE_LOOKS == 0)
            except Exception:  # the log is of less worth than the robot that it is of
                _LOG.exception("the server could not be looked at for its log")

    def _look(self, loop_timing: bool) -> None:
        log, about = self._log, self._server.about()
        if about["holder"] != self._holder:
            self._holder = about["holder"]
            log.note("holder", {"name": self._holder})
        ended = []
        for change in self._server.lifecycle.history:
            if change.stamp_ns <= self._seen_ns:
                continue
            self._seen_ns = change.stamp_ns
            states = {"before": str(change.before), "after": str(change.after), "why": change.why}
            log.note("life", {**states, "stamp_ns": change.stamp_ns})
            if change.before in _EPISODE and change.after not in _EPISODE:
                ended.append(Ended(change.stamp_ns, change.why, {"cadence": about["cadence"]}))
        log.write(ended)
        if loop_timing:
            log.regular(about["cadence"], about["late_commands"])
