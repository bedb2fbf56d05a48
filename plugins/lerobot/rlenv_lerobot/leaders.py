"""Read the actions of a teleoperator from a served robot or a recorded run."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from hal.errors import DeadlineExceeded, RobotError, SourceError
from hal.spec import Spec
from real import RemoteRobot, Snapshot, Watcher
from real.protocol.messages import address_at_host

__all__ = ["LeaderSource", "RecordedActions", "ServedLeader"]

_FIRST_S = 3.0
"""Longest wait for the first message of a served leader's telemetry, seconds."""

_SLICE_S, _POLL_S = 0.5, 0.01


class LeaderSource(Protocol):
    """Provide a command for each control period, by the names of the leader's commands, in SI units."""

    def open(self) -> Spec:
        """Start reading; return the spec of the commands."""
        ...

    def next(self) -> Mapping[str, np.ndarray]:
        """Return the newest command."""
        ...

    def close(self) -> None:
        """Release the leader. Safe to call more than once."""
        ...


class ServedLeader:
    """Follow the measured pose of a served robot by its telemetry. This client never asks to move it.

    A server reads a robot without an episode ten times a second, and publishes ``serve.telemetry_hz`` messages.

    Args:
        address: address of the server's control socket; its status names the telemetry's endpoint.
        keys: folder of this machine's keys; empty: no keys.
        max_age_s: greatest age of a pose, seconds.
        now: the clock of the ages, seconds.
    """

    def __init__(
        self, address: str, keys: str = "", max_age_s: float = 0.5, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.address, self._keys, self._max_age_s, self._now = address, keys or None, max_age_s, now
        self._watcher: Watcher | None = None
        self._measured_by: Mapping[str, str] = {}
        self._newest: tuple[Snapshot, float] | None = None  # with the time at which it came
        self._trouble = ""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot served leader", daemon=True)

    def open(self) -> Spec:
        """Connect to the server's telemetry, and wait for the first reading.

        Raises:
            RobotError: the server publishes no telemetry, or measures nothing that could be an action.
            ConnectionLost: the server does not answer, or refuses this key.
            DeadlineExceeded: no reading came.
        """
        with contextlib.closing(RemoteRobot(self.address, keys=self._keys)) as robot:
            spec, status = robot.served_spec(), robot.status()
        endpoint = status.get("telemetry")
        if endpoint is None:
            raise RobotError(
                f"the leader at {self.address} publishes no telemetry: serve it with --telemetry tcp://127.0.0.1:5557"
            )
        missing = [name for name in spec.commands.names if name not in spec.measured_by]
        if missing:
            raise RobotError(f"the robot {spec.name!r} measures nothing for {', '.join(missing)}, so it can't lead")
        self._measured_by = spec.measured_by
        self._watcher = Watcher(address_at_host(self.address, str(endpoint)), spec, self._keys)
        self._thread.start()
        end_s = time.monotonic() + _FIRST_S
        while self._newest is None and not self._trouble and time.monotonic() < end_s:
            time.sleep(_POLL_S)
        if self._newest is None:
            self.close()
            unread = status.get("unread") or "the server has not read it"
            raise DeadlineExceeded(
                f"no reading of the leader at {self.address}", _FIRST_S, self._trouble or str(unread)
            )
        return spec.commands

    def _run(self) -> None:
        watcher = self._watcher
        assert watcher is not None
        with watcher:
            while not self._closing.is_set():
                try:
                    snapshot = watcher.next(_SLICE_S)
                except DeadlineExceeded as error:
                    self._trouble = str(error)
                except RobotError as error:  # what comes is no telemetry of this robot, and will be none
                    self._trouble = str(error)
                    return
                else:
                    self._trouble = ""
                    if snapshot.sensors:
                        self._newest = snapshot, self._now()

    def next(self) -> Mapping[str, np.ndarray]:
        """Return the newest measured pose, without waiting.

        Raises:
            RobotError: the source is not open, or the leader's newest pose is too old.
        """
        if self._newest is None:
            raise RobotError(f"the leader at {self.address} is not open: call open first")
        snapshot, came_s = self._newest
        # Not by the stamps: a virtual arm has a time of its own.
        age_s = self._now() - came_s + float(snapshot.status.get("reading_age_s") or 0.0)
        if age_s > self._max_age_s:
            raise RobotError(
                f"the newest pose of the leader at {self.address} is {age_s:.1f} s old, allowed are "
                f"{self._max_age_s:g}{': ' if self._trouble else ''}{self._trouble}"
            )
        return {name: snapshot.sensors[sensor] for name, sensor in self._measured_by.items()}

    def close(self) -> None:
        """Stop listening. Safe to call more than once; it can't be opened again."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._newest = None


class RecordedActions:
    """Repeat the actions of one recorded episode, one each call; after its end, its last one.

    Args:
        source: a folder of recorded data, as `rlenv_robot.open_source` takes it.
        episode: number of the episode, from 0.
    """

    def __init__(self, source: str, episode: int = 0) -> None:
        self.source, self.episode = source, episode
        self._actions: Mapping[str, np.ndarray] = {}
        self._at, self._count = 0, 0

    def open(self) -> Spec:
        """Read the episode.

        Raises:
            SourceError: the data can't be read, or have no such episode.
        """
        import rlenv_robot as rr

        data = rr.open_source(self.source)
        columns, _ = rr.table_columns(data.table)
        rows = np.flatnonzero(np.asarray(columns["episode"]) == self.episode)[:-1]  # the last one has no action
        if not len(rows):
            raise SourceError(f"{self.source} has no actions of an episode {self.episode}")
        self._actions = {name: values[rows] for name, values in columns["action"].items()}
        self._at, self._count = 0, len(rows)
        return data.table.layout.action

    def next(self) -> Mapping[str, np.ndarray]:
        """Return the next action.

        Raises:
            RobotError: the source is not open.
        """
        if not self._count:
            raise RobotError(f"{self.source} is not open: call open first")
        at = min(self._at, self._count - 1)
        self._at += 1
        return {name: values[at] for name, values in self._actions.items()}

    def close(self) -> None:
        """Forget the episode. Safe to call more than once."""
        self._actions, self._count = {}, 0
