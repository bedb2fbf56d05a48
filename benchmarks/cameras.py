"""Processor time that an image costs the process that reads a camera, and the age of the newest image.

A server in another process sends 640x480 pictures of the simulated arm, with noise, 30 times a second, as a stranger's
camera would. Each candidate reads it alone, in a fresh process:

- `kept`: our reader of motion JPEG, which keeps the bytes as they came.
- `encoded anew`: the same stream through OpenCV, as USB cameras and RTSP go: decoded, then encoded.
- `nothing`: the process without a camera, for what has to be subtracted.

    python benchmarks/cameras.py [--seconds 10]

Needs OpenCV (the extra headless or vision).
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import statistics
import time
from itertools import cycle
from typing import Any

from hal.cameras.camera import Camera
from hal.cameras.opencv import Stream
from hal.cameras.settings import CameraSettings
from hal.cameras.source import Source, Wait
from hal.cameras.sources import make_source
from rlenv_robot.robot_models import find_robot_model
from rlenv_vision.mjpeg_server import MjpegServer
from rlenv_vision.virtual_camera import VirtualCamera

FPS = 30.0
IMAGES = 30
CONTEXT = mp.get_context("spawn")


def send(pipe: Any) -> None:
    """Serve pictures that were drawn before, so that drawing takes no part."""
    eye = VirtualCamera(find_robot_model("so101").make_sim_model(), "overhead", CameraSettings("simulation"), noise=8)
    images = [eye.shoot() for _ in range(IMAGES)]
    eye.close()
    again = cycle(images)
    with MjpegServer(lambda: next(again), FPS) as server:
        pipe.send((server.url, statistics.median(map(len, images))))
        pipe.recv()


def through_opencv(settings: CameraSettings, wait: Wait) -> Source:
    """The same stream, decoded."""
    return Stream(settings)


def look(pipe: Any, url: str, way: str, seconds: float) -> None:
    """Have one camera for so long, and look at it 50 times a second."""
    source = through_opencv if way == "encoded anew" else make_source
    camera = Camera(CameraSettings(url), source)
    if way != "nothing":
        camera.open()
        fault = camera.wait(20.0).fault
        if fault is not None:
            raise SystemExit(fault)
    before, began, first = time.process_time(), time.monotonic(), camera.to_dict()["pictures"]
    ages = []
    while time.monotonic() < began + seconds:
        time.sleep(0.02)
        ages.append(camera.look().age_s)
    cpu_s, took_s = time.process_time() - before, time.monotonic() - began
    pipe.send((cpu_s / took_s, camera.to_dict()["pictures"] - first, statistics.median(ages)))
    camera.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    seconds = parser.parse_args().seconds
    ours, theirs = CONTEXT.Pipe()
    server = CONTEXT.Process(target=send, args=(theirs,))
    server.start()
    url, size = ours.recv()
    print(f"{size / 1024:.0f} KiB a picture, {FPS:g} pictures a second sent")
    print("| | share of a core | pictures | ms a picture, net | age at a look, median |")
    print("|---|---|---|---|---|")
    idle = 0.0
    for way in ("nothing", "kept", "encoded anew"):
        here, there = CONTEXT.Pipe()
        process = CONTEXT.Process(target=look, args=(there, url, way, seconds))
        process.start()
        share, images, age_s = here.recv()
        process.join()
        idle = idle or share
        net = f"{(share - idle) * seconds / images * 1e3:.2f}" if images else ""
        print(
            f"| {way} | {share:.1%} | {images} | {net} | {age_s * 1e3:.0f} ms |"
            if images
            else f"| {way} | {share:.1%} | | | |"
        )
    ours.send(None)
    server.join()


if __name__ == "__main__":
    main()
