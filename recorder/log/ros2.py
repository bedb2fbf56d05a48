"""Encode and decode the ROS 2 messages of a log, and make their definitions.

The encoding is plain CDR, little-endian (OMG "DDS Interoperability Wire Protocol" 2.5, clause 10.2): four header bytes,
then the fields one after another, each number at a multiple of its own size counted from the end of the header.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from hal import Field, Image, LogError, Spec

__all__ = [
    "COMPRESSED_IMAGE", "EPISODE", "EVENT", "HEADER", "JOINT_STATE", "STRING", "CdrReader", "CdrWriter", "JointStates",
    "MessageType", "compressed_image", "message_type", "note", "read_compressed_image", "read_note", "text_message",
]  # fmt: skip

HEADER = b"\x00\x01\x00\x00"
"""Representation identifier CDR_LE and two unused option bytes."""


class CdrWriter:
    """Build one message, field after field."""

    def __init__(self) -> None:
        self._body = bytearray()

    def align(self, size: int) -> int:
        """Pad to a multiple of ``size`` bytes; return the position in the message, header included."""
        self._body += bytes(-len(self._body) % size)
        return len(HEADER) + len(self._body)

    def uint32(self, value: int) -> CdrWriter:
        """Append an unsigned number, such as a count."""
        self.align(4)
        self._body += struct.pack("<I", value)
        return self

    def int32(self, value: int) -> CdrWriter:
        """Append a signed number."""
        self.align(4)
        self._body += struct.pack("<i", value)
        return self

    def stamp(self, nanoseconds: int) -> CdrWriter:
        """Append a ``builtin_interfaces/Time``: int32 seconds and uint32 nanoseconds."""
        seconds, rest = divmod(nanoseconds, 1_000_000_000)
        return self.int32(seconds).uint32(rest)

    def string(self, text: str) -> CdrWriter:
        """Append a string: its length with the closing zero, UTF-8, zero."""
        encoded = text.encode()
        self.uint32(len(encoded) + 1)
        self._body += encoded + b"\x00"
        return self

    def float64s(self, values: Any) -> CdrWriter:
        """Append a ``float64[]``."""
        numbers = np.asarray(values, "<f8").ravel()
        self.uint32(len(numbers))
        if len(numbers):
            self.align(8)
        self._body += numbers.tobytes()
        return self

    def message_with(self, data: bytes | memoryview) -> bytes:
        """Return the message with a ``uint8[]`` as its last field. It is copied only once, since images are large."""
        self.uint32(len(data))
        return b"".join((HEADER, self._body, data))

    def message(self) -> bytes:
        """Return the message with its header."""
        return HEADER + bytes(self._body)


class CdrReader:
    """Read one message, field after field, in the order of writing.

    Raises:
        LogError: the message is shorter than its fields, or is not little-endian CDR.
    """

    def __init__(self, message: bytes | memoryview) -> None:
        self._body = memoryview(message)[len(HEADER) :]
        self._at = 0
        if bytes(message[:2]) != HEADER[:2]:
            raise LogError(f"a message begins with {bytes(message[:4]).hex(' ')}, little-endian CDR with 00 01")

    def _take(self, size: int, aligned: int = 1) -> memoryview:
        start = self._at + -self._at % aligned
        if start + size > len(self._body):
            raise LogError(f"a message of {len(self._body)} bytes ends before its field at byte {start}")
        self._at = start + size
        return self._body[start : self._at]

    def uint32(self) -> int:
        """Read an unsigned number."""
        return int(struct.unpack("<I", self._take(4, 4))[0])

    def int32(self) -> int:
        """Read a signed number."""
        return int(struct.unpack("<i", self._take(4, 4))[0])

    def stamp(self) -> int:
        """Read a ``builtin_interfaces/Time``, in nanoseconds."""
        return self.int32() * 1_000_000_000 + self.uint32()

    def string(self) -> str:
        """Read a string, without its closing zero."""
        try:
            return bytes(self._take(self.uint32())).rstrip(b"\x00").decode()
        except UnicodeDecodeError as error:
            raise LogError(f"a text in a message is not UTF-8: {error}") from error

    def octets(self) -> bytes:
        """Read a ``uint8[]``."""
        return bytes(self._take(self.uint32()))


# ---- frame rows ----
#
# A packed row is already the body of its own message: fields are sorted by falling element size, so each lies where CDR
# wants it, and arrays of a fixed size carry no count. Only the four header bytes are put in front.


@dataclass(frozen=True)
class MessageType:
    """A ROS 2 message type: its full name, and its definition with those of the types it uses (MCAP's ``ros2msg``)."""

    name: str
    definition: str


def message_type(spec: Spec, name: str = "Frame") -> MessageType:
    """Return the type ``rlenv_robot_msgs/msg/<name>`` of a spec's packed row, with units and meanings as comments.

    Fields are in the order of the row. Axes are flattened in C order, since ROS 2 arrays have only one.
    """
    ordered = [spec[field] for field in (spec.row_dtype.names or ())]
    return MessageType(f"rlenv_robot_msgs/msg/{name}", "".join(f"{_line(field)}\n" for field in ordered))


def _line(field: Field) -> str:
    size = field.size * max(1, field.characters)
    count = f"[{size}]" if field.shape or field.is_text else ""
    kind = "uint32" if field.is_text else field.dtype
    text = f"text of up to {field.characters} characters, a code point each, zeros behind" if field.is_text else ""
    counted = f"{field.counted_by} entries count" if field.counted_by else ""
    shape = f"shape {'x'.join(map(str, field.shape))}" if len(field.shape) > 1 else ""
    unit = "" if field.unit == "1" else f"[{field.unit}]"
    comment = " ".join(" ".join((unit, field.meaning, text, counted, shape, ", ".join(field.elements))).split())
    return f"{kind}{count} {field.name}" + (f"  # {comment}" if comment else "")


# ---- episodes and events ----

_NOTE = "string kind  # {kinds}\nint32 episode  # its number in this run, -1 outside episodes\nstring data  # {data}\n"

EPISODE = MessageType(
    "rlenv_robot_msgs/msg/Episode", _NOTE.format(kinds="begin or end", data="JSON: what is known of the episode")
)
EVENT = MessageType(
    "rlenv_robot_msgs/msg/Event", _NOTE.format(kinds="what happened, in a word", data="JSON: the details")
)


def note(kind: str, episode: int, data: str) -> bytes:
    """Encode a message of type `EPISODE` or `EVENT`."""
    return CdrWriter().string(kind).int32(episode).string(data).message()


def read_note(message: bytes | memoryview) -> tuple[str, int, str]:
    """Decode a message of type `EPISODE` or `EVENT`; return kind, episode and data.

    Raises:
        LogError: the bytes are no such message.
    """
    reader = CdrReader(message)
    return reader.string(), reader.int32(), reader.string()


# ---- images ----

_LINE = "=" * 80 + "\n"
_HEADER = (
    f"{_LINE}MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
    f"{_LINE}MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
)

COMPRESSED_IMAGE = MessageType(
    "sensor_msgs/msg/CompressedImage", f"std_msgs/Header header\nstring format\nuint8[] data\n{_HEADER}"
)


def compressed_image(image: Image, camera: str) -> bytes:
    """Encode a message of type `COMPRESSED_IMAGE`.

    Raises:
        LogError: the image is not encoded as jpeg or png.
    """
    if isinstance(image.data, np.ndarray) or image.encoding not in ("jpeg", "png"):
        raise LogError(f"camera {camera!r}: an image encoded as {image.encoding!r}, expected jpeg or png bytes")
    return CdrWriter().stamp(image.stamp_ns).string(camera).string(image.encoding).message_with(image.data)


def read_compressed_image(message: bytes | memoryview) -> Image:
    """Decode a message of type `COMPRESSED_IMAGE`.

    Raises:
        LogError: the bytes are no such message.
    """
    reader = CdrReader(message)
    stamp, _, encoding = reader.stamp(), reader.string(), reader.string()
    return Image(reader.octets(), encoding, stamp)


# ---- joint states ----

STRING = MessageType("std_msgs/msg/String", "string data\n")


def text_message(text: str) -> bytes:
    """Encode a message of type `STRING`."""
    return CdrWriter().string(text).message()


JOINT_STATE = MessageType(
    "sensor_msgs/msg/JointState",
    f"std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n{_HEADER}",
)


class JointStates:
    """Make `JOINT_STATE` messages from frame rows, so that viewers move their model of the robot.

    Only stamp, positions and velocities change from row to row: they are written into a template.

    Args:
        frame: the row's spec, with a one-dimensional ``sensor_joint_position``; ``sensor_joint_velocity``
            of the same shape is used if it is there.
    """

    POSITION, VELOCITY = "sensor_joint_position", "sensor_joint_velocity"

    def __init__(self, frame: Spec) -> None:
        joints = frame[self.POSITION]
        self._dtype = frame.row_dtype
        self._has_velocity = self.VELOCITY in frame and frame[self.VELOCITY].shape == joints.shape
        names = joints.elements or tuple(f"joint_{index}" for index in range(joints.size))
        cdr = CdrWriter().stamp(0).string("").uint32(len(names))
        for name in names:
            cdr.string(name)
        nothing = np.zeros(joints.size)
        cdr.float64s(nothing)
        self._position_at = cdr.align(1) - nothing.nbytes
        cdr.float64s(nothing if self._has_velocity else ())
        self._velocity_at = cdr.align(1) - nothing.nbytes
        self._template = bytearray(cdr.float64s(()).message())

    @staticmethod
    def possible(frame: Spec) -> bool:
        """Return whether rows of this spec have joint positions."""
        return JointStates.POSITION in frame and len(frame[JointStates.POSITION].shape) == 1

    def message(self, row: bytes, stamp_ns: int) -> bytes:
        """Return the message for a packed row.

        Args:
            row: the row's bytes.
            stamp_ns: wall clock, nanoseconds since 1970.
        """
        values = np.frombuffer(row, self._dtype)[0]
        struct.pack_into("<iI", self._template, len(HEADER), *divmod(stamp_ns, 1_000_000_000))
        self._write(self._position_at, values[self.POSITION])
        if self._has_velocity:
            self._write(self._velocity_at, values[self.VELOCITY])
        return bytes(self._template)

    def _write(self, at: int, values: np.ndarray) -> None:
        numbers = values.astype("<f8").tobytes()
        self._template[at : at + len(numbers)] = numbers
