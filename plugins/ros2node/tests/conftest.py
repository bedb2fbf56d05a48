"""A served simulated arm as a ROS 2 node, and another node beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from hal import Automatic, Guard, Homing
from hal.cameras.camera import Camera
from hal.cameras.settings import CameraSettings
from hal.cameras.wrapper import WithCameras
from plugins.ros2.tests.router import router  # noqa: F401 - a fixture
from real import RemoteRobot, Server
from rlenv_robot.robot_models import find_robot_model
from rlenv_ros2.messages import TRIGGER
from rlenv_ros2.zenoh_transport import Attachment, ZenohTransport, topic_key
from rlenv_ros2node.bridge import BridgeSettings, Ros2Bridge
from tests.fakes import until
from tests.real.telemetry.test_images import Studio


class Node(ZenohTransport):
    """A ROS 2 node that keeps the newest message of each topic, and calls services."""

    def __init__(self, **options: Any) -> None:
        super().__init__("visitor", **options)
        self.newest: dict[str, Any] = {}
        self.counts: dict[str, int] = {}

    def listen(self, topic: str, type_name: str) -> None:
        def keep(message: Any, source: object) -> None:
            self.newest[topic] = message
            self.counts[topic] = self.counts.get(topic, 0) + 1

        self.subscribe(topic, type_name, keep)

    def call(self, service: str, seconds: float = 30.0) -> Any:
        """Call a service of type Trigger, and return its answer."""
        key = topic_key(self._domain, service, TRIGGER, self.types.hash_of(TRIGGER))
        asked = Attachment(7, 8, b"a visitor's gid!").to_bytes()
        for reply in self._session.get(key, payload=b"\0\1\0\0\0", attachment=asked, timeout=seconds):
            assert Attachment.from_bytes(reply.ok.attachment.to_bytes())[::2] == (7, b"a visitor's gid!")
            return self.types.decode(reply.ok.payload.to_bytes(), f"{TRIGGER}_Response")
        raise AssertionError(f"nobody answered for {service}")

    def put_raw(self, topic: str, type_name: str, data: bytes, attachment: bytes | None) -> None:
        """Send any bytes on a topic's key."""
        import zenoh

        key = topic_key(self._domain, topic, type_name, self.types.hash_of(type_name))
        self._session.put(key, data, attachment=attachment, congestion_control=zenoh.CongestionControl.BLOCK)


class Joined:
    """A served robot, its bridge, and a node."""

    def __init__(self, server: Server, bridge: Ros2Bridge, node: Node, endpoint: str) -> None:
        self.server, self.bridge, self.node, self.endpoint = server, bridge, node, endpoint

    def positions(self) -> np.ndarray:
        """The measured joints, as another client sees them."""
        return np.array(self.node.newest["/joint_states"].position)

    def begin(self) -> None:
        """Begin an episode."""
        answer = self.node.call("/rlenv_robot/reset")
        assert answer.success, answer.message


@pytest.fixture
def join(router: str) -> Iterator[Callable[..., Joined]]:  # noqa: F811
    """Return a function that serves a robot, by default a simulated SO-101, and bridges it with settings.

    ``before`` is another client's act before the bridge comes; it returns further settings.
    """
    ends: list[Callable[[], object]] = []

    def joined(
        robot: Any = None,
        before: Callable[[RemoteRobot], dict[str, Any]] | None = None,
        cameras: bool = False,
        **settings: Any,
    ) -> Joined:
        robot = robot or find_robot_model("so101").make_served_simulation("sim")
        eyes = [Camera(CameraSettings("a studio", "wrist", 64, 48), Studio())] if cameras else []
        robot = Homing(Guard(WithCameras(robot, eyes) if eyes else robot), Automatic())
        telemetry: dict[str, Any] = {"telemetry": "tcp://127.0.0.1:*", "telemetry_hz": 50}
        server = Server(robot, watchdog_s=2.0, cameras=eyes, **telemetry)
        server.start()
        ends.append(server.close)
        if before is not None:
            with closing(RemoteRobot(server.address)) as remote:
                settings |= before(remote)
        transport = ZenohTransport("rlenv_robot", router=router)
        ends.append(transport.close)
        bridge = Ros2Bridge(transport, server.address, settings=BridgeSettings(**settings))
        ends.append(bridge.close)
        with closing(RemoteRobot(server.address)) as remote:
            bridge.start(remote.spec)
        node = Node(router=router)
        ends.append(node.close)
        node.listen("/joint_states", "sensor_msgs/msg/JointState")
        node.listen("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray")
        until(lambda: "/diagnostics" in node.newest, 20.0)
        return Joined(server, bridge, node, router)

    yield joined
    for end in reversed(ends):
        end()
    names = [thread.name for thread in threading.enumerate() if "ROS 2" in thread.name]
    assert not [name for name in names if "mover" in name], names
