"""Motion JPEG over HTTP from cameras that behave as cameras do, and as they should not."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from hal import RobotError
from hal.cameras import mjpeg as camera_mjpeg
from hal.cameras.camera import Camera
from hal.cameras.mjpeg import MjpegStream
from hal.cameras.settings import MAX_IMAGE_BYTES, CameraSettings
from tests.fakes import until

cv2 = pytest.importorskip("cv2", reason="needs OpenCV: the extra headless or vision")

LONG_S = 10.0
HELLO = b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=b\r\n\r\n"


def image(shade: int) -> bytes:
    return cv2.imencode(".jpg", np.full((24, 32, 3), shade, np.uint8))[1].tobytes()


def part(data: bytes) -> bytes:
    return b"--b\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n" % (len(data), data)


class StrangeCamera:
    """Answers each connection by what the test wrote; keeps the requests."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.answers: list[Callable[[socket.socket], None]] = []
        self.requests: list[bytes] = []
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.requests.append(peer.recv(65536))
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            threading.Thread(target=self._answer, args=(answer, peer), daemon=True).start()

    def _answer(self, answer: Callable[[socket.socket], None], peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            answer(peer)

    def close(self) -> None:
        self.over.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # ends the accept; a close alone does not
        self._listener.close()
        self._thread.join()


@pytest.fixture
def strange():
    made = StrangeCamera()
    yield made
    made.close()


@pytest.fixture
def stream(strange):
    made = MjpegStream(CameraSettings(f"http://127.0.0.1:{strange.port}/video.mjpg"))
    yield made
    made.close()


@pytest.fixture
def camera(strange):
    made = Camera(CameraSettings(f"http://127.0.0.1:{strange.port}/", "eye", 32, 24, max_age_s=0.3, frozen_s=60.0))
    yield made
    made.close()


FORMS = {
    "lengths": HELLO + b"".join(part(image(shade)) for shade in range(3)),
    "lengths, empty lines between": HELLO + b"\r\n\r\n".join(part(image(shade)) for shade in range(3)),
    "lower case, more headers": HELLO
    + b"".join(
        part(image(shade)).replace(b"Content-Length", b"X-Timestamp: 1.5\r\ncontent-length") for shade in range(3)
    ),
    "boundary alone": HELLO
    + b"".join(b"--b\r\nContent-Type: image/jpeg\r\n\r\n" + image(shade) + b"\r\n" for shade in range(4)),
    "another boundary than announced": HELLO.replace(b"=b", b"=--b")
    + b"".join(b"--b\r\nContent-Type: image/jpeg\r\n\r\n" + image(shade) + b"\r\n" for shade in range(4)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_every_usual_form_of_the_stream_is_read_byte_by_byte(strange, stream, form, piece):
    def answer(peer: socket.socket) -> None:
        sent = FORMS[form]
        for at in range(0, len(sent), piece):
            peer.sendall(sent[at : at + piece])
        strange.over.wait(LONG_S)

    strange.answers = [answer]
    stream.open()
    before_ns = time.monotonic_ns()
    for shade in range(3):
        frame = stream.read()
        assert frame.data == image(shade)
        assert frame.stamp_ns >= before_ns - 1_000_000_000
    assert strange.requests[0].startswith(b"GET /video.mjpg HTTP/1.1\r\n")


def test_a_chunked_answer_is_read_too(strange, stream):
    def answer(peer: socket.socket) -> None:
        peer.sendall(HELLO.replace(b"1.0", b"1.1").replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"))
        for shade in range(2):
            sent = part(image(shade))
            for piece in (sent[:50], sent[50:]):
                peer.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        strange.over.wait(LONG_S)

    strange.answers = [answer]
    stream.open()
    assert [stream.read().data for _ in range(2)] == [image(0), image(1)]


def test_user_and_password_are_sent_and_never_shown(strange):
    strange.answers = [lambda peer: peer.sendall(b"HTTP/1.0 401 No\r\nWWW-Authenticate: Digest realm=x\r\n\r\n")]
    stream = MjpegStream(CameraSettings(f"http://eva:s%40cret@127.0.0.1:{strange.port}/?action=stream"))
    with pytest.raises(RobotError, match="password") as refused:
        stream.open()
    stream.close()
    assert "cret" not in str(refused.value)
    assert b"Basic " + base64.b64encode(b"eva:s@cret") in strange.requests[0]
    assert b"GET /?action=stream " in strange.requests[0]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.0 404 Not Found\r\n\r\n", "answers 404 Not Found"),
        (b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", "sends text/html, expected motion JPEG"),
        (b"\x00\x01garbage\r\n\r\n", "no answer from"),
        (b"", "no answer from"),
    ],
    ids=["404", "a web page", "garbage", "nothing"],
)
def test_an_answer_that_is_no_stream_is_refused_with_the_reason(strange, stream, answer, words):
    strange.answers = [lambda peer: peer.sendall(answer)]
    with pytest.raises(RobotError, match=words):
        stream.open()


def test_a_refused_connection_names_the_address():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    stream = MjpegStream(CameraSettings(f"http://127.0.0.1:{port}/"))
    with pytest.raises(RobotError, match="is the camera on"):
        stream.open()
    stream.close()


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"--b\r\nContent-Length: %d\r\n\r\n" % (MAX_IMAGE_BYTES + 1), "allowed are 1 to"),
        (b"--b\r\nContent-Length: 99999999999999999999\r\n\r\n", "allowed are 1 to"),
        (b"--b\r\nContent-Length: -5\r\n\r\n", "allowed are 1 to"),
        (b"--b\r\nContent-Length: x\r\n\r\n", "allowed are 1 to"),
        (b"x" * 40_000, "longer than"),
        (b"\r\nno boundary\r\n\r\n", "neither a length nor a boundary"),
        (b"", "ended the stream"),
    ],
    ids=["giant", "astronomical", "negative", "no number", "endless head", "headless", "end"],
)
def test_a_damaged_stream_is_refused_before_memory_is_taken(strange, stream, sent, words):
    strange.answers = [lambda peer: peer.sendall(HELLO + sent)]
    stream.open()
    with pytest.raises(RobotError, match=words):
        stream.read()


