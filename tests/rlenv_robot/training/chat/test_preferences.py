"""Dialogues that are judged, recorded, compared and judged anew by a reward model (R6.4, R3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError
from rlenv_robot.adapters.text.dialogue import Dialogue, Said
from rlenv_robot.adapters.text.view import TEXT, decode, encode
from rlenv_robot.conformance import check_environment
from rlenv_robot.env import Environment
from rlenv_robot.training.chat.preferences import WordRewardModel, preferences, relabel_chats
from rlenv_robot.training.chat.transcripts import Transcript, read_transcripts

pytestmark = pytest.mark.requirement("R6.4")


def polite(messages: Sequence[Said]) -> float:
    """Judge the agent's words: please is good, now is bad."""
    words = " ".join(one["content"] for one in messages if one["role"] == "assistant").split()
    return float(words.count("please") - words.count("now"))


def again(messages: Sequence[Said]) -> str | None:
    return None if "bye" in messages[-1]["content"] else "and then?"


def record(folder: Path, episodes: int) -> rr.SourceData:
    """Record dialogues of random words."""
    env: Any = rr.make(Dialogue(["may I?", "hello"], polite, again, turns=3), record=folder)
    rng = np.random.default_rng(1)
    for seed in range(episodes):
        table = env.reset({"seed": seed})
        while not table["terminated"]:
            said = " ".join(rng.choice(["please", "now", "give", "the", "cube"], 4))
            action = {TEXT: encode(said, env.action[TEXT])}
            table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    env.close()
    return rr.open_source(folder)


def test_a_dialogue_is_judged_as_a_whole_at_its_end() -> None:
    env: Any = Environment(Dialogue(["may I?"], polite, again, turns=5))
    table = env.reset({"seed": 0})
    rewards = []
    for text in ("please please", "now", "bye"):
        assert decode(table["observation"][TEXT]) in ("may I?", "and then?")
        table, reward = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": {TEXT: text}})
        rewards.append(reward["reward"])
    assert rewards == [0.0, 0.0, 1.0]
    assert (table["terminated"], table["extra_info"]["score"]) == (1, 1.0)


@pytest.mark.requirement("R4.3")
def test_a_dialogue_keeps_the_contract() -> None:
    with Environment(Dialogue(["a", "b", "c"], lambda messages: float(len(messages[-1]["content"])), size=64)) as env:
        check_environment(env).raise_if_failed()


@pytest.mark.requirement("R3.1")
def test_a_reward_model_from_pairs_agrees_with_the_judge_and_rewards_a_log_anew(tmp_path: Path) -> None:
    source = record(tmp_path, 80)
    chats = read_transcripts(source)
    assert len(chats) == 80
    training, held_out = chats[:60], chats[60:]
    model = WordRewardModel.train(preferences(training, 400))
    weights = {word: model.weights[place] for word, place in model.words.items()}
    assert weights["please"] > 0.5
    assert weights["now"] < -0.5
    tests = preferences(held_out, 200, seed=1)
    right = np.mean([model.score(pair.chosen) > model.score(pair.rejected) for pair in tests])
    assert right > 0.9
    anew = relabel_chats(source, model.score)
    assert anew.table.episodes[3]["return"] == pytest.approx(model.score(chats[3]))
    assert read_transcripts(anew)[3].total == pytest.approx(model.score(chats[3]))
    assert np.isclose(source.table.rows["reward"].sum(), sum(chat.total for chat in chats)), "the log is as it was"


def chat(total: float, success: bool | None = None) -> Transcript:
    return Transcript(
        ({"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}), (total,), success=success
    )


def test_pairs_prefer_by_return_or_verdict_and_the_disputed_ones_come_first() -> None:
    chats = [chat(0.0, True), chat(0.1, False), chat(10.0)]
    assert all(pair.chosen.total > pair.rejected.total for pair in preferences(chats, 50))
    assert {(pair.chosen.total, pair.rejected.total) for pair in preferences(chats, 20, by="success")} == {(0.0, 0.1)}
    alike = np.mean([pair.controversy for pair in preferences(chats, 300)])
    disputed = np.mean([pair.controversy for pair in preferences(chats, 300, priority="controversy")])
    assert alike < 0.5 < 0.9 < disputed
    with pytest.raises(SourceError, match="differ"):
        preferences([chat(1.0), chat(1.0)], 3)
    with pytest.raises(SourceError, match="taste"):
        preferences(chats, 3, by="taste")


def test_a_judge_without_a_number_and_a_dialogue_without_prompts_are_refused() -> None:
    env: Any = Environment(Dialogue(["a"], lambda messages: float("nan")))
    table = env.reset()
    with pytest.raises(ValueError, match="finite"):
        env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": {TEXT: "x"}})
    with pytest.raises(ValueError, match="prompts"):
        Dialogue([], polite)
