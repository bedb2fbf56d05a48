"""Speak to ROS 2 nodes over DDS with Eclipse Cyclone DDS, which has wheels for Linux on x86_64, CPython 3.11 to 3.13.

Messages stay the CDR of `rlenv_ros2.messages`; Cyclone gets them as bytes, with a description of their type. Topics
have the names of github.com/ros2/rmw_cyclonedds: ``rt/`` before a topic, ``rq/NAMERequest`` and ``rr/NAMEReply`` for a
service. Its services have a header of their own, so nodes with another DDS middleware share topics but not services.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from rlenv_robot.serving.node_transport import Publish, RefusalLog, Source
from rlenv_ros2.messages import TRIGGER, MessageError, MessageTypes, check_domain
from rlenv_ros2.service_queue import ServiceQueue

__all__ = ["DdsTransport"]

_LOOPBACK = "lo"
_CONFIG = """<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="{interface}" {multicast}/></Interfaces>
</General><Discovery><ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>60</MaxAutoParticipantIndex>
{peers}</Discovery></Domain></CycloneDDS>"""
_DEPTH, _BLOCK_MS, _POLL_MS = 10, 10, 100
_CDR_BYTES, _SERVICE_HEADER = 4, struct.Struct("<Qq")
"""Bytes of the CDR header, and what rmw_cyclonedds_cpp puts behind it in services: the client's guid, a number."""

_domains: dict[int, tuple[str, Any]] = {}
"""Domain -> its interface and Cyclone's domain: a process can configure a domain only once."""
_domains_lock = threading.Lock()


