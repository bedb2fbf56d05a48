"""Speak to ROS 2 nodes whose middleware is ``rmw_zenoh_cpp``, as one more peer of their Zenoh network.

Keys, attachments and liveliness tokens are those of github.com/ros2/rmw_zenoh, ``docs/design.md``.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from hal import ConnectionLost
from rlenv_robot.serving.node_transport import Publish, RefusalLog, Source
from rlenv_ros2.messages import TRIGGER, MessageError, MessageTypes, check_domain, dds_name
from rlenv_ros2.service_queue import ServiceQueue

__all__ = ["LIVELINESS", "ROUTER", "Attachment", "ZenohTransport", "is_loopback", "open_session", "topic_key"]

ROUTER = "tcp/localhost:7447"
"""Endpoint of the router that ``ros2 run rmw_zenoh_cpp rmw_zenohd`` starts."""

LIVELINESS = "@ros2_lv"
"""The first part of the liveliness tokens' keys."""

_QOS = "::,10:,:,:,,"
"""Reliable, volatile, the last 10 kept: the defaults of ROS 2, as ``rmw_zenoh_cpp`` writes them."""

_ATTACHMENT = struct.Struct("<qqB16s")
_GID_BYTES = 16
_CONNECT_S = 5.0


class Attachment(NamedTuple):
    """The data beside each message: sequence number, the sender's wall clock (ns since 1970) and identity (16 bytes).

    33 bytes, little-endian: int64, int64, the identity's length in one byte, identity.
    """

    sequence: int
    sent_ns: int
    gid: bytes

    def to_bytes(self) -> bytes:
        """Return the 33 bytes."""
        return _ATTACHMENT.pack(self.sequence, self.sent_ns, _GID_BYTES, self.gid)

    @staticmethod
    def from_bytes(data: bytes) -> Attachment:
        """Read the 33 bytes.

        Raises:
            MessageError: they are no attachment of ``rmw_zenoh_cpp``.
        """
        if len(data) != _ATTACHMENT.size:
            raise MessageError(f"an attachment of {len(data)} bytes, it must have {_ATTACHMENT.size}")
        sequence, sent_ns, length, gid = _ATTACHMENT.unpack(data)
        if length != _GID_BYTES:
            raise MessageError(f"an attachment with an identity of {length} bytes, it must have {_GID_BYTES}")
        return Attachment(sequence, sent_ns, gid)


def topic_key(domain: int, name: str, type_name: str, type_hash: str) -> str:
    """Return the key of a topic or service with a full name."""
    return f"{domain}/{name.lstrip('/')}/{dds_name(type_name)}/{type_hash}"


def is_loopback(endpoint: str) -> bool:
    """Return whether an endpoint such as ``tcp/localhost:7447`` is on this machine."""
    host = endpoint.partition("/")[2].rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or host.startswith("127.")


def open_session(router: str = ROUTER, timeout_s: float = _CONNECT_S) -> Any:
    """Connect to a router as a peer without multicast, as ``rmw_zenoh_cpp`` does, and return the Zenoh session.

    Raises:
        ValueError: Zenoh is not installed.
        ConnectionLost: no router answers at the endpoint in time.
    """
    try:
        import zenoh
    except ImportError:
        raise ValueError("ROS 2 over Zenoh needs eclipse-zenoh: pip install 'rlenv-robot[ros2]'") from None
    config = zenoh.Config()
    host = "127.0.0.1" if is_loopback(router) else "0.0.0.0"
    timeout_ms = int(timeout_s * 1000)
    for key, value in {
        "mode": "peer",
        "connect/endpoints": [router],
        "connect/timeout_ms": timeout_ms,
        "connect/exit_on_failure": True,
        "listen/endpoints": [f"tcp/{host}:0"],
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": True,
    }.items():
        config.insert_json5(key, json.dumps(value))
    try:
        return zenoh.open(config)
    except zenoh.ZError as error:
        raise ConnectionLost(
            f"no Zenoh router answers at {router} within {timeout_s:g} s ({error}): start it with "
            "`ros2 run rmw_zenoh_cpp rmw_zenohd` or `zenohd`, or name another with --router"
        ) from None


