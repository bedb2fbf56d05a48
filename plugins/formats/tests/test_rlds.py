"""RLDS data sets, written by the definition of their files; TensorFlow Datasets judges where it is installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError
from plugins.formats.tests.rlds_files import Values, example, record, write_rlds
from plugins.formats.tests.test_stored_images import all_images, photos
from recorder.formats.registry import advice_on, sets_in
from recorder.images.images import Images
from recorder.log.image_codec import decode_bytes
from rlenv_formats.rlds import load_rlds, open_rlds_images

pytest.importorskip("google.protobuf", reason="protobuf is not installed")
pytest.importorskip("google_crc32c", reason="google-crc32c is not installed")
cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
LENGTHS = (4, 6, 3)


def episode(number: int, length: int) -> tuple[Values, Values]:
    rng = np.random.default_rng(number)
    step = np.arange(length)
    steps = {
        "observation/state": rng.normal(size=(length, 7)).astype(np.float32),
        "observation/count": rng.integers(-(2**31), 2**31, (length, 2)).astype(np.int32),
        "observation/image": [cv2.imencode(".png", one)[1].tobytes() for one in photos(number, length, 24, 32, 3)],
        "action/world_vector": rng.normal(size=(length, 3)).astype(np.float32),
        "action/open": rng.normal(size=length).astype(np.float32),
        "reward": (step == length - 1).astype(np.float32) + np.float32(0.25),
        "discount": np.ones(length, np.float32),
        "is_first": step == 0, "is_last": step == length - 1, "is_terminal": (step == length - 1) & (number % 2 == 0),
        "language_instruction": [f"pick {number}".encode()] * length,
    }  # fmt: skip
    return steps, {"file_path": f"/x/{number}".encode(), "episode_id": 40 + number, "success": number == 1}


EPISODES = [episode(number, length) for number, length in enumerate(LENGTHS)]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    write_rlds(tmp_path / "made" / "1.0.0", EPISODES, ["observation/image"], shards=[2, 1])
    return tmp_path / "made" / "1.0.0"


@pytest.mark.parametrize("keep", [False, True])
def test_every_value_is_where_the_definition_puts_it(made: Path, keep: bool) -> None:
    table = rr.open_source(made, keep_last=keep).table
    assert table.layout.observation.names == ("state", "count")
    assert table.layout.action.names == ("world_vector", "open")
    for number, (steps, _) in enumerate(EPISODES):
        rows, length = table.rows[table.starts[number] : table.stops[number]], LENGTHS[number]
        assert len(rows) == length + keep
        for name in ("state", "count"):
            np.testing.assert_array_equal(rows[f"observation_{name}"][:length], steps[f"observation/{name}"])
        for name in ("world_vector", "open"):
            np.testing.assert_array_equal(rows[f"action_{name}"][1:], steps[f"action/{name}"][: len(rows) - 1])
        np.testing.assert_array_equal(rows["reward"][1:], steps["reward"][: len(rows) - 1])
        assert rows["terminated"].tolist() == [0] * (len(rows) - 1) + [number % 2 == 0]
        assert rows["truncated"][-1] == (number % 2 == 1)
        info = table.episodes[number]
        assert info["task"] == f"pick {number}"
        assert info["metadata"]["episode_id"] == 40 + number
        assert info["verdict"] == ("success" if number == 1 else "failure")
        assert keep or info["last_reward"] == 1.25
    assert any("discount" in note for note in table.notes)


def test_images_by_frame(made: Path) -> None:
    """Also by the opener without the table, which counts the steps itself."""
    table = load_rlds(made)
    for number, images in enumerate(all_images(table, "image")):
        stored = EPISODES[number][0]["observation/image"]
        expected = np.stack([decode_bytes(one, True) for one in stored])  # type: ignore[arg-type]
        np.testing.assert_array_equal(images, expected)
    source = open_rlds_images(made)
    assert source is not None
    assert source.numbers("image", table.rows, "latest", np.inf).tolist() == list(range(sum(LENGTHS)))


def test_a_row_after_the_last_frame_has_no_image(made: Path) -> None:
    table = load_rlds(made, keep_last=True)
    with Images(table) as source:
        _, mask = source.at(np.arange(len(table.rows)), "image")
    ends = np.isin(np.arange(len(table.rows)), table.stops - 1)
    np.testing.assert_array_equal(mask, ~ends)


def test_columns_name_features_of_a_step(made: Path) -> None:
    names = {"observation.both": ["observation/state", "observation/count"], "observation.left": "discount"}
    table = rr.open_source(made, columns=names, episodes=[2]).table
    assert table.layout.observation.names == ("both", "left")
    np.testing.assert_array_equal(
        table.rows["observation_both"],
        np.concatenate([EPISODES[2][0]["observation/state"], EPISODES[2][0]["observation/count"]], axis=1),
    )
    assert [info["episode"] for info in table.episodes] == [2]
    with pytest.raises(SourceError, match="no numbers 'speed'"):
        load_rlds(made, columns={"action": "speed"})
    with pytest.raises(SourceError, match="no episode 9"):
        load_rlds(made, episodes=[9])


def test_a_vector_as_action_and_no_flags(tmp_path: Path) -> None:
    values = {"observation": np.zeros((3, 2), np.float32), "action": np.arange(3, dtype=np.int64)}
    write_rlds(tmp_path / "set", [(values, {})])
    table = load_rlds(tmp_path / "set")
    assert (table.layout.observation.names, table.layout.action.names) == (("state",), ("target",))
    assert table.rows["action_target"].tolist() == [0, 0, 1]
    assert table.episodes[0]["end"] == "end of recording"


def flip(at: int) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        file = sorted(root.glob("*.tfrecord-*"))[0]
        data = bytearray(file.read_bytes())
        data[at] ^= 4
        file.write_bytes(data)

    return damage


def cut(root: Path) -> None:
    file = sorted(root.glob("*.tfrecord-*"))[0]
    file.write_bytes(file.read_bytes()[:-5])


def edit(**changes: Any) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        path = root / "dataset_info.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


@pytest.mark.parametrize(
    ("damage", "word", "read"),
    [
        (flip(400), "checksum", [1, 2]),
        (flip(2), "at byte 0", [2]),
        (cut, "ends within", [0, 2]),
        (lambda root: sorted(root.glob("*.tfrecord-*"))[1].unlink(), "missing", [0, 1]),
        (edit(splits=[{"name": "train", "shardLengths": ["2"]}]), "missing", []),
        (edit(splits=[{"name": "train", "shardLengths": ["2", "7"]}]), "holds 1 episodes", [0, 1, 2]),
        (edit(fileFormat="array_record"), "convert_format", []),
        (edit(splits=[{"name": "../../x", "shardLengths": [1]}]), "outside", []),
        (edit(splits=[{"name": "train", "shardLengths": [10**12]}]), "shardLengths", []),
    ],
)
def test_damage_is_named(made: Path, damage: Callable[[Path], object], word: str, read: list[int]) -> None:
    damage(made)
    if not read:
        with pytest.raises(SourceError, match=word):
            load_rlds(made)
        return
    table = load_rlds(made)
    assert [info["episode"] for info in table.episodes] == read
    assert any(word in note for note in table.notes)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"observation/state": np.zeros((4, 6), np.float32)}, "expected 7 a step"),
        ({"observation/state": np.zeros((3, 7), np.float32)}, "steps"),
        ({"observation/state": np.zeros((4, 7), np.int64)}, "holds int64"),
        ({"observation/count": np.full((4, 2), 2**40)}, "beyond int32"),
        ({"is_last": np.array([False, True, False, True])}, "within the episode"),
        ({"reward": [b"x"] * 4}, "no numbers"),
        ({"observation/image": np.zeros(4)}, "no strings"),
    ],
)
def test_an_episode_that_does_not_fit_is_left_out(made: Path, change: Values, word: str) -> None:
    values = {f"steps/{name}": value for name, value in ({**EPISODES[0][0], **change}).items()}
    file = sorted(made.glob("*.tfrecord-*"))[0]
    file.write_bytes(record(example(values)) + record(b"\xff\xff"))
    with pytest.raises(SourceError, match=word):
        load_rlds(made, episodes=[0])
    assert "left out" in load_rlds(made).notes[0]


def test_an_instruction_that_changes(tmp_path: Path) -> None:
    steps = {**EPISODES[0][0], "language_instruction": [b"reach", b"reach", b"grasp", b"lift"]}
    write_rlds(tmp_path / "set", [(steps, {})], ["observation/image"])
    assert load_rlds(tmp_path / "set").episodes[0]["tasks"] == ["reach", "grasp", "lift"]


def test_what_is_no_rlds_gets_advice(made: Path) -> None:
    assert sets_in(made.parents[1]) == [made]
    assert "1.0.0" in (advice_on(made.parent) or "")
    (made / "features.json").write_text("{}")
    assert "no steps" in (advice_on(made) or "")
    with pytest.raises(SourceError, match="steps"):
        load_rlds(made)


def test_tensorflow_datasets_reads_the_same(made: Path) -> None:
    tfds = pytest.importorskip("tensorflow_datasets", reason="tensorflow-datasets is not installed")
    read = tfds.builder_from_directory(made).as_dataset(split="train", shuffle_files=False)
    table = load_rlds(made)
    for number, one in enumerate(read):
        steps = list(map(tfds.as_numpy, one["steps"]))
        rows = table.rows[table.starts[number] : table.stops[number]]
        np.testing.assert_array_equal(rows["observation_state"], [step["observation"]["state"] for step in steps])
        np.testing.assert_array_equal(
            rows["action_world_vector"][1:], [step["action"]["world_vector"] for step in steps[:-1]]
        )
        np.testing.assert_array_equal(rows["reward"][1:], [step["reward"] for step in steps[:-1]])
    assert number == len(LENGTHS) - 1
