"""The last tables of episodes whose server is killed, and ends in good order of robots in another process."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
import pytest

import rlenv_robot as rr
from hal import Spec
from hal.robots.so101 import SO101
from real import RemoteRobot
from rlenv_bridges.turn_based import one_at_a_time
from rlenv_robot.robot_models import find_robot_model
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.tasks.task import Arrays
from rlenv_tabletop.pair_lift import PairLift
from tests.fakes import until

pytestmark = [pytest.mark.process, pytest.mark.requirement("R2.1")]

SERVER = """
import sys, time
from hal import Guard
from real import Server
from rlenv_robot.robot_models import find_robot_model
robot = Guard(find_robot_model(sys.argv[1]).make_served_simulation("sim"))
with Server(robot, paced_by_robot=True, watchdog_s=2.0, max_command_age_s=None) as server:
    print(server.address, flush=True)
    sys.stdin.readline()
"""


@dataclass(frozen=True)
class HiddenReach(Reach):
    """Reach with a state that only a critic sees."""

    @cached_property
    def state(self) -> Spec:
        return Spec("hidden", (SO101.sensors["joint_velocity"],))

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        return {"joint_velocity": sensors["joint_velocity"]}


def connect(process: Any, robot_model: str) -> RemoteRobot:
    spec = find_robot_model(robot_model).load_spec()
    return RemoteRobot(process.line(), expect=spec, connect_timeout_s=30, step_timeout_s=3)


def nothing(env: Any) -> dict[str, np.ndarray]:
    return {field.name: field.nothing for field in env.action}


def ask(env: Any, table: Any, action: Any) -> Any:
    return env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})[0]


def value_of(table: Any) -> float:
    """Return what a central critic makes of a table: it reads every agent's part, the messages and the hidden state."""
    extra = table["extra_info"]
    parts = [np.ravel(value) for value in extra["state"].values()]
    for agent, names in extra.get("agents", {}).items():
        parts += [np.ravel(table["observation"][name]) for name in names.values()]
        parts += [np.ravel(message) for message in extra["messages"][agent].values()]
    return float(np.tanh(np.concatenate(parts)).sum())


def test_a_single_agents_last_table_keeps_the_state_when_the_server_is_killed(start: Any) -> None:
    server = start(SERVER, "so101")
    with rr.make(HiddenReach(), robot=connect(server, "so101")) as env:
        table = ask(env, env.reset({"seed": 1}), nothing(env))
        before = value_of(table)
        server.send(signal.SIGKILL)
        table = ask(env, table, nothing(env))
        assert (table["truncated"], table["extra_info"]["fault"]["kind"]) == (1, "ConnectionLost")
        assert value_of(table) == before
        table["extra_info"]["state"]["joint_velocity"][:] = 9  # the caller's own copy


@pytest.mark.parametrize("in_turn", [False, True])
def test_several_agents_last_table_keeps_mapping_messages_and_state(start: Any, in_turn: bool) -> None:
    server = start(SERVER, "so101-pair")
    env = rr.make(PairLift(message_size=2), robot=connect(server, "so101-pair"))
    env = one_at_a_time(env) if in_turn else env
    with env:
        table, turns = env.reset({"seed": 1}), 2 if in_turn else 1
        action = nothing(env) | {name: np.full(2, 0.5, np.float32) for name in env.action.names if "message" in name}
        for _ in range(2 * turns):
            table = ask(env, table, action)
        kept = {name: table["extra_info"][name] for name in ("messages", "state")}
        before = None if in_turn else value_of(table)
        server.send(signal.SIGKILL)
        for _ in range(turns):
            table = ask(env, table, action)
        assert (table["truncated"], table["extra_info"]["fault"]["kind"]) == (1, "ConnectionLost")
        assert np.isfinite(np.concatenate([np.ravel(value) for value in table["extra_info"]["state"].values()])).all()
        for name, value in kept["state"].items():
            np.testing.assert_array_equal(table["extra_info"]["state"][name], value)
        if in_turn:
            assert table["extra_info"]["agent"] == "left"
            np.testing.assert_array_equal(table["extra_info"]["messages"]["right"], [0.5, 0.5])
        else:
            assert value_of(table) == before
            assert table["extra_info"]["agents"].keys() == {"left", "right"}


def test_pettingzoos_central_state_is_there_after_the_server_is_killed(start: Any) -> None:
    server = start(SERVER, "so101-pair")
    env = rr.to_pettingzoo(rr.make(PairLift(), robot=connect(server, "so101-pair")))
    env.reset(seed=1)
    actions = {agent: np.zeros(env.action_space(agent).shape, np.float32) for agent in env.agents}
    env.step(actions)
    before = env.state()
    server.send(signal.SIGKILL)
    _, _, _, truncated, infos = env.step(actions)
    assert truncated == {"left": True, "right": True}
    assert infos["left"]["fault"]["kind"] == "ConnectionLost"
    np.testing.assert_array_equal(env.state(), before)
    env.close()


def test_a_vector_goes_on_when_one_of_its_robots_is_killed(start: Any) -> None:
    servers = [start(SERVER, "so101") for _ in range(2)]
    robots = [connect(server, "so101") for server in servers]
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda robot=robot: rr.to_gymnasium(rr.make(HiddenReach(), robot=robot)) for robot in robots],
        autoreset_mode=gymnasium.vector.AutoresetMode.DISABLED,
    )
    envs.reset(seed=1)
    _, _, _, _, infos = envs.step(np.zeros((2, 6), np.float32))
    before = infos["state"]["joint_velocity"]
    servers[1].send(signal.SIGKILL)
    _, _, terminated, truncated, infos = envs.step(np.zeros((2, 6), np.float32))
    assert truncated.tolist() == [False, True]
    assert not terminated.any()
    assert infos["_state"].all(), "the critic finds the state of both"
    np.testing.assert_array_equal(infos["state"]["joint_velocity"][1], before[1])
    envs.close()


@pytest.mark.requirement("R6.6")
def test_an_end_in_good_order_crosses_the_wire_and_needs_nothing_cleared(start: Any) -> None:
    robot = connect(start(SERVER, "so101"), "so101")
    with rr.make(Reach(), robot=robot) as env:
        table = ask(env, env.reset({"seed": 1}), nothing(env))
        last = env.end("the operator is done")
        assert (last["truncated"], last["frame_no"]) == (1, table["frame_no"])
        assert last["extra_info"]["truncated_by"] == "ended: the operator is done"
        assert "fault" not in last["extra_info"]
        until(lambda: robot.status()["state"] != "running")
        status = robot.status()
        assert status["state"] == "holding", "no stop is latched"
        assert status["why"] == "the episode was ended: the operator is done"
        with pytest.raises(rr.EpisodeError):
            robot.step({"joint_target": table["extra_info"]["applied"]["joint_target"]})
        again = ask(env, env.reset({"seed": 2}), nothing(env))  # without clear_stop
        assert (again["frame_no"], again["truncated"]) == (1, 0)


def test_an_end_after_the_server_is_killed_says_so(start: Any) -> None:
    server = start(SERVER, "so101")
    with rr.make(Reach(), robot=connect(server, "so101")) as env:
        ask(env, env.reset({"seed": 1}), nothing(env))
        server.send(signal.SIGKILL)
        server.process.wait(10)
        last = env.end("done")
        assert last["extra_info"]["fault"]["kind"] == "ConnectionLost"
        assert last["extra_info"]["truncated_by"] == "ended: done"
