"""Strangers that lie on the command topics: nothing moves, and the bridge lives."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hal.robots.so101 import HOME, JOINTS
from plugins.ros2node.tests.conftest import Joined
from plugins.ros2node.tests.test_bridge import PATH, PATH_TYPE, POSITIONS, POSITIONS_TYPE
from plugins.ros2node.tests.test_setpoints import TYPES, array, point, trajectory
from rlenv_ros2.zenoh_transport import Attachment, ZenohTransport
from tests.fakes import until

GOOD = TYPES.encode(trajectory([point(np.add(HOME, 0.3), 1.0)]))
GID = bytes(range(16))


def attachment(sent_ns: int | None = None) -> bytes:
    return Attachment(1, time.time_ns() if sent_ns is None else sent_ns, GID).to_bytes()


LIES: dict[str, Callable[[], tuple[bytes, bytes | None]]] = {
    "truncated": lambda: (GOOD[: len(GOOD) // 2], attachment()),
    "truncated by a byte": lambda: (GOOD[:-1], attachment()),
    "too long": lambda: (GOOD + bytes(40), attachment()),
    "no bytes": lambda: (b"", attachment()),
    "random bytes": lambda: (b"\0\1\0\0" + os.urandom(500), attachment()),
    "a length of 2**31": lambda: (GOOD[:20] + struct.pack("<I", 1 << 31) + GOOD[24:], attachment()),
    "16 MiB": lambda: (GOOD + bytes(16 << 20), attachment()),
    "another message": lambda: (TYPES.encode(TYPES.make("std_msgs/msg/String", data="hi")), attachment()),
    "no attachment": lambda: (GOOD, None),
    "a short attachment": lambda: (GOOD, attachment()[:32]),
    "a long attachment": lambda: (GOOD, attachment() + b"\0"),
    "an attachment with another length of the identity": lambda: (GOOD, attachment()[:16] + b"\xff" + GID),
    "sent long ago": lambda: (GOOD, attachment(time.time_ns() - 2 * 10**9)),
    "sent in the future": lambda: (GOOD, attachment(time.time_ns() + 3600 * 10**9)),
    "10,000 unknown joints": lambda: (
        TYPES.encode(trajectory([point(np.zeros(10_000), 1.0)], [f"joint_{i}" for i in range(10_000)])), attachment(),
    ),
    "100,000 points": lambda: (TYPES.encode(trajectory([point(HOME, 1.0)] * 100_000)), attachment()),
    "NaN": lambda: (TYPES.encode(trajectory([point([np.nan] * 6, 1.0)])), attachment()),
    "infinity": lambda: (TYPES.encode(trajectory([point([np.inf] * 6, 1.0)])), attachment()),
    "no joint": lambda: (TYPES.encode(trajectory([point([], 1.0)], [])), attachment()),
    "numbers of other size": lambda: (TYPES.encode(trajectory([point(np.zeros(7), 1.0)], JOINTS)), attachment()),
}  # fmt: skip


@pytest.mark.slow
def test_no_lie_moves_the_arm_and_the_bridge_lives(join: Callable[..., Joined]) -> None:
    joined = join()
    joined.begin()
    time.sleep(0.5)
    before = joined.positions()
    transport = joined.bridge._transport
    assert isinstance(transport, ZenohTransport)

    def refused() -> int:
        return transport.refused.counts.get(PATH, 0) + joined.bridge.refused.counts.get(PATH, 0)

    for number, (name, lie) in enumerate(LIES.items(), 1):
        joined.node.put_raw(PATH, PATH_TYPE, *lie())
        end = time.monotonic() + 10
        while refused() < number and time.monotonic() < end:
            time.sleep(0.01)
        assert refused() == number, name
        assert joined.server.lifecycle.state.value == "running", name
    joined.node.put_raw(POSITIONS, POSITIONS_TYPE, TYPES.encode(array([1e300] * 6)), attachment())
    until(lambda: joined.bridge.refused.counts.get(POSITIONS) == 1)
    time.sleep(0.3)
    assert joined.positions() == pytest.approx(before, abs=0.02)
    joined.node.put_raw(PATH, PATH_TYPE, GOOD, attachment())
    until(lambda: np.abs(joined.positions() - np.add(HOME, 0.3)).max() < 0.06, 20.0)


@pytest.mark.slow
def test_a_flood_of_calls_leaves_the_stop_working(join: Callable[..., Joined]) -> None:
    joined = join()
    joined.begin()
    answers: list[Any] = []
    node = joined.node
    from rlenv_ros2.messages import TRIGGER
    from rlenv_ros2.zenoh_transport import topic_key

    key = topic_key(0, "/rlenv_robot/reset", TRIGGER, node.types.hash_of(TRIGGER))
    for _ in range(200):
        node._session.get(key, handler=answers.append, payload=b"", timeout=20.0)
    began_s = time.monotonic()
    assert node.call("/rlenv_robot/stop").success
    assert time.monotonic() - began_s < 5.0
    assert joined.server.stopped is not None
    until(lambda: len(answers) == 200, 40.0)
