"""Publish what a served robot measures as the topics that ROS 2 tools expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from hal import Image, RobotError, RobotSpec
from hal.joints import joint_sensors
from real import Snapshot
from recorder.log.image_codec import encoded
from rlenv_robot.robot_models import find_robot_model
from rlenv_robot.serving.node_transport import MessageFactory, NodeTransport, Publish
from sim.body_frames import BodyFrames, Place

__all__ = ["DIAGNOSTICS", "LEVELS", "TF", "TopicPublisher", "diagnostics"]

TF, DIAGNOSTICS = "/tf", "/diagnostics"

LEVELS = {"ok": 0, "warn": 1, "error": 2, "stale": 3}
"""``diagnostic_msgs/DiagnosticStatus``: OK, WARN, ERROR, STALE."""

_BATTERY = {"V": "voltage", "A": "current", "1": "percentage"}
"""Unit of a sensor of the battery -> field of ``sensor_msgs/BatteryState``."""

_UNKNOWN = {name: float("nan") for name in (
    "voltage", "temperature", "current", "charge", "capacity", "design_capacity", "percentage")}  # fmt: skip


class TopicPublisher:
    """Publish joint states, frames, battery and images of one robot.

    Frames need a simulation model of the robot; a battery needs a sensor with ``battery`` in its name, of one number in
    V, A or a share of 1.

    Args:
        transport: carries the topics.
        spec: the robot's description.
        topic: returns the full name of a topic; ``/tf`` and ``/diagnostics`` are the same for all robots.
        frame_prefix: stands before the names of frames, so that those of two robots differ.
    """

    def __init__(
        self, transport: NodeTransport, spec: RobotSpec, topic: Callable[[str], str], frame_prefix: str = ""
    ) -> None:
        self.spec, self._types, self._transport, self._topic = spec, transport.types, transport, topic
        self._prefix = frame_prefix
        self._joints = joint_sensors(spec)
        self._publish_joints = self._advertise("joint_states", "sensor_msgs/msg/JointState") if self._joints else None
        self._frames: BodyFrames | None = None
        with suppress(RobotError, ValueError):  # no model of this robot is known, so it has no frames
            self._frames = BodyFrames(find_robot_model(spec.name).make_sim_model(looks=False))
            self._publish_frames = transport.advertise(TF, "tf2_msgs/msg/TFMessage")
        self._battery = {
            _BATTERY[field.unit]: field.name
            for field in spec.sensors
            if "battery" in field.name and field.size == 1 and field.unit in _BATTERY
        }
        if self._battery:
            self._publish_battery = self._advertise("battery_state", "sensor_msgs/msg/BatteryState")
        self._cameras: dict[str, Publish] = {}
        self._sent_stamps: dict[str, int] = {}

    def state(self, snapshot: Snapshot, stamp_ns: int) -> None:
        """Publish one reading.

        Args:
            snapshot: the newest telemetry, with a reading.
            stamp_ns: when it was measured, wall clock, nanoseconds since 1970.
        """
        if self._publish_joints is not None:
            self._publish_joints(self._joint_state(snapshot.sensors, stamp_ns))
        if self._frames is not None and (places := self._frames.places(snapshot.sensors)):
            transforms = [self._transform(place, stamp_ns) for place in places]
            self._publish_frames(self._types.make("tf2_msgs/msg/TFMessage", transforms=transforms))
        if self._battery:
            values = {part: float(np.ravel(snapshot.sensors[name])[0]) for part, name in self._battery.items()}
            self._publish_battery(self._types.make(
                "sensor_msgs/msg/BatteryState", header=self._types.header(stamp_ns), **(_UNKNOWN | values),
                power_supply_status=0, power_supply_health=0, power_supply_technology=0, present=True,
                cell_voltage=np.zeros(0, np.float32), cell_temperature=np.zeros(0, np.float32), location="",
                serial_number="",
            ))  # fmt: skip

    def images(self, images: Mapping[str, Image], offset_ns: int) -> None:
        """Publish each camera's image that is new, as ``<camera>/image_raw/compressed``; pixels become JPEG.

        Args:
            images: camera -> its newest image.
            offset_ns: what makes its stamp a time of the wall clock, nanoseconds.

        Raises:
            LogError: an image can't be compressed.
        """
        kind = "sensor_msgs/msg/CompressedImage"
        for camera, image in list(images.items()):
            if self._sent_stamps.get(camera) == image.stamp_ns:
                continue
            self._sent_stamps[camera] = image.stamp_ns
            if camera not in self._cameras:
                self._cameras[camera] = self._advertise(f"{camera}/image_raw/compressed", kind)
            sent = encoded(image, camera)
            header = self._types.header(image.stamp_ns + offset_ns, self._prefix + camera)
            data = np.frombuffer(sent.data, np.uint8)
            self._cameras[camera](self._types.make(kind, header=header, format=sent.encoding, data=data))

    def _advertise(self, name: str, type_name: str) -> Publish:
        return self._transport.advertise(self._topic(name), type_name)

    def _joint_state(self, sensors: Mapping[str, np.ndarray], stamp_ns: int) -> Any:
        names = [name for sensor in self._joints for name in sensor.joints]
        has_velocity = all(sensor.velocity for sensor in self._joints)
        position = np.concatenate([sensors[sensor.position] for sensor in self._joints]).astype(float)
        velocity = [sensors[sensor.velocity] for sensor in self._joints if has_velocity]
        return self._types.make(
            "sensor_msgs/msg/JointState", header=self._types.header(stamp_ns), name=names, position=position,
            velocity=np.concatenate(velocity).astype(float) if velocity else np.zeros(0), effort=np.zeros(0),
        )  # fmt: skip

    def _transform(self, place: Place, stamp_ns: int) -> Any:
        make = self._types.make
        (x, y, z), (qw, qx, qy, qz) = (part.tolist() for part in (place.position, place.quaternion))
        moved = make("geometry_msgs/msg/Vector3", x=x, y=y, z=z)
        turned = make("geometry_msgs/msg/Quaternion", x=qx, y=qy, z=qz, w=qw)
        return make(
            "geometry_msgs/msg/TransformStamped", child_frame_id=self._prefix + place.name,
            header=self._types.header(stamp_ns, self._prefix + place.parent),
            transform=make("geometry_msgs/msg/Transform", translation=moved, rotation=turned),
        )  # fmt: skip


def diagnostics(
    types: MessageFactory, name: str, level: str, message: str, values: Mapping[str, object], now_ns: int
) -> Any:
    """Return a ``diagnostic_msgs/DiagnosticArray`` with one status.

    Args:
        types: the message types.
        name: of the node and robot.
        level: a key of `LEVELS`.
        message: the state and its reason.
        values: further facts.
        now_ns: wall clock, nanoseconds since 1970.
    """
    pairs = [types.make("diagnostic_msgs/msg/KeyValue", key=key, value=str(value)) for key, value in values.items()]
    status = types.make(
        "diagnostic_msgs/msg/DiagnosticStatus",
        level=LEVELS[level],
        name=name,
        message=message,
        hardware_id="",
        values=pairs,
    )
    return types.make("diagnostic_msgs/msg/DiagnosticArray", header=types.header(now_ns), status=[status])
