"""Environments of gem and ROLL under the contract, recorded with their metrics."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import rlenv_robot as rr
from rlenv_kit import check_environment
from rlenv_language.from_gem import GemWorld, aggregate, from_gem
from rlenv_language.gem import GemEnv
from rlenv_robot.data.chats import TEXT, decode, encode
from rlenv_robot.env import Environment


class Guess:
    """Guess a digit; answers as the environments of ROLL do."""

    def __init__(self) -> None:
        self._rng = random.Random()
        self._digit, self._turns = 0, 0

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        if seed is not None:
            self._rng.seed(seed)
        self._digit, self._turns = self._rng.randrange(10), 0
        return "guess a digit", {"env_instruction": "guess"}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._turns += 1
        valid = action.isdecimal() and action.isascii()
        right = valid and int(action) == self._digit
        reward = 1.0 if right else 0.0 if valid else -0.1
        info = {
            "metrics": {"action_is_valid": valid, "success": right, "format_penalty": 0.0 if valid else -0.1},
            "metrics_agg_mode": {"action_is_valid": "mean", "success": "last", "format_penalty": "mean"},
        }
        return f"after {action[:20]!r}: no", reward, right, right or self._turns >= 5, info


def say(env: Environment, table: Any, text: str) -> tuple[Any, Any]:
    action = {TEXT: encode(text, env.action[TEXT])}
    return env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})


def test_a_foreign_episode_is_recorded_with_its_metrics(tmp_path: Path) -> None:
    env = from_gem(Guess(), record=tmp_path, info={"policy": "counting"})
    table: Any = env.reset({"seed": 6})
    for text in ("what?", *map(str, range(10))):
        table, reward = say(env, table, text)
        if table["terminated"] or table["truncated"]:
            break
    assert "success" in table["extra_info"]
    env.close()
    source = rr.open_source(tmp_path)
    record = source.table.episodes[0]
    assert record["metrics"]["action_is_valid"] == pytest.approx((len(source) - 1) / len(source))
    assert record["metrics"]["success"] == float(reward["reward"] == 1.0)
    assert record["seed"] == 6
    assert decode(source.table.rows["action_text"][1]) == "what?"


def test_metrics_aggregate_as_the_environment_says() -> None:
    turns = [{"valid": True, "success": False, "cost": 2.0}, {"valid": False, "success": True, "cost": 3.0}]
    assert aggregate(turns, {"success": "last", "cost": "sum"}) == {"valid": 0.5, "success": 1.0, "cost": 5.0}  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="median"):
        aggregate(turns, {"cost": "median"})  # type: ignore[arg-type]


@pytest.mark.requirement("R4.3")
def test_a_foreign_environment_keeps_the_contract() -> None:
    with Environment(GemWorld(Guess(), observation_size=256, action_size=64)) as env:
        check_environment(env).raise_if_failed()


def test_our_own_go_out_by_one_door_and_come_in_by_the_other() -> None:
    there, here = GemEnv("sokoban"), from_gem(GemEnv("sokoban"))
    text, _ = there.reset(seed=5)
    table: Any = here.reset({"seed": 5})
    assert decode(table["observation"][TEXT]) == text
    expected = there.step("<answer>Left</answer>")
    table, reward = say(here, table, "<answer>Left</answer>")
    assert (decode(table["observation"][TEXT]), reward["reward"]) == expected[:2]


@pytest.mark.parametrize("answer", [None, ("text",), (3, {}), ("text", None)])
def test_an_answer_that_breaks_the_signature_is_named(answer: Any) -> None:
    class Broken:
        def reset(self, seed: int | None = None) -> Any:
            return answer

    with pytest.raises(TypeError, match="expected"):
        from_gem(Broken()).reset()


def test_gem_s_own_game_is_played_under_the_contract() -> None:
    gem = pytest.importorskip("gem", reason="gem-llm is not installed")
    from gem.envs.game_env.guess_the_number import GuessTheNumberEnv

    env = from_gem(GuessTheNumberEnv())
    table: Any = env.reset({"seed": 1})
    assert gem is not None
    assert decode(table["observation"][TEXT])
    table, _ = say(env, table, "\\boxed{3}")
    assert table["frame_no"] == 1
