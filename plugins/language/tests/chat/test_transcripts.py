"""Transcripts of recorded episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rlenv_robot as rr
from hal import SourceError
from rlenv_language.chat.transcripts import read_transcripts
from rlenv_language.gem import GemEnv


def test_a_recorded_episode_is_a_chat_with_a_reward_a_turn(tmp_path: Path) -> None:
    env = GemEnv("frozen-lake", record=tmp_path, slippery=False, ice=1.0, size=2, steps=5)
    first, info = env.reset(seed=4)
    answers: list[Any] = [env.step(text) for text in ("hm", "<answer>Right</answer>", "<answer>Down</answer>")]
    env.reset(seed=5)
    env.step("<answer>Right</answer>")
    env.reset()  # abandons an episode of one turn; this one has none
    env.close()
    done, cut = read_transcripts(rr.open_source(tmp_path), system=info["env_instruction"])
    assert [message["role"] for message in done.messages] == ["system"] + ["user", "assistant"] * 3
    assert done.messages[1]["content"] == first
    assert done.messages[2]["content"] == "hm"
    assert done.messages[3]["content"] == answers[0][0]
    assert done.rewards == pytest.approx((-0.1, 0.0, 1.0))
    assert (done.last, done.terminated, done.success, done.seed) == (answers[2][0], True, True, 4)
    assert (len(cut.rewards), cut.terminated, cut.total) == (1, False, 0.0)


def test_data_of_numbers_have_no_transcripts(tmp_path: Path) -> None:
    env: Any = rr.make("frozen-lake", record=tmp_path)
    table = env.reset({"seed": 0})
    env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": {"move": 1}})
    env.close()
    with pytest.raises(SourceError, match="to_text"):
        read_transcripts(rr.open_source(tmp_path))
