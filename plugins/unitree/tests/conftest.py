"""A DDS domain of each test process, and virtual robots on it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from rlenv_unitree.channel import Channel

DOMAIN = 10 + os.getpid() % 200
"""A domain that other test processes hardly use at the same time."""


@pytest.fixture
def channel() -> Iterator[Channel]:
    """Return an open channel on the loopback interface."""
    pytest.importorskip("cyclonedds", reason="pip install 'rlenv-robot[unitree]'")
    with Channel("lo", DOMAIN) as channel:
        yield channel


@pytest.fixture
def other_channel(channel: Channel) -> Iterator[Channel]:
    """Return a second channel beside the first, as another program would have it."""
    with Channel("lo", DOMAIN) as other:
        yield other
