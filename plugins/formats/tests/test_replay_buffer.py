"""Replay buffers of Diffusion Policy and UMI, written by zarr itself or by hand, held to what zarr reads."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError
from plugins.formats.tests.test_stored_images import all_images, photos
from recorder.images.images import Images
from recorder.table.table import Table
from rlenv_formats.replay_buffer import load_replay_buffer

zarr = pytest.importorskip("zarr", reason="zarr is not installed")
numcodecs = pytest.importorskip("numcodecs", reason="numcodecs is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:The codec")
LENGTHS = (4, 6, 3)
ENDS = np.cumsum(LENGTHS)
POSES = {"eef_pos": 3, "eef_rot_axis_angle": 3, "gripper_width": 1}

Arrays = Mapping[str, np.ndarray]


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    rng, count = np.random.default_rng(seed), int(ENDS[-1])
    return {
        "state": rng.normal(size=(count, 5)).astype(np.float32),
        "keypoint": rng.normal(size=(count, 9, 2)),
        "action": rng.normal(size=(count, 2)).astype(np.float32),
        "img": photos(seed, count, 16, 24, 3),
    }


def write_buffer(path: Path, values: Arrays, version: int = 2, ends: np.ndarray = ENDS, **options: Any) -> None:
    """Write a buffer by zarr, in chunks of 5 frames."""
    store = zarr.storage.ZipStore(path, mode="w") if path.suffix == ".zip" else zarr.storage.LocalStore(path)
    group = zarr.create_group(store, zarr_format=version)
    for name, value in {**{f"data/{name}": value for name, value in values.items()}, "meta/episode_ends": ends}.items():
        array = group.create_array(
            name, shape=value.shape, chunks=(min(5, len(value)), *value.shape[1:]), dtype=value.dtype, **options
        )
        array[:] = value
    store.close()


def check(table: Table, values: Arrays, keep: bool = False) -> None:
    assert len(table.episodes) == len(LENGTHS)
    for number, (end, length) in enumerate(zip(ENDS, LENGTHS, strict=True)):
        rows = table.rows[table.starts[number] : table.stops[number]]
        assert len(rows) == length + keep
        for name in ("state", "keypoint"):
            np.testing.assert_array_equal(rows[f"observation_{name}"][:length], values[name][end - length : end])
        np.testing.assert_array_equal(rows["action_target"][1:], values["action"][end - length : end][: len(rows) - 1])
        assert np.isnan(rows["reward"][1:]).all()
        assert rows["truncated"][-1]


def test_frames_without_time_count_at_the_rate_that_is_given(tmp_path: Path) -> None:
    write_buffer(tmp_path / "pusht.zarr", arrays())
    table = rr.open_source(tmp_path / "pusht.zarr", rate_hz=10).table
    np.testing.assert_array_equal(np.diff(table.rows["stamp_ns"][: LENGTHS[0]]), 10**8)
    assert not any("no time" in note for note in table.notes)
    assert any("rate_hz=" in note for note in rr.open_source(tmp_path / "pusht.zarr").table.notes)
    with pytest.raises(SourceError, match="rate_hz is -1"):
        load_replay_buffer(tmp_path / "pusht.zarr", rate_hz=-1)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("place", ["pusht.zarr", "pusht.zarr.zip"])
@pytest.mark.parametrize("version", [2, 3])
def test_a_buffer_as_zarr_writes_it(tmp_path: Path, version: int, place: str, keep: bool) -> None:
    values, path = arrays(), tmp_path / place
    write_buffer(path, values, version)
    table = rr.open_source(path, keep_last=keep).table
    check(table, values, keep)
    assert table.layout.observation.names == ("keypoint", "state")
    if not keep:
        for images, end, length in zip(all_images(table, "img"), ENDS, LENGTHS, strict=True):
            np.testing.assert_array_equal(images, values["img"][end - length : end])
        assert table.episodes[1]["last_action"] == {"target": values["action"][9].tolist()}
    else:
        with Images(table) as source:
            _, mask = source.at(table.stops - 1, "img")
        assert not mask.any()


def test_images_of_whole_floats(tmp_path: Path) -> None:
    """As Diffusion Policy's PushT has them; other floats are no images of bytes."""
    values = arrays()
    write_buffer(tmp_path / "set", {**values, "img": values["img"].astype(np.float32)})
    images = np.concatenate(all_images(load_replay_buffer(tmp_path / "set"), "img"))
    np.testing.assert_array_equal(images, values["img"])
    write_buffer(tmp_path / "other", {**values, "img": values["img"] / np.float32(255)})
    with Images(load_replay_buffer(tmp_path / "other")) as source, pytest.raises(SourceError, match="0 to 255"):
        source.at(np.array([0]), "img")


