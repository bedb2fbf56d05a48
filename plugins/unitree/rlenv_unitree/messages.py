"""Describe Unitree's low-level messages once, as tables of members, and convert them to and from bytes.

A message is a NumPy record in the layout of the vendor's C structure, natural alignment and little-endian. Members are
read and written by name, all motors at once::

    command = GO_LOW_CMD.new()
    command["motor_cmd"]["q"][:12] = target

From the same tables come the C structure that the checksum covers (`crc`), the bytes on the wire (XCDR1,
`Message.to_wire`) and the IDL type by which DDS matches writers and readers (`channel.idl_type`).

Members, their order and their types are those of unitree_sdk2_python 37116c5, `unitree_sdk2py/idl/unitree_go/msg/dds_`
and `.../unitree_hg/msg/dds_`. The constants are those of its `example/go2/low_level/unitree_legged_const.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from hal.errors import WireError

__all__ = [
    "GO_LOW_CMD", "GO_LOW_STATE", "GO_MOTORS", "HG_LOW_CMD", "HG_LOW_STATE", "HG_MOTORS", "LOW_LEVEL", "MODE_ON",
    "POS_STOP", "TOPIC_LOW_CMD", "TOPIC_LOW_STATE", "VEL_STOP", "Member", "Message", "Record", "go_command",
    "hg_command",
]  # fmt: skip

Record: TypeAlias = npt.NDArray[np.void]
"""A message: an array of shape () whose dtype is `Message.dtype`."""

TOPIC_LOW_CMD = "rt/lowcmd"
TOPIC_LOW_STATE = "rt/lowstate"

GO_MOTORS = 20
"""Motors in a message of the Go2; the robot has the first 12 of them."""

HG_MOTORS = 35
"""Motors in a message of the G1; the robot has the first 29 of them."""

LOW_LEVEL = 0xFF
"""``level_flag`` of a low-level command."""

MODE_ON = 0x01
"""``mode`` of a motor that carries out commands. With 0 it gives no torque."""

POS_STOP = 2.146e9
"""``q`` that switches a motor's position loop off (PosStopF)."""

VEL_STOP = 16000.0
"""``dq`` that switches a motor's velocity loop off (VelStopF)."""

_HEADER = b"\x00\x01\x00\x00"
"""Encapsulation header of little-endian XCDR1."""

_ENCODINGS = (b"\x00\x01", b"\x00\x07")
"""XCDR1 and XCDR2, little-endian; they are equal for final types without members of 8 bytes."""


class Member(NamedTuple):
    """One member of a message.

    Attributes:
        name: its name in the vendor's IDL.
        kind: a NumPy type code without byte order, such as ``f4``, or a nested message.
        length: length of the array; 1 for a member that is no array.
    """

    name: str
    kind: str | Message
    length: int = 1


@dataclass(frozen=True)
class Message:
    """A message type of fixed length.

    Attributes:
        typename: the name by which DDS matches it, such as ``unitree_go.msg.dds_.LowCmd_``.
        members: its members in order.
    """

    typename: str
    members: tuple[Member, ...]

    @cached_property
    def dtype(self) -> np.dtype[np.void]:
        """The C structure with its padding."""
        return np.dtype([_column(member) for member in self.members], align=True)

    @cached_property
    def wire_length(self) -> int:
        """Length on the wire with the header, bytes."""
        return len(_HEADER) + len(self._places)

    @cached_property
    def _places(self) -> npt.NDArray[np.intp]:
        """Index in the C structure of each byte on the wire; padding takes the byte after the structure, which is 0."""
        places: list[int] = []
        _append_places(places, self, 0, self.dtype.itemsize)
        return np.array(places, np.intp)

    def new(self) -> Record:
        """Return a message whose members are all 0."""
        return np.zeros((), self.dtype)

    def to_wire(self, record: Record) -> bytes:
        """Return the bytes on the wire, header first."""
        return _HEADER + np.frombuffer(record.tobytes() + b"\0", np.uint8)[self._places].tobytes()

    def from_wire(self, data: bytes) -> Record:
        """Return the message in these bytes.

        Raises:
            WireError: the encoding or the length is another.
        """
        if data[:2] not in _ENCODINGS or len(data) != self.wire_length:
            raise WireError(
                f"{self.typename}: got {len(data)} bytes with header {data[:4].hex()}, expected {self.wire_length} "
                f"with header {_HEADER.hex()} (little-endian XCDR1); compare the robot's firmware with the tables"
            )
        structure = np.zeros(self.dtype.itemsize + 1, np.uint8)
        structure[self._places] = np.frombuffer(data, np.uint8, offset=len(_HEADER))
        return structure[:-1].view(self.dtype)[0:1].reshape(())


def _column(member: Member) -> Any:
    kind = member.kind.dtype if isinstance(member.kind, Message) else np.dtype("<" + member.kind)
    return (member.name, kind) if member.length == 1 else (member.name, kind, (member.length,))


def _append_places(places: list[int], message: Message, start: int, padding: int) -> None:
    """Append where each byte of a nested message at ``start`` in the C structure lies.

    A structure on the wire starts where its first member may start and ends with its last one, whereas a C structure
    is padded at its end. XCDR1 aligns a member of n bytes to n.
    """
    columns: Mapping[str, Any] = message.dtype.fields or {}
    for member in message.members:
        offset = start + columns[member.name][1]
        for _ in range(member.length):
            if isinstance(member.kind, Message):
                _append_places(places, member.kind, offset, padding)
                offset += member.kind.dtype.itemsize
            else:
                size = np.dtype(member.kind).itemsize
                places.extend([padding] * (-len(places) % size))
                places.extend(range(offset, offset + size))
                offset += size


