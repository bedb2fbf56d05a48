"""Environments with gem's interface: signature, spawning, rendering, and gem's own registry and vectors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import EpisodeError, RobotError
from rlenv_language.chat.transcripts import read_transcripts
from rlenv_language.gem import NAMESPACE, GemEnv, register_with_gem


def test_reset_and_step_have_gem_s_shape() -> None:
    env = GemEnv("sokoban", seed=4)
    text, info = env.reset()
    assert isinstance(text, str)
    assert "Push every box" in info["env_instruction"]
    text, reward, terminated, truncated, info = env.step("<answer>Up</answer>")
    assert [type(part) for part in (text, reward, terminated, truncated, info)] == [str, float, bool, bool, dict]
    assert set(info["metrics_agg_mode"]) <= set(info["metrics"])
    with pytest.raises(TypeError, match="expected a text"):
        env.step(3)  # type: ignore[arg-type]


def test_seeds_repeat_and_unseeded_resets_go_on() -> None:
    one, other = GemEnv("sokoban"), GemEnv("sokoban")
    assert one.reset(seed=5)[0] == other.reset(seed=5)[0]
    assert one.reset()[0] == other.reset()[0] != one.reset(seed=5)[0]


def test_an_answer_of_any_length_counts_and_its_middle_is_not_recorded(tmp_path: Path) -> None:
    env = GemEnv("sokoban", rules={"action_size": 64}, record=tmp_path)
    env.reset(seed=0)
    *_, info = env.step(f"<think>{'so ' * 5000}</think><answer>Up</answer>")
    assert info["command"] == "Up"
    env.close()
    (chat,) = read_transcripts(rr.open_source(tmp_path))
    assert re.fullmatch(r"<think>so .*\[\.\.\.\].*<answer>Up</answer>", chat.messages[1]["content"], re.DOTALL)


def test_a_limit_ends_an_episode_by_both_flags_as_in_gem() -> None:
    for limit in ({"steps": 2}, {"rules": {"turns": 2}}):
        env = GemEnv("sokoban", **limit)
        env.reset(seed=0)
        assert env.step("well")[2:4] == (False, False)
        env.step("<answer>Up</answer>")
        if "steps" in limit:
            assert env.step("<answer>Up</answer>")[2:4] == (True, True)
        else:
            with pytest.raises(EpisodeError):
                env.step("<answer>Up</answer>")


def test_a_state_is_the_seed_and_the_texts() -> None:
    env, other = GemEnv("sokoban"), GemEnv("sokoban")
    env.reset(seed=3)
    env.step("<answer>Left</answer>")
    env.step("hm")
    state = json.loads(json.dumps(env.get_state()))
    other.set_state(state)
    assert (other.render(), other.step("<answer>Up</answer>")[0]) == (env.render(), env.step("<answer>Up</answer>")[0])
    with pytest.raises(RobotError, match="another state"):
        other.set_state({**state, "observation": "elsewhere"})


def test_a_refusal_that_is_no_turn_is_in_the_metrics_too() -> None:
    env = GemEnv("sokoban", rules={"invalid_is_turn": False})
    env.reset(seed=0)
    env.step(env.sample_random_action())
    _, reward, *_, info = env.step("well")
    assert (reward, info["metrics"]["action_is_valid"], info["error"]["code"]) == (0.0, False, "format")


def test_spawn_copies_settings_and_if_asked_the_state() -> None:
    env = GemEnv("frozen-lake", size=5)
    env.reset(seed=9)
    for _ in range(3):
        env.step(env.sample_random_action())
    twin = env.spawn(same_state=True)
    assert twin.render() == env.render()
    assert len(env.spawn(size=6).reset(seed=1)[0].splitlines()) == 6
    env.reset()
    with pytest.raises(ValueError, match="seed"):
        env.spawn(same_state=True)
    with pytest.raises(ValueError, match="ready-made"):
        GemEnv(env.env).spawn()


def test_the_state_is_shown_as_text_and_as_a_picture() -> None:
    env = GemEnv("sokoban")
    with pytest.raises(EpisodeError, match="reset"):
        env.render()
    text, _ = env.reset(seed=0)
    assert env.render() == text
    picture = env.render("rgb_array")
    assert picture.shape == (6 * 32, 6 * 32, 3)
    assert picture.dtype == np.uint8
    with pytest.raises(ValueError, match="rgb_array"):
        env.render("window")
    env.close()
    env.close()


def test_gem_makes_our_environments_one_or_many() -> None:
    gem = pytest.importorskip("gem", reason="gem-llm is not installed")
    register_with_gem()
    register_with_gem()
    one = gem.make(f"{NAMESPACE}/sokoban", boxes=2)
    assert one.env_id == "rlenv_robot/sokoban"
    assert one.reset(seed=3)[0].count("X") == 2
    many = gem.make_vec([f"{NAMESPACE}/sokoban"] * 2, seed=7)
    texts, infos = many.reset()
    assert texts[0] == GemEnv("sokoban").reset(seed=7)[0], "gem numbers its seeds from the one that is given"
    assert len(infos) == 2
    texts, rewards, terminated, truncated, infos = many.step([env.sample_random_action() for env in many.envs])
    assert len(texts) == len(rewards) == len(terminated) == len(truncated) == 2
    assert all(info["metrics"]["action_is_valid"] for info in infos)


def test_gem_s_wrappers_take_our_environments() -> None:
    pytest.importorskip("gem", reason="gem-llm is not installed")
    from gem.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper

    env: Any = EpisodeTrackingWrapper(GemEnv("sokoban"))
    env.reset(seed=1)
    *_, info = env.step("<answer>Up</answer>")
    assert info["step_counter"] == 1
    assert info["cumulative_rewards"] in (pytest.approx(-0.1), pytest.approx(0.9), pytest.approx(10.9))


def test_gem_s_own_asynchronous_vectors_run_our_environments() -> None:
    gem = pytest.importorskip("gem", reason="gem-llm is not installed")
    register_with_gem()
    many = gem.make_vec([f"{NAMESPACE}/sokoban"] * 2, seed=7, async_mode=True)
    texts, _ = many.reset()
    assert texts[0] == GemEnv("sokoban").reset(seed=7)[0]
    answers = many.step(["<answer>Up</answer>", "<answer>Left</answer>"])
    assert all(info["metrics"]["action_is_valid"] for info in answers[4])
