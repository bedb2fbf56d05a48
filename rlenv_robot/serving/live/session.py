"""Follow a served robot for a live view: its feed, and a standing connection for stops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hal import RobotError
from real import RemoteRobot
from rlenv_robot.serving.console.feed import RobotFeed

__all__ = ["LiveSession"]

_STAND_BY_S = 1.0
"""Time between two looks whether the connection for stops stands, seconds."""


class LiveSession:
    """One more client of a robot's server: it watches and may stop, and never asks for the right to move.

    Args:
        address: of the robot's server.
        keys: folder of this machine's keys; their role must be at least ``watch``.
        telemetry: its endpoint, where the server does not announce it.

    Attributes:
        feed: the newest state and images.

    Raises:
        WireError: the address is not understood, or another machine's and there are no keys.
    """

    def __init__(self, address: str, keys: str | Path | None = None, telemetry: str | None = None) -> None:
        self.feed = RobotFeed(address, keys, telemetry)
        self._stopper = RemoteRobot(address, keys=keys)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._stand_by, name="rlenv-robot live view stands by", daemon=True)

    def start(self, on_news: Callable[[str], None]) -> None:
        """Begin to follow; see `RobotFeed.start`."""
        self._thread.start()
        self.feed.start(on_news)

    def stop(self, reason: str) -> None:
        """Stop the robot; see `real.RemoteRobot.stop`. From any thread."""
        self._stopper.stop(reason)

    def close(self) -> None:
        """End the threads and connections. Calling it twice is allowed."""
        self._closing.set()
        self.feed.close()
        if self._thread.is_alive():
            self._thread.join()
        self._stopper.close()

    def _stand_by(self) -> None:
        while not self._closing.is_set():
            with suppress(RobotError):  # the view says that the server is lost; a stop tries a new connection
                self._stopper.stand_by()
            self._closing.wait(_STAND_BY_S)
