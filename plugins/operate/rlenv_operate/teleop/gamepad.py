"""Teleoperate with a gamepad, which is read from Linux's input events without further packages."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

import numpy as np

from hal import RobotSpec
from rlenv_robot.tasks.task import Arrays

__all__ = ["Gamepad", "find_gamepads"]

EVENT = struct.Struct("llHHi")
"""``struct input_event`` of a 64-bit Linux: seconds, microseconds, type, code, value (linux/input.h)."""

EV_SYN, EV_KEY, EV_ABS = 0, 1, 3
SYN_DROPPED = 3
BTN_TL, BTN_TR = 0x136, 0x137
"""The shoulder buttons (linux/input-event-codes.h); the clutch is closed while one is held."""

_EVIOCSCLOCKID = 0x400445A0
_CLOCK_MONOTONIC = 1
_ABSINFO = struct.Struct("6i")  # value, minimum, maximum, fuzz, flat, resolution
_STICK, _TRIGGER = (-32768, 32767), (0, 1023)
_DEAD_ZONE = 0.12

AXES = {0: (0, -1.0), 1: (1, -1.0), 4: (2, -1.0), 17: (3, -1.0), 16: (4, 1.0), 5: (5, 1.0), 2: (5, -1.0)}
"""Absolute axis -> index of the commanded element and sign, as on the console's page: sticks, D-pad, triggers."""

_RANGES = {16: (-1, 1), 17: (-1, 1), 2: _TRIGGER, 5: _TRIGGER}


def find_gamepads() -> list[str]:
    """Return the event devices of all connected gamepads, by their persistent names."""
    folder = Path("/dev/input/by-id")
    return sorted(str(path) for path in folder.glob("*-event-joystick")) if folder.is_dir() else []


class Gamepad:
    """Move the elements of a command with a gamepad's sticks while a shoulder button is held.

    A gamepad reports changes only. If Linux dropped some, its state is unknown, so the clutch opens until a shoulder
    button is pressed again.

    Args:
        path: the path of the event device, such as one of `find_gamepads`, or of a pipe that delivers ``struct
            input_event``.
        spec: the spec of the robot; its commands are targets of float types.
        velocity: the velocity of an element at full deflection, units per second.

    Attributes:
        input_ns: kernel's monotonic clock at the first event since `mark` that moved a stick out of its centre; 0 if
            there was none.
    """

    def __init__(self, path: str | Path, spec: RobotSpec, velocity: float) -> None:
        self._path, self._spec = str(path), spec
        self._stride = velocity * spec.period_s
        self._descriptor = -1
        self._rest = b""
        self._held: set[int] = set()
        self._axes: dict[int, float] = {}
        self._ranges: dict[int, tuple[int, int]] = {}
        self.input_ns = 0

    def open(self) -> None:
        """Open the device. Safe to call more than once.

        Raises:
            OSError: the device does not exist, or may not be read.
        """
        if self._descriptor >= 0:
            return
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        except PermissionError as error:
            raise PermissionError(
                error.errno, f"{self._path} can't be read: add yourself to the group input, and log in again"
            ) from None
        try:
            fcntl.ioctl(self._descriptor, _EVIOCSCLOCKID, struct.pack("i", _CLOCK_MONOTONIC))
        except OSError as error:
            if error.errno not in (errno.ENOTTY, errno.EINVAL):  # a pipe has no clock to choose
                raise
        self._ranges = {axis: self._range(axis) for axis in AXES}

    def _range(self, axis: int) -> tuple[int, int]:
        """Return the least and the greatest value of an axis, as the device tells them."""
        request = 0x80000000 | _ABSINFO.size << 16 | ord("E") << 8 | 0x40 + axis  # EVIOCGABS(axis)
        try:
            info = _ABSINFO.unpack(fcntl.ioctl(self._descriptor, request, bytes(_ABSINFO.size)))
        except OSError:
            return _RANGES.get(axis, _STICK)
        return (info[1], info[2]) if info[1] < info[2] else _RANGES.get(axis, _STICK)

    def poll(self, present: Arrays) -> Arrays | None:
        """Return the target for this period, or None while no shoulder button is held.

        Args:
            present: the command that was applied last.

        Raises:
            OSError: the gamepad was disconnected.
        """
        self._read()
        if not self._held:
            return None
        shares = np.zeros(max(sum(field.size for field in self._spec.commands), 6))
        for axis, value in self._axes.items():
            element, sign = AXES[axis]
            shares[element] += sign * value
        target, start = {}, 0
        for field in self._spec.commands:
            share = shares[start : start + field.size].reshape(field.shape)
            start += field.size
            target[field.name] = np.asarray(present[field.name], np.float64) + self._stride * share
        return target

    def _read(self) -> None:
        try:
            while data := os.read(self._descriptor, 64 * EVENT.size):
                data, self._rest = self._rest + data, b""
                whole = len(data) - len(data) % EVENT.size
                self._rest = data[whole:]
                for event in EVENT.iter_unpack(data[:whole]):
                    self._take(*event)
        except BlockingIOError:
            return
        except OSError:
            self.release()
            raise
        self.release()
        raise OSError(errno.ENODEV, f"the gamepad {self._path} is gone")

    def _take(self, seconds: int, microseconds: int, kind: int, code: int, value: int) -> None:
        if kind == EV_SYN and code == SYN_DROPPED:
            self.release()
        elif kind == EV_KEY and code in (BTN_TL, BTN_TR):
            (self._held.add if value else self._held.discard)(code)
        elif kind == EV_ABS and code in AXES:
            low, high = self._ranges[code]
            share = (value - low) / (high - low)
            share = share if low >= 0 and code in (2, 5) else 2 * share - 1
            self._axes[code] = 0.0 if abs(share) < _DEAD_ZONE else float(np.clip(share, -1, 1))
            if self._axes[code] and not self.input_ns:
                self.input_ns = (seconds * 1_000_000 + microseconds) * 1000

    def mark(self) -> None:
        """Start waiting for the first input, whose time `input_ns` will hold."""
        self.input_ns = 0

    def release(self) -> None:
        """Open the clutch until a shoulder button is pressed again, and forget the sticks."""
        self._held.clear()
        self._axes.clear()

    def close(self) -> None:
        """Release the device. Safe to call more than once."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
