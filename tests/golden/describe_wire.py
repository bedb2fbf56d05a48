"""The bytes and digests that both ends of a wire must agree on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import zmq

import rlenv_robot as rr
from hal import Fault, Field, Image, RobotError, RobotSpec, RobotState, Spec
from hal.robots.go2 import GO2
from hal.robots.so101 import SO101
from real import Connection, RemoteRobot, Server
from real.protocol.messages import VERSION, MessageKind, decode, encode
from real.protocol.rows import RobotStateCodec, RowCodec
from rlenv_robot.registry import robot
from rlenv_robot.robot_models import find_robot_model
from tests.golden.stored import key_paths
from tests.shipped import SHIPPED_ROBOTS, SHIPPED_TASKS

ROW = bytes(range(24))
LARGE_ROW = bytes(33 * 1024)
"""Too large for the header, so it is a frame of its own."""

MESSAGES: dict[str, tuple[Any, ...]] = {
    "hello": (MessageKind.HELLO, 0, 1, {
        "digest": "ab" * 32, "name": "client", "move": True, "replaces": 0, "take": "no", "resume": False,
    }),
    "reset": (MessageKind.RESET, 7, 2, {
        "options": {"seed": 3, "start": {"joint_target": np.arange(3, dtype=np.float32)}, "scale": np.float64(0.5)},
        "deadline_s": 30.0,
    }),
    "step": (MessageKind.STEP, 7, 3, None, (ROW,), 123_456_789_012),
    "step in a frame": (MessageKind.STEP, 7, 3, {"frame": 12}, (ROW,), 123_456_789_012),
    "stop": (MessageKind.STOP, 0, 1, {"reason": "a test", "orderly": False}),
    "release": (MessageKind.RELEASE, 7, 4),
    "consent": (MessageKind.CONSENT, 7, 5, {"yes": True}),
    "status": (MessageKind.STATUS, 7, 6),
    "judge": (MessageKind.JUDGE, 7, 7, {"message": "How did it go?", "deadline_s": 5.0}),
    "welcome": (MessageKind.WELCOME, 7, 1, None, (msgpack.packb({"name": "so101"}),), (10, 20)),
    "reading": (
        MessageKind.READING, 7, 3, [5, {"joint_position": 3}, [["camera", "wrist", "hot"]], None], (ROW,), (30, 2**62),
    ),
    "reading of a frame": (MessageKind.READING, 7, 3, [5, None, None, None, 12, False], (ROW,), (30, 40)),
    "reading of a frame that held": (MessageKind.READING, 7, 3, [5, None, None, None, 13, True], (ROW,)),
    "reading with pictures": (
        MessageKind.READING, 7, 3, [5, None, None, [["wrist", "jpeg", 4, None]]], (ROW, b"\xff\xd8\xff"), (30, 40),
    ),
    "event": (MessageKind.EVENT, 7, 2, ["homing", "2 joints to go"], (), (50, 60)),
    "error": (
        MessageKind.ERROR, 7, 3, ["RobotStopped", "", "stopped: a test", {"reason": "a test", "orderly": False}], (),
        (-1, 70),
    ),
    "done": (MessageKind.DONE, 7, 4, None, (), (80, 90)),
    "mismatch": (MessageKind.MISMATCH, 0, 1, None, (msgpack.packb({"name": "go2"}),), (1, 2)),
    "large first frame": (MessageKind.READING, 7, 8, [5, None, None, None], (LARGE_ROW,)),
}  # fmt: skip


def wire_messages() -> dict[str, Any]:
    """Every kind of message as the frames that are sent; large frames by their length."""
    told: dict[str, Any] = {name: _frames(encode(*message)) for name, message in MESSAGES.items()}
    return {"version": VERSION, "kinds": {kind.name: int(kind) for kind in MessageKind}, "messages": told}


def _frames(parts: list[Any]) -> list[Any]:
    return [part if len(part) < 1024 else f"{len(part)} bytes" for part in parts]


def counted(spec: Spec) -> dict[str, np.ndarray]:
    """Values that tell each element from every other: 0.5, 1.5, ... through all fields."""
    values, at = {}, 0
    for field in spec:
        values[field.name] = (np.arange(at, at + field.size) + 0.5).reshape(field.shape).astype(field.numpy_dtype)
        at += field.size
    return values


def wire_rows() -> dict[str, Any]:
    """Packed rows, and readings as details and frames, of two robots."""
    return {spec.name: _rows(spec) for spec in (SO101, GO2)}


def _rows(spec: RobotSpec) -> dict[str, Any]:
    images = {
        "wrist": Image(b"\xff\xd8\xff\x01", "jpeg", 11),
        "front": Image(np.arange(12, dtype=np.uint8).reshape(2, 2, 3), "rgb8", 12),
    }
    sensors, applied = counted(spec.sensors), counted(spec.commands)
    bare = RobotState(sensors, applied, 5)
    faults = (Fault("motor", "elbow", "hot"), Fault("", "", "cold"))
    full = RobotState(sensors, applied, 2**40, {spec.sensors.names[0]: 17}, images, faults)
    codec = RobotStateCodec(spec)
    return {
        "sensors": RowCodec(spec.sensors).pack(sensors),
        "commands": RowCodec(spec.commands).pack(applied),
        "bare reading": codec.encode(bare),
        "full reading": codec.encode(full),
    }


def digests() -> dict[str, Any]:
    """Digests and row layouts of every robot and of every environment's observation and action."""
    robots = {
        name: _robot_digests(kind.load_spec())
        for name, kind in ((name, find_robot_model(name)) for name in SHIPPED_ROBOTS)
    }
    environments = {}
    for name in SHIPPED_TASKS:
        with rr.make(name) as env:
            parts = {"observation": env.observation, "action": env.action, "frame": env.world.layout.spec}
            environments[name] = {part: spec_plain(spec) for part, spec in parts.items()}
    return {"robots": robots, "environments": environments, "field": Field("a", (2,), low=(0, -1)).to_dict()}


