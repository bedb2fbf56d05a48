"""An environment whose robot's connection is cut: its episode ends, and its reset says what became of the session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hal import ConnectionLost, Guard
from real import RemoteRobot, Server
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.robot_models import find_robot_model
from rlenv_robot.tasks.reach import Reach
from tests.real.relay import Relay


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(
        Guard(find_robot_model("so101").make_served_simulation("sim")), paced_by_robot=True, lease_s=60.0
    ) as server:
        yield server


@pytest.fixture
def cable(server: Server) -> Iterator[Relay]:
    with Relay(server.address) as cable:
        yield cable


@pytest.fixture
def env(cable: Relay) -> Iterator[Environment]:
    remote = RemoteRobot(cable.address, step_timeout_s=0.4, connect_timeout_s=1.0)
    with Environment(RobotWorld(remote, Reach())) as env:
        yield env


def mend(cable: Relay) -> None:
    """End the old connections and let new ones through, as when both machines have noticed the cut."""
    cable.reset()
    cable.silent = False


def stay(env: Environment, obs: Any) -> Any:
    action = {"joint_target": obs["extra_info"]["applied"]["joint_target"]}
    return env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})[0]


def cut_in_mid_episode(env: Environment, cable: Relay) -> Any:
    obs = stay(env, env.reset())
    assert "returned" not in obs["extra_info"]
    cable.silent = True
    obs = stay(env, obs)
    assert obs["truncated"] == 1
    assert obs["extra_info"]["fault"]["kind"] == "ConnectionLost"
    return obs


def test_the_reset_after_a_cut_goes_on_in_the_lease(env: Environment, cable: Relay, server: Server) -> None:
    """The lease lasts a minute here, so only the session's own client gets the robot back at once."""
    cut_in_mid_episode(env, cable)
    with pytest.raises(ConnectionLost, match="no answer to hello"):
        env.reset()
    mend(cable)
    obs = env.reset()
    assert obs["extra_info"]["returned"]["session"] == "kept"
    assert "no answer to step" in obs["extra_info"]["returned"]["lost"]
    assert stay(env, obs)["truncated"] == 0
    assert env.world.episode_info()["controller"]["returned"]["session"] == "kept", "the record says so too"
    assert "returned" not in env.reset()["extra_info"], "nothing was lost before this one"


def test_who_has_the_robot_by_now_is_said_and_how(env: Environment, cable: Relay, server: Server) -> None:
    cut_in_mid_episode(env, cable)
    other = RemoteRobot(server.address, take="force")
    other.reset({})
    mend(cable)
    with pytest.raises(
        ConnectionLost, match=r"held by 'process .*Your session before ended: 'process .* as an operator"
    ):
        env.reset()
    other.close()
    obs = env.reset()
    assert "took it as an operator" in obs["extra_info"]["returned"]["session"]


def test_a_server_that_was_started_anew_does_not_know_the_session(env: Environment, cable: Relay) -> None:
    cut_in_mid_episode(env, cable)
    with Server(Guard(find_robot_model("so101").make_served_simulation("sim")), paced_by_robot=True) as second:
        cable._server = ("127.0.0.1", int(second.address.rpartition(":")[2]))
        mend(cable)
        obs = env.reset()
    assert "the server was started anew" in obs["extra_info"]["returned"]["session"]
