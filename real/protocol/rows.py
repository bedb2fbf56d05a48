"""Packed rows on the wire, and a reading as one row and its pictures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hal.errors import Fault, WireError
from hal.robot import Image, RobotSpec, RobotState
from hal.spec import Spec

__all__ = ["RobotStateCodec", "RowCodec"]

_ENCODINGS = ("rgb8", "jpeg", "png")
_NO_AGES: Mapping[str, int] = {}
_CAMERA_FAULT = re.compile("camera '([^']*)'")


class RowCodec:
    """Packs one spec's values into the row that `Spec` lays out, by way of a buffer made once. For one thread.

    Args:
        spec: whose rows.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._row = spec.rows()
        self._places = [(name, self._row[name]) for name in spec.names]
        fields: Mapping[str, Any] = spec.row_dtype.fields or {}
        self._fields = [(field.name, field.shape, field.numpy_dtype, fields[field.name][1]) for field in spec]
        self.size = spec.row_dtype.itemsize

    def pack(self, values: Mapping[str, np.ndarray]) -> bytes:
        """One row.

        Raises:
            WireError: a value is missing or has another shape than the spec says.
        """
        for name, place in self._places:
            value = values.get(name)
            if getattr(value, "shape", None) != place.shape:
                got = "missing" if value is None else f"of shape {np.shape(value)}"
                raise WireError(f"{self._spec.name}.{name} is {got}, wanted is an array of shape {place.shape}")
            place[...] = value
        return self._row.tobytes()

    def unpack(self, buffer: bytearray, offset: int = 0) -> dict[str, np.ndarray]:
        """The values of the row at ``offset``, as writable views of the buffer. The length is the caller's to check."""
        return {name: np.ndarray(shape, dtype, buffer, offset + at) for name, shape, dtype, at in self._fields}

    def read(self, frame: Any) -> dict[str, np.ndarray]:
        """The values of a frame that must be exactly one row.

        Raises:
            WireError: it has another length.
        """
        if len(frame) != self.size:
            raise WireError(f"a row of {self._spec.name!r} has {self.size} bytes, got {len(frame)}")
        return self.unpack(bytearray(frame))


class RobotStateCodec:
    """A `RobotState` as the detail of a header, a row of sensors and applied commands, and a frame an image.

    Args:
        spec: of the robot that is read.
    """

    def __init__(self, spec: RobotSpec) -> None:
        self._sensors, self._applied = RowCodec(spec.sensors), RowCodec(spec.commands)
        self._size = self._sensors.size + self._applied.size

    def encode(self, robot_state: RobotState) -> tuple[list[Any], list[Any]]:
        """Detail and frames of a READING message.

        Raises:
            WireError: the reading doesn't fit the spec.
        """
        frames: list[Any] = [self._sensors.pack(robot_state.sensors) + self._applied.pack(robot_state.applied)]
        images = [_image(name, image, frames) for name, image in robot_state.images.items()]
        return [
            robot_state.stamp_ns,
            dict(robot_state.age_ns) or None,
            list(map(str, robot_state.faults)) or None,
            images or None,
        ], frames

    def decode(self, detail: Any, frames: Sequence[Any]) -> RobotState:
        """The inverse of `encode`; the arrays are the caller's to keep and to write.

        Raises:
            WireError: detail or frames are not a reading of this robot.
        """
        if not isinstance(detail, list) or len(detail) != 4 or not frames:
            raise WireError("a reading needs four details and a row")
        stamp_ns, ages, faults, pictures = detail
        if len(frames[0]) != self._size:
            raise WireError(f"a reading's row has {self._size} bytes, got {len(frames[0])}")
        row = bytearray(frames[0])
        sensors, applied = self._sensors.unpack(row), self._applied.unpack(row, self._sensors.size)
        if len(frames) == 1 and ages is None and faults is None and pictures is None and type(stamp_ns) is int:
            return RobotState(sensors, applied, stamp_ns)
        images = _images(pictures or [], frames[1:])
        try:
            age_ns = {str(name): int(age) for name, age in (ages or _NO_AGES).items()}
            return RobotState(sensors, applied, int(stamp_ns), age_ns, images, tuple(map(_fault, faults or ())))
        except (TypeError, ValueError, AttributeError) as error:
            raise WireError(f"a reading's details are damaged: {error}") from None


def _fault(message: Any) -> Fault:
    """Make a fault of its message, which is all that version 3 of the protocol carries."""
    camera = _CAMERA_FAULT.match(str(message))
    return Fault("camera", camera[1], str(message)) if camera else Fault("", "", str(message))


def _image(name: str, image: Image, frames: list[Any]) -> list[Any]:
    """Append the picture's bytes to the frames; its line for the header."""
    if isinstance(image.data, np.ndarray):
        frames.append(image.data.tobytes())
        return [name, image.encoding, image.stamp_ns, list(image.data.shape)]
    frames.append(image.data)
    return [name, image.encoding, image.stamp_ns, None]


def _images(lines: Any, frames: Sequence[Any]) -> dict[str, Image]:
    if not isinstance(lines, list) or len(lines) != len(frames):
        raise WireError(f"{len(frames)} pictures came where the header promised another number")
    return dict(_image_from(line, frame) for line, frame in zip(lines, frames, strict=True))


def _image_from(line: Any, frame: Any) -> tuple[str, Image]:
    try:
        name, encoding, stamp_ns, shape = line
        known = isinstance(name, str) and encoding in _ENCODINGS and type(stamp_ns) is int
        fits = shape is None or (len(shape) == 3 and min(shape) > 0 and math.prod(shape) == len(frame))
    except (TypeError, ValueError):
        known = fits = False
    if not (known and fits):
        raise WireError("a picture's line in the header is damaged, or its size is not that of its frame")
    data = bytes(frame) if shape is None else np.frombuffer(bytearray(frame), np.uint8).reshape(shape)
    return name, Image(data, encoding, stamp_ns)
