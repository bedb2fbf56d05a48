"""Define the door between nodes of ROS 2 and what carries their messages, which installed packages provide."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from rlenv_robot.config.plugins import PluginTable, unknown_name

__all__ = ["MessageFactory", "NodeTransport", "Publish", "RefusalLog", "Source", "full_name", "open_transport"]

_log = logging.getLogger(__name__)

_TOLD_S = 5.0
"""Time between two log lines about refused messages of one topic, seconds."""

Publish = Callable[[Any], None]
"""Publish one message. It never waits for a receiver."""


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a received message.

    Attributes:
        sent_ns: wall clock of the sender when the message left, nanoseconds since 1970.
        received_ns: wall clock of this machine when it came.
    """

    sent_ns: int
    received_ns: int

    @property
    def age_s(self) -> float:
        """Age on arrival by the two machines' wall clocks, seconds; negative if the sender's clock is ahead."""
        return (self.received_ns - self.sent_ns) / 1e9


class MessageFactory(Protocol):
    """Make messages of ROS 2 types."""

    def make(self, type_name: str, **fields: Any) -> Any:
        """Return a message of a type, such as ``std_msgs/msg/String``, with all of its fields."""
        ...

    def header(self, stamp_ns: int, frame: str = "") -> Any:
        """Return a ``std_msgs/Header`` from a wall clock (nanoseconds since 1970) and the name of a frame."""
        ...


class NodeTransport(Protocol):
    """Carry messages of topics and services between one node of this process and ROS 2 nodes.

    A package declares a class of this kind in the entry-point group ``rlenv_robot.node_transports``.
    """

    @property
    def types(self) -> MessageFactory:
        """The message types of the nodes' distribution."""
        ...

    def advertise(self, topic: str, type_name: str) -> Publish:
        """Announce a topic, and return the function that publishes on it."""
        ...

    def subscribe(self, topic: str, type_name: str, receive: Callable[[Any, Source], None]) -> None:
        """Call a function with each message of a topic, on a thread of the transport.

        Bytes that are no such message are refused, counted and logged, and so is what ``receive`` raises.
        """
        ...

    def serve(self, name: str, answer: Callable[[], tuple[bool, str]]) -> None:
        """Offer a ``std_srvs/srv/Trigger`` service; ``answer`` returns success and message, on a thread of its own."""
        ...

    def close(self) -> None:
        """Withdraw all topics and services, and disconnect. Safe to call more than once."""
        ...


def open_transport(kind: str, **options: Any) -> NodeTransport:
    """Open a transport, such as ``zenoh`` or ``dds`` of the plug-in ``ros2``.

    Args:
        kind: its name in the entry-point group ``rlenv_robot.node_transports``.
        options: its keyword arguments.

    Raises:
        ValueError: no installed package has it, an option is not allowed, or an extra is missing.
        ConnectionLost: nobody answers.
    """
    table = PluginTable("transport of ROS 2", "rlenv_robot.node_transports", {})
    if kind not in table:
        raise unknown_name(kind, "transport of ROS 2", table.names())
    return cast("Callable[..., NodeTransport]", table.load(kind))(**options)


def full_name(name: str, namespace: str = "", node: str = "") -> str:
    """Return a topic's full name: ``/x`` stays, ``~/x`` is below the node, ``x`` below the namespace.

    Raises:
        ValueError: a part is not a ROS 2 name: letters, digits and underscores, no digit first.
    """
    space = f"/{namespace.strip('/')}".rstrip("/")
    text = name if name.startswith("/") else f"{space}/{name.replace('~', node, 1)}"
    for part in text[1:].split("/"):
        if not (part.isascii() and part.isidentifier()):
            raise ValueError(
                f"{text!r} is no name of ROS 2: its parts have letters, digits and underscores, and begin with no digit"
            )
    return text


class RefusalLog:
    """Count refused messages by topic, and log the first of each topic and then one every few seconds.

    Attributes:
        counts: topic -> number of refused messages.
        last: the last one's topic and reason.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.last = ""
        self._told_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, topic: str, reason: object) -> None:
        """Count a refused message, and log its reason."""
        now_s = time.monotonic()
        with self._lock:
            self.counts[topic] = count = self.counts.get(topic, 0) + 1
            self.last = text = f"{topic}: {str(reason)[:500]}"
            is_due = now_s - self._told_s.get(topic, -_TOLD_S) >= _TOLD_S
            if is_due:
                self._told_s[topic] = now_s
        if is_due:
            _log.warning("message %d of this topic is refused; %s", count, text)
