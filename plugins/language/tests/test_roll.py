"""ROLL's settings of environments, and its own manager of rollouts where a checkout of it is at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlenv_language.from_gem import from_gem
from rlenv_language.gem import GemEnv
from rlenv_language.roll_settings import ROLL_KEYS, from_roll
from rlenv_language.text.view import TextRules

ROOT = Path(__file__).resolve().parents[3]


def test_sokoban_takes_the_settings_of_roll_s_yaml() -> None:
    env = GemEnv(
        "sokoban", dim_room=[7, 6], num_boxes=2, search_depth=30, max_steps=4, format_penalty=-0.15,
        action_pattern="<answer>(.*?)</answer>", special_token_list=["<|im_start|>", "<|im_end|>"],
        grid_lookup={0: "W", 1: ".", 2: "G", 3: "C", 4: "B", 5: "A", 6: "@"},
        grid_vocab={"W": "a wall", "G": "a target"},
        action_lookup={1: "north", 2: "south", 3: "west", 4: "east"}, env_instruction="Solve it.",
    )  # fmt: skip
    text, info = env.reset(seed=1)
    assert [len(line) for line in text.splitlines()] == [6] * 7
    assert text.count("B") == 2
    assert not set(text) - set("W.GCBA@\n")
    assert info["env_instruction"].startswith("Solve it.\nThe symbols are: W: a wall, .: floor, G: a target, C: box")
    assert "- north" in info["env_instruction"]
    assert env.step("up")[1] == -0.15
    *_, info = env.step("<think><answer>east</answer></think><answer>north</answer><|im_end|>")
    assert info["command"] == "north"
    assert [env.step("?")[2:4] for _ in range(2)] == [(False, False), (True, True)]


def test_frozen_lake_and_any_other_task_take_them_too() -> None:
    lake = GemEnv("frozen-lake", size=5, p=1.0, is_slippery=False, map_seed=3, max_steps=10)
    assert lake.reset(seed=0)[0].splitlines()[0] == "P____"
    assert lake.step("<answer>Right</answer>")[0].splitlines()[0] == "_P___"
    arm = GemEnv("so101-reach", max_steps=1, action_pattern="^(.*)$")
    arm.reset(seed=0)
    assert arm.step(arm.sample_random_action())[2:4] == (True, True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dim_room", 6), ("grid_lookup", {0: "a"}), ("action_lookup", {0: "a"}), ("action_pattern", "("),
        ("action_pattern", "x"), ("render_mode", "rgb_array"), ("format_penalty", 1.0), ("max_steps", -1),
        ("boxen", 1),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_its_key(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        GemEnv("sokoban", **{key: value})


def test_settings_without_roll_s_keys_stay_as_they_are() -> None:
    options, rules, change = from_roll("sokoban", {"rows": 7, "record": "runs"}, TextRules())
    assert (options, rules) == ({"rows": 7, "record": "runs"}, TextRules())
    hints = GemEnv("sokoban").text_world.unwrapped.text_hints()  # type: ignore[attr-defined]
    assert change(hints) == hints
    assert set(ROLL_KEYS) >= {"max_steps", "format_penalty"}


class Foreign:
    """An environment with gem's interface, as ROLL's are, which says both flags at its limit."""

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        self._turn = 0
        return f"guess {seed}", {"env_instruction": "Guess."}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._turn += 1
        late = self._turn == 2
        metrics = {"metrics": {"success": False}, "metrics_agg_mode": {"success": "last"}, "suffix": "left: 1"}
        return f"not {action}", -0.5, late, late, metrics

    def sample_random_action(self) -> str:
        return "a guess"


def test_an_adapted_environment_has_gem_s_interface_again(tmp_path: Path) -> None:
    env = GemEnv(from_gem(Foreign(), record=tmp_path))
    assert env.reset(seed=4) == ("guess 4", {"env_instruction": "Guess."})
    text, reward, *ends, info = env.step(env.sample_random_action())
    assert (text, reward, ends, info["suffix"]) == ("not a guess", -0.5, [False, False], "left: 1")
    assert info["metrics_agg_mode"] == {"success": "last"}
    assert env.step("x" * 20_000)[2:4] == (True, False), (
        "the standard has one flag, and gem's maths says both at any end"
    )
    env.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_roll_s_own_manager_plays_five_environments() -> None:
    checkout, python = os.environ.get("ROLL_CHECKOUT"), os.environ.get("ROLL_PYTHON", sys.executable)
    if not checkout:
        pytest.skip("ROLL_CHECKOUT names no checkout of alibaba/ROLL")
    script = ROOT / "benchmarks" / "roll_manager.py"
    command = [python, str(script), "--roll", checkout, "--rollouts", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
