"""RTSP from a stranger's server (GStreamer's), where this machine has it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from hal.cameras.camera import Camera
from hal.cameras.settings import CameraSettings

pytest.importorskip("cv2", reason="needs OpenCV: the extra headless or vision")

SERVER = """
import sys
import gi
gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer
Gst.init(None)
if Gst.ElementFactory.find("x264enc") is None:
    sys.exit("no x264enc")
server = GstRtspServer.RTSPServer.new()
server.set_address("127.0.0.1")
server.set_service("0")
factory = GstRtspServer.RTSPMediaFactory.new()
factory.set_launch(
    "( videotestsrc is-live=true pattern=snow ! video/x-raw,width=320,height=240,framerate=30/1 "
    "! x264enc tune=zerolatency key-int-max=15 ! rtph264pay name=pay0 pt=96 )"
)
server.get_mount_points().add_factory("/eye", factory)
server.attach(None)
print(server.get_bound_port(), flush=True)
GLib.MainLoop().run()
"""


@pytest.fixture
def start() -> Iterator[Callable[[], tuple[subprocess.Popen[str], str]]]:
    running: list[subprocess.Popen[str]] = []

    def run() -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            ["/usr/bin/python3", "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        running.append(process)
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            pytest.skip("needs python3-gi, gir1.2-gst-rtsp-server-1.0 and gstreamer1.0-plugins-ugly")
        return process, f"rtsp://127.0.0.1:{port}/eye"

    yield run
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.process
def test_rtsp_is_read_and_a_server_that_dies_is_noticed(start):
    process, url = start()
    camera = Camera(CameraSettings(url, "door", 320, 240, max_age_s=1.0))
    camera.open()
    seen = camera.wait(20.0)
    assert seen.fault is None, seen.fault
    first = camera.to_dict()["pictures"]
    end = time.monotonic() + 10.0
    while camera.to_dict()["pictures"] < first + 10:
        assert time.monotonic() < end, "no more than one image came"
        time.sleep(0.02)
    process.kill()
    process.wait()
    end = time.monotonic() + 10.0
    while camera.look().fault is None:
        assert time.monotonic() < end, "its death was not noticed"
        time.sleep(0.02)
    assert camera.look().image is None
    camera.close()


def test_a_stream_that_can_not_be_opened_says_what_to_do():
    camera = Camera(CameraSettings("rtsp://user:secret@127.0.0.1:9/eye", "door"))
    camera.open()
    end = time.monotonic() + 10.0
    while "can't be opened" not in (camera.look().fault or ""):
        assert time.monotonic() < end, camera.look().fault
        time.sleep(0.02)
    assert "is the address right" in camera.look().fault
    assert "secret" not in camera.look().fault
    camera.close()
