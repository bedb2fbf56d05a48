"""The clocks of client and controller on one timeline."""

import pytest

from real import MessageKind, RemoteRobot, Server
from real.protocol import messages as wire

HOUR = 3600 * 1_000_000_000


@pytest.mark.parametrize("ahead", [0, HOUR, -HOUR])
def test_a_controllers_clock_is_known_within_its_bound(robot, target, monkeypatch, ahead):
    """Both run on this machine, so the truth is known."""
    original = wire.encode

    def encode(kind, session, sequence, detail=None, frames=(), times=None, **options):
        ours = times if kind < MessageKind.WELCOME or times is None else [time + ahead for time in times]
        return original(kind, session, sequence, detail, frames, ours, **options)

    monkeypatch.setattr(wire, "encode", encode)
    with Server(robot, lockstep=True) as server:
        remote = RemoteRobot(server.address)
        assert remote.clock is None
        remote.reset({})
        for _ in range(200):
            remote.step(target(0, 0))
        known = remote.clock
        assert abs(known.offset_ns - ahead) <= known.error_ns < 20_000_000
        assert known.restarts == 0
        remote.close()
