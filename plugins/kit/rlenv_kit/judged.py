"""Check a subject in this process, for a judge in another process that records the results.

`rlenv_kit.judge` starts this process. The calls to the subject and the comparisons are made here, because shared arrays
and leaked threads, files and settings are visible in the subject's process only.
"""

from __future__ import annotations

import json
import logging
import math
import mmap
import os
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import FrameType
from typing import Any, Never

from hal import RobotError
from rlenv_kit.report import Check, Report
from rlenv_kit.robot_probe import MotionBounds
from rlenv_kit.subject import Subject, subject_of
from rlenv_kit.supervisor import PlannedCheck

__all__ = ["BOX_BYTES", "ENDING", "main", "read_box", "serve"]

ENDING = (signal.SIGTERM, *(getattr(signal, name) for name in ("SIGHUP", "SIGQUIT") if hasattr(signal, name)))
"""Signals that end the check. SIGHUP arrives when a terminal is closed or its connection is lost."""

BOX_BYTES = 4096
"""Size of the memory that both processes share, which holds the subject's newest call, bytes."""

_HEAD = struct.Struct("<iidHH")
"""Number of the check, whether a call runs, monotonic time of its begin, bytes of its name and of what came before."""

_MOST_HOW = 1500


def read_box(box: mmap.mmap) -> tuple[int, bool, float, str, str]:
    """Return the check's number, whether a call runs, its start (`time.monotonic`), its name, and its history."""
    number, runs, began_s, length, how_length = _HEAD.unpack_from(box)
    name_end = _HEAD.size + length
    texts = box[_HEAD.size : name_end], box[name_end : name_end + how_length]
    name, how = (text.decode("utf-8", "replace") for text in texts)
    return number, bool(runs), began_s, name, how


class _Messages:
    """Write what happens to the judge: messages into a pipe, and each call into shared memory."""

    def __init__(self, out: int, box: mmap.mmap) -> None:
        self._out, self._box, self._number, self._writing = out, box, 0, threading.Lock()

    def send(self, kind: str, **content: object) -> None:
        line = json.dumps({"kind": kind, **content}).encode() + b"\n"
        with self._writing:
            while line:
                line = line[os.write(self._out, line) :]

    def planned(self, plan: Sequence[PlannedCheck], only: int) -> None:
        names = [{"number": number, "key": one.key, "name": one.name, "clause": one.clause}
                 for number, one in enumerate(plan, 1) if only in (0, number)]  # fmt: skip
        self.send("plan", checks=names)

    def begins(self, number: int) -> None:
        self._number = number
        self._write(False, 0.0, "", "")

    def calls(self, call: str, how: str) -> None:
        self._write(True, time.monotonic(), call, how)

    def returned(self) -> None:
        struct.pack_into("<i", self._box, 4, 0)

    def made(self, check: Check) -> None:
        self.send("check", check=asdict(check))

    def _write(self, runs: bool, began_s: float, call: str, how: str) -> None:
        name, before = call.encode()[:100], how.encode()[:_MOST_HOW]
        content = _HEAD.pack(self._number, runs, began_s, len(name), len(before)) + name + before
        self._box[: len(content)] = content


def serve(request: Mapping[str, Any], out: int, orders: int, box_file: int) -> None:
    """Make the subject, wait until the judge permits motion, and check the subject.

    Args:
        request: arguments of `rlenv_kit.judge.judge`.
        out: file descriptor of the pipe to the judge.
        orders: file descriptor of the pipe from the judge. When it closes, the judge is gone, and the subject is
            stopped.
        box_file: file descriptor of the shared memory.
    """
    for number in (out, orders, box_file):
        os.set_inheritable(number, False)  # not for programs that the subject starts
    for ending in ENDING:
        signal.signal(ending, _terminated)
    logging.basicConfig(level=logging.CRITICAL)  # the stops in the log are part of the check
    messages = _Messages(out, mmap.mmap(box_file, BOX_BYTES))
    bounds = MotionBounds(**request["bounds"])
    try:
        subject = subject_of(request["name"], request["where"], request["keys"], bounds, request["num_envs"])
        messages.send("subject", is_real=subject.is_real, motion=subject.motion(bounds) if subject.is_real else [])
        if os.read(orders, 1) != b"g":
            return
        threading.Thread(target=_watch_judge, args=(orders,), name="conformance judge's pipe", daemon=True).start()
        _check(subject, request, bounds, messages)
        messages.send("end")
    except Exception as error:
        mendable = isinstance(error, RobotError | ValueError | OSError)
        if not mendable:
            traceback.print_exc()
        messages.send("refused", error=str(error) or type(error).__name__, mendable=mendable, type=type(error).__name__)


def _check(subject: Subject, request: Mapping[str, Any], bounds: MotionBounds, messages: _Messages) -> None:
    def ended(report: Report) -> None:
        messages.send(
            "report", subject=report.subject, notes=[asdict(note) for note in report.notes],
            robot_digest=report.robot_digest, spec_digest=report.spec_digest, steps=report.steps,
        )  # fmt: skip

    time_limit_s = request["time_limit_s"]
    subject.check(
        steps=request["steps"], seed=request["seed"], bounds=bounds, part=request["part"], only=request["only"],
        time_limit_s=math.inf if time_limit_s is None else time_limit_s, witness=messages, ended=ended,
        begins=lambda part: messages.send("part", part=part),
    )  # fmt: skip


def _watch_judge(orders: int) -> None:
    """End the check as a signal does, once the judge is gone: nobody would stop the subject any more."""
    while os.read(orders, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _terminated(number: int, frame: FrameType | None) -> Never:
    """End the process by an exception, so that the robot is stopped and closed on the way."""
    raise SystemExit(128 + number)


def main() -> None:
    """Check the subject that the judge's arguments describe."""
    serve(json.loads(sys.argv[1]), *map(int, sys.argv[2:]))