def write_images(path: Path, images: np.ndarray, codec: str) -> None:
    """Write each image as a chunk that imagecodecs encoded, as Diffusion Policy and UMI do."""
    imagecodecs = pytest.importorskip("imagecodecs", reason="imagecodecs is not installed")
    about = {
        "zarr_format": 2, "shape": list(images.shape), "chunks": [1, *images.shape[1:]], "dtype": "|u1", "order": "C",
        "compressor": {"id": f"imagecodecs_{codec}", "level": None}, "fill_value": 0, "filters": None,
    }  # fmt: skip
    path.mkdir(parents=True)
    (path / ".zarray").write_text(json.dumps(about))
    for number, image in enumerate(images):
        (path / f"{number}.0.0.0").write_bytes(getattr(imagecodecs, f"{codec}_encode")(image))


@pytest.mark.parametrize("codec", ["jpegxl", "jpeg2k", "png"])
def test_a_set_of_umi(tmp_path: Path, codec: str) -> None:
    """It has no actions: the pose and width of the next frame are the action."""
    imagecodecs = pytest.importorskip("imagecodecs", reason="imagecodecs is not installed")
    rng, count, folder = np.random.default_rng(0), int(ENDS[-1]), tmp_path / "folder"
    poses = {f"robot0_{name}": rng.normal(size=(count, size)).astype(np.float32) for name, size in POSES.items()}
    write_buffer(folder, {**poses, "robot0_demo_start_pose": rng.normal(size=(count, 6))})
    images = photos(3, count, 24, 32, 3)
    write_images(folder / "data" / "camera0_rgb", images, codec)
    path = tmp_path / "dataset.zarr.zip"
    with zipfile.ZipFile(path, "w") as file:
        for one in sorted(folder.rglob("*")):
            if one.is_file():
                file.write(one, one.relative_to(folder))
    table = rr.open_source(path).table
    assert table.layout.observation.names[0] == "robot0_demo_start_pose"
    expected = np.concatenate(list(poses.values()), axis=1)
    for number, (end, length) in enumerate(zip(ENDS, LENGTHS, strict=True)):
        rows = table.rows[table.starts[number] : table.stops[number]]
        assert len(rows) == length
        np.testing.assert_array_equal(rows["action_target"][1:], expected[end - length + 1 : end])
    decode, encode = (getattr(imagecodecs, f"{codec}_{way}code") for way in ("de", "en"))
    np.testing.assert_array_equal(
        np.concatenate(all_images(table, "camera0_rgb")), np.stack([decode(encode(image)) for image in images])
    )
    assert any("next frame" in note for note in table.notes)


def test_columns_rename_and_join(tmp_path: Path) -> None:
    values = arrays()
    more = {
        "u": values.pop("action"), "score": np.arange(13.0), "clock": np.arange(13) * 0.1 + 1.6e9,
        "over": np.repeat([0, 1, 0, 1, 0], [3, 1, 5, 1, 3]),
    }  # fmt: skip
    write_buffer(tmp_path / "set", {**values, **more})
    with pytest.raises(SourceError, match="has no action"):
        load_replay_buffer(tmp_path / "set")
    names = {
        "action": "u", "observation.all": ["state", "keypoint"], "reward": "score", "time": "clock",
        "terminated": "over",
    }  # fmt: skip
    table = rr.open_source(tmp_path / "set", columns=names).table
    joined = np.concatenate([values["state"], values["keypoint"].reshape(13, -1)], axis=1)
    assert table.layout.observation.names == ("all",)
    np.testing.assert_array_equal(table.rows["observation_all"], joined)
    np.testing.assert_array_equal(table.rows["reward"][1:4], [0, 1, 2])
    np.testing.assert_array_equal(table.rows["terminated"][table.stops - 1], [1, 1, 0])
    np.testing.assert_allclose(np.diff(table.rows["stamp_ns"][:4]), 1e8, atol=1000)
    for wrong, word in (
        ({"act": "u"}, "allowed"),
        ({"action": "v"}, "no numbers 'v'"),
        ({"reward": ["u", "v"]}, "one"),
    ):
        with pytest.raises(SourceError, match=word):
            load_replay_buffer(tmp_path / "set", columns=wrong)  # type: ignore[arg-type]


