"""ALOHA's files open with their images, and give what ACT's own loaders give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from rlenv_formats.aloha import is_aloha, load_aloha
from rlenv_robot import open_source

h5py = pytest.importorskip("h5py", reason="the extra 'hdf5' is not installed")
cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")

FRAMES, SHAPE = 6, (24, 32, 3)


def write_episode(path: Path, seed: int, compress: bool = False, base: bool = False) -> dict[str, np.ndarray]:
    """Write an episode as ACT's record_sim_episodes.py does, or as ACT++'s compress_data.py; return its arrays."""
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {
        "qpos": rng.normal(size=(FRAMES, 14)), "qvel": rng.normal(size=(FRAMES, 14)),
        "action": rng.normal(size=(FRAMES, 14)), "base_action": rng.normal(size=(FRAMES, 2)),
    }  # fmt: skip
    with h5py.File(path, "w") as root:
        root.attrs["sim"] = True
        for name in ("qpos", "qvel"):
            root.create_dataset(f"observations/{name}", (FRAMES, 14), "f4")[...] = made[name]
        root.create_dataset("action", (FRAMES, 14), "f4")[...] = made["action"]
        if base:
            root.create_dataset("base_action", (FRAMES, 2), "f4")[...] = made["base_action"]
        lengths = []
        for camera in ("top", "cam_left_wrist"):
            images = np.zeros((FRAMES, *SHAPE), np.uint8)
            images[:] = rng.integers(0, 255, (FRAMES, 1, 1, 3))  # one colour a frame, which JPEG hardly changes
            if compress:
                root.attrs["compress"] = True
                encoded = [cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 50])[1] for image in images]
                padded = root.create_dataset(
                    f"observations/images/{camera}", (FRAMES, max(map(len, encoded))), dtype="uint8"
                )
                for k, one in enumerate(encoded):
                    padded[k, : len(one)] = one
                lengths.append(list(map(len, encoded)))
                images = np.stack([cv2.imdecode(one, 1) for one in padded[()]])  # as ACT++ reads them
            else:
                root.create_dataset(f"observations/images/{camera}", data=images, chunks=(1, *SHAPE))
            made[camera] = images
        if compress:
            root.create_dataset("compress_len", data=np.array(lengths, np.float32))
    return made


def images_of(source: Any, camera: str, numbers: int) -> list[np.ndarray]:
    """Return the first images of a camera, RGB."""
    table = source.table
    images = table.open_images(Path(table.origin))
    chosen = images.numbers(camera, table.rows[: numbers + 1], "before", np.inf)
    return [images.decode(camera, int(number), True) for number in chosen[:numbers]]


@pytest.mark.parametrize("compress", [False, True])
def test_a_folder_of_episodes_opens_with_its_cameras(tmp_path: Path, compress: bool) -> None:
    made = [write_episode(tmp_path / f"episode_{n}.hdf5", n, compress, base=compress) for n in range(11)]
    source = open_source(tmp_path)
    table = source.table
    assert (len(table.starts), len(table.rows)) == (11, 11 * FRAMES)
    for number in (0, 2, 10):  # episode 10 comes after episode 9
        rows = table.rows[table.starts[number] : table.stops[number]]
        np.testing.assert_array_equal(rows["observation_qpos"], made[number]["qpos"].astype(np.float32))
        np.testing.assert_array_equal(rows["observation_qvel"], made[number]["qvel"].astype(np.float32))
        np.testing.assert_array_equal(rows["action_target"][1:], made[number]["action"][:-1].astype(np.float32))
        if compress:
            np.testing.assert_array_equal(rows["action_base"][1:], made[number]["base_action"][:-1].astype(np.float32))
        assert table.open_images is not None
        images = table.open_images(tmp_path)
        for camera in ("top", "cam_left_wrist"):
            for k, image in enumerate(images.numbers(camera, rows, "before", np.inf)):
                np.testing.assert_array_equal(images.decode(camera, int(image), True), made[number][camera][k])
                np.testing.assert_array_equal(
                    images.decode(camera, int(image), False), made[number][camera][k][..., ::-1]
                )
    assert np.diff(table.rows["stamp_ns"][:3]).tolist() == [20_000_000] * 2
    assert any("red and blue" in note for note in table.notes) == compress
    assert any("50 Hz" in note for note in table.notes)


def test_the_last_row_keeps_its_image_for_imitation(tmp_path: Path) -> None:
    made = write_episode(tmp_path / "episode_0.hdf5", 0)
    source = open_source(tmp_path / "episode_0.hdf5", keep_last=True, rate_hz=30)
    assert len(source.table.rows) == FRAMES + 1
    images = images_of(source, "top", FRAMES + 1)
    np.testing.assert_array_equal(np.stack(images), np.concatenate([made["top"], made["top"][-1:]]))
    assert source.table.rows["stamp_ns"][1] == 33_333_333


@pytest.mark.parametrize(("compress", "swap"), [(True, False), (False, True)])
def test_colours_are_exchanged_on_request(tmp_path: Path, compress: bool, swap: bool) -> None:
    made = write_episode(tmp_path / "episode_0.hdf5", 0, compress)
    image = images_of(open_source(tmp_path, swap_red_blue=swap), "top", 1)[0]
    expected = made["top"][0][..., ::-1] if compress else made["top"][0]  # raw images are never exchanged
    np.testing.assert_array_equal(image, expected)


def test_what_is_no_image_is_named(tmp_path: Path) -> None:
    write_episode(tmp_path / "episode_0.hdf5", 0)
    with h5py.File(tmp_path / "episode_0.hdf5", "a") as file:
        file["observations/images/cam_high_depth"] = np.zeros((FRAMES, 24, 32), np.uint16)
        file["observations/images/short"] = np.zeros((3, 24, 32, 3), np.uint8)
        file["episode_text"] = np.zeros(3)
    notes = " ".join(open_source(tmp_path).table.notes)
    assert all(word in notes for word in ("cam_high_depth (uint16", "short (3 images for 6", "episode_text"))


def test_damaged_episodes_are_left_out(tmp_path: Path) -> None:
    for number in range(3):
        write_episode(tmp_path / f"episode_{number}.hdf5", number)
    (tmp_path / "episode_0.hdf5").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert is_aloha(tmp_path)
    table = load_aloha(tmp_path)
    assert len(table.starts) == 2
    assert "1 of 3 episodes" in table.notes[0]
    (tmp_path / "other").mkdir()
    with pytest.raises(SourceError, match="no episode of ALOHA"):
        load_aloha(tmp_path / "other")


def test_mapped_files_keep_their_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (2, 5, 16, 20, 3)).astype(np.uint8)
    with h5py.File(tmp_path / "all.hdf5", "w") as file:
        for take in range(2):
            group = file.create_group(f"take_{take}")
            group["q"], group["u"] = rng.normal(size=(5, 2)), rng.normal(size=(5, 1))
            group["rgb/front"], group["rgb/side"] = images[take], images[take][::-1]
    names = {"observation.q": "q", "action": "u", "episode": "*", "observation.images.ahead": "rgb/front"}
    source = open_source(tmp_path / "all.hdf5", columns=names, rate_hz=10)
    opened = source.table.open_images(tmp_path)
    assert opened.cameras == ("ahead", "side")
    assert source.table.layout.observation.names == ("q",)
    numbers = opened.numbers("side", source.table.rows, "before", np.inf)
    np.testing.assert_array_equal(opened.decode("side", int(numbers[6]), True), images[1][3])
    del names["episode"]
    with pytest.raises(SourceError, match=r'"episode": "\*"'):
        open_source(tmp_path / "all.hdf5", columns=names)


def test_a_camera_and_a_field_that_some_files_lack_are_told(tmp_path: Path) -> None:
    for number in range(3):
        write_episode(tmp_path / f"episode_{number}.hdf5", number)
    with h5py.File(tmp_path / "episode_1.hdf5", "a") as file:
        del file["observations/images/top"]
    with h5py.File(tmp_path / "episode_0.hdf5", "a") as file:
        del file["observations/qvel"]
    notes = load_aloha(tmp_path).notes
    assert "1 of 3 episodes have no images of top, as the others have" in notes
    assert "left out: observations/qvel, which episode_0.hdf5 has not, as other files have" in notes
