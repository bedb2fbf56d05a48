"""``rlenv-robot doctor``: show what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import socket
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from rlenv_robot.cli.output import Finding, print_table
from rlenv_robot.config.plugin_names import PLUGINS, missing_plugins
from rlenv_robot.config.plugins import PluginTable

__all__ = ["add", "examine", "run"]

_NEEDED = ("numpy", "mujoco-core", "pyzmq", "msgpack", "foxglove-sdk", "mcap")
_OPTIONAL = {
    "pyarrow": ("parquet", "LeRobot data sets"),
    "gymnasium": ("gym", "the Gymnasium interface"),
    "matplotlib": ("demo", "plots"),
    "rich": ("demo", "progress bars and drawn tables"),
    "cmaes": ("demo", "training with rlenv-robot train, retrain and demo"),
}
"""Distribution -> the extra that installs it, and its purpose."""

_PORT = 5555
_WORDS = {True: "ok", False: "MISSING", None: "note"}
_SOFTWARE = re.compile("llvmpipe|softpipe|swrast|SwiftShader", re.IGNORECASE)
"""Renderers that need no GPU, and draw slowly."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Show what this machine has, what is missing, and what to do about it. The exit code is 1 if something "
        "required is missing."
    )
    parser.epilog = """
Examples:

  rlenv-robot doctor
  rlenv-robot doctor --record runs --keys robot-keys --json
"""
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="folder of recorded runs, to examine its disk")
    parser.add_argument("--keys", type=Path, metavar="FOLDER", help="folder of this machine's keys, to examine")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings; return 1 if something required is missing."""
    findings = examine(args.record, args.keys)
    failed = any(finding.ok is False for finding in findings)
    if args.json:
        print(json.dumps({"ok": not failed, "findings": [finding._asdict() for finding in findings]}))
        return 1 if failed else 0
    rows = [(finding.subject, _WORDS[finding.ok], finding.state, finding.advice) for finding in findings]
    print_table("This machine", ("subject", "", "state", "what to do"), rows)
    return 1 if failed else 0


def examine(record: Path | None = None, keys: Path | None = None) -> list[Finding]:
    """Examine Python, packages, plug-ins, rendering and cameras, and run the examinations of installed packages.

    A package declares a function with the same arguments in the entry-point group ``rlenv_robot.examinations``.

    Args:
        record: the folder for recorded runs; None for the working directory.
        keys: the folder of this machine's keys; None skips the keys.
    """
    return [
        _python(),
        *(_needed(name) for name in _NEEDED),
        *(_optional(name, *extra_and_purpose) for name, extra_and_purpose in _OPTIONAL.items()),
        _opencv(),
        _rendering(),
        _rendering_with_torch(),
        _screen(),
        _cameras(),
        _port(),
        *_plugins(),
        *_extensions(),
        *_further(record, keys),
        Finding("processors", True, str(os.cpu_count())),
    ]


def _plugins() -> Iterator[Finding]:
    """Say which plug-ins of this distribution are installed, and how to get each of the others."""
    from hal.errors import plugin_cure

    missing = missing_plugins()
    yield Finding("plug-ins", True, ", ".join(package for package in PLUGINS if package not in missing) or "none")
    for package in missing:
        yield Finding(f"plug-in {package}", None, "not installed", plugin_cure(package))


def _extensions() -> Iterator[Finding]:
    """Say which other installed packages declare entry points for this one, and what they bring."""
    brought: dict[str, dict[str, list[str]]] = {}
    for package in distributions():
        for point in package.entry_points:
            if point.group.startswith("rlenv_robot.") and package.name != "rlenv-robot":
                groups = brought.setdefault(f"{package.name} {package.version}", {})
                groups.setdefault(point.group.removeprefix("rlenv_robot."), []).append(point.name)
    for name, groups in sorted(brought.items()):
        state = "; ".join(f"{group}: {', '.join(sorted(set(names)))}" for group, names in sorted(groups.items()))
        yield Finding(f"package {name}", True, state)


def _further(record: Path | None, keys: Path | None) -> Iterator[Finding]:
    table = PluginTable("examination", "rlenv_robot.examinations", {})
    for name in table.names():
        try:
            examination = cast("Callable[..., list[Finding]]", table.load(name))
        except ValueError as error:
            yield Finding(name, None, "not examined", str(error))
        else:
            yield from examination(record=record, keys=keys)


def _python() -> Finding:
    recent = sys.version_info >= (3, 11)
    state = f"{platform.python_version()} in {sys.prefix}"
    return Finding("Python", recent, state, "" if recent else "install Python 3.11 or newer")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _needed(name: str) -> Finding:
    number = _version(name)
    if number is None and name == "mujoco-core":
        number = _version("mujoco")  # holds the same modules
    if number is None:
        return Finding(name, False, "not installed", "install rlenv-robot again")
    return Finding(name, True, number)


def _optional(name: str, extra: str, purpose: str) -> Finding:
    number = _version(name)
    if number is None:
        return Finding(name, None, "not installed", f'for {purpose}: pip install "rlenv-robot[{extra}]"')
    return Finding(name, True, number)


def _opencv() -> Finding:
    if find_spec("cv2") is None:
        advice = 'for images: pip install "rlenv-robot[vision]", or [headless] on a machine without a screen'
        return Finding("OpenCV", None, "not installed", advice)
    try:
        import cv2
    except ImportError as error:  # opencv-python needs libGL even to encode an image
        advice = 'pip uninstall opencv-python, then pip install "rlenv-robot[headless]"'
        return Finding("OpenCV", None, f"can't be loaded: {error}", advice)
    return Finding("OpenCV", True, str(cv2.__version__))


def _rendering() -> Finding:
    from sim.rendering.camera import available, renderer_name
    from sim.rendering.egl import PACKAGES

    problem = available()
    if problem is not None:
        return Finding("rendering (EGL)", None, problem, f"for images: sudo apt install {PACKAGES}")
    name = renderer_name()
    return Finding("rendering (EGL)", True, f"works, {name}" + (": no GPU" if _SOFTWARE.search(name) else ""))


def _rendering_with_torch() -> Finding:
    """Examine the conflict of Mesa's LLVM with Triton's, see `sim.rendering.egl`. Rendering has been tried before."""
    from sim.rendering.egl import triton_libraries

    subject = "rendering and torch"
    if not triton_libraries():
        return Finding(subject, True, "no conflict: Triton is not installed")
    if not _is_loaded("libLLVM"):
        return Finding(subject, True, "no conflict: images are not rendered by Mesa's LLVM")
    if _is_loaded("libtriton"):
        return Finding(subject, True, "Mesa's LLVM and Triton's conflict; solved by loading Triton first")
    advice = "import torch before the first image is rendered, or Python crashes when torch makes an optimizer"
    return Finding(subject, None, "Mesa's LLVM and Triton's conflict", advice)


def _is_loaded(library: str) -> bool:
    """Return whether this process has loaded a shared library; False where the system doesn't say."""
    maps = Path("/proc/self/maps")
    return maps.exists() and library in maps.read_text(encoding="utf-8", errors="replace")


def _screen() -> Finding:
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform in ("win32", "darwin"):
        return Finding("screen", True, "available")
    return Finding("screen", None, "none", 'write files: env.render({"mode": "file", "path": "state.png"})')


def _cameras() -> Finding:
    from hal.cameras.sources import video_devices

    devices = video_devices()
    if not devices:
        advice = 'connect one, or name a file or a stream as "source" (docs/cameras.md)'
        return Finding("USB cameras", None, "none", advice)
    return Finding("USB cameras", True, ", ".join(devices))


def _port() -> Finding:
    """Examine the default port of a server."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _PORT))
        except OSError as error:
            advice = "a server or another program uses it; rlenv-robot serve --address takes another port"
            return Finding(f"port {_PORT}", None, f"in use: {error.strerror}", advice)
    return Finding(f"port {_PORT}", True, "free on 127.0.0.1")