def test_usual_names_and_chosen_episodes(tmp_path: Path) -> None:
    count = int(ENDS[-1])
    values = {**arrays(), "reward": np.arange(count, dtype=np.float32), "timestamp": np.arange(count) * 0.05}
    write_buffer(tmp_path / "set", values)
    table = load_replay_buffer(tmp_path / "set", episodes=[2, 0])
    assert [info["episode"] for info in table.episodes] == [0, 2]
    np.testing.assert_array_equal(table.rows["reward"][5:], values["reward"][10:12])
    assert table.rows["stamp_ns"][4] == 500_000_000
    assert table.episodes[1]["last_reward"] == 12
    with pytest.raises(SourceError, match="no episode 3"):
        load_replay_buffer(tmp_path / "set", episodes=[3])


def edit(name: str, **changes: Any) -> Callable[[Path], object]:
    def damage(root: Path) -> None:
        path = root / name / ".zarray"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def content(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes(data)


CLAIM = b"\x02\x01\x21\x04" + (2**31 - 20).to_bytes(4, "little") * 2 + (40).to_bytes(4, "little") + bytes(24)


@pytest.mark.parametrize(
    ("damage", "word", "read"),
    [
        (content("data/state/1.0", b"\x02\x01"), r"chunk 1.0", [0, 2]),
        (content("data/state/2.0", CLAIM), "expected 100", [0, 1]),
        (content("data/state/0.0", b"version https://git-lfs.github.com/spec/v1\n"), "git lfs pull", [2]),
        (lambda root: (root / "data/state/1.0").unlink(), "1 chunks of data/state are missing", [0, 1, 2]),
        (edit("data/state", shape=[7, 5]), "an episode ends at 10", [0]),
        (edit("data/state", shape=[20, 5]), "last 7 frames", [0, 1, 2]),
        (edit("data/state", shape=[2**31, 5]), "whole number", "data/state is left out"),
        (edit("data/state", shape=[10**9, 5]), "claim to hold", []),
        (edit("data/state", shape=[13, 10**9]), "shape", "data/state is left out"),
        (edit("data/state", filters=[{"id": "delta", "dtype": "<f4"}]), "filters", "data/state is left out"),
        (edit("data/state", chunks=[5, 10**6]), "chunks", "data/state is left out"),
        (edit("data/state", dtype="|O"), "", "nothing"),
        (lambda root: (root / "data/state/.zarray").unlink(), "is missing", "data/state is left out"),
        (edit("data/state", compressor={"id": "pickle"}), "known are blosc", []),
        (edit("data/state", compressor={"id": "imagecodecs_jpegxl"}), "chunk", []),
        (edit("data/action", dimension_separator="../"), "separator", []),
        (edit("meta/episode_ends", compressor={"id": "gzip"}), "episode_ends", []),
        (edit("meta/episode_ends", dtype="<f8"), "whole numbers", []),
        (lambda root: (root / "meta/episode_ends/0").unlink(), "does not rise", []),
        (edit("data/state", compressor={"id": "gzip"}), "chunk 0.0", []),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: Callable[[Path], object], word: str, read: list[int] | str) -> None:
    root = tmp_path / "set"
    write_buffer(root, arrays())
    damage(root)
    if not read:
        with pytest.raises(SourceError, match=word):
            load_replay_buffer(root)
        return
    table = load_replay_buffer(root)
    if isinstance(read, str):
        assert table.layout.observation.names == ("keypoint",)
        assert any(read in note and word in note for note in table.notes) or read == "nothing"
        return
    assert [info["episode"] for info in table.episodes] == read
    assert any(word in note for note in table.notes)


@pytest.mark.parametrize("version", [2, 3])
def test_an_array_without_numbers_is_told(tmp_path: Path, version: int) -> None:
    write_buffer(tmp_path / "buffer", arrays(), version)
    about = tmp_path / "buffer" / "data" / "state" / (".zarray" if version == 2 else "zarr.json")
    text = json.loads(about.read_text())
    text["dtype" if version == 2 else "data_type"] = "float3"
    about.write_text(json.dumps(text))
    table = load_replay_buffer(tmp_path / "buffer")
    assert "observation_state" not in table.layout.spec.names
    assert any("data/state" in note and "'float3', expected numbers" in note for note in table.notes)
