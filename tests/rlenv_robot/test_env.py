from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from hal import (
    ConnectionLost,
    EpisodeError,
    Fault,
    Field,
    Guard,
    IllegalAction,
    RobotError,
    RobotState,
    RobotStopped,
    Spec,
    SpecMismatch,
)
from hal.wrapper import RobotWrapper
from recorder.frame_layout import FrameLayout
from recorder.table.load import load_runs
from rlenv_kit import check_environment
from rlenv_robot.env import Environment
from rlenv_robot.recording.observer import record_to
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.world import TimeStep
from sim.robot import SimRobot
from sim.robots.so101 import so101

PUSH = {"push": np.array([0.5, 0.0]), "gear": np.array(1, np.int8)}


class ServerObserver:
    """An observer that keeps everything."""

    def __init__(self) -> None:
        self.episodes: list[list[tuple[int, Any, TimeStep]]] = []
        self.ends: list[tuple[str, dict[str, Any]]] = []
        self.extras: list[Mapping[str, Any]] = []
        self.closed = 0

    def begin(self, env_id: str, timestep: TimeStep, info: Mapping[str, Any]) -> None:
        self.episodes.append([(0, None, timestep)])

    def frame(
        self, frame_no: int, action: Mapping[str, np.ndarray], timestep: TimeStep, extra_info: Mapping[str, Any]
    ) -> None:
        self.episodes[-1].append((frame_no, dict(action), timestep))
        self.extras.append(extra_info)

    def end(self, reason: str, info: Mapping[str, Any]) -> None:
        self.ends.append((reason, dict(info)))

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def observer() -> ServerObserver:
    return ServerObserver()


@pytest.fixture
def env(slider: Any, observer: ServerObserver) -> Environment:
    return Environment(slider, "one", observer)


def act(env: Environment, frame_no: int, action: Any = PUSH, **extra: Any) -> tuple[Any, Any]:
    table = {"env_id": env.env_id, "frame_no": frame_no, "action": action}
    return env.step(table, extra) if extra else env.step(table)


# -- tables ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "R1.3",
    "R1.4",
    "R2",
    "R5",
    "5-c",
    "6.2.2.1-1",
    "6.2.2.1-4",
    "6.2.2.2-1",
    "6.2.2.2-4",
    "6.2.3.1-T1",
    "6.2.3.1-2",
    "6.2.3.3-T3",
    "6.2.3.3-1",
)
def test_the_tables_are_the_standards(env: Environment) -> None:
    obs = env.reset({"seed": 1})
    assert list(obs) == ["env_id", "frame_no", "observation", "extra_info", "terminated", "truncated"]
    assert (obs["env_id"], obs["frame_no"], obs["terminated"], obs["truncated"]) == ("one", 0, 0, 0)
    start = obs["observation"]["position"]
    obs, reward = act(env, 0)
    assert list(reward) == ["env_id", "frame_no", "reward"]
    assert (reward["env_id"], reward["frame_no"]) == ("one", 1)
    assert reward["reward"] == obs["observation"]["position"][0]
    np.testing.assert_allclose(obs["observation"]["position"], start + PUSH["push"], atol=0.1)
    assert type(obs["terminated"]) is int
    assert type(obs["truncated"]) is int


def test_an_environment_has_a_name_of_its_own(slider_class: Any) -> None:
    names = {Environment(slider_class()).env_id for _ in range(20)}
    assert len(names) == 20
    assert all(1 <= len(name) <= 36 for name in names)


# -- life ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R1.4")
def test_nothing_moves_out_of_turn(env: Environment, slider: Any) -> None:
    with pytest.raises(EpisodeError, match="call reset first"):
        act(env, 0)
    env.reset()
    for frame_no in range(slider.length):
        obs, _ = act(env, frame_no)
    assert obs["truncated"] == 1
    moves = slider.moves
    with pytest.raises(EpisodeError, match="after the end of the episode"):
        act(env, slider.length)
    assert slider.moves == moves
    env.close()
    env.close()
    for call in (env.reset, lambda: act(env, 0)):
        with pytest.raises(EpisodeError, match="after close: make a new environment"):
            call()
    assert slider.closed == 1


@pytest.mark.requirement("R6.6")
def test_the_observer_sees_each_frame_once(env: Environment, observer: ServerObserver, slider: Any) -> None:
    env.reset({"seed": 0})
    for frame_no in range(slider.length):
        act(env, frame_no, {**PUSH, "gear": 2})  # against the rules
        act(env, frame_no, {"push": [9.0, 0.0], "gear": 1})  # out of range
        act(env, frame_no)
    assert [number for number, _, _ in observer.episodes[0]] == list(range(slider.length + 1)), "T + 1 frames"
    assert [timestep.truncated for *_, timestep in observer.episodes[0]] == [False] * slider.length + [True]
    assert observer.ends == [("truncated", {"task": "slider", "moves": slider.length})]


