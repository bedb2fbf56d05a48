"""Publish and receive Unitree's messages over DDS, on one network interface and one domain.

A `Reader` reports for each sample which writer sent it and when it arrived. A reader with ``others_only`` leaves out
what this very `Channel` wrote, so each of its samples proves a second writer::

    with Channel("eth0") as channel:
        writer = channel.writer(TOPIC_LOW_CMD, GO_LOW_CMD)
        others = channel.reader(TOPIC_LOW_CMD, GO_LOW_CMD, others_only=True)

The domain's settings are those of unitree_sdk2_python 37116c5, `unitree_sdk2py/core/channel_config.py`, without its
log file. `Channel.open` imports cyclonedds.
"""

from __future__ import annotations

import functools
import threading
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

from hal.errors import RobotError
from rlenv_unitree.messages import Message, Record

__all__ = ["Channel", "Reader", "Sample", "Writer", "cyclonedds", "idl_type", "wait_until"]

_SETTINGS = """<CycloneDDS><Domain Id="any"><General><Interfaces>
<NetworkInterface name="{interface}" priority="default" multicast="default"/>
</Interfaces></General></Domain></CycloneDDS>"""

_IDL_NAMES = {"u1": "uint8", "u2": "uint16", "u4": "uint32", "i2": "int16", "i4": "int32", "f4": "float32"}

_domains: dict[int, tuple[str, Any]] = {}
"""Domains of this process with their interfaces: cyclonedds makes each once."""

_domains_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Sample:
    """A received message.

    Attributes:
        record: the message (`rlenv_unitree.messages`), writable.
        writer: handle of its writer, equal for all samples of one writer; `Reader.describe` tells more.
        arrived_ns: time at which `Reader.take` saw it, by `time.monotonic_ns`.
        sent_ns: time at which its writer sent it, by the writer's clock, ns since 1970.
    """

    record: Record
    writer: int
    arrived_ns: int
    sent_ns: int


class Channel:
    """A DDS participant on one network interface.

    Args:
        interface: name of the network interface, such as ``eth0``, or ``lo`` for robots in this machine.
        domain: number of the DDS domain, 0 to 230; Unitree's robots use 0.
    """

    def __init__(self, interface: str, domain: int = 0) -> None:
        self.interface = interface
        self.domain = domain
        self._participant: Any = None

    def open(self) -> None:
        """Join the domain. Calling it twice is allowed.

        Raises:
            RobotError: cyclonedds is not installed, the interface does not exist, or this process uses the domain on
                another interface.
        """
        if self._participant is None:
            _check(self.interface, self.domain)
            dds = cyclonedds()
            with _domains_lock:
                _enter_domain(dds, self.domain, self.interface)
            self._participant = dds.domain.DomainParticipant(self.domain)

    def close(self) -> None:
        """Leave the domain; its writers and readers end with it. Calling it twice is allowed."""
        participant, self._participant = self._participant, None
        if participant is not None:
            participant.__del__()  # the only way: readers keep their participant alive

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def writer(self, topic: str, message: Message) -> Writer:
        """Make a writer of a topic, with the vendor's quality of service (reliable, the newest sample kept)."""
        data_type = idl_type(message)
        return Writer(message, self.endpoint("pub", topic, data_type), data_type)

    def reader(self, topic: str, message: Message, *, depth: int = 64, others_only: bool = False) -> Reader:
        """Make a reader of a topic.

        Args:
            topic: the topic, such as `rlenv_unitree.messages.TOPIC_LOW_STATE`.
            message: the message type.
            depth: number of samples that wait at most until `Reader.take`; older ones are dropped.
            others_only: whether to leave out the samples that writers of this channel sent.
        """
        qos = cyclonedds().qos
        ignore = qos.Policy.IgnoreLocal.Participant if others_only else qos.Policy.IgnoreLocal.Nothing
        kept = qos.Qos(qos.Policy.History.KeepLast(depth), ignore)
        return Reader(message, self.endpoint("sub", topic, idl_type(message), kept), depth)

    def endpoint(self, kind: Literal["pub", "sub"], topic: str, data_type: Any, qos: Any = None) -> Any:
        """Make a cyclonedds DataWriter (``pub``) or DataReader (``sub``) of any cyclonedds type."""
        if self._participant is None:
            raise RobotError(f"the DDS channel on {self.interface} is not open: call open() first")
        dds = cyclonedds()
        named = dds.topic.Topic(self._participant, topic, data_type)
        made = dds.pub.DataWriter if kind == "pub" else dds.sub.DataReader
        return made(self._participant, named, qos)


class Writer:
    """A writer of one topic; `Channel.writer` makes it."""

    def __init__(self, message: Message, writer: Any, data_type: Any) -> None:
        self.message = message
        self._writer = writer
        self._data_type = data_type

    def write(self, record: Record) -> None:
        """Send a message.

        Raises:
            RobotError: DDS refused it, such as when a reliable reader took nothing for 100 ms.
        """
        sample = self._data_type()
        sample.wire = self.message.to_wire(record)
        try:
            self._writer.write(sample)
        except cyclonedds().core.DDSException as error:
            raise RobotError(f"DDS did not send {self.message.typename}: {error.msg}; check the interface") from error

    def readers(self) -> int:
        """Return the number of readers that DDS has matched so far."""
        return len(self._writer.get_matched_subscriptions())

    def wait_for_reader(self, timeout_s: float) -> bool:
        """Wait until DDS has matched a reader; return whether there is one."""
        return wait_until(lambda: self.readers() > 0, timeout_s)


