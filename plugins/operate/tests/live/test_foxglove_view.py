"""The live view for Foxglove: what a client reads of a served robot, and the one thing that it may do."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from mcap_ros2._dynamic import generate_dynamic

from hal import Image
from plugins.operate.tests.live.client import FoxgloveClient
from real import RemoteRobot, Server
from rlenv_operate.console.access import Tokens
from rlenv_operate.live.foxglove_view import FoxgloveView
from rlenv_operate.live.gate import Gate
from rlenv_operate.live.session import LiveSession
from rlenv_robot.robot_models import find_robot_model
from rlenv_robot.serving.robot_feed import Look
from tests.fakes import looked, until

HOUR_NS = 3600 * 10**9
JPEG = b"\xff\xd8 a picture of the arm \xff\xd9"


class Shown:
    """A simulated arm on the network, its live view, and a client of that."""

    def __init__(self, server: Server, view: FoxgloveView, session: LiveSession, gate: Gate, token: str) -> None:
        self.server, self.view, self.session, self.gate, self.token = server, view, session, gate, token

    def client(self) -> FoxgloveClient:
        return FoxgloveClient(self.gate.port, self.token)


@pytest.fixture
def shown() -> Iterator[Shown]:
    robot, tokens = find_robot_model("so101").make_served_simulation("sim"), Tokens(None)
    with (
        Server(robot, telemetry="tcp://127.0.0.1:*", telemetry_hz=50, watchdog_s=5.0, paced_by_robot=True) as server,
        closing(LiveSession(server.address)) as session,
        closing(FoxgloveView(session)) as view,
        Gate(tokens, "127.0.0.1", 0, (view.host, view.port)) as gate,
    ):
        session.start(view.take)
        # The SDK now and then refuses a subscription to a channel that is made while the client is connected.
        until(lambda: view._robot is not None, 20.0)
        yield Shown(server, view, session, gate, tokens.own or "")


def decoded(client: FoxgloveClient, topic: str) -> Any:
    """A message of a topic, decoded by MCAP's own ROS 2 package from the schema that the server sent."""
    channel = client.channels[topic]
    assert (channel["encoding"], channel["schemaEncoding"]) == ("cdr", "ros2msg")
    decoders = generate_dynamic(channel["schemaName"], channel["schema"])
    return decoders[channel["schemaName"]](client.messages[topic])


def test_a_client_reads_state_joints_frames_and_images(shown: Shown) -> None:
    shown.session.feed._images["wrist"] = Image(JPEG, "jpeg", time.monotonic_ns())  # as a camera's listener does
    shown.view.take("image")
    with closing(RemoteRobot(shown.server.address)) as remote, closing(shown.client()) as client:
        start = remote.reset({})
        for _ in range(3):
            state = remote.step({"joint_target": start.sensors["joint_position"] + np.float32(0.02)})
        topics = {"/lifecycle", "/telemetry", "/joint_states", "/tf", "/scene", "/log", "/camera/wrist",
                  "/robot_description"}  # fmt: skip
        client.listen(lambda: topics <= client.channels.keys())

        def all_came() -> bool:
            """Return whether each topic has sent; the image comes again, since it may not be subscribed yet."""
            if "/camera/wrist" not in client.messages:
                shown.session.feed._images["wrist"] = Image(JPEG, "jpeg", time.monotonic_ns())
                shown.view.take("image")
            return topics <= client.messages.keys()

        client.listen(all_came)
        first = dict(client.counts)
        client.listen(lambda: client.counts["/telemetry"] > first["/telemetry"] + 5)
        assert client.counts["/scene"] <= 3, "a client gets the solids when it subscribes, not always"
        joints = decoded(client, "/joint_states")
        assert list(joints.name) == list(remote.spec.sensors["joint_position"].elements)
        assert joints.position == pytest.approx(state.sensors["joint_position"], abs=0.1)
        now_s = joints.header.stamp.sec
        assert abs(now_s - time.time()) < 60, "stamps are of the wall clock"
        row = decoded(client, "/telemetry")
        assert row.sensor_joint_position == pytest.approx(list(joints.position), abs=0.05), "perhaps of the tick before"
        assert len(row.applied_joint_target) == 6
        image = decoded(client, "/camera/wrist")
        assert (image.header.frame_id, image.format, bytes(image.data)) == ("wrist", "jpeg", JPEG)
        lifecycle = json.loads(client.messages["/lifecycle"])
        assert lifecycle["live"] is True
        assert lifecycle["state"] in ("running", "ready", "holding")