def _message(typename: str, *members: tuple[Any, ...]) -> Message:
    return Message(typename, tuple(Member(*member) for member in members))


_GO, _HG = "unitree_go.msg.dds_.", "unitree_hg.msg.dds_."

_IMU = (("quaternion", "f4", 4), ("gyroscope", "f4", 3), ("accelerometer", "f4", 3), ("rpy", "f4", 3))
_MOTOR_CMD = (("mode", "u1"), ("q", "f4"), ("dq", "f4"), ("tau", "f4"), ("kp", "f4"), ("kd", "f4"))
_MOTOR_STATE = (("mode", "u1"), ("q", "f4"), ("dq", "f4"), ("ddq", "f4"), ("tau_est", "f4"))
_GO_HEAD = (
    ("head", "u1", 2), ("level_flag", "u1"), ("frame_reserve", "u1"), ("sn", "u4", 2), ("version", "u4", 2),
    ("bandwidth", "u2"),
)  # fmt: skip

GO_LOW_CMD = _message(
    _GO + "LowCmd_",
    *_GO_HEAD,
    ("motor_cmd", _message(_GO + "MotorCmd_", *_MOTOR_CMD, ("reserve", "u4", 3)), GO_MOTORS),
    ("bms_cmd", _message(_GO + "BmsCmd_", ("off", "u1"), ("reserve", "u1", 3))),
    ("wireless_remote", "u1", 40), ("led", "u1", 12), ("fan", "u1", 2), ("gpio", "u1"), ("reserve", "u4"),
    ("crc", "u4"),
)  # fmt: skip
"""Command of the Go2 and B2: 812 bytes as a C structure, 812 on the wire."""

GO_LOW_STATE = _message(
    _GO + "LowState_",
    *_GO_HEAD,
    ("imu_state", _message(_GO + "IMUState_", *_IMU, ("temperature", "u1"))),
    ("motor_state", _message(
        _GO + "MotorState_", *_MOTOR_STATE, ("q_raw", "f4"), ("dq_raw", "f4"), ("ddq_raw", "f4"),
        ("temperature", "u1"), ("lost", "u4"), ("reserve", "u4", 2)), GO_MOTORS),
    ("bms_state", _message(
        _GO + "BmsState_", ("version_high", "u1"), ("version_low", "u1"), ("status", "u1"), ("soc", "u1"),
        ("current", "i4"), ("cycle", "u2"), ("bq_ntc", "u1", 2), ("mcu_ntc", "u1", 2), ("cell_vol", "u2", 15))),
    ("foot_force", "i2", 4), ("foot_force_est", "i2", 4), ("tick", "u4"), ("wireless_remote", "u1", 40),
    ("bit_flag", "u1"), ("adc_reel", "f4"), ("temperature_ntc1", "u1"), ("temperature_ntc2", "u1"), ("power_v", "f4"),
    ("power_a", "f4"), ("fan_frequency", "u2", 4), ("reserve", "u4"), ("crc", "u4"),
)  # fmt: skip
"""State of the Go2 and B2: 1180 bytes as a C structure. ``tick`` counts milliseconds, ``soc`` is in percent."""

HG_LOW_CMD = _message(
    _HG + "LowCmd_",
    ("mode_pr", "u1"), ("mode_machine", "u1"),
    ("motor_cmd", _message(_HG + "MotorCmd_", *_MOTOR_CMD, ("reserve", "u4")), HG_MOTORS),
    ("reserve", "u4", 4), ("crc", "u4"),
)  # fmt: skip
"""Command of the G1 and H1-2: 1004 bytes as a C structure, 1004 on the wire."""

HG_LOW_STATE = _message(
    _HG + "LowState_",
    ("version", "u4", 2), ("mode_pr", "u1"), ("mode_machine", "u1"), ("tick", "u4"),
    ("imu_state", _message(_HG + "IMUState_", *_IMU, ("temperature", "i2"))),
    ("motor_state", _message(
        _HG + "MotorState_", *_MOTOR_STATE, ("temperature", "i2", 2), ("vol", "f4"), ("sensor", "u4", 2),
        ("motorstate", "u4"), ("reserve", "u4", 4)), HG_MOTORS),
    ("wireless_remote", "u1", 40), ("reserve", "u4", 4), ("crc", "u4"),
)  # fmt: skip
"""State of the G1 and H1-2: 2092 bytes as a C structure."""


def go_command() -> Record:
    """Return a command of the Go2 that gives no torque: motors on, both loops off, gains and torque 0.

    The checksum is still to be set, by `crc.sign`.
    """
    command = GO_LOW_CMD.new()
    command["head"] = (0xFE, 0xEF)
    command["level_flag"] = LOW_LEVEL
    motors = command["motor_cmd"]
    motors["mode"], motors["q"], motors["dq"] = MODE_ON, POS_STOP, VEL_STOP
    return command


def hg_command(mode_machine: int, mode_pr: int = 0) -> Record:
    """Return a command of the G1 that gives no torque: motors on, gains and torque 0.

    Args:
        mode_machine: the value in the newest state; the robot ignores commands with another one.
        mode_pr: 0 drives the ankles by pitch and roll, 1 by their two motors A and B.
    """
    command = HG_LOW_CMD.new()
    command["mode_machine"], command["mode_pr"] = mode_machine, mode_pr
    command["motor_cmd"]["mode"] = MODE_ON
    return command