def test_an_abandoned_episode_has_an_end_too(env: Environment, observer: ServerObserver) -> None:
    env.reset()
    act(env, 0)
    env.reset()
    env.close()
    assert [reason for reason, _ in observer.ends] == ["abandoned", "closed"]
    assert observer.closed == 1


def test_a_failed_reset_leaves_nothing_half_begun(env: Environment, observer: ServerObserver) -> None:
    env.reset()
    with pytest.raises(ValueError, match="reset option 'sed' is unknown"):
        env.reset({"sed": 1})
    assert [reason for reason, _ in observer.ends] == ["abandoned"]
    with pytest.raises(EpisodeError, match="before reset"):
        act(env, 0)
    assert len(observer.episodes) == 1


# -- abnormal ends ---------------------------------------------------------------------------------------------


def test_an_interruption_ends_the_record(env: Environment, observer: ServerObserver, slider: Any) -> None:
    env.reset()
    slider.raises = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        act(env, 0)
    assert [reason for reason, _ in observer.ends] == ["interrupted"]
    with pytest.raises(EpisodeError):
        act(env, 0)
    env.close()
    assert len(observer.ends) == 1, "an episode ends once"


@pytest.mark.parametrize(
    ("error", "reason"), [(KeyboardInterrupt(), "interrupted"), (ZeroDivisionError("x / 0"), "error: x / 0")]
)
def test_an_error_between_steps_ends_the_record_with_its_reason(
    env: Environment, observer: ServerObserver, slider: Any, error: BaseException, reason: str
) -> None:
    env.reset()
    with pytest.raises(type(error)), env:
        raise error
    assert [why for why, _ in observer.ends] == [reason]
    assert (slider.closed, observer.closed) == (1, 1)


def test_a_record_that_can_not_end_still_lets_go_of_the_world(slider: Any, observer: ServerObserver) -> None:
    def full(reason: str, info: Mapping[str, Any]) -> None:
        raise OSError("disk full")

    observer.end = full  # type: ignore[method-assign]
    env = Environment(slider, observer=observer)
    env.reset()
    with pytest.raises(OSError, match="disk full"):
        env.close()
    assert (slider.closed, observer.closed) == (1, 1)
    env.close()
    assert slider.closed == 1


def test_a_bug_in_the_world_ends_the_record_and_is_not_hidden(
    env: Environment, observer: ServerObserver, slider: Any
) -> None:
    env.reset()
    slider.raises = ZeroDivisionError("x / 0")
    with pytest.raises(ZeroDivisionError):
        act(env, 0)
    assert observer.ends[0][0] == "error: x / 0"


class Loses:
    """A robot that fails in its n-th step."""

    def __init__(self, steps: int, error: RobotError | None = None, faults: tuple[Fault, ...] = ()) -> None:
        self.inner, self.left, self.error, self.faults = SimRobot(so101()), steps, error, faults
        self.spec = self.inner.spec

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        return self.inner.reset(options)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self.left -= 1
        robot_state = self.inner.step(command)
        if self.left == 0:
            if self.error is not None:
                raise self.error
            return robot_state._replace(faults=self.faults)
        return robot_state

    def stop(self, reason: str) -> None:
        self.inner.stop(reason)

    def close(self) -> None:
        self.inner.close()


def _until_the_end(env: Environment) -> tuple[Any, Any, Any]:
    before = obs = env.reset({"seed": 3})
    reward: Any = None
    action = obs["extra_info"]["applied"]
    while not (obs["terminated"] or obs["truncated"]):
        before = obs
        obs, reward = act(env, obs["frame_no"], action)
    return before, obs, reward


@pytest.mark.requirement("R6.6", "R1.4")
def test_a_lost_robot_truncates_and_no_training_data_is_made_of_it(observer: ServerObserver) -> None:
    world = RobotWorld(Loses(4, ConnectionLost("the cable is out")), Reach())
    with Environment(world, observer=observer) as env:
        before, obs, reward = _until_the_end(env)
    assert (obs["terminated"], obs["truncated"], obs["frame_no"], reward["reward"]) == (0, 1, 4, 0.0)
    assert obs["extra_info"]["fault"] == {"kind": "ConnectionLost", "message": "the cable is out"}
    assert obs["extra_info"]["truncated_by"] == "fault: the cable is out"
    for name, value in before["observation"].items():
        np.testing.assert_array_equal(obs["observation"][name], value)
    assert [timestep.acted for *_, timestep in observer.episodes[0]] == [True] * 4 + [False]
    reason, info = observer.ends[0]
    assert reason == "fault: the cable is out"
    assert info["fault"]["kind"] == "ConnectionLost"
    assert info["success"] is False


