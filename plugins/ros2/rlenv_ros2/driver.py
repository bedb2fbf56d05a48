"""Drive a robot through its ROS 2 topics, as its map describes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hal import DeadlineExceeded, EpisodeError, Rate, RobotError, RobotState, RobotStopped, StaleReading, check_clears
from hal.guard import check_fresh
from rlenv_robot.serving.node_transport import NodeTransport, Publish, RefusalLog, Source, open_transport
from rlenv_ros2.mapping import CommandMap, SensorMap, load_map, values_at

__all__ = ["Ros2Robot"]

_POLL_S = 0.005
_SLACK_S = 0.2
"""Time by which a sender's clock may be ahead of this machine's, seconds."""


class Ros2Robot:
    """A robot whose sensors and commands are topics of ROS 2.

    A reset reads the robot without moving it. A step publishes each command once, waits for the end of the control
    period, and returns the newest values of each sensor with their ages.

    Args:
        mapping: path of the map (`rlenv_ros2.mapping.EXAMPLE`).

    Attributes:
        spec: the robot's description.
        refused: the messages that gave no values.

    Raises:
        ProfileError: the map is missing or wrong.
    """

    def __init__(self, mapping: str | Path) -> None:
        self._map = load_map(mapping)
        self.spec = self._map.spec()
        self.refused = RefusalLog()
        self._transport: NodeTransport | None = None
        self._publishers: dict[str, Publish] = {}
        self._newest: dict[str, tuple[np.ndarray, int]] = {}
        self._lock = threading.Lock()
        self._rate = Rate(self.spec.rate_hz)
        self._applied: dict[str, np.ndarray] | None = None
        self._stopped: str | None = None
        self._closed = False

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Connect if necessary, and read the robot; nothing moves.

        Raises:
            RobotStopped: a stop is latched, and the options do not clear it.
            DeadlineExceeded: a sensor sent nothing in time; the message has the topic, and why messages were refused.
            StaleReading: a sensor's newest message is too old.
            ConnectionLost: nobody answers on the network.
        """
        if self._closed:
            raise EpisodeError("reset after close; make a new robot")
        check_clears(self._stopped, options)
        self._open()
        self._wait_for_all()
        self._stopped, self._applied = None, None
        state = self._read()
        self._applied = {name: self._standing(name, state.sensors) for name in self._map.commands}
        self._rate.restart()
        self._rate.wait()
        return self._read()

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Publish a command, and read the robot after one control period.

        Raises:
            IllegalAction: the command breaks the spec; nothing was sent.
            EpisodeError: there was no reset before, or the robot is closed.
            RobotStopped: a stop is latched.
            StaleReading: a sensor's newest message is too old.
        """
        values = self.spec.commands.validate(command, "command")
        if self._closed or self._applied is None:
            raise EpisodeError("step before reset, or after close")
        with self._lock:
            if self._stopped is not None:
                raise RobotStopped(self._stopped)
            self._applied = {name: np.array(value) for name, value in values.items()}
            for name in self._map.commands:
                self._publish(name, self._applied[name])
        self._rate.wait()
        return self._read()

    def read(self) -> RobotState | None:
        """Return the newest readings without a command; None before the first reset."""
        return None if self._transport is None or not self._has_all() else self._read()

    def stop(self, reason: str) -> None:
        """Latch a stop, and hold: velocities become 0, and goals what is measured. From any thread.

        Where the measurement is too old to be true, the last goal stays.
        """
        with self._lock:
            if self._stopped is not None or self._closed:
                return
            self._stopped = str(reason)
            if self._applied is not None:
                for name in self._map.commands:
                    self._publish_hold(name)

    def close(self) -> None:
        """Send velocities of 0, and disconnect; goals stay as they are. Safe to call more than once."""
        with self._lock:
            if self._transport is not None and self._applied is not None and not self._closed:
                for name, command in self._map.commands.items():
                    if command.is_velocity:
                        self._publish_hold(name)
            self._closed, transport, self._transport = True, self._transport, None
        if transport is not None:
            transport.close()

    # -- topics ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._transport is not None:
            return
        transport = open_transport(self._map.transport, **{"node": "rlenv_robot_driver", **self._map.network})
        try:
            for name, sensor in self._map.sensors.items():
                transport.subscribe(sensor.topic, sensor.type, partial(self._take, name, sensor))
            for name, command in self._map.commands.items():
                self._publishers[name] = transport.advertise(command.topic, command.type)
        except BaseException:
            transport.close()
            raise
        self._transport = transport

    def _take(self, name: str, sensor: SensorMap, message: Any, source: Source) -> None:
        """Keep a sensor's values with the time of their measurement on the monotonic clock."""
        arrived_ns, sent_ns = time.monotonic_ns(), source.sent_ns
        header = getattr(message, "header", None)
        if sensor.clock == "header" and header is not None:
            sent_ns = header.stamp.sec * 10**9 + header.stamp.nanosec
        age_ns = source.received_ns - sent_ns
        if age_ns < -_SLACK_S * 1e9:
            self.refused.add(
                sensor.topic,
                f"its stamp is {-age_ns / 1e9:.2f} s ahead of this machine's clock: synchronise the clocks, or set "
                f'sensors.{name}.clock = "sent"',
            )
            return
        try:
            values = values_at(message, sensor)
        except RobotError as error:
            self.refused.add(sensor.topic, f"sensor {name!r}: {error}")
            return
        self._newest[name] = values, arrived_ns - max(0, age_ns)

    def _has_all(self) -> bool:
        return self._newest.keys() >= self._map.sensors.keys()

    def _wait_for_all(self) -> None:
        end = time.monotonic() + self._map.connect_s
        while not self._has_all():
            if time.monotonic() > end:
                name = next(name for name in self._map.sensors if name not in self._newest)
                sensor = self._map.sensors[name]
                reason = self.refused.last or "no message came; `rlenv-robot robot topics` shows what the network has"
                what = f"no value of sensor {name!r} from {sensor.topic} ({sensor.type})"
                raise DeadlineExceeded(what, self._map.connect_s, reason)
            time.sleep(_POLL_S)

    def _read(self) -> RobotState:
        newest, now_ns = dict(self._newest), time.monotonic_ns()
        ages = {name: max(0, now_ns - stamp_ns) for name, (_, stamp_ns) in newest.items()}
        sensors = {name: newest[name][0].copy() for name in self._map.sensors}
        applied = {name: value.copy() for name, value in (self._applied or {}).items()}
        state = RobotState(sensors, applied, now_ns, ages)
        try:
            check_fresh(self.spec, state)
        except StaleReading as error:
            topic = self._map.sensors[error.sensor].topic
            cause = f"; the last refused message: {self.refused.last}" if self.refused.last else ""
            text = f"{topic}: its newest value is {error.age_s:.2f} s old, allowed are {error.max_age_s:g} s{cause}"
            raise StaleReading(error.sensor, error.age_s, error.max_age_s, text) from None
        return state

    def _standing(self, name: str, sensors: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the command that holds the robot: 0 for a velocity, else what is measured, within the range."""
        field, command = self.spec.commands[name], self._map.commands[name]
        values = np.zeros(field.shape) if command.is_velocity else sensors[command.measured_by]
        return np.clip(values, *field.bounds).astype(field.numpy_dtype)

    def _publish_hold(self, name: str) -> None:
        sensor = self._map.commands[name].measured_by
        values, stamp_ns = self._newest.get(sensor, (np.zeros(0), 0))
        is_fresh = time.monotonic_ns() - stamp_ns <= self.spec.max_age_s.get(sensor, 0.0) * 1e9
        if self._map.commands[name].is_velocity or is_fresh:
            self._publish(name, self._standing(name, {sensor: values}))

    def _publish(self, name: str, values: np.ndarray) -> None:
        if self._transport is None:
            return
        command = self._map.commands[name]
        message = self._message(command, np.asarray(values, float) / command.scale)
        self._publishers[name](message)

    def _message(self, command: CommandMap, numbers: np.ndarray) -> Any:
        assert self._transport is not None
        make, none = self._transport.types.make, np.zeros(0)
        if command.type.endswith("JointTrajectory"):
            seconds = self._map.horizon_s or 2 * self.spec.period_s
            sec, nanosec = divmod(round(seconds * 1e9), 10**9)
            duration = make("builtin_interfaces/msg/Duration", sec=sec, nanosec=nanosec)
            fields = {"positions": numbers, "velocities": none, "accelerations": none, "effort": none}
            point = make("trajectory_msgs/msg/JointTrajectoryPoint", **fields, time_from_start=duration)
            header = self._transport.types.header(0)
            return make(command.type, header=header, joint_names=list(command.elements), points=[point])
        if command.type.endswith("Float64MultiArray"):
            layout = make("std_msgs/msg/MultiArrayLayout", dim=[], data_offset=0)
            return make(command.type, layout=layout, data=numbers)
        axes = dict(zip(command.elements, numbers.tolist(), strict=True))
        parts = {
            part: make("geometry_msgs/msg/Vector3", **{axis: axes.get(f"{part}.{axis}", 0.0) for axis in "xyz"})
            for part in ("linear", "angular")
        }
        return make(command.type, **parts)
