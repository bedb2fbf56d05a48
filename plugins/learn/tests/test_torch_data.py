from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Field, Image, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.log.mcap_writer import McapWriter
from recorder.table.table import Table
from rlenv_robot.source import SourceData, open_source

torch = pytest.importorskip("torch", reason="torch is not installed")

from rlenv_learn.torch_data import Normalizer, TransitionDataset, make_loader  # noqa: E402


def test_every_transition_value_by_value(table: Table) -> None:
    dataset = TransitionDataset(SourceData(table))
    assert len(dataset) == 8
    index = 0
    for start, stop in zip(table.starts, table.stops, strict=True):
        rows = table.rows[start:stop]
        for row, after in pairwise(rows):
            if not after["acted"]:
                continue
            item = dataset[index]
            for name in ("place", "speed"):
                np.testing.assert_array_equal(item["observation"][name].numpy(), row[f"observation_{name}"])
                np.testing.assert_array_equal(item["next_observation"][name].numpy(), after[f"observation_{name}"])
            np.testing.assert_array_equal(item["action"]["push"].numpy(), after["action_push"])
            assert item["reward"].item() == after["reward"]
            assert item["terminated"].item() == bool(after["terminated"])
            assert item["truncated"].item() == bool(after["truncated"])
            index += 1
    assert index == 8


def test_a_batch_is_its_items(table: Table) -> None:
    from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, default_collate

    dataset = TransitionDataset(table)
    loader = DataLoader(dataset, sampler=BatchSampler(SequentialSampler(dataset), 3, False), batch_size=None)
    batches = list(loader)
    assert [len(batch["reward"]) for batch in batches] == [3, 3, 2]
    wanted = default_collate([dataset[0], dataset[1], dataset[2]])
    for name in ("reward", "terminated", "truncated"):
        assert torch.equal(batches[0][name], wanted[name])
    for name in ("observation", "next_observation", "action"):
        for key, value in wanted[name].items():
            assert torch.equal(batches[0][name][key], value)


def test_the_ends(table: Table) -> None:
    dataset = TransitionDataset(table)
    assert dataset[-1]["reward"].item() == 20
    for wrong in (8, -9, [0, 8]):
        with pytest.raises(IndexError, match="there are 8 transitions"):
            dataset[wrong]
    nothing = replace(table, starts=table.starts[:0], stops=table.stops[:0], episodes=())
    with pytest.raises(SourceError, match="not one transition"):
        TransitionDataset(nothing)


# -- Windows, images, loaders ------------------------------------------------------------------------------------------

CHOICE: dict[str, Any] = {"chunk": 4, "stack": 2, "images": {"cameras": "top", "layout": "chw", "next": False}}


@pytest.fixture
def filmed(tmp_path: Path) -> Path:
    """A run of three episodes of 9 frames whose images have the frame's number as their colour."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    layout = FrameLayout(Spec("o", (Field("place", (2,)),)), Spec("a", (Field("push", ()),)))
    sink = McapWriter(tmp_path / "run", layout, {})
    for episode in range(3):
        sink.episode("begin", episode, f'{{"task": "push {episode}", "source": "{"ab"[episode % 2]}"}}', 0)
        for frame in range(9):
            row = layout.spec.rows()
            row["episode"], row["frame_no"], row["stamp_ns"], row["acted"] = episode, frame, frame * 10**7, frame > 0
            row["observation_place"], row["action_push"] = (episode, frame), frame
            sink.frame(row.tobytes(), episode * 10**12 + frame * 10**7)
            data = cv2.imencode(".png", np.full((6, 8, 3), 20 * frame, np.uint8))[1].tobytes()
            sink.image("top", Image(data, "png", frame * 10**7), episode * 10**12 + frame * 10**7)
        sink.episode("end", episode, '{"end": "time"}', 0)
    sink.close()
    return tmp_path / "run"


def check_batch(batch: dict[str, Any]) -> None:
    """Each part belongs to its frame: windows, masks, images and task."""
    episode, frame = batch["observation"]["place"][:, -1].unbind(1)
    wanted = frame[:, None] + torch.arange(1, 5)
    assert torch.equal(batch["chunk_mask"], wanted <= 8)
    assert torch.equal(batch["action"]["push"], wanted.clamp(max=8))
    assert batch["images"]["top"].shape == (len(frame), 2, 3, 6, 8)
    assert torch.equal(batch["images"]["top"][:, -1, 0, 0, 0].float(), 20 * frame)
    assert batch["task"] == [f"push {int(number)}" for number in episode]


def test_a_batch_has_windows_images_masks_and_tasks(filmed: Path) -> None:
    dataset = TransitionDataset(open_source(filmed), {**CHOICE, "source": "a"})
    assert len(dataset) == 16  # two of three episodes
    batch = dataset[list(range(16))]
    check_batch(batch)
    assert set(batch["task"]) == {"push 0", "push 2"}
    assert dataset[3]["task"] == "push 0"
    with pytest.raises(SourceError, match="unknown"):
        TransitionDataset(open_source(filmed), {"chunks": 4})


def test_a_pickled_dataset_opens_its_data_again(filmed: Path) -> None:
    dataset = TransitionDataset(open_source(filmed), CHOICE)
    stored = pickle.dumps(dataset)
    assert len(stored) < 4096
    again = pickle.loads(stored)
    assert torch.equal(again[[1, 5]]["images"]["top"], dataset[[1, 5]]["images"]["top"])


WORKERS = """
import sys
import torch
from rlenv_learn.torch_data import make_loader
from rlenv_robot.source import open_source

if __name__ == "__main__":
    choice = {"chunk": 4, "images": {"cameras": "top", "next": False}}
    source = open_source(sys.argv[1])
    alone, shared = (list(make_loader(source, 5, choice, workers=workers, seed=3)) for workers in (0, 2))
    same = (torch.equal(a["images"]["top"], b["images"]["top"]) for a, b in zip(alone, shared, strict=True))
    print(len(alone), all(same))
"""


@pytest.mark.process
@pytest.mark.slow
def test_workers_load_what_one_process_loads(filmed: Path, tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text(WORKERS)
    command = [sys.executable, "-W", "ignore", str(tmp_path / "load.py"), str(filmed)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.stdout == "4 True\n", done.stderr[-2000:]


def test_a_normaliser_measures_the_chosen_data_and_goes_back(filmed: Path) -> None:
    source = open_source(filmed)
    measured = Normalizer.of(source, {**CHOICE, "episodes": [0, 2]})
    frames = np.arange(8.0)
    assert measured.mean["observation"]["place"].tolist() == pytest.approx([1.0, frames.mean()])
    assert measured.std["observation"]["place"].tolist() == pytest.approx([1.0, frames.std()])
    assert measured.mean["images"]["top"].tolist() == pytest.approx([20 * frames.mean() / 255] * 3)
    plain = TransitionDataset(source, CHOICE)[list(range(24))]
    scaled = measured(plain)
    back = measured.actions(scaled["action"])
    torch.testing.assert_close(back["push"], plain["action"]["push"])
    assert scaled["images"]["top"].dtype == torch.float32
    (batch,) = make_loader(source, 24, {**CHOICE}, normalizer=measured)
    assert abs(float(batch["images"]["top"].mean())) < 0.5