def test_a_fault_that_the_robot_tells_truncates(observer: ServerObserver) -> None:
    world = RobotWorld(Loses(2, faults=(Fault("servo", "3", "servo 3 is hot"), Fault("servo", "4", "and 4"))), Reach())
    with Environment(world, observer=observer) as env:
        _, obs, _ = _until_the_end(env)
    assert (obs["truncated"], obs["frame_no"]) == (1, 2)
    assert obs["extra_info"]["faults"] == ("servo 3 is hot", "and 4")
    assert observer.ends[0][0] == "fault: servo 3 is hot"


def test_a_stop_from_another_thread_ends_the_episode_and_must_be_cleared() -> None:
    with Environment(RobotWorld(Guard(SimRobot(so101())), Reach())) as env:
        obs = env.reset({"seed": 0})
        action = obs["extra_info"]["applied"]
        stopper = threading.Thread(target=env.stop, args=("smoke",))
        stopper.start()
        stopper.join()
        obs, _ = act(env, 0, action)
        assert obs["truncated"] == 1
        assert obs["extra_info"]["fault"]["kind"] == "RobotStopped"
        with pytest.raises(RobotStopped, match="smoke"):
            env.reset()
        assert env.reset({"clear_stop": "it was steam"})["frame_no"] == 0


# -- what the agent owns, and what it may send along -----------------------------------------------------------


def test_what_the_agent_writes_into_reaches_nothing() -> None:
    """Neither the reward, nor the observation after a refusal, nor the guard's limits."""

    def episode(spoil: bool) -> list[Any]:
        with Environment(RobotWorld(Guard(SimRobot(so101())), Reach())) as env:
            obs, told = env.reset({"seed": 5}), []
            target = np.array([1.5, -0.5, 0.5, 0.6, 0.0, 0.0], np.float32)
            for frame_no in range(5):
                if spoil:
                    for value in (*obs["observation"].values(), *obs["extra_info"]["applied"].values()):
                        value[...] = 1.0
                refused, _ = act(env, frame_no, {})
                told.append(refused["observation"]["joint_position"].tobytes())
                obs, reward = act(env, frame_no, {"joint_target": target})
                told.append((reward["reward"], obs["extra_info"]["applied"]["joint_target"].tobytes()))
            return told

    assert episode(spoil=True) == episode(spoil=False)


@pytest.mark.requirement("R1.2")
@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ([1], "extra_info"),
        (None, "extra_info"),
        ({"log_probability": "high"}, "extra_info.log_probability"),
        ({"log_probability": True}, "extra_info.log_probability"),
        ({"log_probability": np.zeros(2)}, "extra_info.log_probability"),
        ({"intervention": 2}, "extra_info.intervention"),
        ({"intervention": "yes"}, "extra_info.intervention"),
        ({"sensor_eror": {}}, "extra_info.sensor_eror"),
        ({"sensor_error": 3}, "extra_info.sensor_error"),
        ({"sensor_error": {"joint_angle": 0}}, "extra_info.sensor_error.joint_angle"),
        ({"sensor_error": {"joint_position": [0.1]}}, "extra_info.sensor_error.joint_position"),
        ({"sensor_error": {"joint_position": [np.nan] * 6}}, "extra_info.sensor_error.joint_position"),
    ],
)
def test_wrong_extra_information_moves_nothing(extra: Any, field: str) -> None:
    with Environment(RobotWorld(SimRobot(so101()), Reach())) as env:
        obs = env.reset({"seed": 0})
        action = obs["extra_info"]["applied"]
        refused, reward = env.step({"env_id": env.env_id, "frame_no": 0, "action": action}, extra)
        assert refused["frame_no"] == 0
        assert reward["reward"] == 0
        assert refused["extra_info"]["error"]["field"] == field
        obs, _ = act(env, 0, action)
        assert obs["frame_no"] == 1


