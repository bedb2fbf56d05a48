"""Sources of a teleoperator's actions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal.errors import RobotError, SourceError
from real.server.server import Server
from rlenv_lerobot.leaders import RecordedActions, ServedLeader
from rlenv_lerobot.session import ServedSession, SessionSettings
from sim.robots.so101 import REST
from tests.fakes import ManualClock, until

TELEMETRY = 'telemetry = "tcp://127.0.0.1:*"\n'


def test_a_served_leader_is_read_and_not_taken(serve: Callable[..., Server]) -> None:
    server = serve(TELEMETRY)
    leader = ServedLeader(server.address)
    with closing(leader):
        spec = leader.open()
        assert spec.names == ("joint_target",)
        np.testing.assert_allclose(leader.next()["joint_target"], REST, atol=0.05)
        assert server.about()["holder"] is None
        assert server.lifecycle.state.value == "disarmed"
        with closing(ServedSession(SessionSettings(address=server.address, approach=9.0))) as mover:
            mover.connect()
            raised = np.array([0.3, *REST[1:]], np.float32)
            for _ in range(40):
                mover.command({"joint_target": raised})
            until(lambda: abs(leader.next()["joint_target"][0] - 0.3) < 0.1, 3.0)


def test_a_leader_that_falls_silent_gives_no_action(serve: Callable[..., Server]) -> None:
    clock = ManualClock()
    server = serve(TELEMETRY)
    leader = ServedLeader(server.address, now=clock)
    with closing(leader):
        leader.open()
        leader.next()
        server.close()
        clock.now += 1.0
        with pytest.raises(RobotError, match=r"s old, allowed are 0\.5"):
            leader.next()


def test_a_leader_without_telemetry_says_how_to_serve_it(server: Server) -> None:
    with pytest.raises(RobotError, match="--telemetry"):
        ServedLeader(server.address).open()


def test_a_leader_that_is_not_open_gives_no_action(server: Server, tmp_path: Path) -> None:
    for source in (ServedLeader(server.address), RecordedActions(str(tmp_path))):
        with pytest.raises(RobotError, match="call open first"):
            source.next()


def test_recorded_actions_repeat_an_episode(tmp_path: Path) -> None:
    rng, sent = np.random.default_rng(3), []
    with rr.make("so101-reach", record=tmp_path, steps=6) as env:
        for seed in (1, 2):
            table = env.reset({"seed": seed})
            for _ in range(6):
                action = {"joint_target": rng.uniform(-0.15, 0.15, 6).astype(np.float32)}
                sent.append(action["joint_target"])
                table, *_ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    source = RecordedActions(str(tmp_path), 1)
    with closing(source):
        assert source.open().names == ("joint_target",)
        for wanted in (*sent[6:], sent[-1]):
            np.testing.assert_array_equal(source.next()["joint_target"], wanted)
    with pytest.raises(SourceError, match="episode 7"):
        RecordedActions(str(tmp_path), 7).open()