def test_the_urdf_comes_as_the_topic_of_3d_panels_and_its_meshes_as_assets(shown: Shown) -> None:
    with closing(shown.client()) as client:
        client.listen(lambda: "/robot_description" in client.messages)
        assert client.channels["/robot_description"]["schemaName"] == "std_msgs/msg/String"
        urdf = ElementTree.fromstring(decoded(client, "/robot_description").data)
        links = {link.get("name") for link in urdf.iter("link")}
        assert {"world", "upper_arm", "gripper", "jaw"} <= links
        joints = {joint.get("name") for joint in urdf.iter("joint") if joint.get("type") == "revolute"}
        assert joints == set(find_robot_model("so101").load_spec().sensors["joint_position"].elements)
        uris = {mesh.get("filename") for mesh in urdf.iter("mesh")}
        assert uris
        for uri in (
            *sorted(filter(None, uris))[:3],
            "package://so101/meshes/../../pyproject.toml",
            "file:///etc/passwd",
        ):
            client.fetch(uri)
            client.listen(lambda uri=uri: uri in client.assets)
        meshes = list(client.assets.values())
    assert meshes[-2:] == [None, None], "nothing but the meshes is handed out"
    for mesh in meshes[:-2]:
        assert mesh is not None
        (triangles,) = struct.unpack_from("<I", mesh, 80)  # a binary STL: 80 bytes, a number, 50 bytes a triangle
        assert len(mesh) == 84 + 50 * triangles > 84


def test_stop_is_the_only_service_and_stops_whatever_the_request_holds(shown: Shown) -> None:
    with closing(RemoteRobot(shown.server.address)) as remote:
        for payload, why in ((b'{"reason": "a cable is loose"}', "a cable is loose"), (b"", "Stop"), (b"[1]", "Stop")):
            remote.reset(looked(remote) if remote.status()["state"] == "stopped" else {})
            with closing(shown.client()) as client:
                client.listen(lambda: client.services)
                assert list(client.services) == ["/stop"]
                client.stop(payload)
                client.listen(lambda: client.answers)
                ((ok, answer),) = client.answers
            assert ok, answer
            assert "confirmed" in answer["message"]
            status = remote.status()
            assert (status["state"], status["why"]) == ("stopped", f"a Foxglove client: {why}")