@pytest.mark.requirement("R1.4", "6.2.2.2-3")
def test_a_known_sensor_error_is_added_to_what_the_agent_sees() -> None:
    shifts = {"gripper_position": np.array([0.01, 0.0, -0.01])}
    obs = {}
    for name, extra in (("plain", {}), ("shifted", {"sensor_error": shifts, "log_probability": np.float32(-1.0)})):
        with Environment(RobotWorld(SimRobot(so101()), Reach())) as env:
            first = env.reset({"seed": 0})
            obs[name], _ = act(env, 0, first["extra_info"]["applied"], **extra)
    gap = obs["shifted"]["observation"]["gripper_position"] - obs["plain"]["observation"]["gripper_position"]
    np.testing.assert_allclose(gap, shifts["gripper_position"], atol=1e-6)
    np.testing.assert_array_equal(*(obs[name]["observation"]["joint_position"] for name in obs))


# -- options ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R1.3")
@pytest.mark.parametrize("seed", [-1, 1.0, "1", True, [1]])
def test_a_wrong_seed_is_refused(seed: Any) -> None:
    with (
        Environment(RobotWorld(SimRobot(so101()), Reach())) as env,
        pytest.raises(ValueError, match=r"seed is .*whole number of at least 0"),
    ):
        env.reset({"seed": seed})


@pytest.mark.requirement("R1.3", "6.2.2.1-2")
def test_a_goal_may_be_given_and_is_checked() -> None:
    with Environment(RobotWorld(SimRobot(so101()), Reach())) as env:
        obs = env.reset({"goal": {"target_position": [0.2, 0.0, 0.1]}})
        np.testing.assert_allclose(obs["observation"]["target_position"], [0.2, 0.0, 0.1])
        with pytest.raises(IllegalAction, match=r"goal.target_position\[0\] \(x\) is 3 m, allowed are -1 to 1 m"):
            env.reset({"goal": {"target_position": [3.0, 0.0, 0.1]}})
        with pytest.raises(ValueError, match="'gaol' is unknown, allowed are clear_stop, goal"):
            env.reset({"gaol": {}})


def test_a_task_for_another_robot_is_refused() -> None:
    class Other(Reach):
        robot = "go2"

    with pytest.raises(SpecMismatch, match=r"'go2', .* 'so101'"):
        RobotWorld(SimRobot(so101()), Other())


# -- several agents --------------------------------------------------------------------------------------------


@pytest.fixture
def pair(slider_class: type) -> Any:
    """Two agents push one slider: a joint action, a reward and an observation for each."""

    class Pair(slider_class):  # type: ignore[misc, valid-type]
        action = Spec("pair_action", tuple(Field(f"{agent}_push", (2,), "float64", -1, 1, "m", "of this agent")
                                           for agent in ("left", "right")))  # fmt: skip
        layout = FrameLayout(slider_class.observation, action, agents=("left", "right"))

        def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, Any]) -> TimeStep:
            self.position = self.position + action["left_push"] + action["right_push"]
            self.moves += 1
            return self.timestep(0.0)

        def timestep(self, reward: float) -> TimeStep:
            timestep: TimeStep = super().timestep(reward)
            x, y = self.position.tolist()
            extra = {
                "observation_of": {"left": ["position"], "right": ["position", "moves"]},
                "agents": {agent: {"position": "position"} for agent in ("left", "right")},
            }
            return timestep._replace(reward={"left": x, "right": y}, extra_info=extra)

    return Pair()


@pytest.mark.requirement("R2.1", "R2.2", "R6.3", "6.2.3.2-1", "6.2.3.3-2")
def test_a_joint_action_is_answered_with_a_reward_for_each_agent(pair: Any, tmp_path: Path) -> None:
    push = {"left_push": np.array([0.5, 0.0]), "right_push": np.array([0.0, -0.5])}
    with Environment(pair, "two", record_to(tmp_path, pair, None)) as env:
        first = env.reset({"seed": 0})
        obs, reward = act(env, 0, push)
        moved = obs["observation"]["position"] - first["observation"]["position"]
        np.testing.assert_allclose(moved, [0.5, -0.5])
        assert reward["reward"] == dict(zip(("left", "right"), obs["observation"]["position"].tolist(), strict=True))
        assert obs["extra_info"]["observation_of"]["left"] == ["position"]
        refused, nothing = act(env, 1, {**push, "right_push": np.array([0.0, -1.5])})
        assert refused["extra_info"]["error"]["field"] == "action.right_push"
        assert nothing["reward"] == {"left": 0.0, "right": 0.0}
        assert refused["extra_info"]["observation_of"]["left"] == ["position"]
    rows = load_runs(tmp_path).rows
    assert rows["reward_left"].tolist() == [0.0, reward["reward"]["left"]]
    assert rows["action_right_push"].tolist() == [[0, 0], [0, -0.5]]


