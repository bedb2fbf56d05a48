"""Pack rows for the wire, and readings as one row and their images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hal.errors import Fault, WireError
from hal.robot import Image, RobotSpec, RobotState
from hal.spec import Spec

__all__ = ["RobotStateCodec", "RowCodec", "faults_from_list", "faults_to_list"]

_ENCODINGS = ("rgb8", "jpeg", "png")
_NO_AGES: Mapping[str, int] = {}


class RowCodec:
    """Pack and unpack the rows of one spec through one reused buffer. Not thread-safe.

    Args:
        spec: the spec that defines the row (`Spec.row_dtype`).

    Attributes:
        fields: name, shape, type and offset in bytes of each field.
        size: size of a row, bytes.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._row = spec.rows()
        self._places = _places(spec, self._row)
        fields: Mapping[str, Any] = spec.row_dtype.fields or {}
        self.fields = [(field.name, field.shape, field.numpy_dtype, fields[field.name][1]) for field in spec]
        self.size = spec.row_dtype.itemsize

    def pack(self, values: Mapping[str, np.ndarray]) -> bytes:
        """Return the packed row of some values.

        Raises:
            WireError: a value is missing, or its shape differs from the spec's.
        """
        for name, place in self._places:
            value = values.get(name)
            if getattr(value, "shape", None) != place.shape:
                raise _misfit(self._spec, name, value, place)
            place[...] = value
        return self._row.tobytes()

    def pack_command(self, values: Mapping[str, np.ndarray]) -> bytes:
        """Return the packed row of a command, after checking its layout only: the server's guard judges its numbers.

        Raises:
            IllegalAction: a field is unknown or missing, or its value does not have the spec's shape and type.
        """
        try:
            for name, place in self._places:
                value = values[name]
                if value.__class__ is not np.ndarray or value.dtype != place.dtype or value.shape != place.shape:
                    break
                place[...] = value
            else:
                if len(values) == len(self._places):
                    return self._row.tobytes()
        except (KeyError, TypeError, IndexError):
            pass
        return self.pack(self._spec.validate(values, "command"))  # converts what the spec lets through, or raises

    def read(self, frame: Any) -> dict[str, np.ndarray]:
        """Return the values of a frame that must be exactly one row.

        Raises:
            WireError: the frame has another length.
        """
        if len(frame) != self.size:
            raise WireError(f"a row of {self._spec.name!r} has {len(frame)} bytes, it must have {self.size}")
        row, values = bytearray(frame), {}
        for name, shape, dtype, at in self.fields:
            values[name] = np.ndarray(shape, dtype, row, at)
        return values


