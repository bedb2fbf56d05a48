"""Any environment in language: turns, invalid texts, metrics, seeds, records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import RobotError
from rlenv_kit import check_environment
from rlenv_language.text.view import AGGREGATION, TextRules, TextWorld, to_text
from rlenv_robot.data.chats import TEXT, decode, encode
from rlenv_robot.env import Environment
from rlenv_tabletop.skills import SkillWorld


class Talk:
    """Sends texts to an environment, and keeps the newest tables."""

    def __init__(self, env: Environment, seed: int = 0) -> None:
        self.env = env
        self.table: Any = env.reset({"seed": seed})
        self.reward = 0.0

    def say(self, text: str) -> str:
        values = encode(text, self.env.action[TEXT])
        request = {"env_id": self.env.env_id, "frame_no": self.table["frame_no"], "action": {TEXT: values}}
        self.table, reward = self.env.step(request)
        self.reward = reward["reward"]  # type: ignore[assignment]
        return self.text

    @property
    def text(self) -> str:
        return decode(self.table["observation"][TEXT])

    @property
    def extra(self) -> Any:
        return self.table["extra_info"]


def lake(**rules: Any) -> Talk:
    return Talk(to_text(rr.make("frozen-lake", slippery=False, ice=1.0, steps=10), TextRules(**rules)))


def test_a_turn_is_a_text_that_is_answered_by_one() -> None:
    talk = lake()
    assert talk.text == "P___\n____\n____\n___G"
    assert "Cross the frozen lake" in talk.extra["env_instruction"]
    assert talk.say("<answer>Right</answer>") == "_P__\n____\n____\n___G"
    assert talk.extra["metrics"] == {
        "action_is_effective": True, "action_is_valid": True, "success": False, "format_penalty": 0.0,
    }  # fmt: skip
    assert talk.extra["metrics_agg_mode"] == dict(AGGREGATION)
    talk.say("<answer>Up</answer>")
    assert talk.extra["metrics"]["action_is_effective"] is False
    for move in ("Right", "Right", "Down", "Down", "Down"):
        talk.say(f"<answer>{move}</answer>")
    assert talk.text.endswith("√")
    assert talk.extra["metrics"]["success"] is True
    assert (talk.reward, talk.table["terminated"]) == (1.0, 1)


@pytest.mark.requirement("R1.2")
def test_an_invalid_text_is_a_turn_with_a_penalty_and_is_not_carried_out() -> None:
    talk = lake(penalty=-0.25)
    before = talk.text
    after = talk.say("I would rather not")
    assert after.endswith(before)
    assert "did not provide a valid action" in after
    assert (talk.reward, talk.table["frame_no"]) == (-0.25, 1)
    assert talk.extra["text_error"]["code"] == "format"
    assert talk.extra["metrics"]["action_is_valid"] is False
    assert talk.extra["metrics"]["format_penalty"] == -0.25
    assert "text_error" not in Talk.say(talk, "<answer>Right</answer>")
    assert "text_error" not in talk.extra


@pytest.mark.requirement("R1.2")
def test_where_it_is_no_turn_the_standard_s_refusal_answers_and_the_next_turn_pays() -> None:
    talk = lake(penalty=-0.25, invalid_is_turn=False)
    talk.say("no")
    talk.say("no")
    assert (talk.reward, talk.table["frame_no"]) == (0.0, 0)
    assert talk.extra["error"]["code"] == "format"
    talk.say("<answer>Right</answer>")
    assert (talk.reward, talk.table["frame_no"]) == (-0.5, 1)
    assert talk.extra["metrics"]["format_penalty"] == -0.5


def test_turns_end_an_episode() -> None:
    talk = lake(turns=2)
    talk.say("?")
    talk.say("?")
    assert (talk.table["truncated"], talk.extra["truncated_by"]) == (1, "turns")


def test_a_move_that_the_game_forbids_is_an_invalid_text_too() -> None:
    talk = Talk(to_text(rr.make("go", size=3)))
    talk.say("<answer>command(4)</answer>")
    talk.say("<answer>command(4)</answer>")
    assert talk.extra["text_error"]["code"] == "occupied"
    assert talk.extra["agent"] == "white", "it is still white's turn"


def test_a_robot_s_numbers_come_through_in_both_directions() -> None:
    env = to_text(rr.make("so101-reach"), template="tips {gripper_position} m, goal {target_position.x}")
    talk = Talk(env, seed=3)
    numbers = rr.make("so101-reach")
    table: Any = numbers.reset({"seed": 3})
    world = env.world
    assert isinstance(world, TextWorld)
    target = table["observation"]["joint_position"] + np.float32(0.05)
    target[1] = -1.7
    action = {"joint_target": np.clip(target, *numbers.action["joint_target"].bounds)}
    talk.say(world.grammar.write(action))
    request = {"env_id": numbers.env_id, "frame_no": 0, "action": action}
    expected, reward = numbers.step(request)
    assert talk.reward == reward["reward"]
    np.testing.assert_array_equal(
        talk.extra["applied"]["joint_target"], expected["extra_info"]["applied"]["joint_target"]
    )
    x, y, z = expected["observation"]["gripper_position"]
    assert talk.text.startswith(f"tips {x + 0:.3f}, {y + 0:.3f}, {z + 0:.3f} m")


@pytest.mark.requirement("R1.3")
def test_equal_seeds_and_texts_give_equal_episodes() -> None:
    texts = ["<answer>Right</answer>", "oops", "<answer>Down</answer>", "<answer>Down</answer>"]

    def run() -> list[Any]:
        talk = Talk(to_text(rr.make("frozen-lake")), seed=11)
        return [(talk.text, talk.reward) for _ in texts if not talk.table["terminated"] and talk.say(_) is not None]

    assert run() == run()


def test_a_text_without_room_says_so() -> None:
    with pytest.raises(RobotError, match="observation_size"):
        to_text(rr.make("frozen-lake", size=16), TextRules(observation_size=64)).reset({"seed": 0})
    with pytest.raises(ValueError, match="several agents"):
        to_text(rr.make("so101-pair-lift"))
    with pytest.raises(ValueError, match="penalty"):
        TextRules(penalty=1.0)


def test_a_record_has_texts_rewards_and_the_robot_s_sensors(tmp_path: Path) -> None:
    env = to_text(Environment(SkillWorld(rr.make("so101-errand").world)), record=tmp_path, info={"policy": "script"})
    talk = Talk(env, seed=2)
    tray = "left" if "left tray" in talk.text else "right"
    talk.say("what now?")
    talk.say("<answer>grasp(red)</answer>")
    talk.say(f"<answer>put({tray})</answer>")
    assert talk.extra["metrics"]["success"]
    env.close()
    source = rr.open_source(tmp_path)
    assert len(source) == 3
    (episode,) = source.sample_trajectories(1)
    steps = episode["steps_set"]
    assert [decode(row) for row in steps["action"][TEXT]][1] == "<answer>grasp(red)</answer>"
    assert decode(steps["observation"][TEXT][0]).startswith("Task: bring the red cube")
    assert steps["reward"][0] == pytest.approx(-0.1)
    assert episode["extra_info"]["success"] is True
    assert "cube_positions" in source.table.layout.sensors


@pytest.mark.requirement("R4.3")
def test_a_text_view_keeps_the_contract() -> None:
    rules = TextRules(observation_size=300, action_size=64, turns=20)
    with to_text(rr.make("frozen-lake"), rules) as env:
        check_environment(env).raise_if_failed()
