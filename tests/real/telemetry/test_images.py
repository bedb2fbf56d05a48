"""Images reach any number of clients on a socket of their own; losses are counted, and no step waits."""

from __future__ import annotations

import socket
import threading
import time

import msgpack
import numpy as np
import pytest
import zmq

from hal import ConnectionLost, DeadlineExceeded, ResetFailed, WireError
from hal.cameras.camera import Camera
from hal.cameras.settings import CameraSettings
from hal.cameras.source import Frame
from hal.cameras.wrapper import WithCameras
from real import RemoteRobot, Server
from real.client import cameras as module
from real.client.cameras import RemoteCameras
from real.protocol import messages as wire
from real.telemetry.images import ImageListener, announced

cv2 = pytest.importorskip("cv2", reason="needs OpenCV: the extra headless or vision")

LONG_S = 10.0


class Studio:
    """A source of noise at 100 pictures a second, which the test may silence."""

    def __init__(self) -> None:
        self.on = threading.Event()
        self.on.set()
        self._random = np.random.default_rng(0)

    def __call__(self, settings, wait):
        self._wait, self._size = wait, (settings.height, settings.width, 3)
        return self

    def open(self) -> None:
        pass

    def read(self) -> Frame:
        while True:
            if self._wait(0.01):
                raise ConnectionLost("closed")
            if self.on.is_set():
                return Frame(self._random.integers(0, 255, self._size, np.uint8), time.monotonic_ns())

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def studio():
    return Studio()


@pytest.fixture
def eyes(studio):
    def make(*names: str, loss: str = "fault", max_age_s: float = 0.5):
        return [
            Camera(CameraSettings("a studio", name, 64, 48, loss=loss, max_age_s=max_age_s), studio) for name in names
        ]

    return make


@pytest.fixture
def served(robot, eyes):
    made: list[Server] = []

    def make(*names: str, keys=None, **settings) -> Server:
        cameras = eyes(*names, **settings)
        made.append(
            Server(
                WithCameras(robot, cameras), watchdog_s=5.0, max_command_age_s=None, cameras=cameras, keys=keys
            ).start()
        )
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def client():
    made: list[RemoteCameras] = []

    def make(server: Server, keys=None) -> RemoteCameras:
        made.append(RemoteCameras(RemoteRobot(server.address, keys=keys), keys))
        return made[-1]

    yield make
    for robot in made:
        robot.close()


def test_every_reading_of_a_client_carries_the_newest_images_with_their_age(served, client, target):
    robot = client(served("left", "right"))
    stamps = [robot.reset({}).images["left"].stamp_ns]
    for _ in range(10):
        robot_state = robot.step(target(0.1, 0.1))
        assert robot_state.images.keys() == {"left", "right"}
        image = robot_state.images["left"]
        assert image.encoding == "jpeg"
        assert (robot_state.stamp_ns - image.stamp_ns) / 1e9 < 0.5
        stamps.append(image.stamp_ns)
        assert cv2.imdecode(np.frombuffer(image.data, np.uint8), cv2.IMREAD_COLOR).shape == (48, 64, 3)
    assert stamps == sorted(stamps)
    assert len(set(stamps)) >= 5, "at 100 pictures and 50 steps a second nearly every step sees a new one"


def test_a_reset_whose_answer_is_late_returns_images_of_its_time(served, client, monkeypatch):
    remote = client(served("left", max_age_s=60.0))
    remote.reset({})
    reset = remote.robot.reset

    def late(options):
        robot_state = reset(options)
        time.sleep(0.08)  # a studio gives 8 images, of which the client fetches at most one each 20 ms
        return robot_state

    monkeypatch.setattr(remote.robot, "reset", late)
    for _ in range(5):
        robot_state = remote.reset({})
        assert robot_state.images["left"].stamp_ns <= robot_state.stamp_ns


def test_what_arrives_is_bit_for_bit_what_the_camera_gave(served, client, studio, until):
    server = served("left", max_age_s=60.0)
    robot = client(server)
    robot.reset({})
    studio.on.clear()
    time.sleep(0.1)
    last = server._cameras[0].look().image

    def seen():
        return robot.step({"target": np.zeros(2, np.float32)}).images["left"]

    until(lambda: seen().stamp_ns == last.stamp_ns)
    assert seen() == last


def test_a_camera_that_stops_is_said_by_its_server_and_its_old_image_is_gone(served, client, target, studio, until):
    robot = client(served("left", max_age_s=0.2))
    robot.reset({})
    studio.on.clear()
    until(lambda: robot.step(target(0, 0)).faults)
    robot_state = robot.step(target(0, 0))
    assert robot_state.images == {}
    assert len(robot_state.faults) == 1
    assert str(robot_state.faults[0]).startswith("camera 'left': its newest image is")
    studio.on.set()
    until(lambda: not robot.step(target(0, 0)).faults)
    assert robot.step(target(0, 0)).images.keys() == {"left"}


def test_a_stop_of_a_camera_that_motion_needs_stops_the_robot(served, client, target, studio, until):
    server = served("left", loss="stop", max_age_s=0.2)
    robot = client(server)
    robot.reset({})
    studio.on.clear()
    until(lambda: server.stopped is not None)
    assert "camera 'left': its newest image is" in server.stopped


def test_where_the_network_loses_images_the_client_says_so(served, client, target, until):
    server = served("left", max_age_s=0.2)
    robot = client(server)
    robot.reset({})
    server._image_publisher.close()  # as if a cable between the two carried only the control
    until(lambda: robot.step(target(0, 0)).faults)
    assert "look at the network" in str(robot.step(target(0, 0)).faults[0])
    assert robot.step(target(0, 0)).images == {}


