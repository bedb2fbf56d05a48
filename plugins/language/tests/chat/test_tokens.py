"""Tokens, masks and rewards of chats: exact, by transformers' own chat template and tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlenv_language.chat.tokens import BEGIN, CHAT_TEMPLATE, END, render, tokenize, write_rl
from rlenv_language.chat.transcripts import Transcript, write_sft

CHAT = Transcript(
    (
        {"role": "system", "content": "Cross the lake. Answer with one command between <answer> and </answer>."},
        {"role": "user", "content": "P___\n____\n___G"},
        {"role": "assistant", "content": "to the right: <answer>Right</answer>"},
        {"role": "user", "content": "_P__\n____\n___G √ ✓"},
        {"role": "assistant", "content": "<answer>Down</answer>"},
    ),
    (0.25, -1.0),
    terminated=False,
    success=True,
)


class Letters:
    """A tokenizer of letters, with the marks as tokens of their own."""

    def __init__(self, marks: tuple[str, ...] = (BEGIN, END), pairs: bool = False) -> None:
        self.marks, self.step = marks, 2 if pairs else 1

    def encode(self, sequence: str, *, add_special_tokens: bool = True) -> Any:
        offsets, place = [], 0
        while place < len(sequence):
            size = next((len(mark) for mark in self.marks if sequence.startswith(mark, place)), self.step)
            offsets.append((place, min(place + size, len(sequence))))
            place += size
        encoding = type("Encoding", (), {})()
        encoding.offsets, encoding.ids = offsets, [hash(sequence[a:b]) % 1000 for a, b in offsets]
        return encoding


def test_the_mask_is_what_the_agent_wrote_and_rewards_are_on_end_tokens() -> None:
    episode = tokenize(CHAT, Letters())
    text, spans = render(CHAT.messages)
    written = [text[begin:stop] for begin, stop in spans]
    assert written == [f"{CHAT.messages[2]['content']}{END}", f"{CHAT.messages[4]['content']}{END}"]
    assert episode.mask.sum() == sum(len(one) - len(END) + 1 for one in written)
    ends = np.flatnonzero(episode.rewards)
    assert episode.rewards[ends].tolist() == [0.25, -1.0]
    assert (episode.turns[ends] == [0, 1]).all()
    assert (np.diff(episode.mask.astype(int)) == 1).sum() == 2
    assert not episode.mask[ends + 1].any(), "the line feed after the end is the template's"
    assert episode.terminated is False


def test_tokens_across_a_border_or_without_an_end_are_refused() -> None:
    with pytest.raises(ValueError, match="border"):
        tokenize(CHAT, Letters((), pairs=True))
    with pytest.raises(ValueError, match="special token"):
        tokenize(CHAT, Letters((BEGIN,)))


def test_exports_are_lines_of_json(tmp_path: Path) -> None:
    assert write_sft([CHAT, CHAT], tmp_path / "sft.jsonl", keep=lambda one: one.total < 0) == 2
    lines = (tmp_path / "sft.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["messages"][4]["content"] == "<answer>Down</answer>"
    assert write_rl([CHAT], Letters(), tmp_path / "rl.jsonl") == 1
    line = json.loads((tmp_path / "rl.jsonl").read_text())
    assert len(line["input_ids"]) == len(line["loss_mask"]) == len(line["rewards"])
    assert sum(line["rewards"]) == pytest.approx(-0.75)


@pytest.mark.slow
def test_ids_and_mask_are_those_of_transformers_with_a_tokenizer_trained_here() -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from rlenv_language.chat.learner import train_tokenizer

    made = train_tokenizer([render(CHAT.messages)[0]] * 3, 300)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=made, chat_template=CHAT_TEMPLATE)
    answer = theirs.apply_chat_template(
        list(CHAT.messages), tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    episode = tokenize(CHAT, made)
    assert answer["input_ids"] == episode.ids.tolist()
    assert answer["assistant_masks"] == episode.mask.astype(int).tolist()
    assert theirs.decode(episode.ids[episode.turns == 1]) == f"{CHAT.messages[4]['content']}{END}"
    prompt = theirs.apply_chat_template(list(CHAT.messages[:4]), tokenize=False, add_generation_prompt=True)
    assert prompt == render(CHAT.messages[:4], prompt=True)[0]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_trl_s_sft_trainer_learns_from_both_exports_with_our_mask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    trl = pytest.importorskip("trl", reason="trl is not installed")
    import datasets
    import torch
    import transformers

    from rlenv_language.chat.learner import train_tokenizer

    made = train_tokenizer([render(CHAT.messages)[0]] * 3, 300)
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, chat_template=CHAT_TEMPLATE, eos_token=END, pad_token=BEGIN
    )
    write_sft([CHAT] * 4, tmp_path / "sft.jsonl")
    write_rl([CHAT] * 4, made, tmp_path / "rl.jsonl")
    chats = datasets.load_dataset("json", data_files=str(tmp_path / "sft.jsonl"), split="train")
    tokens = datasets.load_dataset("json", data_files=str(tmp_path / "rl.jsonl"), split="train")
    tokens = tokens.select_columns(["input_ids", "loss_mask"]).rename_column("loss_mask", "assistant_masks")
    episode, losses = tokenize(CHAT, made), []
    for name, rows in (("chats", chats), ("tokens", tokens)):
        torch.manual_seed(0)
        config = transformers.Qwen3Config(
            vocab_size=len(theirs), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, head_dim=16, pad_token_id=theirs.pad_token_id, eos_token_id=theirs.eos_token_id,
        )  # fmt: skip
        settings = trl.SFTConfig(
            str(tmp_path / name), max_steps=12, per_device_train_batch_size=2, learning_rate=1e-2, logging_steps=1,
            assistant_only_loss=name == "chats", report_to="none", save_strategy="no", use_cpu=True, bf16=False,
            disable_tqdm=True, dataloader_pin_memory=False, gradient_checkpointing=False, max_length=512,
        )  # fmt: skip
        trainer = trl.SFTTrainer(
            transformers.Qwen3ForCausalLM(config), args=settings, train_dataset=rows, processing_class=theirs
        )
        row = trainer.train_dataset[0]
        assert row["input_ids"] == episode.ids.tolist()
        assert row["labels"] == np.where(episode.mask, episode.ids, -100).tolist()
        trainer.train()
        losses.append([line["loss"] for line in trainer.state.log_history if "loss" in line])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4), "both exports are the same lesson"
    assert losses[0][-1] < 0.7 * losses[0][0]
