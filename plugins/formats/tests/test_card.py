"""Every exported data set has a card, which the Hub's own parser and `datasets` take."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.formats.registry import writable_format
from recorder.table.table import Table
from rlenv_formats.card import card_text

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

Make = Callable[..., Table]
FORMATS = {"lerobot": "LeRobot v3.0", "minari": "Minari 0.5.0", "robomimic": "robomimic", "parquet": "Parquet"}


def card_of(folder: Path, name: str, table: Table) -> Path:
    _, write = writable_format(name)
    out = folder / ("arm.hdf5" if name == "robomimic" else "arm-v0")
    write(table, out)
    return out.with_suffix(".md") if name == "robomimic" else out / "README.md"


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_card_says_what_is_in_the_set_and_how_to_load_it(tmp_path: Path, make_table: Make, name: str) -> None:
    text = card_of(tmp_path, name, make_table()).read_text()
    assert f"3 episodes, 10 steps, 50 Hz, 0.2 s, exported by rlenv-robot as {FORMATS[name]}." in text
    assert "| observation | `joint_position` | float32 | [2] | pan, lift | rad | -3 to 3 | measured |" in text
    assert "- success: True (1), False (2)" in text.replace("False (2), True (1)", "True (1), False (2)")
    assert "rlenv_robot.open_source(" in text
    assert "license: unknown" in text
    assert "The owner of the data states it here" in text


def test_no_text_of_a_run_breaks_the_card(make_table: Make) -> None:
    table = make_table()
    evil = {"task": "---\nlicense: mit\n---\n| <script> `x`", "robot": "a|b\n# c", "success": "x\n- y"}
    text = card_text(
        replace(table, episodes=tuple({**info, **evil} for info in table.episodes)), "x", "pass", ["a\n# b"]
    )
    head, _, body = text.removeprefix("---\n").partition("\n---\n")
    assert "mit" not in head
    assert "<script>" not in body
    assert "\n# c" not in body
    assert "\n# b" not in body


def test_another_file_of_the_cards_name_stays(tmp_path: Path, make_table: Make) -> None:
    (tmp_path / "arm.md").write_text("mine")
    _, write = writable_format("robomimic")
    notes = write(make_table(), tmp_path / "arm.hdf5")
    assert (tmp_path / "arm.md").read_text() == "mine"
    assert any("no data set card was written" in note for note in notes)


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.skipif(importlib.util.find_spec("huggingface_hub") is None, reason="huggingface_hub is not installed")
def test_the_hubs_parser_reads_it(tmp_path: Path, make_table: Make, name: str) -> None:
    from huggingface_hub import DatasetCard

    card: Any = DatasetCard.load(card_of(tmp_path, name, make_table()))
    assert card.data.license == "unknown"
    assert card.data.task_categories == ["robotics"]
    assert card.data.size_categories == ["n<1K"]
    assert card.data.tags[-1] == "rlenv-robot"
    if name in ("lerobot", "parquet"):
        assert card.data.configs[0]["config_name"] == "default"
    assert "## Licence" in card.text


@pytest.mark.parametrize("name", ["lerobot", "parquet"])
@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="datasets is not installed")
@pytest.mark.filterwarnings("ignore")
def test_datasets_loads_the_files_that_the_card_names(
    tmp_path: Path, make_table: Make, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    table = make_table()
    folder = card_of(tmp_path, name, table).parent
    rows = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))["train"]
    if name == "parquet":
        assert len(rows) == len(table.rows)
        np.testing.assert_array_equal(rows["observation_joint_position"], table.rows["observation_joint_position"])
        np.testing.assert_array_equal(rows["reward"], table.rows["reward"])
    else:
        assert len(rows) == 10  # a LeRobot frame is a pair, so the last observations are elsewhere
        acted = table.rows["acted"] == 1
        np.testing.assert_array_equal(rows["action"], table.rows["action_joint_target"][acted])