def _places(spec: Spec, row: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return the name of each field of a spec, and its place in a row; writing into that array writes the row."""
    return [(name, row[name]) for name in spec.names]


def _misfit(spec: Spec, name: str, value: Any, place: np.ndarray) -> WireError:
    got = "missing" if value is None else f"of shape {np.shape(value)}"
    return WireError(f"{spec.name}.{name} is {got}, it must be an array of shape {place.shape}")


class RobotStateCodec:
    """Encode a `RobotState` as the detail of a header, a row of sensors and applied commands, and one frame an image.

    Args:
        spec: the robot's description.
    """

    def __init__(self, spec: RobotSpec) -> None:
        self._sensors, self._applied = RowCodec(spec.sensors), RowCodec(spec.commands)
        self._size = self._sensors.size + self._applied.size
        self._buffer = bytearray(self._size)  # the row of every reading that is encoded
        self._halves = tuple(
            (half, _places(half, np.ndarray((), half.row_dtype, self._buffer, at)))
            for half, at in ((spec.sensors, 0), (spec.commands, self._sensors.size))
        )

    def encode(self, robot_state: RobotState) -> tuple[list[Any], list[Any]]:
        """Return detail and frames of a READING message for a robot state.

        Raises:
            WireError: the reading doesn't fit the spec.
        """
        for (spec, half), values in zip(self._halves, (robot_state.sensors, robot_state.applied), strict=True):
            for name, place in half:
                value = values.get(name)
                if getattr(value, "shape", None) != place.shape:
                    raise _misfit(spec, name, value, place)
                place[...] = value
        frames: list[Any] = [bytes(self._buffer)]
        stamp_ns, age_ns, faults = robot_state.stamp_ns, robot_state.age_ns, robot_state.faults
        lines = (
            [_image_line(name, image, frames) for name, image in robot_state.images.items()]
            if robot_state.images
            else None
        )
        return [stamp_ns, dict(age_ns) if age_ns else None, faults_to_list(faults) if faults else None, lines], frames

    def decode(self, detail: Any, frames: Sequence[Any]) -> RobotState:
        """Return the reading that `encode` wrote, in arrays that the caller may keep and change.

        Raises:
            WireError: detail or frames are not a reading of this robot.
        """
        if not isinstance(detail, list) or len(detail) != 4 or not frames:
            raise WireError("a reading needs four details and a row")
        stamp_ns, ages, faults, lines = detail
        if len(frames[0]) != self._size:
            raise WireError(f"a reading's row has {len(frames[0])} bytes, it must have {self._size}")
        row, sensors, applied = bytearray(frames[0]), {}, {}
        for name, shape, dtype, at in self._sensors.fields:
            sensors[name] = np.ndarray(shape, dtype, row, at)
        for name, shape, dtype, at in self._applied.fields:
            applied[name] = np.ndarray(shape, dtype, row, self._sensors.size + at)
        if len(frames) == 1 and ages is None and faults is None and lines is None and type(stamp_ns) is int:
            return RobotState(sensors, applied, stamp_ns)
        images = _images(lines or [], frames[1:])
        try:
            age_ns = {str(name): int(age) for name, age in (ages or _NO_AGES).items()}
            return RobotState(sensors, applied, int(stamp_ns), age_ns, images, faults_from_list(faults))
        except (TypeError, ValueError, AttributeError) as error:
            raise WireError(f"a reading's details are damaged: {error}") from None


def faults_to_list(faults: Sequence[Fault]) -> list[list[str]] | None:
    """Return each fault as ``[code, subject, message]``, or None where there are no faults."""
    return [[fault.code, fault.subject, fault.message] for fault in faults] or None


def faults_from_list(data: Any) -> tuple[Fault, ...]:
    """Return the faults that `faults_to_list` wrote.

    Raises:
        TypeError, ValueError: the data does not describe faults.
    """
    return tuple(Fault(str(code), str(subject), str(message)) for code, subject, message in data or ())


def _image_line(name: str, image: Image, frames: list[Any]) -> list[Any]:
    """Append an image's bytes to the frames, and return its line for the header."""
    if isinstance(image.data, np.ndarray):
        frames.append(image.data.tobytes())
        return [name, image.encoding, image.stamp_ns, list(image.data.shape)]
    frames.append(image.data)
    return [name, image.encoding, image.stamp_ns, None]


def _images(lines: Any, frames: Sequence[Any]) -> dict[str, Image]:
    if not isinstance(lines, list) or len(lines) != len(frames):
        raise WireError(f"{len(frames)} images came, and the header does not list as many")
    return dict(_image_from(line, frame) for line, frame in zip(lines, frames, strict=True))


def _image_from(line: Any, frame: Any) -> tuple[str, Image]:
    try:
        name, encoding, stamp_ns, shape = line
        sound = isinstance(name, str) and encoding in _ENCODINGS and type(stamp_ns) is int
        fits = shape is None or (len(shape) == 3 and min(shape) > 0 and math.prod(shape) == len(frame))
    except (TypeError, ValueError):
        sound = fits = False
    if not (sound and fits):
        raise WireError("an image's line in the header is damaged, or its size is not that of its frame")
    data = bytes(frame) if shape is None else np.frombuffer(bytearray(frame), np.uint8).reshape(shape)
    return name, Image(data, encoding, stamp_ns)
