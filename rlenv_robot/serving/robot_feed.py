"""Follow a served robot for its viewers: the newest state, camera images and episodes."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hal import DeadlineExceeded, Image, RobotError, RobotSpec
from real import ImageListener, RemoteRobot, Snapshot, Watcher
from real.protocol.messages import address_at_host
from real.telemetry.images import announced

__all__ = ["EpisodeWatch", "FinishedEpisode", "Look", "RobotFeed"]

_log = logging.getLogger(__name__)

_SILENT_S = 1.0
"""Longest silence of the telemetry before the server is asked again, in seconds."""

_RETRY_S = 0.5
"""Wait before the next attempt to reach a server, in seconds."""

_IMAGE_POLL_S = 0.01
"""Time between two looks for images, in seconds."""

_KEPT_EPISODES = 100

_NOT_YET = "not connected yet"


@dataclass(frozen=True, slots=True)
class Look:
    """The newest data received from the robot.

    Attributes:
        spec: the spec of the robot; None until the server has answered for the first time.
        snapshot: the newest telemetry; None before the first.
        came_s: this machine's monotonic clock when the telemetry arrived, seconds.
        problem: why the robot can't be followed now; empty if it can.
        cameras: their names.
    """

    spec: RobotSpec | None = None
    snapshot: Snapshot | None = None
    came_s: float = 0.0
    problem: str = _NOT_YET
    cameras: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishedEpisode:
    """An episode as seen in the telemetry.

    Attributes:
        number: counted from 1 since this feed started.
        began_wall_s: time of day, seconds since 1970.
        seconds: its duration.
        holder: the client that moved the robot.
        state: the lifecycle state that ended it.
        why: the server's reason.
    """

    number: int
    began_wall_s: float
    seconds: float
    holder: str
    state: str
    why: str


class EpisodeWatch:
    """Find the episodes in the robot's states: an episode lasts as long as the robot is ``running``."""

    def __init__(self) -> None:
        self._number = 0
        self._began: tuple[float, float, str] | None = None

    def see(self, state: str, why: str, holder: str | None, now_s: float, wall_s: float) -> FinishedEpisode | None:
        """Take the next state; return the episode that it ended, or None."""
        if state == "running":
            if self._began is None:
                self._number += 1
                self._began = now_s, wall_s, holder or ""
            return None
        if self._began is None:
            return None
        (began_s, began_wall_s, mover), self._began = self._began, None
        return FinishedEpisode(self._number, began_wall_s, now_s - began_s, mover, state, why)


class RobotFeed:
    """Follow a served robot on background threads. A lost server is searched for until `close`.

    Args:
        address: the address of the server.
        keys: folder of this machine's keys; their role must be at least ``watch``.
        telemetry: address of the telemetry, if the server does not announce it.
        now: monotonic clock, seconds.
    """

    def __init__(
        self,
        address: str,
        keys: str | Path | None = None,
        telemetry: str | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address, self._keys, self._telemetry, self._now = address, keys, telemetry, now
        self._look = Look()
        self._images: dict[str, Image] = {}
        self._episodes: deque[FinishedEpisode] = deque(maxlen=_KEPT_EPISODES)
        self._watch = EpisodeWatch()
        self._on_news: Callable[[str], None] = lambda _: None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot follows", daemon=True)
        RemoteRobot(address, keys=keys).close()  # a wrong address or missing keys are an error now

    @property
    def look(self) -> Look:
        """The newest data received from the robot."""
        return self._look

    @property
    def images(self) -> Mapping[str, Image]:
        """The newest image of each camera."""
        return self._images

    @property
    def episodes(self) -> tuple[FinishedEpisode, ...]:
        """The most recent episodes, oldest first."""
        return tuple(self._episodes)

    def start(self, on_news: Callable[[str], None]) -> None:
        """Start following the robot.

        Args:
            on_news: called from the feed's threads with ``state``, ``episodes`` or ``image`` after a change of that;
                must not block.
        """
        self._on_news = on_news
        self._thread.start()

    def close(self) -> None:
        """End the threads. Safe to call more than once."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    # -- inside ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._follow()
            except (RobotError, ValueError) as error:
                self._say(replace(self._look, problem=str(error)))
            except Exception as error:  # the page must say so, and the feed must come back
                _log.exception("the robot can't be followed")
                self._say(replace(self._look, problem=f"{type(error).__name__}: {error}"))
            self._closing.wait(_RETRY_S)

    def _follow(self) -> None:
        """Follow one server until it is lost.

        Raises:
            RobotError: the server does not answer, refuses this machine's key, or publishes no telemetry.
        """
        with closing(RemoteRobot(self._address, keys=self._keys)) as remote:
            spec, status = remote.spec, remote.status()
        endpoint = self._telemetry or status.get("telemetry")
        if not isinstance(endpoint, str):
            raise RobotError(
                "the server publishes no telemetry; start it with `rlenv-robot serve --telemetry tcp://127.0.0.1:*`, "
                "or set serve.telemetry in its profile"
            )
        over = threading.Event()
        names, images = self._follow_images(status.get("pictures"), over)
        look = Look(spec, self._look.snapshot if self._look.spec == spec else None, self._look.came_s, "", names)
        try:
            with Watcher(address_at_host(self._address, endpoint), spec, self._keys) as watcher:
                while not self._closing.is_set():
                    look = self._take(look, self._next(watcher))
        finally:
            over.set()
            if images is not None:
                images.join()

    def _next(self, watcher: Watcher) -> Snapshot:
        try:
            return watcher.next(_SILENT_S)
        except DeadlineExceeded as error:
            raise RobotError(f"the robot's server is silent: {error}") from None

    def _take(self, look: Look, snapshot: Snapshot) -> Look:
        now_s = self._now()
        look = replace(look, snapshot=snapshot, came_s=now_s)
        finished = self._watch.see(snapshot.state, snapshot.why, snapshot.holder, now_s, time.time())
        if finished is not None:
            self._episodes.append(finished)
            self._on_news("episodes")
        self._say(look)
        return look

    def _say(self, look: Look) -> None:
        before, self._look = self._look.problem, look
        if look.problem and before in ("", _NOT_YET):
            _log.warning("%s can't be followed, and is tried again until it can: %s", self._address, look.problem)
        elif before and not look.problem:
            _log.info("following %s", self._address)
        self._on_news("state")

    def _follow_images(self, pictures: Any, over: threading.Event) -> tuple[tuple[str, ...], threading.Thread | None]:
        if not isinstance(pictures, Mapping):
            return (), None
        names = tuple(announced(pictures.get("cameras")))
        endpoint = address_at_host(self._address, str(pictures.get("address")))
        listener = ImageListener(endpoint, names, self._keys)
        thread = threading.Thread(
            target=self._listen, args=(listener, over), name="rlenv-robot follows images", daemon=True
        )
        thread.start()
        return names, thread

    def _listen(self, listener: ImageListener, over: threading.Event) -> None:
        with listener:
            while not (over.wait(_IMAGE_POLL_S) or self._closing.is_set()):
                try:
                    newest = listener.newest()
                except RobotError as error:
                    _log.warning("an image can't be shown: %s", error)
                    continue
                for name, image in newest.items():
                    before = self._images.get(name)
                    if before is None or before.stamp_ns != image.stamp_ns:
                        self._images[name] = image
                        self._on_news("image")
