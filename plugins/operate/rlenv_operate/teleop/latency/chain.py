"""Connect a device with a served robot, and take time stamps at the driver, for `rlenv-robot operate latency`."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol

import numpy as np

from hal import DeadlineExceeded, Robot, RobotError, RobotSpec, RobotState
from hal.drivers.bus import Port
from hal.drivers.sts3215 import TABLE
from hal.wrapper import RobotWrapper
from real import Server
from rlenv_operate.episode import TeleopEpisode
from rlenv_operate.teleop.latency.trials import TrialWatch
from rlenv_robot.env import Environment
from rlenv_robot.registry import robot
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.robot_env.intervention import Operator
from rlenv_robot.tasks.free import Free

__all__ = ["Client", "EpisodeClient", "ServedChain", "StampedDriver", "StampedPort", "pose_of"]

_GOAL = TABLE["goal_position"].address
_SYNC_WRITE = 0x83

_REST_S = 0.4
_LONGEST_REST_S = 10.0
_POLL_S = 0.01
_STEPS = 1_000_000


class StampedPort:
    """A serial line that records when goals were last sent.

    Args:
        port: the line.

    Attributes:
        goals_ns: monotonic clock after the newest grouped write of goals was passed to the line, nanoseconds.
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self.goals_ns = 0
        self.now_ns, self.sleep, self.discard = port.now_ns, port.sleep, port.discard
        self.receive, self.close = port.receive, port.close

    @property
    def baud(self) -> int:
        """Bits per second."""
        return self._port.baud

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._port.send(data)
        if _writes_goals(data):
            self.goals_ns = time.monotonic_ns()

    def exchange(self, request: bytes, least: int, timeout_s: float) -> tuple[int, bytes]:
        """Send a request; return the number of bytes dropped before it, and the bytes received after it."""
        return self._port.exchange(request, least, timeout_s)


def _writes_goals(data: bytes) -> bool:
    """Whether a packet of Feetech's protocol (FF FF id length instruction address ...) is a grouped write of goals."""
    return len(data) > 6 and data[4] == _SYNC_WRITE and data[5] == _GOAL