@pytest.mark.requirement("R2.2", "R4.3")
def test_an_environment_of_several_agents_keeps_the_contract(pair: Any) -> None:
    check_environment(Environment(pair)).raise_if_failed()


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"goal": 5}, "'goal' is 5, expected a mapping from name to value of target_position"),
        ({"clear_stop": 5}, "'clear_stop' is 5, expected a text"),
        ({"seed": "7"}, "seed is '7', it must be a whole number"),
        ({"start": 5}, "'start' is unknown, allowed are clear_stop, goal, seed"),
        ({5: 1, "b": 2}, "5 is unknown"),
        (5, "reset got 5, expected a mapping"),
    ],
)
def test_a_reset_option_of_a_wrong_type_says_what_is_allowed(options: Any, advice: str) -> None:
    with rlenv_robot.make("so101-reach") as env:
        with pytest.raises(ValueError, match=advice):
            env.reset(options)
        env.reset({"seed": 7})  # nothing is broken by it


# -- an orderly end --------------------------------------------------------------------------------------------


def test_an_orderly_end_needs_no_clearing_and_is_recorded(tmp_path: Path) -> None:
    env = rlenv_robot.make("so101-reach", record=tmp_path)
    table: Any = env.reset({"seed": 3})
    for _ in range(2):
        table, _ = act(env, table["frame_no"], {"joint_target": table["observation"]["joint_goal"]})
    last = env.end("the operator is done")
    assert (last["frame_no"], last["terminated"], last["truncated"]) == (2, 0, 1)
    assert last["extra_info"]["truncated_by"] == "ended: the operator is done"
    assert set(last["extra_info"]) >= {"success", "metrics", "applied"}
    for name, value in table["observation"].items():
        np.testing.assert_array_equal(last["observation"][name], value)
    for _ in range(2):
        with pytest.raises(EpisodeError, match="end after the end"):
            env.end("again")
    assert env.reset({"seed": 3})["frame_no"] == 0, "no clear_stop is asked for"
    env.close()
    runs = load_runs(tmp_path)
    assert runs.episodes[0]["end"] == "ended: the operator is done"
    assert "metrics" in runs.episodes[0]
    steps = rlenv_robot.open_source(tmp_path).sample_trajectories(9, {"episodes": [0]})[0]["steps_set"]
    assert steps["done"].tolist() == [0, 1]
    assert steps["extra_info"]["truncated"].tolist() == [0, 1], "what came next is unknown: a value is bootstrapped"


def test_a_natural_end_tells_the_robot_nothing_and_leaves_it_to_its_watchdog() -> None:
    told: list[str] = []

    class Told(RobotWrapper):
        def end_episode(self, reason: str) -> None:
            told.append(reason)

    with rlenv_robot.make("so101-reach", robot=Told(SimRobot(so101())), steps=2) as env:
        for _ in range(2):
            table: Any = env.reset({"seed": 3})
            while not table["truncated"]:
                table, _ = act(env, table["frame_no"], {"joint_target": table["observation"]["joint_goal"]})
        assert told == []
        env.reset()
        env.end("the operator is done")
        assert told == ["the operator is done"]


@pytest.mark.parametrize("reason", ["", "  ", None, 3])
def test_an_orderly_end_has_a_reason(env: Environment, reason: Any) -> None:
    env.reset({"seed": 0})
    with pytest.raises(ValueError, match="expected a text"):
        env.end(reason)


def test_a_world_without_an_end_of_its_own_ends_in_good_order_too(env: Environment, observer: ServerObserver) -> None:
    with pytest.raises(EpisodeError, match="end before reset"):
        env.end("too early")
    env.reset({"seed": 0})
    assert env.end("enough")["truncated"] == 1
    assert observer.ends[-1][0] == "ended: enough"


def test_a_refused_step_repeats_what_the_receiver_of_the_table_before_changed() -> None:
    with rlenv_robot.make("so101-reach") as env:
        table = env.reset({"seed": 1})
        middle = sum(env.action["joint_target"].bounds) / 2
        request = {"env_id": env.env_id, "frame_no": 0, "action": {"joint_target": middle}}
        table, _ = env.step(request)
        applied = table["extra_info"]["applied"]["joint_target"].copy()
        table["extra_info"]["applied"]["joint_target"][:] = 9
        table["extra_info"].clear()
        refused, _ = env.step({**request, "frame_no": 7})
        np.testing.assert_array_equal(refused["extra_info"]["applied"]["joint_target"], applied)
