"""A Zenoh router for tests, as `rmw_zenohd` is one."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest


def free_port() -> int:
    """Return a TCP port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def router() -> Iterator[str]:
    """A router of this machine alone; return its endpoint."""
    zenoh = pytest.importorskip("zenoh", reason="needs eclipse-zenoh: pip install 'rlenv-robot[ros2]'")
    config, endpoint = zenoh.Config(), f"tcp/127.0.0.1:{free_port()}"
    for key, value in (("mode", "router"), ("listen/endpoints", [endpoint]), ("scouting/multicast/enabled", False)):
        config.insert_json5(key, json.dumps(value))
    session = zenoh.open(config)
    yield endpoint
    session.close()