class DdsTransport:
    """A node of ROS 2 over DDS. Nodes see its topics, but not its name.

    Args:
        node: the node's name.
        namespace: the node's namespace.
        domain: ROS_DOMAIN_ID of the other nodes.
        distribution: ROS 2 distribution of the other nodes.
        interface: the network interface; by default this machine alone.
        trust_network: allow another interface than loopback. ROS 2 nodes show no keys, so whoever reaches the network
            can send whatever this node accepts.

    Attributes:
        types: the message types of the distribution.
        refused: the messages that were no legal ones.

    Raises:
        ValueError: a setting is not allowed, or Cyclone DDS is not installed.
    """

    def __init__(
        self,
        node: str,
        namespace: str = "/",
        domain: int = 0,
        distribution: str = "jazzy",
        interface: str = _LOOPBACK,
        trust_network: bool = False,
    ) -> None:
        self.types, self.refused = MessageTypes(distribution), RefusalLog()
        if interface != _LOOPBACK and not trust_network:
            raise ValueError(
                f"the interface {interface!r} reaches other machines. ROS 2 nodes show no keys, so whoever is on that "
                "network can send commands; if it is yours alone, say so: --trust-network, or trust_network = true"
            )
        _configure(check_domain(domain), interface)
        from cyclonedds.core import Policy, Qos
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.util import duration

        self._participant = DomainParticipant(domain)
        self._qos = Qos(
            Policy.Reliability.Reliable(duration(milliseconds=_BLOCK_MS)), Policy.Durability.Volatile,
            Policy.History.KeepLast(_DEPTH), Policy.DataRepresentation(use_cdrv0_representation=True),
        )  # fmt: skip
        self._carriers: dict[str, type] = {}
        self._queues: list[ServiceQueue] = []
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

    def advertise(self, topic: str, type_name: str) -> Publish:
        """Announce a topic, and return the function that publishes on it."""
        write = self._writer(f"rt{topic}", type_name)
        return lambda message: write(self.types.encode(message))

    def subscribe(self, topic: str, type_name: str, receive: Callable[[Any, Source], None]) -> None:
        """Call a function with each message of a topic, on a thread of its own."""
        self.types.check(type_name)

        def take(data: bytes, source: Source) -> None:
            receive(self.types.decode(data, type_name), source)

        self._read(f"rt{topic}", type_name, topic, take)

    def serve(self, name: str, answer: Callable[[], tuple[bool, str]]) -> None:
        """Offer a service of type Trigger to clients with rmw_cyclonedds_cpp."""
        queue = ServiceQueue(name, answer)
        write = self._writer(f"rr{name}Reply", f"{TRIGGER}_Response", service=True)
        end = _CDR_BYTES + _SERVICE_HEADER.size

        def take(data: bytes, source: Source) -> None:
            if len(data) < end:
                raise MessageError(f"a request of {len(data)} bytes, it must have at least {end}")

            def reply(success: bool, message: str) -> None:
                response = self.types.encode(self.types.make(f"{TRIGGER}_Response", success=success, message=message))
                write(response[:_CDR_BYTES] + data[_CDR_BYTES:end] + response[_CDR_BYTES:])

            queue.call(reply)

        self._queues.append(queue)
        self._read(f"rq{name}Request", f"{TRIGGER}_Request", name, take, service=True)

    def close(self) -> None:
        """Withdraw all topics and services, and leave the domain. Safe to call more than once."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        for queue in self._queues:
            queue.close()
        participant, self._participant = self._participant, None
        if participant is not None:
            participant.__del__()

    # -- bytes -------------------------------------------------------------------------------------------

    def _writer(self, topic: str, type_name: str, service: bool = False) -> Callable[[bytes], None]:
        from cyclonedds.core import DDSException
        from cyclonedds.pub import DataWriter
        from cyclonedds.topic import Topic

        carrier = self._carrier(type_name, service)
        topic_of, lock = Topic(self._participant, topic, carrier), threading.Lock()
        writer = DataWriter(self._participant, topic_of, qos=self._qos)

        def write(data: bytes) -> None:
            sample = carrier()
            sample.cdr = data
            try:
                with lock:
                    writer.write(sample, time.time_ns())
            except DDSException as error:
                if error.code != DDSException.DDS_RETCODE_TIMEOUT:  # a receiver that is slow misses this message
                    raise

        return write

    def _read(
        self, topic: str, type_name: str, name: str, take: Callable[[bytes, Source], None], service: bool = False
    ) -> None:
        """Take the bytes of a topic's messages on a thread."""
        from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
        from cyclonedds.sub import DataReader
        from cyclonedds.topic import Topic
        from cyclonedds.util import duration

        topic_of = Topic(self._participant, topic, self._carrier(type_name, service))
        reader = DataReader(self._participant, topic_of, qos=self._qos)
        waits = WaitSet(self._participant)
        waits.attach(ReadCondition(reader, SampleState.NotRead | ViewState.Any | InstanceState.Any))

        def run() -> None:
            while not self._over.is_set():
                waits.wait(duration(milliseconds=_POLL_MS))
                for sample in reader.take(_DEPTH):
                    if not hasattr(sample, "cdr"):
                        continue  # the end of a writer
                    try:
                        take(sample.cdr, Source(sample.sample_info.source_timestamp, time.time_ns()))
                    except Exception as error:  # one illegal message must not end the subscription
                        self.refused.add(name, error)

        thread = threading.Thread(target=run, name=f"rlenv-robot DDS {name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _carrier(self, type_name: str, service: bool) -> type:
        """Return the type that Cyclone announces; its samples are CDR bytes."""
        if type_name not in self._carriers:
            made = _idl_struct(self.types, type_name, service)
            made.serialize = lambda self, *_, **__: self.cdr
            made.deserialize, made.deserialize_key = classmethod(_from_cdr), classmethod(lambda *_: None)
            self._carriers[type_name] = made
        return self._carriers[type_name]


def _from_cdr(carrier: Any, /, data: bytes, *_: object, **__: object) -> Any:
    sample = carrier()
    sample.cdr = bytes(data)
    return sample


def _configure(domain: int, interface: str) -> None:
    try:
        from cyclonedds.domain import Domain
    except ImportError:
        raise ValueError(
            "ROS 2 over DDS needs cyclonedds: pip install 'rlenv-robot[dds]'. It has wheels for Linux on x86_64 with "
            "CPython 3.11 to 3.13; elsewhere build it (github.com/eclipse-cyclonedds/cyclonedds-python), or use Zenoh"
        ) from None
    with _domains_lock:
        known, _ = _domains.setdefault(domain, ("", None))
        if known not in ("", interface):
            raise ValueError(f"domain {domain} of this process uses the interface {known!r} already, not {interface!r}")
        if not known:
            is_loopback = interface == _LOOPBACK
            peers = '<Peers><Peer address="127.0.0.1"/></Peers>' if is_loopback else ""
            multicast = 'multicast="false"' if is_loopback else ""
            config = _CONFIG.format(interface=interface, multicast=multicast, peers=peers)
            _domains[domain] = interface, Domain(domain, config)


def _idl_struct(types: MessageTypes, type_name: str, service: bool = False) -> Any:
    """Return Cyclone's description of a message type."""
    from cyclonedds.idl import make_idl_struct
    from cyclonedds.idl import types as idl
    from cyclonedds.idl.annotations import final

    package, kind, short = type_name.split("/")
    fields = {name: _idl_type(types, form) for name, form in types.fields_of(type_name)}
    if service:
        fields = {"client_guid": idl.uint64, "sequence_number": idl.int64, **fields}
    return final(make_idl_struct(short, f"{package}.{kind}.dds_.{short}_", fields, dataclassify=False))


def _idl_type(types: MessageTypes, form: Any) -> Any:
    """Return Cyclone's description of a field of `rosbags`."""
    from cyclonedds.idl import types as idl

    kind, detail = form[0].name, form[1]
    if kind == "NAME":
        return _idl_struct(types, detail)
    if kind == "ARRAY":
        return idl.array[_idl_type(types, detail[0]), detail[1]]
    if kind == "SEQUENCE":
        element = _idl_type(types, detail[0])
        return idl.sequence[element, detail[1]] if detail[1] else idl.sequence[element]
    name, size = detail
    if name == "string":
        return idl.bounded_str[size] if size else str
    return bool if name == "bool" else getattr(idl, {"byte": "uint8", "char": "uint8"}.get(name, name))
