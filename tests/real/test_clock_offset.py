"""The clocks of client and controller on one timeline."""

import pytest

from hal import WireError
from real import Kind, RemoteRobot, Server
from real.desk import Desk

HOUR = 3600 * 1_000_000_000


@pytest.mark.parametrize("ahead", [0, HOUR, -HOUR])
def test_a_controllers_clock_is_known_within_its_bound(robot, target, monkeypatch, ahead):
    """Both run on this machine, so the truth is known."""
    original = Desk._send

    def send(desk, token, kind, detail=None, frames=()):
        if kind is Kind.READING:
            detail = [*detail[:-2], detail[-2] + ahead, detail[-1] + ahead]
        original(desk, token, kind, detail, frames)

    monkeypatch.setattr(Desk, "_send", send)
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


def test_damaged_stamps_are_a_wire_error(robot, target, monkeypatch):
    with Server(robot, lockstep=True) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        monkeypatch.setattr(Desk, "answer", lambda desk, token, outcome: desk._send(token, Kind.READING, [1, None], []))
        with pytest.raises(WireError, match="time stamps are damaged"):
            remote.step(target(0, 0))
        monkeypatch.undo()
        remote.close()