def test_an_image_without_a_length_is_limited_too(strange, stream, monkeypatch):
    monkeypatch.setattr(camera_mjpeg, "MAX_IMAGE_BYTES", 10_000)
    strange.answers = [lambda peer: peer.sendall(HELLO + b"--b\r\n\r\n" + b"x" * 200_000)]
    stream.open()
    with pytest.raises(RobotError, match="longer than 10000 bytes"):
        stream.read()


@pytest.mark.parametrize("drip", [False, True])
def test_silence_and_dripping_have_a_deadline(strange, stream, monkeypatch, drip):
    monkeypatch.setattr(camera_mjpeg, "_SILENCE_S", 0.3)
    monkeypatch.setattr(camera_mjpeg, "_IMAGE_S", 0.6)

    def answer(peer: socket.socket) -> None:
        peer.sendall(HELLO + part(image(0))[:60])
        while drip and not strange.over.wait(0.02):
            peer.sendall(b"\xff")
        strange.over.wait(LONG_S)

    strange.answers = [answer]
    stream.open()
    with pytest.raises(TimeoutError, match="no whole image" if drip else "sent nothing"):
        stream.read()


def test_a_wait_can_be_cancelled(strange, stream):
    strange.answers = [lambda peer: (peer.sendall(HELLO), strange.over.wait(LONG_S))]
    stream.open()
    threading.Timer(0.05, stream.cancel).start()
    with pytest.raises(RobotError):
        stream.read()


def test_a_camera_recovers_when_its_stream_comes_back(strange, camera):
    def dies(peer: socket.socket) -> None:
        peer.sendall(HELLO + part(image(1)))

    def freezes(peer: socket.socket) -> None:
        peer.sendall(HELLO + part(image(2)) + part(b"not a jpeg"))
        strange.over.wait(0.6)

    def lives(peer: socket.socket) -> None:
        peer.sendall(HELLO)
        shade = 0
        while not strange.over.wait(0.01):
            shade += 1
            peer.sendall(part(image(shade % 200)))

    strange.answers = [dies, freezes, lives]
    camera.open()
    assert camera.wait(LONG_S).image.data == image(1)
    until(lambda: "ended the stream" in (camera.look().fault or "") or len(strange.requests) > 1)
    until(lambda: len(strange.requests) == 3)
    until(lambda: camera.look().fault is None)
    plain = camera.to_dict()
    assert plain["damaged"] == 1
    assert plain["attempts"] == 3
    assert plain["age_s"] < 0.3
