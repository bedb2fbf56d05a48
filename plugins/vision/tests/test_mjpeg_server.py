"""The virtual camera's stream, as strangers read it: OpenCV's own client, curl, and our driver."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

from hal import RobotError
from hal.cameras.camera import Camera
from hal.cameras.settings import CameraSettings
from rlenv_vision import mjpeg_server as mjpeg
from rlenv_vision.mjpeg_server import MjpegServer

cv2 = pytest.importorskip("cv2", reason="needs OpenCV: the extra headless or vision")


class Film:
    """Encodes the number of each image as its shade."""

    def __init__(self) -> None:
        self.images: list[bytes] = []
        self.threads: set[int] = set()

    def __call__(self) -> bytes:
        self.threads.add(threading.get_ident())
        shade = len(self.images) % 250
        self.images.append(cv2.imencode(".jpg", np.full((48, 64, 3), shade, np.uint8))[1].tobytes())
        return self.images[-1]


@pytest.fixture
def film():
    return Film()


@pytest.fixture
def server(film):
    with MjpegServer(film, 100.0) as made:
        yield made


def test_opencv_reads_the_stream(server):
    capture = cv2.VideoCapture(server.url, cv2.CAP_FFMPEG)
    shades = []
    for _ in range(20):
        done, pixels = capture.read()
        assert done
        assert pixels.shape == (48, 64, 3)
        shades.append(round(float(pixels.mean())))
    capture.release()
    assert shades == sorted(shades)
    assert len(set(shades)) > 10


@pytest.mark.process
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_reads_the_exact_bytes(server, film):
    done = subprocess.run(["curl", "-s", "-m", "1", server.url], capture_output=True, check=False)
    parts = done.stdout.split(b"--picture\r\n")[1:-1]
    assert len(parts) > 5
    assert all(part.partition(b"\r\n\r\n")[2][:-2] in film.images for part in parts)
    assert len(film.threads) == 1, "OpenGL wants one thread"


def test_a_snapshot_is_one_image(server, film):
    with urllib.request.urlopen(server.url.replace("stream.mjpg", "snapshot.jpg"), timeout=5) as answer:
        assert answer.headers["Content-Type"] == "image/jpeg"
        assert answer.read() in film.images


def test_our_driver_keeps_the_bytes_and_notices_a_lost_and_a_returned_stream(film):
    with MjpegServer(film, 100.0) as first:
        port = int(first.url.rsplit(":", 1)[1].split("/")[0])
        camera = Camera(CameraSettings(first.url, "eye", 64, 48, max_age_s=0.3))
        camera.open()
        assert camera.wait(10.0).image.data in film.images
    end = time.monotonic() + 10
    while camera.look().fault is None and time.monotonic() < end:
        time.sleep(0.01)
    assert "old, allowed are 0.3" in camera.look().fault
    with MjpegServer(film, 100.0, port=port):
        assert camera.wait(10.0).fault is None
        camera.close()


def test_a_slow_viewer_misses_images_and_delays_no_other(server, film):
    slow = socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1].split("/")[0])))
    slow.sendall(b"GET / HTTP/1.0\r\n\r\n")
    number, seen = 0, 0
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        got = server.next(number)
        if got is not None:
            number, seen = got[0], seen + 1
    slow.close()
    assert seen >= 10


def test_too_many_viewers_are_refused(film, monkeypatch):
    monkeypatch.setattr(mjpeg, "MAX_VIEWERS", 1)
    with MjpegServer(film, 50.0) as server:
        first = urllib.request.urlopen(server.url, timeout=5)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(server.url, timeout=5)
        first.close()


def test_a_taken_port_and_an_impossible_rate_are_refused(server, film):
    port = int(server.url.rsplit(":", 1)[1].split("/")[0])
    with pytest.raises(RobotError, match=rf"127.0.0.1:{port}.*port 0"):
        MjpegServer(film, port=port).start()
    with pytest.raises(ValueError, match="above 0"):
        MjpegServer(film, fps=0.0)
    with pytest.raises(RobotError, match="start"):
        _ = MjpegServer(film).url
