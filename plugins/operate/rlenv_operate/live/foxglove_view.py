"""Show a served robot in Foxglove and Lichtblick: topics, frames, solids, and a service that stops the robot."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from secrets import randbelow
from typing import Any

import foxglove
import numpy as np
from foxglove import channels as channel_types
from foxglove import messages as fg
from foxglove import websocket as ws

from hal import LogError, RobotError, RobotSpec, Spec
from hal.joints import JointSensor, joint_sensors
from real import Snapshot
from real.protocol.text import printable
from recorder.log.image_codec import encoded
from recorder.log.ros2 import (
    COMPRESSED_IMAGE,
    HEADER,
    JOINT_STATE,
    STRING,
    CdrWriter,
    MessageType,
    compressed_image,
    message_type,
    text_message,
)
from recorder.names import CAMERA_TOPIC, JOINT_TOPIC
from rlenv_operate.live.foxglove_scene import scene_update
from rlenv_operate.live.session import LiveSession, LiveView
from rlenv_operate.urdf import urdf_robot
from rlenv_robot.robot_models import find_robot_model
from rlenv_robot.serving.robot_feed import Look
from sim.body_frames import BodyFrames

__all__ = [
    "DESCRIPTION_TOPIC", "LIFECYCLE_TOPIC", "LOG_TOPIC", "SCENE_TOPIC", "STOP_SERVICE", "TELEMETRY_TOPIC", "TF_TOPIC",
    "FoxgloveView",
]  # fmt: skip

_log = logging.getLogger(__name__)

LIFECYCLE_TOPIC, TELEMETRY_TOPIC, TF_TOPIC = "/lifecycle", "/telemetry", "/tf"
SCENE_TOPIC, LOG_TOPIC, STOP_SERVICE = "/scene", "/log", "/stop"
DESCRIPTION_TOPIC = "/robot_description"
"""The topic on which the 3D panels of Foxglove and Lichtblick look for a URDF, whose meshes they fetch by URI."""

_BACKLOG = 64
"""Messages that wait for one client at most; for a client that is slow the oldest are dropped."""

_LIFECYCLE_SCHEMA = {
    "title": "rlenv_robot.Lifecycle",
    "type": "object",
    "properties": {
        "live": {"type": "boolean", "description": "whether the robot's server answers"},
        "problem": {"type": "string", "description": "why it does not"},
        "state": {"type": "string"},
        "why": {"type": "string"},
        "holder": {"type": "string", "description": "the client that moves the robot, or empty"},
        "stop_number": {"type": "integer"},
        "faults": {"type": "array", "items": {"type": "string"}},
        "age_s": {"type": "number", "description": "age of the newest reading"},
        "late_commands": {"type": "integer"},
        "loop": {
            "type": "object",
            "properties": {name: {"type": "number"} for name in ("period_ms", "periods", "overruns", "longest_ms")},
        },
    },
}


class FoxgloveView(LiveView):
    """Publish the data of a session to any number of clients of Foxglove's WebSocket protocol.

    The server of Foxglove's SDK checks no token, so it listens on this machine only, at an address that no web page can
    guess, behind a `rlenv_operate.live.gate.Gate`.

    Args:
        session: follows and stops the robot; its owner starts and closes it.
        wall_ns: returns the time of day, nanoseconds since 1970.

    Attributes:
        host: the host of the SDK's server.
        port: the port of the SDK's server.
    """

    def __init__(self, session: LiveSession, wall_ns: Callable[[], int] = time.time_ns) -> None:
        super().__init__(session, wall_ns)
        self._stop = session.stop
        self._context = foxglove.Context()
        self._robot: _RobotTopics | None = None
        self._cameras: dict[str, foxglove.Channel] = {}
        self._offset_ns: int | None = None
        self._lifecycle = foxglove.Channel(LIFECYCLE_TOPIC, schema=_LIFECYCLE_SCHEMA, context=self._context)
        self._texts = channel_types.LogChannel(LOG_TOPIC, context=self._context)
        self.host = _hidden_loopback()
        self._server = foxglove.start_server(
            name="rlenv-robot", host=self.host, port=0, context=self._context, server_listener=_Listener(self._renew),
            capabilities=[ws.Capability.Services], supported_encodings=["json"], services=[self._stop_service()],
            message_backlog_size=_BACKLOG, asset_handler=self._asset,
        )  # fmt: skip
        self.port: int = self._server.port

    def close(self) -> None:
        """Stop the server and disconnect its clients. Safe to call more than once."""
        self._server.stop()

    # -- topics ------------------------------------------------------------------------------------------

    def _renew(self, topic: str) -> None:
        """Send what hardly ever changes once more, since a client has subscribed."""
        if self._robot is not None and topic == SCENE_TOPIC:
            self._robot.scene_is_due = True
        elif self._robot is not None and topic == DESCRIPTION_TOPIC:
            self._robot.description_is_due = True
        elif topic == LOG_TOPIC:
            self._told = ("", "")

    def _asset(self, uri: str) -> bytes | None:
        """Return a mesh of the robot's URDF; nothing else is handed out."""
        robot = self._robot
        return None if robot is None else robot.meshes.get(uri)

    def _show_state(self, look: Look) -> None:
        now_ns, snapshot = self._wall_ns(), look.snapshot
        self._lifecycle.log(_lifecycle(look), log_time=now_ns)
        self._tell(look, now_ns)
        if look.spec is None or snapshot is None or look.problem:
            return
        if self._robot is None or self._robot.spec != look.spec:
            if self._robot is not None:
                self._robot.close()
            self._robot = _RobotTopics(look.spec, self._context)
        offset_ns = now_ns - snapshot.sent_ns
        self._offset_ns = offset_ns if self._offset_ns is None else _tracked(self._offset_ns, offset_ns)
        self._robot.publish(snapshot, snapshot.stamp_ns + self._offset_ns, now_ns)

    def _tell(self, look: Look, now_ns: int) -> None:
        """Add a line to the log when the state or its reason has changed."""
        line = self._new_line(look)
        if line is None:
            return
        text, is_warning = line
        level = fg.LogLevel.Warning if is_warning else fg.LogLevel.Info
        self._texts.log(
            fg.Log(timestamp=_stamp(now_ns), level=level, message=text, name="rlenv-robot"), log_time=now_ns
        )

    def _show_images(self) -> None:
        for name, image in self._new_images():
            if name not in self._cameras:
                self._cameras[name] = _channel(CAMERA_TOPIC + name, COMPRESSED_IMAGE, self._context)
            now_ns = self._wall_ns()
            stamp_ns = now_ns if self._offset_ns is None else image.stamp_ns + self._offset_ns
            try:
                message = compressed_image(encoded(image, name)._replace(stamp_ns=stamp_ns), name)
            except LogError as error:
                _log.warning("an image can't be shown: %s", error)
                continue
            self._cameras[name].log(message, log_time=now_ns)

    # -- the service -------------------------------------------------------------------------------------

    def _stop_service(self) -> ws.Service:
        def described(title: str, field: str) -> ws.MessageSchema:
            schema = {"title": title, "type": "object", "properties": {field: {"type": "string"}}}
            data = json.dumps(schema).encode()
            return ws.MessageSchema(
                encoding="json", schema=foxglove.Schema(name=title, encoding="jsonschema", data=data)
            )

        request, response = described("StopRequest", "reason"), described("StopResponse", "message")
        schema = ws.ServiceSchema(name="rlenv_robot.Stop", request=request, response=response)
        return ws.Service(STOP_SERVICE, schema=schema, handler=self._carry_out_stop)

    def _carry_out_stop(self, request: ws.ServiceRequest) -> bytes:
        """Stop the robot, whatever the request holds; an error goes to the client as a failed call."""
        began_s = time.monotonic()
        self._stop(f"a Foxglove client: {_reason(request.payload)}")
        message = f"stopped; the robot confirmed after {(time.monotonic() - began_s) * 1e3:.0f} ms"
        return json.dumps({"message": message}).encode()