class Reader:
    """A reader of one topic; `Channel.reader` makes it."""

    def __init__(self, message: Message, reader: Any, depth: int) -> None:
        self.message = message
        self._reader, self._depth = reader, depth

    def take(self) -> list[Sample]:
        """Return the samples that arrived since the last call, oldest first, without waiting."""
        now = time.monotonic_ns()
        return [
            Sample(self.message.from_wire(taken.wire), info.publication_handle, now, info.source_timestamp)
            for taken in self._reader.take(self._depth)
            if (info := taken.sample_info).valid_data
        ]

    def writers(self) -> list[int]:
        """Return the handles of the writers that DDS has matched so far, also of those that sent nothing."""
        return [handle % 2**64 for handle in self._reader.get_matched_publications()]

    def describe(self, writer: int) -> str:
        """Return the identity of a writer: the GUIDs of its endpoint and of its process's participant."""
        endpoint = self._reader.get_matched_publication_data(writer if writer < 2**63 else writer - 2**64)
        if endpoint is None:
            return f"writer {writer:x}, which has left"
        return f"writer {endpoint.key} of participant {endpoint.participant_key}"


@functools.cache
def idl_type(message: Message) -> Any:
    """Return the cyclonedds type of a message, for topics.

    Its samples carry the bytes on the wire as they are, in ``wire``; cyclonedds's own conversion takes a part of a
    millisecond for each. Other processes see the same type as the vendor's generated one.
    """
    dds = cyclonedds()
    nested = {member.kind: idl_type(member.kind) for member in message.members if isinstance(member.kind, Message)}

    def annotation(kind: str | Message, count: int) -> Any:
        single = nested[kind] if isinstance(kind, Message) else getattr(dds.idl.types, _IDL_NAMES[kind])
        return single if count == 1 else dds.idl.types.array[single, count]

    def serialize(sample: Any, **_: Any) -> bytes:
        wire: bytes = sample.wire
        return wire

    def deserialize(kind: Any, /, data: bytes, **_: Any) -> Any:
        sample = kind()
        sample.wire = bytes(data)
        return sample

    def deserialize_key(kind: Any, /, data: bytes, **_: Any) -> Any:
        """Return an empty sample, for the note that a writer has left: these messages have no key."""
        return kind()

    def body(namespace: dict[str, Any]) -> None:
        namespace["__module__"] = __name__
        namespace["__annotations__"] = {name: annotation(kind, count) for name, kind, count in message.members}
        namespace["serialize"] = serialize
        namespace["deserialize"] = classmethod(deserialize)
        namespace["deserialize_key"] = classmethod(deserialize_key)

    name = message.typename.rpartition(".")[2]
    made = types.new_class(name, (dds.idl.IdlStruct,), {"typename": message.typename}, body)
    return dds.idl.annotations.autoid("sequential")(dds.idl.annotations.final(made))


def _check(interface: str, domain: int) -> None:
    import socket

    names = [name for _, name in socket.if_nameindex()]
    if interface not in names:
        raise RobotError(
            f"there is no network interface {interface!r} here, but {', '.join(names)}; name the one of the robot's "
            "network (its address begins with 192.168.123), or lo for a virtual robot"
        )
    if not 0 <= domain <= 230:
        raise RobotError(f"DDS domain {domain}: allowed are 0 to 230; Unitree's robots use 0")


def _enter_domain(dds: Any, domain: int, interface: str) -> None:
    known = _domains.get(domain)
    if known is None:
        try:
            _domains[domain] = (interface, dds.domain.Domain(domain, _SETTINGS.format(interface=interface)))
        except dds.core.DDSException as error:
            raise RobotError(
                f"DDS can't open domain {domain} on {interface}: {error.msg}; is the interface up, and does other code "
                "in this process use the domain?"
            ) from error
    elif known[0] != interface:
        raise RobotError(
            f"this process uses DDS domain {domain} on {known[0]}, and can't on {interface} too: one process for each "
            "interface, or another domain"
        )


def wait_until(done: Callable[[], object], timeout_s: float) -> bool:
    """Call a function every 2 ms until its value is true, or the time is over; return whether it was true."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


@functools.cache
def cyclonedds() -> Any:
    """Import cyclonedds with the modules that this package uses.

    Raises:
        RobotError: it is not installed; the message gives the command for this machine.
    """
    try:
        import cyclonedds
        import cyclonedds.core
        import cyclonedds.domain
        import cyclonedds.idl.annotations
        import cyclonedds.idl.types
        import cyclonedds.pub
        import cyclonedds.qos
        import cyclonedds.sub
        import cyclonedds.topic
    except ImportError as error:
        raise RobotError(_missing(str(error))) from error
    return cyclonedds


def _missing(reason: str) -> str:
    """Return the message about cyclonedds with the command that installs it on this machine."""
    import platform
    import sys

    if platform.machine() == "x86_64" and sys.platform == "linux" and sys.version_info < (3, 14):
        return f"Unitree's robots need cyclonedds ({reason}): pip install 'rlenv-robot[unitree]'"
    return (
        f"Unitree's robots need cyclonedds ({reason}), which has no wheel for {platform.machine()} with Python "
        f"{platform.python_version()}. Build its C library, then the package: "
        "git clone -b releases/11.0.x https://github.com/eclipse-cyclonedds/cyclonedds && cmake -S cyclonedds -B build "
        "-DCMAKE_INSTALL_PREFIX=$HOME/dds && cmake --build build --target install && "
        "CYCLONEDDS_HOME=$HOME/dds pip install 'rlenv-robot[unitree]'"
    )
