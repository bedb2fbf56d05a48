"""The messages of a log, as ROS 2 knows messages: definitions made from a `Spec`, and their CDR bytes.

A packed row is already the body of its own message: fields fall in element size, so each lies where CDR wants
it, and arrays of a fixed size carry no count. Only the four header bytes are put in front.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from hal import Field, Image, LogError, Spec
from recorder.cdr import HEADER, CdrReader, CdrWriter

__all__ = [
    "COMPRESSED_IMAGE",
    "EPISODE",
    "EVENT",
    "JOINT_STATE",
    "JointStates",
    "MessageType",
    "compressed_image",
    "message_type",
    "note",
    "read_compressed_image",
    "read_note",
]


@dataclass(frozen=True)
class MessageType:
    """A ROS 2 message type: its full name, and its definition with those that it uses (``ros2msg`` of MCAP)."""

    name: str
    definition: str


def message_type(spec: Spec, name: str = "Frame") -> MessageType:
    """The type ``rlenv_robot_msgs/msg/<name>`` of a spec's packed row, units and meanings as comments.

    Fields stand in the order of the row. Axes are flattened in C order, since ROS 2 arrays have one.
    """
    ordered = [spec[field] for field in (spec.row_dtype.names or ())]
    return MessageType(f"rlenv_robot_msgs/msg/{name}", "".join(f"{_line(field)}\n" for field in ordered))


def _line(field: Field) -> str:
    count = f"[{field.size}]" if field.shape else ""
    shape = f"shape {'x'.join(map(str, field.shape))}" if len(field.shape) > 1 else ""
    unit = "" if field.unit == "1" else f"[{field.unit}]"
    comment = " ".join(" ".join((unit, field.meaning, shape, ", ".join(field.elements))).split())
    return f"{field.dtype}{count} {field.name}" + (f"  # {comment}" if comment else "")


# -- texts: episodes and events ------------------------------------------------------------------------------

_NOTE = "string kind  # {kinds}\nint32 episode  # its number in this run, -1 outside episodes\nstring data  # {data}\n"

EPISODE = MessageType(
    "rlenv_robot_msgs/msg/Episode", _NOTE.format(kinds="begin or end", data="JSON: what is known of the episode")
)
EVENT = MessageType(
    "rlenv_robot_msgs/msg/Event", _NOTE.format(kinds="what happened, in a word", data="JSON: the details")
)


def note(kind: str, episode: int, data: str) -> bytes:
    """A message of type `EPISODE` or `EVENT`."""
    return CdrWriter().string(kind).int32(episode).string(data).message()


def read_note(message: bytes | memoryview) -> tuple[str, int, str]:
    """The inverse of `note`: kind, episode, data.

    Raises:
        LogError: it is no such message.
    """
    reader = CdrReader(message)
    return reader.string(), reader.int32(), reader.string()


# -- pictures ------------------------------------------------------------------------------------------------

_LINE = "=" * 80 + "\n"
_HEADER = (
    f"{_LINE}MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
    f"{_LINE}MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
)

COMPRESSED_IMAGE = MessageType(
    "sensor_msgs/msg/CompressedImage", f"std_msgs/Header header\nstring format\nuint8[] data\n{_HEADER}"
)


def compressed_image(image: Image, camera: str) -> bytes:
    """A message of type `COMPRESSED_IMAGE`.

    Raises:
        LogError: the image is not encoded as jpeg or png.
    """
    if isinstance(image.data, np.ndarray) or image.encoding not in ("jpeg", "png"):
        raise LogError(f"camera {camera!r}: an image encoded as {image.encoding!r}, wanted jpeg or png bytes")
    return CdrWriter().stamp(image.stamp_ns).string(camera).string(image.encoding).message_with(image.data)


def read_compressed_image(message: bytes | memoryview) -> Image:
    """The inverse of `compressed_image`.

    Raises:
        LogError: it is no such message.
    """
    reader = CdrReader(message)
    stamp, _, encoding = reader.stamp(), reader.string(), reader.string()
    return Image(reader.octets(), encoding, stamp)


# -- joints --------------------------------------------------------------------------------------------------

JOINT_STATE = MessageType(
    "sensor_msgs/msg/JointState",
    f"std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n{_HEADER}",
)


class JointStates:
    """Makes a `JOINT_STATE` message of a frame row, so that viewers move their model of the robot.

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
        """Whether rows of this spec hold joint positions."""
        return JointStates.POSITION in frame and len(frame[JointStates.POSITION].shape) == 1

    def message(self, row: bytes, stamp_ns: int) -> bytes:
        """The message for a packed row, stamped with the wall clock in nanoseconds since 1970."""
        values = np.frombuffer(row, self._dtype)[0]
        struct.pack_into("<iI", self._template, len(HEADER), *divmod(stamp_ns, 1_000_000_000))
        self._write(self._position_at, values[self.POSITION])
        if self._has_velocity:
            self._write(self._velocity_at, values[self.VELOCITY])
        return bytes(self._template)

    def _write(self, at: int, values: np.ndarray) -> None:
        numbers = values.astype("<f8").tobytes()
        self._template[at : at + len(numbers)] = numbers