class StampedDriver(RobotWrapper):
    """Pass a driver's goals and readings to the watch of a trial.

    Args:
        robot: the driver.
        sent_ns: returns when the goals of the last step were sent, nanoseconds; None takes the time at which the driver
            was called.
        now_ns: the monotonic clock of the readings' stamps, nanoseconds.
    """

    def __init__(
        self,
        robot: Robot,
        sent_ns: Callable[[], int] | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__(robot)
        self._sent_ns, self._now_ns = sent_ns, now_ns
        self.watch: TrialWatch | None = None
        self.goal: Mapping[str, np.ndarray] = {}
        self.newest: RobotState | None = None

    def reset(self, options: Mapping[str, object]) -> RobotState:
        """Reset the driver."""
        state = self.newest = super().reset(options)
        self.goal = dict(state.applied)
        return state

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Step the driver, and pass its goal and its reading to the watch."""
        called_ns = self._now_ns()
        state = super().step(command)
        self.goal = {name: np.array(value) for name, value in command.items()}
        watch = self.watch
        if watch is not None:
            watch.wrote(self.goal, called_ns if self._sent_ns is None else self._sent_ns())
            watch.measured(pose_of(self.spec, state), state.stamp_ns)
        self.newest = state
        return state


def pose_of(spec: RobotSpec, state: RobotState) -> dict[str, np.ndarray]:
    """Return the measured values of the commanded quantities, by command name."""
    return {name: np.asarray(state.sensors[sensor], np.float64) for name, sensor in spec.measured_by.items()}


# -- The client of the robot's server, and the chain ---------------------------------------------------------------


class Client(Protocol):
    """Move a robot by a device, as a client of the robot's server, from `start` to `close`."""

    def start(self, address: str) -> None:
        """Bring the robot to its start, and close the clutch.

        Raises:
            RobotError: the robot can't be moved.
        """
        ...

    def check(self) -> None:
        """Raise the error that ended the client, if one did.

        Raises:
            RobotError: the client has ended.
        """
        ...

    def close(self) -> None:
        """Give the robot back. Safe to call more than once."""
        ...


class EpisodeClient:
    """Run one long episode with a person's device on a background thread.

    Args:
        kind: name of the robot's model.
        device: the person's input device.
        velocity: maximum velocity of a commanded value, units per second.
        engage: closes the device's clutch.
    """

    def __init__(self, kind: str, device: Operator, velocity: float, engage: Callable[[], None]) -> None:
        self._kind, self._device, self._velocity, self._engage = kind, device, velocity, engage
        self._ends = ExitStack()
        self._closing, self._trouble = threading.Event(), ""
        self._thread: threading.Thread | None = None

    def start(self, address: str) -> None:
        """Bring the robot to its start, and close the clutch."""
        resolved = Free.of_registered(self._kind, _STEPS)
        moved = robot(resolved.robot_model, address)
        env = self._ends.enter_context(Environment(RobotWorld(moved, resolved), None, None))
        self._ends.callback(self._device.close)
        episode = TeleopEpisode(env, moved.spec, self._device, self._velocity)
        episode.begin()
        self._engage()
        self._thread = threading.Thread(
            target=self._run, args=(episode,), name="rlenv-robot operate latency", daemon=True
        )
        self._thread.start()

    def _run(self, episode: TeleopEpisode) -> None:
        try:
            while not (self._closing.is_set() or episode.over):
                episode.period()
            self._trouble = episode.end_reason
        except RobotError as error:
            self._trouble = str(error)

    def check(self) -> None:
        """Raise the error that ended the episode, if one did."""
        if self._trouble:
            raise RobotError(f"the episode ended during a measurement: {self._trouble}")

    def close(self) -> None:
        """End the episode. Safe to call more than once."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self._ends.close()


class ServedChain:
    """Run a served robot and a client of it, as a context manager (`rlenv_operate.teleop.latency.trials.Chain`).

    Args:
        server: the server of the robot, not yet started.
        driver: the driver of the robot, inside the server.
        client: moves the robot.
        motion: smallest motion that counts, units; above the noise at rest.
        change: smallest change of a goal that counts, units; above the noise of the device.
        timeout_s: time limit for the motion of a trial, seconds.

    Raises:
        RobotError: the robot can't be served or moved.
    """

    def __init__(
        self,
        server: Server,
        driver: StampedDriver,
        client: Client,
        motion: float,
        change: float = 1e-4,
        timeout_s: float = 2.0,
    ) -> None:
        self._server, self._driver, self._client = server, driver, client
        self._motion, self._change, self._timeout_s = motion, change, timeout_s
        self._random = random.Random(0)

    def __enter__(self) -> ServedChain:
        self._server.start()
        try:
            self._client.start(self._server.address)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.close()
        self._server.close()

    def settle(self) -> None:
        """Wait until neither goal nor measured pose has changed for 0.4 s, and then for a random part of a period.

        So the next input is not synchronous with the robot's periods, as a person's input is not.
        """
        self._driver.watch = None
        end_s, since_s, before = time.monotonic() + _LONGEST_REST_S, time.monotonic(), self._now()
        while time.monotonic() - since_s < _REST_S:
            self._client.check()
            if time.monotonic() > end_s:
                raise DeadlineExceeded("the robot does not come to rest", _LONGEST_REST_S, "raise --motion")
            time.sleep(_POLL_S)
            now = self._now()
            if any(np.max(np.abs(now[key] - before[key])) > self._motion / 3 for key in now):
                since_s, before = time.monotonic(), now
        time.sleep(self._random.uniform(0.0, self._driver.spec.period_s))

    def begin(self) -> TrialWatch:
        """Return a watch that begins with the present goal and pose, to which the driver reports."""
        newest = self._driver.newest
        assert newest is not None  # the client has begun an episode
        watch = TrialWatch(self._driver.goal, pose_of(self._driver.spec, newest), self._change, self._motion)
        self._driver.watch = watch
        return watch

    def wait(self, watch: TrialWatch) -> bool:
        """Wait for the motion of a trial; return whether it was in time."""
        came = watch.wait(self._timeout_s)
        self._client.check()
        return came

    def _now(self) -> dict[str, np.ndarray]:
        newest = self._driver.newest
        assert newest is not None
        pose = {f"pose {name}": value for name, value in pose_of(self._driver.spec, newest).items()}
        return pose | {f"goal {name}": np.asarray(value, np.float64) for name, value in self._driver.goal.items()}
