"""Join a served robot and ROS 2: a node with topics out, commands in under the lease and guard, and three services."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hal import RobotError, RobotSpec
from hal.joints import JointCommands
from real import Snapshot
from rlenv_robot.serving.node_transport import NodeTransport, RefusalLog, Source, full_name
from rlenv_robot.serving.robot_feed import RobotFeed
from rlenv_robot.serving.stopper import Stopper, clearing_hint
from rlenv_ros2node.mover import Mover, Start
from rlenv_ros2node.publisher import DIAGNOSTICS, TopicPublisher, diagnostics
from rlenv_ros2node.setpoints import CommandRefused, JointPath, Positions, Setpoint, TwistMap

__all__ = ["BridgeSettings", "Ros2Bridge"]

_log = logging.getLogger(__name__)

_DIAGNOSTICS_S = 1.0

_Make = Callable[[Any, RobotSpec, Mapping[str, np.ndarray], float], Setpoint]


@dataclass(frozen=True, kw_only=True)
class BridgeSettings:
    """The settings of a bridge.

    Attributes:
        node: the node's name, the last part before ``~`` services.
        namespace: stands before the names of topics, such as ``/left``.
        start: where an episode begins (`rlenv_ros2node.mover.Start`).
        clearing: options of the first reset (`rlenv_ros2node.mover.Mover`).
        twist: map of ``cmd_vel`` (`rlenv_ros2node.setpoints.TwistMap`); empty: no such topic.
        deadline_s: time after which positions and velocities without a successor hold the robot, seconds.
        max_age_s: greatest age of a command on its arrival, by the wall clocks of both machines, seconds.

    Raises:
        ValueError: a name is not one of ROS 2, or a time is not above 0.
    """

    node: str = "rlenv_robot"
    namespace: str = "/"
    start: Start = "home"
    clearing: Mapping[str, Any] = field(default_factory=dict)
    twist: str = ""
    deadline_s: float = 0.5
    max_age_s: float = 0.5

    def __post_init__(self) -> None:
        self.topic("~/stop")
        for name in ("deadline_s", "max_age_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}, it must be a number above 0")

    def topic(self, name: str) -> str:
        """Return a topic's or service's full name."""
        return full_name(name, self.namespace, self.node)


class Ros2Bridge:
    """Offer a served robot to ROS 2 nodes, as one more client of its server.

    Args:
        transport: carries topics and services; its owner closes it after the bridge.
        address: address of the robot's server.
        keys: folder of this machine's keys.
        telemetry: address of the telemetry, if the server does not announce it.
        settings: the bridge's settings.

    Attributes:
        mover: moves the robot.
        refused: the commands that were not accepted.

    Raises:
        WireError: the address is invalid, or is another machine's and there are no keys.
        ValueError: the map of ``cmd_vel`` does not fit the robot.
        RobotError: the server does not answer.
    """

    def __init__(
        self,
        transport: NodeTransport,
        address: str,
        keys: str | Path | None = None,
        telemetry: str | None = None,
        settings: BridgeSettings | None = None,
    ) -> None:
        self._settings = settings = settings or BridgeSettings()
        self._transport, self.refused = transport, RefusalLog()
        self.mover = Mover(address, keys, self._measured, settings.start, settings.clearing)
        self._stopper = Stopper(address, keys)
        self._feed = RobotFeed(address, keys, telemetry)
        self._publisher: TopicPublisher | None = None
        self._offset_ns = 0
        self._told: tuple[str, str] = ("", "")
        self._told_s = 0.0

    def start(self, spec: RobotSpec) -> None:
        """Offer topics and services.

        Args:
            spec: the robot's description, such as ``RemoteRobot(...).spec``.
        """
        settings, transport = self._settings, self._transport
        twist = TwistMap(settings.twist, spec) if settings.twist else None
        self._publish_diagnostics = transport.advertise(DIAGNOSTICS, "diagnostic_msgs/msg/DiagnosticArray")
        transport.serve(settings.topic("~/stop"), self._stop)  # first: whatever fails later, it is there
        transport.serve(settings.topic("~/reset"), lambda: (True, self.mover.begin()))
        transport.serve(settings.topic("~/release"), lambda: (True, self.mover.release()))
        self._stopper.start()
        self._feed.start(self._take)
        if JointCommands(spec).names:
            name = "joint_trajectory_controller/joint_trajectory"
            self._subscribe(name, "trajectory_msgs/msg/JointTrajectory", self._path)
            self._subscribe("forward_position_controller/commands", "std_msgs/msg/Float64MultiArray", self._positions)
        if twist is not None:
            self._subscribe(
                "cmd_vel",
                "geometry_msgs/msg/Twist",
                lambda message, _, __, now_s: twist.velocities(message, now_s, settings.deadline_s),
            )

    def close(self) -> None:
        """End the episode, give the lease back, and stop following the robot. Safe to call more than once."""
        self.mover.release("the bridge ends")
        self._feed.close()
        self._stopper.close()

    # -- in ----------------------------------------------------------------------------------------------

    def _subscribe(self, name: str, type_name: str, make: _Make) -> None:
        topic = self._settings.topic(name)

        def receive(message: Any, source: Source) -> None:
            try:
                self._check_age(source)
                self.mover.accept(lambda spec, applied, now_s: make(message, spec, applied, now_s))
            except CommandRefused as error:
                self.refused.add(topic, error)

        self._transport.subscribe(topic, type_name, receive)

    def _check_age(self, source: Source) -> None:
        allowed = self._settings.max_age_s
        if abs(source.age_s) > allowed:
            raise CommandRefused(
                f"the command left its sender {source.age_s:.2f} s ago by the clocks of both machines, allowed are "
                f"{allowed:g}: look at the network, or synchronise the clocks"
            )

    def _path(self, message: Any, spec: RobotSpec, applied: Mapping[str, np.ndarray], now_s: float) -> JointPath:
        return JointPath.of(message, JointCommands(spec), applied, now_s, time.time_ns(), spec.period_s)

    def _positions(self, message: Any, spec: RobotSpec, _: Mapping[str, np.ndarray], now_s: float) -> Positions:
        return Positions.of(message, JointCommands(spec), now_s, self._settings.deadline_s)

    def _stop(self) -> tuple[bool, str]:
        began_s = time.monotonic()
        self._stopper.stop(f"the ROS 2 service {self._settings.topic('~/stop')} was called")
        return True, f"stopped; the robot confirmed after {(time.monotonic() - began_s) * 1e3:.0f} ms"

    # -- out, on the feed's threads ----------------------------------------------------------------------

    def _measured(self) -> Mapping[str, np.ndarray]:
        look = self._feed.look
        return {} if look.snapshot is None or look.problem else look.snapshot.sensors

    def _take(self, kind: str) -> None:
        """Publish what the feed reports as changed."""
        look = self._feed.look
        try:
            if kind == "state" and (look.problem or look.snapshot is None):
                self._diagnose("stale", f"not live: {look.problem}", self._commands())
            elif kind == "state" and look.spec is not None and look.snapshot is not None:
                self._publish(look.spec, look.snapshot)
            elif kind == "image" and self._publisher is not None:
                self._publisher.images(self._feed.images, self._offset_ns)
        except (RobotError, ValueError) as error:  # one strange reading must not end the topics
            _log.warning("the robot's news can't be published: %s", error)

    def _publish(self, spec: RobotSpec, snapshot: Snapshot) -> None:
        self._offset_ns = time.time_ns() - snapshot.sent_ns
        stopped, number = snapshot.state == "stopped", snapshot.status.get("stop_number", "")
        values = {
            "holder": snapshot.holder or "none", "stop_number": number, "late_commands": snapshot.late_commands,
            "faults": "; ".join(map(str, snapshot.faults)), "reading_age_s": snapshot.status.get("reading_age_s"),
            "real_time": snapshot.real_time, **({"to_clear_it": clearing_hint(number)} if stopped else {}),
        }  # fmt: skip
        level = "error" if stopped else "warn" if snapshot.faults else "ok"
        state = f"{snapshot.state}: {snapshot.why}" if snapshot.why else snapshot.state
        self._diagnose(level, state, values | self._commands())
        if snapshot.stamp_ns:
            if self._publisher is None or self._publisher.spec != spec:
                prefix = f"{self._settings.namespace.strip('/')}/".lstrip("/")
                self._publisher = TopicPublisher(self._transport, spec, self._settings.topic, prefix)
            self._publisher.state(snapshot, snapshot.stamp_ns + self._offset_ns)

    def _commands(self) -> dict[str, object]:
        count = sum(self.refused.counts.values())
        return {
            "commands": "accepted" if self.mover.running else f"refused: {self.mover.ended}",
            "refused_commands": count, "last_refused": self.refused.last,
        }  # fmt: skip

    def _diagnose(self, level: str, message: str, values: Mapping[str, object]) -> None:
        """Publish diagnostics each second, and at once when the state changes."""
        now_s = time.monotonic()
        if (level, message) == self._told and now_s - self._told_s < _DIAGNOSTICS_S:
            return
        self._told, self._told_s = (level, message), now_s
        name = self._settings.topic("~").strip("/")
        types = self._transport.types
        self._publish_diagnostics(diagnostics(types, name, level, message, values, time.time_ns()))
