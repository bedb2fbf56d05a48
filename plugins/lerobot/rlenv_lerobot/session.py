"""Use a served robot as LeRobot uses its own: observe and command at any pace, with pauses of any length."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hal.cameras.image_sensors import scaled_image
from hal.errors import CommandTooOld, EpisodeError, RobotError, StopReason
from hal.homing import towards
from hal.robot import PRESENT, RobotSpec, RobotState
from real import ClientSettings, RemoteCameras, RemoteRobot

__all__ = ["ServedSession", "SessionSettings"]

_log = logging.getLogger(__name__)

_LONGEST_STRIDE_S = 0.1
"""Time that one command may use on the way to the first goals, seconds: a pause before it must not become a jump."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The settings of a `ServedSession`.

    Attributes:
        address: address of the server; without keys it must be loopback.
        keys: folder of this machine's keys; empty: no keys.
        take: how to proceed if another client holds the robot (`real.ClientSettings`).
        images: whether observations have the images of the server's cameras.
        approach: fastest change of a command after connecting and after each pause, units a second (rad/s for joints),
            until the arm has reached the goals that it is sent.
        max_reading_age_s: age from which a reading is replaced by a new one before it is returned, seconds.
        step_timeout_s: longest wait for the server's answer to a command, seconds.
        clear_stop: why a latched stop may end; empty clears none.
        stop_number: number of the newest stop that ``clear_stop`` may clear; None: any that was seen.
        at_end: what happens when the session is closed: ``hold`` releases the robot, which holds; ``stop`` latches a
            stop too.

    Raises:
        ValueError: a value is not allowed; the message has the setting and the allowed values.
    """

    address: str
    keys: str = ""
    take: Literal["no", "ask", "force"] = "no"
    images: bool = True
    approach: float = 1.0
    max_reading_age_s: float = 0.05
    step_timeout_s: float = 1.0
    clear_stop: str = ""
    stop_number: int | None = None
    at_end: Literal["hold", "stop"] = "hold"

    def __post_init__(self) -> None:
        for name in ("approach", "max_reading_age_s"):
            if not getattr(self, name) > 0:  # False for NaN too
                raise ValueError(f"{name} is {getattr(self, name)}, it must be above 0")
        if self.at_end not in ("hold", "stop"):
            raise ValueError(f"at_end is {self.at_end!r}, allowed are 'hold' and 'stop'")

    def client(self) -> ClientSettings:
        """Return the settings of the connection."""
        return ClientSettings(take=self.take, keys=self.keys or None, step_timeout_s=self.step_timeout_s)


class ServedSession:
    """Observe and command a served robot in episodes that begin where it is. Nothing moves but by `command`.

    A client that pauses for longer than the server's watchdog breaks its episode, and the robot holds. The next call
    begins an episode at the held command, if the robot is neither stopped nor was stopped meanwhile, and if it is still
    this client's. From any thread.

    Args:
        settings: the settings of the session.
        now: the clock of readings' ages and of the approach, seconds.
    """

    def __init__(self, settings: SessionSettings, *, now: Callable[[], float] = time.monotonic) -> None:
        self.settings, self._now = settings, now
        self._lock = threading.RLock()
        self._spec: RobotSpec | None = None
        self._served_cameras: tuple[str, ...] = ()
        self._robot: RemoteRobot | RemoteCameras | None = None
        self._state: RobotState | None = None
        self._received_s = self._commanded_s = 0.0
        self._approaching, self._stops = True, 0
        self._told: set[str] = set()  # faults that were logged

    @property
    def spec(self) -> RobotSpec:
        """The server's description of its robot; asked once, without the right to move.

        Raises:
            ConnectionLost: the server does not answer, or refuses this key.
        """
        if self._spec is None:
            with contextlib.closing(RemoteRobot(self.settings.address, settings=self.settings.client())) as robot:
                self._spec = robot.served_spec()
                pictures = robot.status().get("pictures") or {}
                self._served_cameras = tuple(pictures.get("cameras") or ())
        return self._spec

    @property
    def cameras(self) -> dict[str, tuple[int, int]]:
        """Name of each camera that the server has images of -> height and width, pixels."""
        spec = self.spec
        if not self.settings.images:
            return {}
        return {
            camera.name: (camera.height, camera.width) for camera in spec.cameras if camera.name in self._served_cameras
        }

    @property
    def connected(self) -> bool:
        """Whether this session holds the robot, or did until it was lost."""
        return self._robot is not None

    def connect(self) -> None:
        """Take the robot, and begin an episode where it is: an arm is switched on and holds.

        Raises:
            RobotStopped: a stop is latched, and the settings do not clear it; the message has its number.
            ConnectionLost: the server does not answer, or another client holds the robot.
            EpisodeError: the session is connected already.
        """
        with self._lock:
            if self._robot is not None:
                raise EpisodeError(f"this session with {self.settings.address} is connected already")
            remote = RemoteRobot(self.settings.address, settings=self.settings.client())
            robot = RemoteCameras(remote, self.settings.keys or None) if self.cameras else remote
            options: dict[str, Any] = {"start": PRESENT}
            if self.settings.clear_stop:
                options["clear_stop"] = self.settings.clear_stop
                if self.settings.stop_number is not None:
                    options["stop_number"] = self.settings.stop_number
            try:
                self._begin(robot, options)
            except BaseException:
                robot.close()
                raise
            self._robot = robot

    def observe(self) -> RobotState:
        """Return the newest reading; if it is too old, the robot holds for one period and is read.

        Raises:
            RobotStopped: the robot is stopped.
            ConnectionLost: the server does not answer, or another client holds the robot.
            RobotError: the robot reports a fault of a camera, or can't go on.
        """
        with self._lock:
            state = self._known()
            if self._now() - self._received_s > self.settings.max_reading_age_s:
                try:
                    state = self._hold()
                except EpisodeError as error:
                    state = self._begin_again(error)
            return self._checked(state)

    def command(self, goal: Mapping[str, np.ndarray]) -> RobotState:
        """Send a command, wait for its period, and return the reading at the end.

        After `connect` and after each pause the robot goes to the goals at ``settings.approach``, until it has reached
        them. ``applied`` of the returned reading is the command that the actuators received.

        Raises:
            IllegalAction: the command breaks the spec; nothing moved.
            RobotStopped: the robot is stopped.
            ConnectionLost: the server does not answer, or another client holds the robot.
            RobotError: the robot reports a fault of a camera, or it can't go on.
        """
        with self._lock:
            self._known()
            goal = self.spec.commands.validate(goal, "goal")
            try:
                state = self._step(self._nearer(goal))
            except EpisodeError as error:
                self._begin_again(error)
                state = self._step(self._nearer(goal))
            if self._approaching:
                self._approaching = any(not np.array_equal(state.applied[name], goal[name]) for name in goal)
            return self._checked(state)

    def images(self, state: RobotState) -> dict[str, np.ndarray]:
        """Return the decoded image of each camera: RGB, uint8, shape (height, width, 3)."""
        return {name: scaled_image(state.images[name], width, height) for name, (height, width) in self.cameras.items()}

    def close(self) -> None:
        """Release the robot: it holds, and with ``settings.at_end`` it is stopped. Safe to call more than once.

        Raises:
            RobotError: the stop was not confirmed.
        """
        with self._lock:
            robot, self._robot, self._state = self._robot, None, None
            if robot is None:
                return
            try:
                if self.settings.at_end == "stop":
                    _remote(robot).stop(StopReason("LeRobot disconnected", orderly=True))
            finally:
                robot.close()

    # -- episodes ----------------------------------------------------------------------------------------

    def _begin(self, robot: RemoteRobot | RemoteCameras, options: Mapping[str, Any]) -> RobotState:
        state = self._take(robot.reset(options))
        self._stops = int(_remote(robot).status()["stop_number"])
        self._commanded_s, self._approaching = self._now() - self.spec.period_s, True
        return state

    def _known(self) -> RobotState:
        if self._state is None or self._robot is None:
            raise EpisodeError(f"the robot at {self.settings.address} is not connected: call connect first")
        return self._state

    def _take(self, state: RobotState) -> RobotState:
        self._state, self._received_s = state, self._now()
        return state

    def _step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        assert self._robot is not None
        try:
            return self._take(self._robot.step(self._legal(command)))
        except CommandTooOld as error:  # nothing moved; what is as old now is not sent again
            _log.warning("the robot holds for one period: %s", error)
            return self._hold()

    def _hold(self) -> RobotState:
        """Command what the robot holds already, for one period."""
        assert self._robot is not None
        return self._take(self._robot.step(self._legal(self._known().applied)))

    def _begin_again(self, error: EpisodeError) -> RobotState:
        """Begin an episode at the held command after a silence; raise the error if the robot does not just hold."""
        assert self._robot is not None
        status = _remote(self._robot).status()
        if status.get("state") != "holding":
            raise error
        if int(status["stop_number"]) != self._stops:
            raise EpisodeError(
                f"the robot was stopped since the last command, and somebody cleared that stop ({error}); "
                "look at the robot, then connect again"
            ) from error
        _log.info("an episode begins where the robot holds, after a pause (%s)", status.get("why"))
        return self._begin(self._robot, {"start": PRESENT})

    def _nearer(self, goal: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the goal, or a command on the way to it while the robot approaches its first goals."""
        now = self._now()
        passed_s, self._commanded_s = min(now - self._commanded_s, _LONGEST_STRIDE_S), now
        if not self._approaching:
            return goal
        stride, applied = self.settings.approach * passed_s, self._known().applied
        return {
            name: towards(applied[name], value, stride) if name in self.spec.measured_by else value
            for name, value in goal.items()
        }

    def _legal(self, command: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return a command within its range: a robot may hold one outside, which no client may send."""
        return {
            field.name: np.clip(command[field.name], *field.bounds).astype(field.numpy_dtype)
            for field in self.spec.commands
        }

    def _checked(self, state: RobotState) -> RobotState:
        """Return a reading that has all images; log its faults, which the guard beside the motors judges.

        Raises:
            RobotError: an image is missing.
        """
        for fault in state.faults:
            if str(fault) not in self._told:
                self._told.add(str(fault))
                _log.warning("fault of the robot: %s", fault)
        missing = [name for name in self.cameras if name not in state.images]
        if missing:
            faults = "; ".join(str(fault) for fault in state.faults) or "the server sent no newer image"
            raise RobotError(
                f"there is no fresh image of {', '.join(missing)}: {faults}. Look at the camera, or set images=false"
            )
        return state


def _remote(robot: RemoteRobot | RemoteCameras) -> RemoteRobot:
    return robot.robot if isinstance(robot, RemoteCameras) else robot
