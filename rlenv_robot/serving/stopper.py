"""Keep an open connection to a robot's server, over which a stop is sent without delay."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from hal import RobotError
from real import RemoteRobot

__all__ = ["Stopper", "clearing_hint"]

_STAND_BY_S = 1.0
"""Time between two looks whether the connection stands, in seconds."""


def clearing_hint(number: object) -> str:
    """Return the instruction for a person at a terminal to clear the stop with a number."""
    options = f'--clear-stop "WHAT YOU FOUND" --stop-number {number}'
    return f"look at the robot, then add to `run` or `operate teleop`: {options}"


class Stopper:
    """A client that may stop the robot but not move it, over a connection that is opened in advance.

    Args:
        address: the address of the robot's server.
        keys: folder of this machine's keys.

    Raises:
        WireError: the address is invalid, or is another machine's and there are no keys.
    """

    def __init__(self, address: str, keys: str | Path | None) -> None:
        self._remote = RemoteRobot(address, keys=keys)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._stand_by, name="rlenv-robot stands by", daemon=True)

    def start(self) -> None:
        """Open the connection, which stays open until `close`."""
        self._thread.start()

    def stop(self, reason: str) -> None:
        """Stop the robot from any thread; see `real.RemoteRobot.stop`."""
        self._remote.stop(reason)

    def status(self) -> dict[str, Any]:
        """Return the server's status; see `real.RemoteRobot.status`."""
        return self._remote.status()

    def close(self) -> None:
        """End the thread and the connection. Safe to call more than once."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._remote.close()

    def _stand_by(self) -> None:
        while not self._closing.is_set():
            with suppress(RobotError):  # whoever shows the robot says that it is lost; a stop tries a new connection
                self._remote.stand_by()
            self._closing.wait(_STAND_BY_S)
