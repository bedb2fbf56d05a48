"""Two agents: mapping, rewards by agent, messages, and state that only training sees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlenv_robot as rr
from hal import SpecError
from hal.robots.so101 import SO101
from rlenv_robot.tasks.agents import Agent, agents_of, joint_action, messages, own_observation
from rlenv_tabletop.pair_lift import HANDLE, PairLift
from rlenv_tabletop.robots import APART, SO101_PAIR, from_right
from rlenv_tabletop.scripted import ScriptedPairLift

TASK = PairLift()


def _sensors(rng: np.random.Generator, shape: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    sensors = SO101_PAIR.sensors.sample(rng, shape)
    turn = rng.normal(size=(*shape, 4))
    sensors["bar_orientation"] = (turn / np.linalg.norm(turn, axis=-1, keepdims=True)).astype(np.float32)
    return sensors


@pytest.mark.requirement("R3.1", "R6.3")
@pytest.mark.parametrize("rewards", ["dense", "sparse"])
def test_leading_axes_change_nothing(rewards: str) -> None:
    task, rng, shape = PairLift(rewards=rewards, message_size=2), np.random.default_rng(0), (2, 3)  # type: ignore[arg-type]
    before, after = _sensors(rng, shape), _sensors(rng, shape)
    action, goal = task.action.sample(rng, shape), task.goal.sample(rng, shape)
    reward, obs = task.reward(before, action, after, goal), task.observe(after, goal)
    for index in np.ndindex(*shape):
        one = [{name: value[index] for name, value in part.items()} for part in (before, action, after, goal)]
        for side, value in task.reward(*one).items():
            np.testing.assert_allclose(reward[side][index], value, rtol=1e-6)
        for name, value in task.observe(one[2], one[3]).items():
            np.testing.assert_allclose(obs[name][index], value, rtol=1e-6, atol=1e-7, err_msg=name)
    one_goal = {name: value[0, 0] for name, value in goal.items()}
    assert task.observe(after, one_goal)["left_handle_target"].shape == (2, 3, 3), "one goal serves a whole log"


def test_the_reward_is_what_the_page_says() -> None:
    number = r"([0-9.]+)"
    term = rf"{number} exp\(-[gd] / {number} m\)"
    found = re.search(rf"{term} \+ {term} \+ {term} -\s+{number} \|q\*", PairLift.__doc__ or "")
    assert found, "the description has no formula any more"
    near, reach, first, wide, second, close, calm = map(float, found.groups())
    sensors = _sensors(np.random.default_rng(1))
    sensors["bar_position"], sensors["bar_orientation"] = np.float32([0.3, 0, 0.05]), np.float32([1, 0, 0, 0])
    goal = {"target_position": np.float32([0.3, 0.0, 0.10])}
    sensors["left_gripper_position"] = np.float32([0.3 - HANDLE, 0.0, 0.05])
    sensors["right_gripper_position"] = np.float32([APART - 0.3 - HANDLE, 0.03, 0.05])
    moved = {**sensors, "right_joint_goal": sensors["right_joint_goal"] + np.float32([0.5] * 5 + [0.9])}
    shared = first * np.exp(-0.05 / wide) + second * np.exp(-0.05 / close)
    reward = TASK.reward(sensors, {}, moved, goal)
    assert reward["left"] == pytest.approx(near + shared, rel=1e-5)
    assert reward["right"] == pytest.approx(near * np.exp(-0.03 / reach) + shared - calm * 5 * 0.25, rel=1e-4)
    assert PairLift(rewards="sparse").reward(sensors, {}, moved, goal) == {"left": 0.0, "right": 0.0}
    assert PairLift(rewards="sparse", tolerance_m=0.051).reward(sensors, {}, moved, goal)["left"] == 1


def test_a_lifted_end_alone_is_not_paid() -> None:
    """The farther end counts, so that neither arm can earn by tilting the bar."""
    sensors, goal = _sensors(np.random.default_rng(2)), {"target_position": np.float32([0.3, 0.0, 0.10])}
    tilt = np.arctan2(0.09, 2 * HANDLE)
    sensors |= {"bar_position": np.float32([0.3, 0, 0.055]),
                "bar_orientation": np.float32([np.cos(tilt / 2), 0, -np.sin(tilt / 2), 0])}  # fmt: skip
    ends = TASK.observe(sensors, goal)
    assert ends["right_handle_position"][2] > 0.09
    assert ends["left_handle_position"][2] < 0.02
    assert TASK.metrics(sensors, goal)["distance_mm"] > 80
    assert not TASK.success(sensors, goal)


@given(st.integers(0, 2**32 - 1))
def test_both_ends_are_one_bar(seed: int) -> None:
    obs = TASK.observe(_sensors(np.random.default_rng(seed)), {"target_position": np.float32([0.3, 0.0, 0.1])})
    right = from_right(obs["right_handle_position"].astype(np.float64))
    np.testing.assert_allclose(np.linalg.norm(right - obs["left_handle_position"]), 2 * HANDLE, atol=1e-5)
    np.testing.assert_allclose(obs["left_handle_target"], from_right(obs["right_handle_target"]) - [2 * HANDLE, 0, 0],
                               atol=1e-6)  # fmt: skip


@pytest.mark.requirement("R2.1", "R6.3", "6.2.3.1-3", "B.3.2-1")
def test_the_mapping_leads_from_the_whole_to_each_agents_own() -> None:
    with rr.make("so101-pair-lift") as env:
        table = env.reset({"seed": 1})
        assert set(table["extra_info"]["agents"]) == {"left", "right"}
        specs = [agent.observation(env.observation) for agent in agents_of(env.world)]
        for agent, spec in zip(agents_of(env.world), specs, strict=True):
            obs = own_observation(table["observation"], table["extra_info"]["agents"][agent.name])
            spec.validate(obs)
            assert obs.keys() >= set(SO101.sensors.names)
            other = "right" if agent.name == "left" else "left"
            assert not any(name.startswith(other) for name in agent.sees.values()), "nothing of the other arm"
    assert specs[0].digest == specs[1].digest, "one policy may serve both"


@pytest.mark.requirement("R2.1", "6.2.3.1-4", "6.2.3.1-5")
def test_the_state_is_there_in_training_and_out_of_reach_in_inference() -> None:
    with rr.make("so101-pair-lift") as env:
        state = env.reset({"seed": 1})["extra_info"]["state"]
        PairLift().state.validate(state)
    with rr.make("so101-pair-lift", mode="inference") as env:
        table = env.reset({"seed": 1})
        assert "state" not in table["extra_info"]
        assert not any(name.startswith("bar_") for name in table["observation"])


@pytest.mark.requirement("R6.3", "R2.2", "B.3.2-3")
def test_a_message_reaches_the_other_with_its_next_observation() -> None:
    with rr.make("so101-pair-lift", message_size=2, record=None) as env:
        agents, table = agents_of(env.world), env.reset({"seed": 1})
        assert "messages" not in table["extra_info"], "nobody has spoken yet"
        goals = {side: table["observation"][f"{side}_joint_goal"] for side in ("left", "right")}
        chosen = {side: {"joint_target": goals[side], "message": np.float32([0.25, number])}
                  for number, side in enumerate(goals)}  # fmt: skip
        request = {"env_id": env.env_id, "frame_no": 0, "action": joint_action(agents, chosen)}
        table, reward = env.step(request)
        assert "error" not in table["extra_info"]
        told = table["extra_info"]["messages"]
        assert {receiver: list(by) for receiver, by in told.items()} == {"left": ["right"], "right": ["left"]}
        np.testing.assert_array_equal(told["left"]["right"], [0.25, 1])
        np.testing.assert_array_equal(told["right"]["left"], [0.25, 0])
        assert set(reward["reward"]) == {"left", "right"}
        request["action"]["left_message"] = np.float32([0.0, 1.5])
        table, reward = env.step({**request, "frame_no": 1})
        assert table["extra_info"]["error"]["field"] == "action.left_message"
        assert reward["reward"] == {"left": 0.0, "right": 0.0}


@pytest.mark.requirement("6.2.3.1-3")
def test_rewards_and_the_mapping_are_recorded_by_agent_and_come_back(tmp_path: Path) -> None:
    expert = ScriptedPairLift()
    with rr.make("so101-pair-lift", record=tmp_path, steps=12) as env:
        table, paid = env.reset({"seed": 1}), []
        while not table["truncated"]:
            action = expert.act(table["observation"])
            table, reward = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
            paid.append(reward["reward"]["right"])
    data = rr.open_source(tmp_path)
    data.init({"seed": 0})
    batch = data.sample_steps(8)
    assert set(batch["reward"]) == {"left", "right"}
    mapping = table["extra_info"]["agents"]
    assert batch["extra_info"]["agents"] == mapping
    assert data.sample_trajectories(1)[0]["extra_info"]["agents"] == mapping
    assert set(np.round(batch["reward"]["right"], 9)) <= set(np.round(paid, 9))
    again = rr.open_source(tmp_path, task="so101-pair-lift")
    again.init({"seed": 0})
    np.testing.assert_allclose(again.sample_steps(8)["reward"]["right"], batch["reward"]["right"], rtol=1e-6)


@pytest.mark.requirement("R6.3")
def test_a_batch_does_what_one_does_and_a_script_lifts_the_bar() -> None:
    expert = ScriptedPairLift(message_size=1)
    with (
        rr.make_vector("so101-pair-lift", 12, seed=5, autoreset="disabled", message_size=1) as envs,
        rr.make("so101-pair-lift", message_size=1) as env,
    ):
        table, alone = envs.reset(), env.reset({"seed": 5})
        for step in range(envs.task.steps):
            action = expert.act(table["observation"])
            table, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
            assert reward["reward"]["left"].shape == (12,)
            if step < 40:
                one = {name: value[0] for name, value in action.items()}
                alone, paid = env.step({"env_id": env.env_id, "frame_no": step, "action": one})
                assert paid["reward"]["left"] == pytest.approx(reward["reward"]["left"][0], rel=1e-6)
                np.testing.assert_array_equal(alone["observation"]["left_handle_position"],
                                              table["observation"]["left_handle_position"][0])  # fmt: skip
        assert table["extra_info"]["agents"] == alone["extra_info"]["agents"]
        assert table["extra_info"]["messages"]["left"]["right"].shape == (12, 1)
        assert table["extra_info"]["final"]["success"].mean() >= 0.8


@pytest.mark.parametrize(
    ("setting", "told"),
    [({"tolerance_m": 0.0}, "tolerance_m"), ({"steps": 0}, "steps is 0"), ({"rewards": "x"}, "rewards is 'x'"),
     ({"message_size": -1}, "message_size is -1")],
)  # fmt: skip
def test_a_wrong_setting_is_refused(setting: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        PairLift(**setting)


def test_drawn_episodes_are_legal() -> None:
    for seed in range(50):
        episode = TASK.begin(np.random.default_rng(seed), {})
        TASK.goal.validate(episode.goal)
        SO101_PAIR.commands.validate(episode.start)


def test_everyone_acts_or_nobody() -> None:
    with pytest.raises(ValueError, match=r"actions are of \['left'\], expected one of each agent: left, right"):
        joint_action(TASK.agents, {"left": {}})


def test_a_message_is_part_of_the_action() -> None:
    with pytest.raises(SpecError, match="message 'shout' is none of joint_target"):
        Agent("left", {}, {"joint_target": "left_joint_target"}, "shout")
    assert messages(TASK.agents, {}) == {"left": {}, "right": {}}


@pytest.mark.requirement("6.2.1-6", "B.3.2-3")
@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_a_row_that_does_not_act_sends_no_message(autoreset: Literal["same_step", "next_step"]) -> None:
    """A refused row, and one whose step begins an episode; the rows beside it are heard."""
    with rr.make_vector("so101-pair-lift", 3, seed=1, message_size=2, steps=2, autoreset=autoreset) as envs:
        table, rng = envs.reset(), np.random.default_rng(0)
        for step in range(3):
            action = envs.action.sample(rng, (3,))
            acts = np.ones(3, bool)
            if step == 0:
                action["right_joint_target"][1, 0], acts[1] = np.nan, False
            if autoreset == "next_step":
                acts &= ~(table["terminated"] | table["truncated"]).astype(bool)
            request = {"env_id": envs.env_ids, "frame_no": table["frame_no"], "action": action}
            table, _ = envs.step(request)
            for sender, receiver in (("left", "right"), ("right", "left")):
                heard = table["extra_info"]["messages"][receiver][sender]
                np.testing.assert_array_equal(heard, np.where(acts[:, None], action[f"{sender}_message"], 0))