class ZenohTransport:
    """A node of ROS 2 over Zenoh.

    Args:
        node: the node's name.
        namespace: the node's namespace, such as ``/left``; ``/`` for none.
        domain: ROS_DOMAIN_ID of the other nodes.
        distribution: ROS 2 distribution of the other nodes (`rlenv_ros2.messages.DISTRIBUTIONS`).
        router: endpoint of the router.
        trust_network: allow a router on another machine. ROS 2 nodes show no keys, so whoever reaches the router can
            send whatever this node accepts.

    Attributes:
        types: the message types of the distribution.
        refused: the messages that were no legal ones.

    Raises:
        ValueError: a setting is not allowed, or a package is missing.
        ConnectionLost: no router answers.
    """

    def __init__(
        self,
        node: str,
        namespace: str = "/",
        domain: int = 0,
        distribution: str = "jazzy",
        router: str = ROUTER,
        trust_network: bool = False,
    ) -> None:
        self.types = MessageTypes(distribution)
        self.refused = RefusalLog()
        self._domain, self._node, self._namespace = check_domain(domain), node, namespace
        if not (is_loopback(router) or trust_network):
            raise ValueError(
                f"the router {router} is on another machine. ROS 2 nodes show no keys, so whoever reaches that router "
                "can send commands; if that network is yours alone, say so: --trust-network, or trust_network = true"
            )
        self._session = open_session(router)
        self._zid = str(self._session.info.zid())
        self._queues: list[ServiceQueue] = []
        self._declared: list[Any] = []
        self._lock = threading.Lock()
        self._next = 1
        self._token(f"0/0/NN/{self._place()}")

    def advertise(self, topic: str, type_name: str) -> Publish:
        """Announce a topic, and return the function that publishes on it."""
        import zenoh

        key = self._announce("MP", topic, type_name)
        publisher = self._session.declare_publisher(key, congestion_control=zenoh.CongestionControl.DROP)
        self._declared.append(publisher)
        gid, sequence, lock = os.urandom(_GID_BYTES), 0, threading.Lock()

        def publish(message: Any) -> None:
            nonlocal sequence
            data = self.types.encode(message)
            with lock:
                sequence += 1
                publisher.put(data, attachment=Attachment(sequence, time.time_ns(), gid).to_bytes())

        return publish

    def subscribe(self, topic: str, type_name: str, receive: Callable[[Any, Source], None]) -> None:
        """Call a function with each message of a topic, on a thread of Zenoh."""

        def take(sample: Any) -> None:
            try:
                attached = b"" if sample.attachment is None else sample.attachment.to_bytes()
                source = Source(Attachment.from_bytes(attached).sent_ns, time.time_ns())
                receive(self.types.decode(sample.payload.to_bytes(), type_name), source)
            except Exception as error:  # one illegal message must not end the subscription
                self.refused.add(topic, error)

        self._declared.append(self._session.declare_subscriber(self._announce("MS", topic, type_name), take))

    def serve(self, name: str, answer: Callable[[], tuple[bool, str]]) -> None:
        """Offer a service of type Trigger. A call without a legal attachment is carried out too."""
        queue = ServiceQueue(name, answer)
        key = self._announce("SS", name, TRIGGER)

        def take(query: Any) -> None:
            try:
                asked = Attachment.from_bytes(b"" if query.attachment is None else query.attachment.to_bytes())
            except MessageError:
                asked = Attachment(0, 0, bytes(_GID_BYTES))

            def reply(success: bool, message: str) -> None:
                response = self.types.make(f"{TRIGGER}_Response", success=success, message=message)
                attached = Attachment(asked.sequence, time.time_ns(), asked.gid).to_bytes()
                query.reply(key, self.types.encode(response), attachment=attached)
                query.drop()

            queue.call(reply)

        self._queues.append(queue)
        self._declared.append(self._session.declare_queryable(key, take, complete=True))

    def close(self) -> None:
        """Withdraw all topics and services, and disconnect. Safe to call more than once."""
        with self._lock:
            declared, self._declared = self._declared[::-1], []
        for entity in declared:
            entity.undeclare()
        for queue in self._queues:
            queue.close()
        if not self._session.is_closed():
            self._session.close()

    def _announce(self, kind: str, name: str, type_name: str) -> str:
        """Declare the token of a topic or service, and return its key."""
        type_hash = self.types.hash_of(type_name)
        with self._lock:
            number, self._next = self._next, self._next + 1
        mangled = name.replace("/", "%")
        self._token(f"0/{number}/{kind}/{self._place()}/{mangled}/{dds_name(type_name)}/{type_hash}/{_QOS}")
        return topic_key(self._domain, name, type_name, type_hash)

    def _place(self) -> str:
        """Return enclave, namespace and name of the node, as a token has them."""
        return f"%/{self._namespace.replace('/', '%') or '%'}/{self._node}"

    def _token(self, rest: str) -> None:
        key = f"{LIVELINESS}/{self._domain}/{self._zid}/{rest}"
        self._declared.append(self._session.liveliness().declare_token(key))