def test_images_that_never_come_fail_the_reset(served, client, monkeypatch):
    monkeypatch.setattr(module, "FIRST_IMAGE_S", 0.2)
    server, robot = served("left"), None
    with socket.create_server(("127.0.0.1", 0)) as network_dead:  # accepts, and never greets: a firewall
        server._images = f"tcp://127.0.0.1:{network_dead.getsockname()[1]}"
        robot = client(server)
        with pytest.raises(ConnectionLost, match=r"left.*Images have a port of their own"):
            robot.reset({})


def test_a_camera_that_is_not_there_fails_the_reset_with_its_words(served, client, studio, monkeypatch):
    monkeypatch.setattr("hal.cameras.wrapper.FIRST_IMAGE_S", 0.1)
    studio.on.clear()
    with pytest.raises(ResetFailed, match="camera 'left' has given no image yet"):
        client(served("left")).reset({})


def test_a_server_without_cameras_is_as_before(robot, client, target):
    with Server(robot, watchdog_s=5.0, max_command_age_s=None) as server:
        remote = client(server)
        assert remote.reset({}).images == {}
        assert remote.step(target(0, 0)).images == {}


def test_steps_carry_no_image_and_any_number_may_watch(served, client, target):
    server = served("left")
    listeners = [ImageListener(server.images, ["left"]) for _ in range(3)]
    plain = RemoteRobot(server.address)
    assert plain.reset({}).images == {}, "the control channel carries none"
    for listener in listeners:
        listener.wait(["left"], LONG_S)
        assert listener.newest()["left"].encoding == "jpeg"
        listener.close()
    plain.close()


def test_a_listener_that_fetches_rarely_gets_the_newest(served, until):
    with ImageListener(served("left").images, ["left"]) as listener:
        listener.wait(["left"], LONG_S)
        for _ in range(3):
            time.sleep(0.3)  # 30 pictures
            assert (time.monotonic_ns() - listener.newest()["left"].stamp_ns) / 1e9 < 0.25


def test_with_keys_only_who_may_watch_sees(served, client, identities, tmp_path):
    mover, watcher, button = identities("laptop"), identities("watcher", "watch"), identities("button", "stop")
    server = served("left", keys=tmp_path / "server")
    with ImageListener(server.images, ["left"], watcher) as viewer:
        viewer.wait(["left"], LONG_S)
    for keys in (button, None):
        with (
            ImageListener(server.images, ["left"], keys) as nobody,
            pytest.raises(DeadlineExceeded, match=r"does not let this key in|wants keys"),
        ):
            nobody.wait(["left"], LONG_S)
    assert client(server, mover).reset({}).images.keys() == {"left"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\xc1", "no image of camera"),
        (b"", "no image of camera"),
        (msgpack.packb([wire.VERSION, "jpeg", 1]), "no image of camera"),
        (msgpack.packb([wire.VERSION, "exe", 1, b"MZ"]), "'exe'"),
        (msgpack.packb([wire.VERSION, "jpeg", "now", b"x"]), "no image of camera"),
        (msgpack.packb([wire.VERSION + 1, "jpeg", 1, b"x"]), "images' version"),
        (msgpack.packb([wire.VERSION, "jpeg", 1, ["x"] * 100]), "no image of camera"),
    ],
)
def test_what_is_no_image_is_refused(body, words):
    publisher: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.XPUB)
    publisher.linger = 0
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    with ImageListener(f"tcp://127.0.0.1:{port}", ["left"]) as listener:
        assert publisher.poll(10_000), "nobody subscribed"
        publisher.send(b"left\0" + body)
        with pytest.raises(WireError, match=words):
            listener.wait(["left"], LONG_S)
    publisher.close()


@pytest.mark.parametrize(
    "plain", [None, [], {"left": 1}, {"left": ["x", "fault"]}, {str(n): [1, "note"] for n in range(17)}]
)
def test_a_damaged_announcement_is_refused(plain):
    with pytest.raises(WireError):
        announced(plain)


def test_beyond_loopback_only_with_keys(robot, eyes):
    with pytest.raises(WireError, match="no keys were given"):
        Server(robot, cameras=eyes("left"), images="tcp://*:5557")


def test_who_asks_how_the_robot_is_hears_how_its_cameras_are(served, client):
    robot = client(served("left"))
    robot.reset({})
    health = robot.about()["server"]["pictures"]["health"]["left"]
    assert health["pictures"] > 0
    assert (health["damaged"], health["attempts"], health["fault"]) == (0, 1, None)


def test_closing_ends_a_reset_that_waits_in_another_thread(served, client, robot):
    waits, outcome = threading.Event(), []
    robot.on_reset = lambda: (waits.set(), robot.stopping.wait(LONG_S))
    remote = client(served("left"))

    def reset() -> None:
        try:
            remote.reset({})
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=reset)
    thread.start()
    assert waits.wait(LONG_S)
    remote.close()
    thread.join(LONG_S)
    assert not thread.is_alive()
    assert "closed while reset was waiting" in str(outcome[0])
    robot.stopping.set()


def test_a_server_that_comes_back_with_other_cameras_is_asked_again(served, client, target, robot):
    server = served("left")
    remote = client(server)
    assert remote.reset({}).images.keys() == {"left"}
    server.close()
    with pytest.raises(ConnectionLost):
        remote.step(target(0, 0))
    with Server(robot, address=server.address, watchdog_s=5.0, max_command_age_s=None):
        assert remote.reset({}).images == {}
