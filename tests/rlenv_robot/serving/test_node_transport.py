"""Names of ROS 2, refused messages, and a transport that nobody has installed."""

from __future__ import annotations

import logging

import pytest

from rlenv_robot.serving import node_transport
from rlenv_robot.serving.node_transport import RefusalLog, Source, full_name, open_transport


@pytest.mark.parametrize(
    ("name", "namespace", "full"),
    [
        ("/tf", "/left", "/tf"),
        ("joint_states", "/", "/joint_states"),
        ("joint_states", "/lab/left/", "/lab/left/joint_states"),
        ("~/stop", "", "/arm/stop"),
        ("~/stop", "lab", "/lab/arm/stop"),
    ],
)
def test_names_are_below_namespace_and_node(name: str, namespace: str, full: str) -> None:
    assert full_name(name, namespace, "arm") == full


@pytest.mark.parametrize("name", ["a b", "", "9", "a//b", "a-b", "ä", "a/"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name of ROS 2"):
        full_name(name)


def test_refusals_are_counted_and_not_all_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(node_transport.time, "monotonic", lambda: now[0])
    log = RefusalLog()
    with caplog.at_level(logging.WARNING):
        for number in range(100):
            log.add("/a", f"reason {number}")
        log.add("/b", ValueError("x" * 10_000))
        now[0] += 6
        log.add("/a", "later")
    assert log.counts == {"/a": 101, "/b": 1}
    assert log.last == "/a: later"
    assert len(caplog.records) == 3
    assert max(len(record.getMessage()) for record in caplog.records) < 700


def test_an_unknown_transport_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="pigeons"):
        open_transport("pigeons")
    assert Source(1_000_000_000, 3_500_000_000).age_s == 2.5
