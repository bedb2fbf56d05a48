"""Keep a connection to a robot's server over which a stop goes out at once."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from hal import RobotError
from real import RemoteRobot

__all__ = ["Stopper", "clearing_hint"]

_STAND_BY_S = 1.0
"""Time between two looks whether the connection stands, seconds."""


def clearing_hint(number: object) -> str:
    """Return how a person at a terminal clears the stop with this number."""
    return f'look at the robot, then add to run or teleop: --clear-stop "WHAT YOU FOUND" --stop-number {number}'


class Stopper:
    """A client that may stop the robot, and does not move it; its connection stands before it is needed.

    Args:
        address: of the robot's server.
        keys: folder of this machine's keys.

    Raises:
        WireError: the address is not understood, or another machine's and there are no keys.
    """

    def __init__(self, address: str, keys: str | Path | None) -> None:
        self._remote = RemoteRobot(address, keys=keys)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._stand_by, name="rlenv-robot stands by", daemon=True)

    def start(self) -> None:
        """Keep the connection from now on."""
        self._thread.start()

    def stop(self, reason: str) -> None:
        """Stop the robot; see `real.RemoteRobot.stop`. From any thread."""
        self._remote.stop(reason)

    def status(self) -> dict[str, Any]:
        """Return the server's status; see `real.RemoteRobot.status`."""
        return self._remote.status()

    def close(self) -> None:
        """End the thread and the connection. Calling it twice is allowed."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._remote.close()

    def _stand_by(self) -> None:
        while not self._closing.is_set():
            with suppress(RobotError):  # whoever shows the robot says that it is lost; a stop tries a new connection
                self._remote.stand_by()
            self._closing.wait(_STAND_BY_S)
