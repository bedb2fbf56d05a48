"""Dialogues that are judged, recorded, compared and judged anew by a reward model (R6.4, R3.1)."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError
from rlenv_kit import check_environment
from rlenv_language.chat.preferences import WordRewardModel, preferences, relabel_chats, write_preferences
from rlenv_language.chat.transcripts import Transcript, read_transcripts
from rlenv_language.text.dialogue import Dialogue, Said
from rlenv_robot.data.chats import TEXT, decode, encode
from rlenv_robot.env import Environment

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


@pytest.mark.requirement("R4.3", "B.4.2-2")
def test_a_dialogue_keeps_the_contract() -> None:
    with Environment(Dialogue(["a", "b", "c"], lambda messages: float(len(messages[-1]["content"])), size=64)) as env:
        check_environment(env).raise_if_failed()


@pytest.mark.requirement("R3.1", "B.4.2-1")
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


def errand(tray: str, answer: str, rest: str, total: float) -> Transcript:
    chat = (("user", f"to the {tray}"), ("assistant", "grasp"), ("user", "held"), ("assistant", answer))
    more = (("user", "seen"), ("assistant", rest))
    return Transcript(tuple({"role": role, "content": text} for role, text in (*chat, *more)), (0.0, 0.0, total))


def test_pairs_are_written_up_to_the_agent_s_first_difference(tmp_path: Path) -> None:
    good, bad, other = errand("left", "put left", "release", 1.0), errand("left", "put right", "x", 0.0), chat(0.5)
    pairs = preferences([good, bad, other], 40, same_start=True)
    assert {(pair.chosen.total, pair.rejected.total) for pair in pairs} == {(1.0, 0.0)}
    assert write_preferences([*pairs[:2], *preferences([good, other], 3)], tmp_path / "pairs.jsonl") == 2
    line = json.loads((tmp_path / "pairs.jsonl").read_text().splitlines()[0])
    assert [message["content"] for message in line["prompt"]] == ["to the left", "grasp", "held"]
    assert line["chosen"] == [{"role": "assistant", "content": "put left"}]
    assert line["rejected"] == [{"role": "assistant", "content": "put right"}]
    with pytest.raises(SourceError, match="differ"):
        preferences([good, other], 3, same_start=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_trl_s_dpo_trainer_learns_to_prefer_from_written_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    trl = pytest.importorskip("trl", reason="trl is not installed")
    import datasets
    import torch
    import transformers

    from rlenv_language.chat.learner import train_tokenizer
    from rlenv_language.chat.tokens import BEGIN, CHAT_TEMPLATE, END, render

    chats = [errand(tray, f"put {said}", "release", float(tray == said)) for tray in ("left", "right")
             for said in ("left", "right")]  # fmt: skip
    write_preferences(preferences(chats, 32, same_start=True), tmp_path / "pairs.jsonl")
    rows = datasets.load_dataset("json", data_files=str(tmp_path / "pairs.jsonl"), split="train")
    assert len(rows) == 32
    made = train_tokenizer([render(one.messages)[0] for one in chats] * 3, 300)
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, chat_template=CHAT_TEMPLATE, eos_token=END, pad_token=BEGIN
    )
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=len(theirs), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, pad_token_id=theirs.pad_token_id, eos_token_id=theirs.eos_token_id,
    )  # fmt: skip
    model = transformers.Qwen3ForCausalLM(config)
    settings = trl.DPOConfig(
        str(tmp_path / "dpo"), max_steps=40, per_device_train_batch_size=8, learning_rate=5e-3, logging_steps=1,
        report_to="none", save_strategy="no", use_cpu=True, bf16=False, disable_tqdm=True, dataloader_pin_memory=False,
        gradient_checkpointing=False,
    )  # fmt: skip
    trainer = trl.DPOTrainer(
        model, ref_model=copy.deepcopy(model), args=settings, train_dataset=rows, processing_class=theirs
    )
    trainer.train()
    last = [line for line in trainer.state.log_history if "rewards/accuracies" in line][-1]
    assert last["rewards/accuracies"] == 1.0
    assert last["rewards/margins"] > 0.1


def test_a_judge_without_a_number_and_a_dialogue_without_prompts_are_refused() -> None:
    env: Any = Environment(Dialogue(["a"], lambda messages: float("nan")))
    table = env.reset()
    with pytest.raises(ValueError, match="finite"):
        env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": {TEXT: "x"}})
    with pytest.raises(ValueError, match="prompts"):
        Dialogue([], polite)