def _robot_digests(spec: RobotSpec) -> dict[str, Any]:
    parts = {"sensors": spec.sensors, "commands": spec.commands}
    keys = {key: value for key, value in spec.to_dict().items() if key not in parts}
    return {"digest": spec.digest, **{part: spec_plain(one) for part, one in parts.items()}, "rest": keys}


def spec_plain(spec: Spec) -> dict[str, Any]:
    """Name, digest, and the packed row: field -> type, shape and offset."""
    fields: Mapping[str, Any] = spec.row_dtype.fields or {}
    row = {name: f"{kind.base.str}{list(kind.shape)} at {offset}" for name, (kind, offset) in fields.items()}
    return {"name": spec.name, "digest": spec.digest, "order": list(spec.names), "row": row}


def session() -> list[str]:
    """Return the messages of two sessions: direction, kind, and the keys of the detail (types of a list)."""
    with Server(robot("so101"), lockstep=True) as server, _tapped(server.address) as (address, heard):
        client = RemoteRobot(address, expect=SO101)
        client.reset({"seed": 1})
        client.step({"joint_target": np.zeros(6, np.float32)})
        client.status()
        client.judge("", 5.0)
        with closing(Connection(address)) as button:  # a client's own stops go to the endpoint for stops
            button.ask(MessageKind.STOP, {"reason": "a test", "orderly": False}, (), 5.0)
            button.ask(MessageKind.STOP, {"reason": "a test", "orderly": False, "numbered": True}, (), 5.0)
        with suppress(RobotError):
            client.step({"joint_target": np.zeros(6, np.float32)})
        client.reset({"clear_stop": "a test is over"})  # by the number that the error told
        client.close()
        other = RemoteRobot(address, expect=GO2)
        with suppress(RobotError):
            other.reset({})
        other.close()
    ahead = _session_ahead()
    return sorted({_told(direction, decode(frames)) for direction, frames in [*heard, *ahead]} - {"server EVENT []"})


def _session_ahead() -> list[tuple[str, list[bytes]]]:
    """Return the messages of a session whose commands go ahead of their frames."""
    settings = {"control_hz": 5.0, "ahead": 3, "watchdog_s": 20.0, "max_command_age_s": 20.0}
    with Server(robot("so101"), **settings) as server, _tapped(server.address) as (address, heard):
        client = RemoteRobot(address, expect=replace(SO101, rate_hz=5.0), ahead=2)
        client.reset({"seed": 1})
        for _ in range(4):
            client.step({"joint_target": np.zeros(6, np.float32)})
        client.status()
        client.stop("a test")
        time.sleep(0.5)  # the commands that waited are answered
        client.close()
    return heard


def _told(direction: str, message: Any) -> str:
    detail = [type(each).__name__ for each in message.detail] if isinstance(message.detail, list) else None
    told = f"{direction} {message.kind.name} {detail or key_paths(message.detail)}"
    times = {type(None): "", int: " one time"}.get(type(message.times), " two times")
    if message.kind is MessageKind.EVENT:
        return f"{direction} EVENT []"  # how many there are depends on the clock
    if message.kind in (MessageKind.WELCOME, MessageKind.MISMATCH):
        told += f" frame {key_paths(msgpack.unpackb(message.frames[0]))}"
    return told + times


@contextmanager
def _tapped(server: str) -> Iterator[tuple[str, list[tuple[str, list[bytes]]]]]:
    """An address that passes everything on to a server and back, and a list of all that was said."""
    heard: list[tuple[str, list[bytes]]] = []
    front = zmq.Context.instance().socket(zmq.ROUTER)
    port, over = front.bind_to_random_port("tcp://127.0.0.1"), threading.Event()
    thread = threading.Thread(target=_pass_on, args=(front, server, heard, over), name="golden tap")
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{port}", heard
    finally:
        over.set()
        thread.join()


def _pass_on(front: Any, server: str, heard: list[tuple[str, list[bytes]]], over: threading.Event) -> None:
    backs: dict[bytes, Any] = {}
    poller = zmq.Poller()
    poller.register(front, zmq.POLLIN)
    while not over.is_set():
        for socket, _ in poller.poll(20):
            frames = socket.recv_multipart()
            if socket is front:
                client, *frames = frames
                if client not in backs:
                    backs[client] = zmq.Context.instance().socket(zmq.DEALER)
                    backs[client].connect(server)
                    poller.register(backs[client], zmq.POLLIN)
                heard.append(("client", frames))
                backs[client].send_multipart(frames)
            else:
                client = next(name for name, back in backs.items() if back is socket)
                heard.append(("server", frames))
                front.send_multipart([client, *frames])
    for socket in (front, *backs.values()):
        socket.close(linger=0)


FILES: dict[str, Callable[[], Any]] = {
    "wire_messages": wire_messages,
    "wire_rows": wire_rows,
    "wire_session": session,
    "digests": digests,
}
