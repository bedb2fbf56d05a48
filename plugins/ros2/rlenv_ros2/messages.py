"""Encode, decode and identify ROS 2 messages with the type store of `rosbags`."""

from __future__ import annotations

import struct
from typing import Any

from hal import RobotError

__all__ = [
    "DISTRIBUTIONS", "MAX_BYTES", "MAX_DOMAIN", "MAX_FIELD_BYTES", "NO_HASH", "TRIGGER", "MessageError", "MessageTypes",
    "check_domain", "dds_name",
]  # fmt: skip

NO_HASH = "TypeHashNotSupported"
"""The hash of every type in ROS 2 Humble (``rmw_zenoh_cpp``, branch humble)."""

DISTRIBUTIONS = {"humble": "ROS2_HUMBLE", "jazzy": "ROS2_JAZZY"}
"""Distribution -> the type store of `rosbags`. Kilted's types and hashes that are used here are those of Jazzy."""

TRIGGER = "std_srvs/srv/Trigger"
"""The type of every service that a served robot offers."""

MAX_BYTES = 8 << 20
"""Largest image that is decoded, bytes."""

MAX_FIELD_BYTES = 2 << 20
"""Largest other message that is decoded, bytes; a trajectory has a few thousand.

Its fields are decoded one by one: 7 MB took 4.6 s on a busy machine, during which the process answers late.
"""

_DEFINITIONS = {
    f"{TRIGGER}_Request": "",
    f"{TRIGGER}_Response": "bool success\nstring message\n",
    f"{TRIGGER}_Event": (
        f"service_msgs/ServiceEventInfo info\n{TRIGGER}_Request[<=1] request\n{TRIGGER}_Response[<=1] response\n"
    ),
    TRIGGER: f"{TRIGGER}_Request request_message\n{TRIGGER}_Response response_message\n{TRIGGER}_Event event_message\n",
}
"""A service and its parts (ros2/common_interfaces ``std_srvs/srv/Trigger.srv``), which the type store lacks. The
service's own hash is that of a message with these three parts (REP 2016)."""


MAX_DOMAIN = 232
"""Highest number of a domain (DDSI-RTPS 2.5, 9.6.2)."""


class MessageError(RobotError):
    """The bytes are no message of the expected type, or the type is unknown."""


def dds_name(type_name: str) -> str:
    """Return a type's name in DDS: ``std_msgs/msg/String`` as ``std_msgs::msg::dds_::String_``."""
    package, kind, name = type_name.split("/")
    return f"{package}::{kind}::dds_::{name}_"


def check_domain(domain: int) -> int:
    """Return a domain's number.

    Raises:
        ValueError: it is not in the range.
    """
    if isinstance(domain, bool) or not isinstance(domain, int) or not 0 <= domain <= MAX_DOMAIN:
        raise ValueError(f"the domain is {domain!r}, it must be a whole number from 0 to {MAX_DOMAIN} (ROS_DOMAIN_ID)")
    return domain