class _RobotTopics:
    """The topics that depend on the robot's description.

    Args:
        spec: the spec of the robot.
        context: that their channels belong to.
    """

    def __init__(self, spec: RobotSpec, context: foxglove.Context) -> None:
        self.spec = spec
        self.scene_is_due = self.description_is_due = True
        self.meshes: dict[str, bytes] = {}
        self._description = b""
        parts = spec.sensors.prefixed("sensor"), spec.commands.prefixed("applied")
        self._row = Spec.joined("telemetry", parts)
        self._telemetry = _channel(TELEMETRY_TOPIC, message_type(self._row, "Telemetry"), context)
        self._joints = joint_sensors(spec)
        self._joint_states = _channel(JOINT_TOPIC, JOINT_STATE, context) if self._joints else None
        self._frames: BodyFrames | None = None
        with suppress(RobotError, ValueError):  # no model of this robot is known: there is no picture of it
            sim_model = find_robot_model(spec.name).make_sim_model()
            self._frames = BodyFrames(sim_model)
            self._scene = scene_update(sim_model.model, self._frames)
            self._scenes = channel_types.SceneUpdateChannel(SCENE_TOPIC, context=context)
            self._tf = channel_types.FrameTransformsChannel(TF_TOPIC, context=context)
            folder = f"package://{spec.name}/meshes/"
            urdf = urdf_robot(sim_model, folder)
            self.meshes = {folder + name: data for name, data in urdf.meshes.items()}
            self._description = text_message(urdf.text)
            self._descriptions = _channel(DESCRIPTION_TOPIC, STRING, context)

    def close(self) -> None:
        """Take the topics back."""
        for channel in (self._telemetry, self._joint_states):
            if channel is not None:
                channel.close()
        if self._frames is not None:
            self._scenes.close()
            self._tf.close()
        if self._description:
            self._descriptions.close()

    def publish(self, snapshot: Snapshot, stamp_ns: int, now_ns: int) -> None:
        """Publish one message of telemetry.

        Args:
            snapshot: the newest.
            stamp_ns: when it was measured, wall clock, nanoseconds since 1970.
            now_ns: the wall clock now.
        """
        if self.scene_is_due and self._frames is not None:
            self._scenes.log(self._scene, log_time=now_ns)
            self.scene_is_due = False
        if self.description_is_due and self._description:
            self._descriptions.log(self._description, log_time=now_ns)
            self.description_is_due = False
        if not snapshot.stamp_ns:
            return  # nothing was measured yet
        values = {f"sensor_{name}": value for name, value in snapshot.sensors.items()}
        values |= {f"applied_{name}": value for name, value in snapshot.applied.items()}
        self._telemetry.log(HEADER + self._row.pack(values), log_time=now_ns)
        if self._joint_states is not None:
            self._joint_states.log(_joint_states(self._joints, snapshot.sensors, stamp_ns), log_time=now_ns)
        if self._frames is not None:
            places = self._frames.places(snapshot.sensors)
            if places:
                self._tf.log(fg.FrameTransforms(transforms=_transforms(places, stamp_ns)), log_time=now_ns)