def test_a_stop_that_was_not_confirmed_is_a_failed_call(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(reason: str) -> None:
        raise TimeoutError("NOT confirmed")

    monkeypatch.setattr(shown.view, "_stop", refuse)
    with closing(shown.client()) as client:
        client.listen(lambda: client.services)
        client.stop(b"{}")
        client.listen(lambda: client.answers)
    ((ok, message),) = client.answers
    assert not ok
    assert "NOT confirmed" in message


def test_a_server_that_is_lost_is_said_to_be(shown: Shown) -> None:
    with closing(RemoteRobot(shown.server.address)) as remote, closing(shown.client()) as client:
        remote.reset({})
        client.listen(lambda: {"/telemetry", "/lifecycle", "/log"} <= client.messages.keys())
        shown.server.close()
        client.listen(lambda: json.loads(client.messages["/lifecycle"])["live"] is False, 20.0)
        assert json.loads(client.messages["/lifecycle"])["problem"]
        telemetry = client.counts["/telemetry"]
        client.listen(lambda: b"not live" in client.messages["/log"])
        assert client.counts["/telemetry"] == telemetry, "nothing old is shown as new"


def test_a_clock_that_jumps_and_a_message_that_is_late_move_no_stamp_far(shown: Shown) -> None:
    until(lambda: shown.view._offset_ns is not None)
    look, offset_ns = shown.session.feed.look, shown.view._offset_ns
    assert look.snapshot is not None
    assert offset_ns is not None
    with closing(LiveSession(shown.server.address)) as session:
        view = FoxgloveView(session, wall_ns=lambda: wall_ns)
        wall_ns = look.snapshot.sent_ns + HOUR_NS
        offsets = []
        for late_ns in (10**6, 0, 5 * 10**8, 10**6, 5 * HOUR_NS):
            wall_ns = look.snapshot.sent_ns + HOUR_NS + late_ns
            session.feed._look = Look(look.spec, replace(look.snapshot), 0.0, "")
            view.take("state")
            assert view._offset_ns is not None
            offsets.append(view._offset_ns - HOUR_NS)
        view.close()
    assert offsets == [10**6, 0, 1000, 2000, 5 * HOUR_NS]


def test_a_robot_without_a_model_has_telemetry_and_no_picture() -> None:
    from tests.fakes import Integrator

    tokens = Tokens(None)
    with (
        Server(Integrator(), telemetry="tcp://127.0.0.1:*", telemetry_hz=50, watchdog_s=5.0) as server,
        closing(LiveSession(server.address)) as session,
        closing(FoxgloveView(session)) as view,
        Gate(tokens, "127.0.0.1", 0, (view.host, view.port)) as gate,
        closing(FoxgloveClient(gate.port, tokens.own or "")) as client,
        closing(RemoteRobot(server.address)) as remote,
    ):
        session.start(view.take)
        remote.reset({})
        client.listen(lambda: "/telemetry" in client.messages)
        assert list(decoded(client, "/telemetry").sensor_position) == [0.0, 0.0]
        assert client.channels.keys() == {"/telemetry", "/lifecycle", "/log"}


# -- A client that is not ours -------------------------------------------------------------------------------

SCRIPT = Path(__file__).with_name("npm_client.js")


def has_npm_client() -> bool:
    """Whether Node finds the packages of the client: NODE_PATH names the folder of their node_modules."""
    if shutil.which("node") is None or "NODE_PATH" not in os.environ:
        return False
    script = "for (const name of ['@foxglove/ws-protocol', 'ws', 'protobufjs']) require.resolve(name)"
    return subprocess.run(["node", "-e", script], capture_output=True, check=False).returncode == 0


@pytest.mark.process
@pytest.mark.skipif(
    not has_npm_client(), reason="needs npm install @foxglove/ws-protocol ws protobufjs, and NODE_PATH of node_modules"
)
def test_foxgloves_own_client_reads_the_topics_and_stops_the_robot(tmp_path: Path) -> None:
    """The command as people run it, read by the client that Foxglove publishes for Node."""
    camera = tmp_path / "images"
    camera.mkdir()
    from recorder.log.image_codec import encoded

    picture = encoded(Image(np.full((48, 64, 3), 200, np.uint8), "rgb8", 0), "top").data
    assert isinstance(picture, bytes)
    (camera / "0.jpg").write_bytes(picture)
    profile = tmp_path / "lab.toml"
    profile.write_text(
        f'[robot]\nwhere = "sim"\n[serve]\naddress = "tcp://127.0.0.1:*"\n[cameras.top]\nsource = "{camera}"\n'
        "width = 64\nheight = 48\nfps = 10\nfrozen_s = inf\n"
    )
    command = [sys.executable, "-m", "rlenv_robot", "serve", str(profile), "--foxglove", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            words = (word for line in process.stdout for word in line.split())
            address = next(word for word in words if word.startswith("tcp://"))
            url = next(word for word in words if word.startswith("ws://"))
            with closing(RemoteRobot(address)) as remote:
                remote.reset({})
                done = subprocess.run(["node", SCRIPT, url], capture_output=True, text=True, timeout=60, check=False)
        finally:
            process.terminate()
            process.communicate(timeout=30)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["info"]["name"] == "rlenv-robot"
    assert list(seen["services"]) == ["/stop"]
    places = {place["childFrameId"]: place for place in seen["messages"]["/tf"]["transforms"]}
    assert places["gripper"]["parentFrameId"] == "wrist"
    assert places["upper_arm"]["translation"] == pytest.approx({"x": 0.0304, "y": 0.0, "z": 0.0542}, abs=1e-9)
    solids = {entity["frameId"]: entity for entity in seen["messages"]["/scene"]["entities"]}
    assert solids["jaw"]["cubes"]
    assert bytes(seen["messages"]["/camera/top"]["data"][-len(picture) :]) == picture
    assert "confirmed" in seen["stop"]["message"]
    assert seen["messages"]["/lifecycle"]["state"] == "stopped"
    assert "a stranger" in seen["messages"]["/lifecycle"]["why"]
