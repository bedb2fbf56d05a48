"""One agent at a time: whose turn it is, when the joint action happens, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SpecMismatch
from rlenv_robot.agents import agents_of
from rlenv_robot.turns import OneAtATime, one_at_a_time

pytestmark = pytest.mark.requirement("R6.3")


def test_the_joint_action_happens_when_the_last_has_chosen() -> None:
    with one_at_a_time(rr.make("so101-pair-lift", message_size=1)) as env:
        table = env.reset({"seed": 4})
        assert table["extra_info"]["agent"] == "left"
        start = table["observation"]["joint_position"]
        action = {"joint_target": table["observation"]["joint_goal"] + np.float32(0.05), "message": np.float32([0.5])}
        table, reward = env.step({"env_id": env.env_id, "frame_no": 0, "action": action})
        assert table["extra_info"]["agent"] == "right"
        assert reward["reward"] == {"left": 0.0, "right": 0.0}
        assert "messages" not in table["extra_info"], "it is not said before all have chosen"
        action = {"joint_target": table["observation"]["joint_goal"], "message": np.float32([-0.5])}
        table, reward = env.step({"env_id": env.env_id, "frame_no": 1, "action": action})
        assert table["extra_info"]["agent"] == "left"
        np.testing.assert_array_equal(table["extra_info"]["messages"]["right"], [-0.5])
        assert reward["reward"]["left"] != 0
        assert np.abs(table["observation"]["joint_position"] - start).max() > 0.005


def test_an_illegal_choice_is_asked_for_again() -> None:
    with one_at_a_time(rr.make("so101-pair-lift")) as env:
        env.reset({"seed": 4})
        far = {"joint_target": np.full(6, 9, np.float32)}
        table, _ = env.step({"env_id": env.env_id, "frame_no": 0, "action": far})
        assert table["extra_info"]["agent"] == "left"
        assert table["extra_info"]["error"]["code"] == "range"


def test_the_page_tells_one_agents_part() -> None:
    with one_at_a_time(rr.make("so101-pair-lift")) as env:
        assert "left" not in "".join(field.meaning + field.name for field in (*env.observation, *env.action))
        assert "whose turn" in env.manual.extra_info["agent"]


def test_one_agent_takes_no_turns() -> None:
    with pytest.raises(ValueError, match="'go' has no agents that could take turns"):
        OneAtATime(rr.make("go", size=3).world)


def test_agents_of_two_kinds_have_no_action_in_common() -> None:
    world = rr.make("so101-pair-lift", message_size=1).world
    left, right = agents_of(world)
    world.agents = (replace(left, does={"joint_target": "left_joint_target"}, message=""), right)  # type: ignore[attr-defined]
    with pytest.raises(SpecMismatch, match="actions of 'left' and 'right' differ"):
        OneAtATime(world)
