"""Follow a served robot for a live view: its feed, and an open connection for stops."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

from hal import Image, RobotError
from rlenv_robot.serving.robot_feed import Look, RobotFeed
from rlenv_robot.serving.stopper import Stopper

__all__ = ["LiveSession", "LiveView"]

_log = logging.getLogger(__name__)


class LiveSession:
    """A client of a robot's server that may watch and stop the robot, and never asks for the right to move it.

    Args:
        address: the address of the robot's server.
        keys: folder of this machine's keys; their role must be at least ``watch``.
        telemetry: address of the telemetry, if the server does not announce it.

    Attributes:
        feed: the newest state and images.

    Raises:
        WireError: the address is invalid, or is another machine's and there are no keys.
    """

    def __init__(self, address: str, keys: str | Path | None = None, telemetry: str | None = None) -> None:
        self.feed = RobotFeed(address, keys, telemetry)
        self._stopper = Stopper(address, keys)

    def start(self, on_news: Callable[[str], None]) -> None:
        """Start following the robot; see `RobotFeed.start`."""
        self._stopper.start()
        self.feed.start(on_news)

    def stop(self, reason: str) -> None:
        """Stop the robot from any thread; see `real.RemoteRobot.stop`."""
        self._stopper.stop(reason)

    def close(self) -> None:
        """End the threads and connections. Safe to call more than once."""
        self.feed.close()
        self._stopper.close()


class LiveView(ABC):
    """Show the data of a session.

    Args:
        session: follows the robot; its owner starts and closes it.
        wall_ns: returns the time of day, nanoseconds since 1970.
    """

    def __init__(self, session: LiveSession, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._feed, self._wall_ns = session.feed, wall_ns
        self._told: tuple[str, str] = ("", "")
        self._sent_stamps: dict[str, int] = {}

    def take(self, kind: str) -> None:
        """Show what the feed reports as changed. Pass this method to `LiveSession.start`."""
        try:
            if kind == "state":
                self._show_state(self._feed.look)
            elif kind == "image":
                self._show_images()
        except (RobotError, ValueError) as error:  # one strange reading must not end the view
            _log.warning("the robot can't be shown: %s", error)

    @abstractmethod
    def _show_state(self, look: Look) -> None:
        """Show the newest state."""

    @abstractmethod
    def _show_images(self) -> None:
        """Show the images that are new."""

    def _new_images(self) -> Iterator[tuple[str, Image]]:
        """Yield the name and the image of each camera whose newest image was not yielded before."""
        for name, image in list(self._feed.images.items()):
            if self._sent_stamps.get(name) != image.stamp_ns:
                self._sent_stamps[name] = image.stamp_ns
                yield name, image

    def _new_line(self, look: Look) -> tuple[str, bool] | None:
        """Return the robot's state with its reason, and whether it is a warning; None if nothing has changed."""
        state, why = ("not live", look.problem) if look.problem else ("", "")
        if not look.problem and look.snapshot is not None:
            state, why = look.snapshot.state, look.snapshot.why
        if (state, why) == self._told:
            return None
        self._told = state, why
        return f"{state}: {why}" if why else state, bool(look.problem) or state == "stopped"