class _Listener(ws.ServerListener):
    """Hear which topic a client has subscribed to."""

    def __init__(self, on_topic: Callable[[str], None]) -> None:
        self._on_topic = on_topic

    def on_subscribe(self, client: ws.Client, channel: ws.ChannelView) -> None:
        self._on_topic(channel.topic)


def _hidden_loopback() -> str:
    """Return an address of this machine's loopback network that web pages can't guess, where the system has them."""
    if sys.platform != "linux":
        return "127.0.0.1"
    return ".".join(["127", *(str(1 + randbelow(254)) for _ in range(3))])


def _tracked(offset_ns: int, newest_ns: int) -> int:
    """Return the offset of the clocks: the smallest one seen, which rises slowly so that a step of a clock is followed.

    A message that came late gives a larger offset than the true one.
    """
    return newest_ns if abs(newest_ns - offset_ns) > 10**9 else min(newest_ns, offset_ns + 1000)


def _lifecycle(look: Look) -> dict[str, Any]:
    message: dict[str, Any] = {"live": not look.problem, "problem": look.problem}
    snapshot = look.snapshot
    if snapshot is None:
        return message
    age_s = snapshot.status.get("reading_age_s")
    timing = snapshot.loop_timing
    message |= {
        "state": snapshot.state, "why": snapshot.why, "holder": snapshot.holder or "",
        "faults": [str(fault) for fault in snapshot.faults], "late_commands": snapshot.late_commands,
        "loop": {key: timing[key] for key in ("period_ms", "periods", "overruns", "longest_ms") if key in timing},
    }  # fmt: skip
    if isinstance(age_s, float | int):
        message["age_s"] = age_s
    if isinstance(snapshot.status.get("stop_number"), int):
        message["stop_number"] = snapshot.status["stop_number"]
    return message


def _reason(payload: bytes) -> str:
    """Return the reason in a request; a request that holds none stops the robot all the same."""
    try:
        data = json.loads(payload)
    except ValueError:
        data = None
    reason = data.get("reason") if isinstance(data, Mapping) else None
    return printable(reason, 500) if isinstance(reason, str) and reason else "Stop"


def _channel(topic: str, kind: MessageType, context: foxglove.Context) -> foxglove.Channel:
    schema = foxglove.Schema(name=kind.name, encoding="ros2msg", data=kind.definition.encode())
    return foxglove.Channel(topic, schema=schema, message_encoding="cdr", context=context)


def _joint_states(groups: Sequence[JointSensor], sensors: Mapping[str, np.ndarray], stamp_ns: int) -> bytes:
    names = [name for group in groups for name in group.joints]
    cdr = CdrWriter().stamp(stamp_ns).string("").uint32(len(names))
    for name in names:
        cdr.string(name)
    cdr.float64s(np.concatenate([sensors[group.position] for group in groups]))
    velocities = [sensors[group.velocity] for group in groups if group.velocity]
    cdr.float64s(np.concatenate(velocities) if len(velocities) == len(groups) else ())
    return cdr.float64s(()).message()


def _transforms(places: list[Any], stamp_ns: int) -> list[fg.FrameTransform]:
    stamp = _stamp(stamp_ns)
    return [
        fg.FrameTransform(
            timestamp=stamp, parent_frame_id=place.parent, child_frame_id=place.name,
            translation=fg.Vector3(**dict(zip("xyz", place.position.tolist(), strict=True))),
            rotation=fg.Quaternion(**dict(zip("wxyz", place.quaternion.tolist(), strict=True))),
        )
        for place in places
    ]  # fmt: skip


def _stamp(wall_ns: int) -> fg.Timestamp:
    return fg.Timestamp(*divmod(wall_ns, 1_000_000_000))
