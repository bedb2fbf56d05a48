"""Examine a Zenoh network for what keeps ROS 2 messages from arriving: router, domain, hashes, types."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hal import ConnectionLost
from rlenv_robot.cli.output import Finding, counted
from rlenv_ros2.messages import DISTRIBUTIONS, NO_HASH, MessageError, MessageTypes
from rlenv_ros2.zenoh_transport import LIVELINESS, ROUTER, open_session

__all__ = ["Endpoint", "endpoints_of", "examine_network", "examine_router", "findings_of"]

_QUICK_S, _CONNECT_S, _LISTEN_S = 1.0, 2.0, 1.0
_SHOWN = 20


class Endpoint(NamedTuple):
    """A node's topic or service, or the node itself, as its liveliness token has it.

    Attributes:
        domain: the domain's number.
        kind: NN for a node, MP and MS for the publisher and the subscriber of a topic, SS and SC for the server and the
            client of a service.
        node: full name of the node.
        name: full name of the topic or service; empty for a node.
        type_name: such as ``std_msgs/msg/String``.
        type_hash: RIHS01 hash, or ``TypeHashNotSupported``.
    """

    domain: int
    kind: str
    node: str
    name: str = ""
    type_name: str = ""
    type_hash: str = ""

    @staticmethod
    def from_token(key: str) -> Endpoint | None:
        """Read the key of a token; None if it is none of ROS 2."""
        parts = key.split("/")
        if len(parts) not in (9, 13) or parts[0] != LIVELINESS or not parts[1].isdecimal():
            return None
        node = f"{parts[7]}/{parts[8]}".replace("%", "/").replace("//", "/")
        if len(parts) == 9:
            return Endpoint(int(parts[1]), parts[5], node)
        name, dds_type, type_hash = parts[9:12]
        type_name = dds_type.replace("::dds_::", "::").replace("::", "/").removesuffix("_")
        return Endpoint(int(parts[1]), parts[5], node, name.replace("%", "/"), type_name, type_hash)


def endpoints_of(session: Any, seconds: float = _LISTEN_S) -> list[Endpoint]:
    """Return the nodes, topics and services of all domains that a Zenoh session hears of within some seconds."""
    keys: list[str] = []
    subscriber = session.liveliness().declare_subscriber(
        f"{LIVELINESS}/**", lambda sample: keys.append(str(sample.key_expr)), history=True
    )
    time.sleep(seconds)  # those that are there already come one after another, from each peer
    subscriber.undeclare()
    endpoints = map(Endpoint.from_token, set(keys))
    return sorted(endpoint for endpoint in endpoints if endpoint is not None)


def examine_network(record: Path | None = None, keys: Path | None = None) -> list[Finding]:
    """Examine the network of the default router and domain, for the verb ``doctor``.

    Args:
        record: unused.
        keys: unused.
    """
    return examine_router(timeout_s=_QUICK_S)


def examine_router(
    router: str = ROUTER, domain: int = 0, distribution: str = "jazzy", timeout_s: float = _CONNECT_S
) -> list[Finding]:
    """Examine the network behind a router as the bridge with these settings would see it."""
    try:
        types = MessageTypes(distribution)
        session = open_session(router, timeout_s)
    except ValueError as error:
        return [Finding("ROS 2", None, "a package or setting is missing", str(error))]
    except ConnectionLost as error:
        return [Finding("ROS 2 router", None, f"none at {router}", str(error).rpartition("): ")[2])]
    try:
        found = endpoints_of(session)
    finally:
        session.close()
    return [Finding("ROS 2 router", True, router), *findings_of(found, domain, types)]


def findings_of(endpoints: list[Endpoint], domain: int, types: MessageTypes) -> Iterator[Finding]:
    """Yield what the endpoints of a network mean for a bridge in a domain with these message types."""
    domains = Counter(endpoint.domain for endpoint in endpoints if endpoint.kind == "NN")
    for other, count in sorted(domains.items()):
        if other != domain:
            advice = "nodes of different domains never hear each other: --domain, or ROS_DOMAIN_ID there"
            yield Finding(f"ROS 2 domain {other}", None, f"{counted(count, 'node')}; this is domain {domain}", advice)
    here = [endpoint for endpoint in endpoints if endpoint.domain == domain]
    yield Finding(f"ROS 2 domain {domain}", bool(domains[domain]) or None, counted(domains[domain], "node"))
    seen: set[tuple[str, str, str]] = set()
    for endpoint in here:
        topic = endpoint[3:]
        if not endpoint.name or topic in seen or len(seen) >= _SHOWN:
            continue
        seen.add(topic)
        yield from _mismatch(endpoint, types)
    names = sorted({endpoint.name for endpoint in here if endpoint.name})
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield Finding("ROS 2 topics and services", True, ", ".join(names[:_SHOWN]) + more)


def _mismatch(endpoint: Endpoint, types: MessageTypes) -> Iterator[Finding]:
    subject = f"ROS 2 {endpoint.name}"
    try:
        expected = types.hash_of(endpoint.type_name)
    except MessageError:
        state = f"{endpoint.node} uses the type {endpoint.type_name}, which is unknown here"
        yield Finding(subject, None, state, "it can't be read or written from here; ROS 2 nodes among themselves can")
        return
    if endpoint.type_hash == expected:
        return
    if NO_HASH in (endpoint.type_hash, expected):
        other = "humble" if endpoint.type_hash == NO_HASH else next(name for name in DISTRIBUTIONS if name != "humble")
        advice = f"messages are dropped silently: use --distribution {other}, as {endpoint.node} does"
        yield Finding(subject, False, f"is of {other}, this is {types.distribution}", advice)
    else:
        advice = "messages are dropped silently: build both sides from one version of the message package"
        yield Finding(subject, False, f"{endpoint.node} has another definition of {endpoint.type_name}", advice)
