"""Be a ROS 2 node by ROBOTIS's zenoh-ros2-sdk: `sdk_stranger.py visit PORT GOAL...`, `sdk_stranger.py arm PORT`.

The visitor reads, moves and stops a bridge's robot; the arm follows the joint trajectories that it is sent.

This script has its own message definitions, computes its own hashes, and prints one JSON object with what it saw.
"""

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from zenoh_ros2_sdk.message_registry import get_registry
from zenoh_ros2_sdk.publisher import ROS2Publisher
from zenoh_ros2_sdk.service_client import ROS2ServiceClient
from zenoh_ros2_sdk.session import ZenohSession
from zenoh_ros2_sdk.subscriber import ROS2Subscriber

MESSAGES = {  # ros2/common_interfaces and ros2/rcl_interfaces, branch jazzy, without comments
    "builtin_interfaces/msg/Time": "int32 sec\nuint32 nanosec\n",
    "builtin_interfaces/msg/Duration": "int32 sec\nuint32 nanosec\n",
    "std_msgs/msg/Header": "builtin_interfaces/Time stamp\nstring frame_id\n",
    "sensor_msgs/msg/JointState": (
        "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n"
    ),
    "sensor_msgs/msg/CompressedImage": "std_msgs/Header header\nstring format\nuint8[] data\n",
    "trajectory_msgs/msg/JointTrajectoryPoint": (
        "float64[] positions\nfloat64[] velocities\nfloat64[] accelerations\nfloat64[] effort\n"
        "builtin_interfaces/Duration time_from_start\n"
    ),
    "trajectory_msgs/msg/JointTrajectory": (
        "std_msgs/Header header\nstring[] joint_names\ntrajectory_msgs/JointTrajectoryPoint[] points\n"
    ),
}
TRIGGER = {  # an empty request is refused by the SDK, so its placeholder is written out
    "srv_type": "std_srvs/srv/Trigger",
    "request_definition": "uint8 structure_needs_at_least_one_member\n",
    "response_definition": "bool success\nstring message\n",
}


PATH = "/joint_trajectory_controller/joint_trajectory"


def visit(session: ZenohSession, place: dict, goal: list[float]) -> None:
    """Read, move and stop the robot of a bridge, and print what was seen."""
    newest: dict[str, object] = {}
    said: dict[str, object] = {}

    def wait(condition, seconds=20.0) -> bool:
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            time.sleep(0.02)
        return bool(condition())

    def call(name: str) -> dict:
        client = ROS2ServiceClient(name, timeout=30.0, **TRIGGER, **place)
        said["trigger_hash"] = client.type_hash
        time.sleep(0.5)
        answer = client.call(structure_needs_at_least_one_member=0)
        client.close()
        return {"success": bool(answer.success), "message": answer.message}

    joints = ROS2Subscriber("/joint_states", "sensor_msgs/msg/JointState", lambda m: newest.update(joints=m), **place)
    image = ROS2Subscriber(
        "/wrist/image_raw/compressed", "sensor_msgs/msg/CompressedImage", lambda m: newest.update(image=m), **place
    )
    sender = ROS2Publisher(PATH, "trajectory_msgs/msg/JointTrajectory", **place)
    said["hashes"] = {
        joints.msg_type: joints.type_hash,
        image.msg_type: image.type_hash,
        sender.msg_type: sender.type_hash,
    }
    said["reset"] = call("/rlenv_robot/reset")
    wait(lambda: {"joints", "image"} <= newest.keys())
    said["joints"] = list(newest["joints"].name)
    said["image"] = [newest["image"].format, len(newest["image"].data), bytes(newest["image"].data[:2]).hex()]
    kinds = session.store.types
    duration = kinds["builtin_interfaces/msg/Duration"](sec=1, nanosec=500_000_000)
    empty = np.zeros(0)
    point = kinds["trajectory_msgs/msg/JointTrajectoryPoint"](
        positions=np.array(goal), velocities=empty, accelerations=empty, effort=empty, time_from_start=duration
    )
    header = kinds["std_msgs/msg/Header"](stamp=kinds["builtin_interfaces/msg/Time"](sec=0, nanosec=0), frame_id="")
    sender.publish(header=header, joint_names=said["joints"], points=[point])
    said["arrived"] = wait(lambda: np.abs(np.array(newest["joints"].position) - goal).max() < 0.05)
    said["final"] = list(newest["joints"].position)
    tokens: list[str] = []
    for reply in session.liveliness.get("@ros2_lv/**", timeout=2.0):
        if reply.ok is not None:
            tokens.append(str(reply.ok.key_expr))
    said["tokens"] = tokens
    said["stop"] = call("/rlenv_robot/stop")
    said["reset after stop"] = call("/rlenv_robot/reset")
    for end in (joints, image, sender):
        end.close()
    print(json.dumps(said))


def be_arm(session: ZenohSession, place: dict) -> None:
    """Follow joint trajectories as two joints do, until standard input ends."""
    goal: dict[str, float] = {}
    ROS2Subscriber(
        PATH, "trajectory_msgs/msg/JointTrajectory",
        lambda m: goal.update(zip(m.joint_names, m.points[-1].positions.tolist(), strict=True)), **place,
    )  # fmt: skip
    states = ROS2Publisher("/joint_states", "sensor_msgs/msg/JointState", **place)
    position = {"lift": 0.3, "pan": 0.2}
    kinds, over = session.store.types, threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    while not over.wait(0.02):
        for name, value in goal.items():
            position[name] += 0.3 * (value - position[name])
        seconds, rest = divmod(time.time_ns(), 10**9)
        stamp = kinds["builtin_interfaces/msg/Time"](sec=seconds, nanosec=rest)
        header = kinds["std_msgs/msg/Header"](stamp=stamp, frame_id="")
        numbers, empty = np.array(list(position.values())), np.zeros(0)
        states.publish(header=header, name=list(position), position=numbers, velocity=empty, effort=empty)
    print(json.dumps(position))


def main() -> None:
    port = int(sys.argv[2])
    session = ZenohSession.get_instance("127.0.0.1", port)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in MESSAGES.items():
            path = Path(folder, *name.split("/")).with_suffix(".msg")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        get_registry(folder)
        place = {"router_port": port, "domain_id": 0}
        if sys.argv[1] == "arm":
            be_arm(session, place)
        else:
            visit(session, place, [float(word) for word in sys.argv[3:]])
    sys.stdout.flush()
    os._exit(0)  # the SDK's session ends with the process


main()
