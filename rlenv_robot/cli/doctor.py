"""``rlenv-robot doctor``: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import argparse
import os
import platform
import socket
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

from rlenv_robot.cli.output import print_table

__all__ = ["Finding", "add", "examine", "run"]

_NEEDED = ("numpy", "mujoco-core", "pyzmq", "msgpack", "foxglove-sdk", "mcap")
_OPTIONAL = {
    "pyarrow": ("parquet", "LeRobot data sets"),
    "gymnasium": ("gym", "the Gymnasium interface"),
    "matplotlib": ("demo", "plots"),
    "rich": ("demo", "coloured tables"),
    "cmaes": ("demo", "training in the demonstration"),
}
"""Distribution -> the extra that brings it, and what for."""

_PORT = 5555


class Finding(NamedTuple):
    """One thing that was looked at: whether it is fine (None: only missing, and optional), and what to do."""

    what: str
    fine: bool | None
    state: str
    advice: str = ""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Show what this machine has, what it lacks, and what to do about it. The exit code is 1 if something that "
        "is needed is missing."
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings; 1 if something needed is missing."""
    findings = examine()
    words = {True: "ok", False: "MISSING", None: "optional"}
    rows = [(finding.what, words[finding.fine], finding.state, finding.advice) for finding in findings]
    print_table("This machine", ("what", "", "state", "what to do"), rows)
    return 1 if any(finding.fine is False for finding in findings) else 0


def examine() -> list[Finding]:
    """Look at Python, packages, drawing, and the network."""
    return [
        _python(),
        *(_package(name) for name in _NEEDED),
        *(_extra(name, *entry) for name, entry in _OPTIONAL.items()),
        _opencv(),
        _drawing(),
        _screen(),
        _cameras(),
        _port(),
        Finding("processors", True, str(os.cpu_count())),
    ]


def _python() -> Finding:
    state = f"{platform.python_version()} in {sys.prefix}"
    return Finding("Python", sys.version_info >= (3, 11), state, "" if sys.version_info >= (3, 11) else "install 3.11")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _package(name: str) -> Finding:
    found = _version(name)
    if name == "mujoco-core":
        found = found or _version("mujoco")
    return Finding(name, found is not None, found or "not installed", "" if found else "install rlenv-robot again")


def _extra(name: str, extra: str, purpose: str) -> Finding:
    found = _version(name)
    advice = "" if found else f'for {purpose}: pip install "rlenv-robot[{extra}]"'
    return Finding(name, True if found else None, found or "not installed", advice)


def _opencv() -> Finding:
    if find_spec("cv2") is None:
        advice = 'for pictures: pip install "rlenv-robot[vision]", or [headless] where there is no screen'
        return Finding("OpenCV", None, "not installed", advice)
    try:
        import cv2
    except ImportError as error:  # opencv-python wants libGL even to encode a picture
        advice = 'pip uninstall opencv-python, then pip install "rlenv-robot[headless]"'
        return Finding("OpenCV", None, f"can't be loaded: {error}", advice)
    return Finding("OpenCV", True, str(cv2.__version__))


def _drawing() -> Finding:
    from sim.rendering.camera import available

    problem = available()
    advice = "" if problem is None else "only pictures need it: sudo apt install libegl1 libgl1-mesa-dri"
    return Finding("drawing (EGL)", True if problem is None else None, problem or "works", advice)


def _screen() -> Finding:
    shown = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) or sys.platform in ("win32", "darwin")
    advice = "" if shown else 'without one: env.render({"mode": "file", "path": "state.png"})'
    return Finding("screen", True if shown else None, "there" if shown else "none", advice)


def _cameras() -> Finding:
    from hal.cameras.sources import video_devices

    found = video_devices()
    advice = "" if found else 'plug one in, or use a file or a stream as "source" (docs/cameras.md)'
    return Finding("USB cameras", True if found else None, ", ".join(found) or "none", advice)


def _port() -> Finding:
    """Whether the port at which robots are served by default is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _PORT))
        except OSError as error:
            advice = "a server is running there, or another program; rlenv-robot serve --address takes another port"
            return Finding(f"port {_PORT}", None, f"taken: {error.strerror}", advice)
    return Finding(f"port {_PORT}", True, "free on 127.0.0.1")