class MessageTypes:
    """The message types of one distribution of ROS 2.

    Args:
        distribution: a key of `DISTRIBUTIONS`.

    Raises:
        ValueError: the distribution is unknown, or `rosbags` is not installed.
    """

    def __init__(self, distribution: str = "jazzy") -> None:
        if distribution not in DISTRIBUTIONS:
            raise ValueError(f"the distribution is {distribution!r}, allowed are {', '.join(DISTRIBUTIONS)}")
        try:
            from rosbags.typesys import Stores, get_typestore
        except ImportError:
            raise ValueError("messages of ROS 2 need rosbags: pip install 'rlenv-robot[ros2]'") from None
        self.distribution = distribution
        self._store = get_typestore(getattr(Stores, DISTRIBUTIONS[distribution]))
        self._add_services()
        self._hashes: dict[str, str] = {}

    def _add_services(self) -> None:
        from rosbags.typesys import get_types_from_msg

        for name, definition in _DEFINITIONS.items():
            package, kind, short = name.split("/")
            types = get_types_from_msg(definition.replace("/srv/", "/srv/msg/"), f"{package}/{kind}/msg/{short}")
            self._store.register(types)

    def check(self, type_name: str) -> None:
        """Refuse an unknown type.

        Raises:
            MessageError: the type store does not have it.
        """
        if self._key(type_name) not in self._store.fielddefs:
            raise MessageError(
                f"the message type {type_name!r} is unknown; known are those of {self.distribution}'s common packages, "
                "such as sensor_msgs/msg/JointState"
            )

    def fields_of(self, type_name: str) -> list[tuple[str, Any]]:
        """Return name and form of each field, as `rosbags` describes them; an empty message has a placeholder.

        Raises:
            MessageError: the type is unknown.
        """
        self.check(type_name)
        return list(self._store.get_msgdef(self._key(type_name)).fields)

    def make(self, type_name: str, **fields: Any) -> Any:
        """Return a message with all of its fields.

        Raises:
            MessageError: the type is unknown.
            TypeError: a field is missing or unknown.
        """
        self.check(type_name)
        return self._store.types[self._key(type_name)](**fields)

    def encode(self, message: Any) -> bytes:
        """Return a message as little-endian CDR with its 4-byte header."""
        return bytes(self._store.serialize_cdr(message, message.__msgtype__, little_endian=True))

    def decode(self, data: bytes, type_name: str) -> Any:
        """Return the message in CDR bytes.

        Raises:
            MessageError: the bytes are truncated, too long, or no such message.
        """
        from rosbags.serde import SerdeError

        allowed = MAX_BYTES if type_name.endswith("Image") else MAX_FIELD_BYTES
        if len(data) > allowed:
            raise MessageError(f"a message of {len(data)} bytes is refused, allowed are {allowed} of a {type_name}")
        self.check(type_name)
        try:
            return self._store.deserialize_cdr(data, self._key(type_name))
        except (SerdeError, struct.error, ValueError, IndexError, AssertionError, OverflowError, MemoryError) as error:
            raise MessageError(f"{len(data)} bytes are no {type_name}: {error}") from error

    def hash_of(self, type_name: str) -> str:
        """Return the last part of a topic's key: the type's RIHS01 hash (REP 2016), or `NO_HASH` for Humble.

        Raises:
            MessageError: the type is unknown.
        """
        self.check(type_name)
        if self.distribution == "humble":
            return NO_HASH
        if type_name not in self._hashes:
            self._hashes[type_name] = self._hash(type_name)
        return self._hashes[type_name]

    def _hash(self, type_name: str) -> str:
        if "/srv/" not in type_name:
            return str(self._store.hash_rihs01(type_name))
        from rosbags.typesys import Stores, get_typestore

        plain = get_typestore(Stores.EMPTY)  # under their real names, which the hash covers
        for name, (constants, fields) in self._store.fielddefs.items():
            plain.fielddefs[name.replace("/srv/msg/", "/srv/")] = constants, [_renamed(field) for field in fields]
        return str(plain.hash_rihs01(type_name))

    def _key(self, type_name: str) -> str:
        return type_name.replace("/srv/", "/srv/msg/") if "/srv/msg/" not in type_name else type_name

    def header(self, stamp_ns: int, frame: str = "") -> Any:
        """Return a ``std_msgs/Header``.

        Args:
            stamp_ns: wall clock, nanoseconds since 1970.
            frame: the name of the frame.
        """
        seconds, rest = divmod(stamp_ns, 10**9)
        stamp = self.make("builtin_interfaces/msg/Time", sec=seconds, nanosec=rest)
        return self.make("std_msgs/msg/Header", stamp=stamp, frame_id=frame)


def _renamed(field: Any) -> Any:
    """Return a field's description as ROS 2 hashes it: services' parts by their names, ``char`` as ``uint8``.

    rosidl_adapter writes the ``char`` of a ``.msg`` file as ``uint8`` (``rosidl_adapter/msg/__init__.py``).
    """
    if isinstance(field, tuple):
        return tuple(_renamed(part) for part in field)
    if field == "char":
        return "uint8"
    return field.replace("/srv/msg/", "/srv/") if isinstance(field, str) else field
