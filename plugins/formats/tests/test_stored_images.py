"""Images of robomimic and Minari data sets that other software wrote, held to what that software reads."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from recorder.images.images import Images
from recorder.table.table import Table
from rlenv_curate.checks.videos import check_videos
from rlenv_formats.minari import load_minari
from rlenv_formats.robomimic import load_robomimic
from rlenv_formats.stored_images import pixels_of
from rlenv_robot.source import SourceData

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("cv2", reason="OpenCV is not installed")
LENGTHS = (5, 3)


def photos(seed: int, *shape: int) -> np.ndarray:
    """Smooth images, as cameras take them, so that JPEG changes them little; each differs from the others."""
    rng = np.random.default_rng(seed)
    count, height, width = shape[:3]
    y, x = np.mgrid[:height, :width] / 40
    phase = rng.uniform(0, 6, (count, 1, 1, 3))
    waves = np.sin(y[None, ..., None] * [1.0, 1.5, 2.0] + phase) + np.cos(x[None, ..., None] * [2.0, 1.0, 1.5] + phase)
    image = np.round(127.5 + 60 * waves).astype(np.uint8)
    return image if len(shape) == 4 else image[..., 0]


def all_images(table: Table, camera: str) -> list[np.ndarray]:
    """Read the images of each episode, in an order that is not that of the file."""
    with Images(table) as source:
        order = np.random.default_rng(0).permutation(len(table.rows))
        images, mask = source.at(order, camera)
    assert mask.all()
    back = images[np.argsort(order)]
    return [back[start:stop] for start, stop in zip(table.starts, table.stops, strict=True)]


@pytest.mark.parametrize("whole", [True, False])
def test_a_robomimic_file_by_h5py(tmp_path: Path, whole: bool) -> None:
    path, steps = tmp_path / "image.hdf5", 4
    front, wrist = photos(0, 2 * 5, 24, 32, 3).reshape(2, 5, 24, 32, 3), photos(1, 2 * 5, 24, 32, 3)
    wrist = wrist.reshape(2, 5, 24, 32, 3)
    with h5py.File(path, "w") as file:
        for number, name in enumerate(("demo_2", "demo_10")):
            demo = file.create_group(f"data/{name}")
            demo["obs/robot0_eef_pos"] = np.zeros((steps, 3))
            demo["actions"] = np.zeros((steps, 7))
            for camera, images in (("agentview_image", front), ("robot0_eye_in_hand_image", wrist)):
                pressed: Any = {"chunks": (1, 24, 32, 3), "compression": "gzip"} if camera[0] == "a" else {}
                demo.create_dataset(f"obs/{camera}", data=images[number, :steps], **pressed)
                if whole:
                    demo.create_dataset(f"next_obs/{camera}", data=images[number, 1:], **pressed)
            if whole:
                demo["next_obs/robot0_eef_pos"] = np.zeros((steps, 3))
    table = load_robomimic(path)
    assert not [note for note in table.notes if "image" in note]
    for camera, images in (("agentview", front), ("robot0_eye_in_hand", wrist)):
        for number, back in enumerate(all_images(table, camera)):
            np.testing.assert_array_equal(back, images[number, : len(back)])
    assert len(table.rows) == 2 * (steps + whole)
    batch = SourceData(table).sample_steps(3, {"images": "agentview", "stack": 2})
    assert batch["extra_info"]["images"]["agentview"].shape == (3, 2, 24, 32, 3)
    assert check_videos(table) == []
    shutil.copy(path, tmp_path / "linked.hdf5")
    with h5py.File(tmp_path / "linked.hdf5", "a") as file:
        del file["data/demo_10/obs/agentview_image"]
        file["data/demo_10/obs/agentview_image"] = h5py.ExternalLink("/etc/passwd", "/x")
    with pytest.raises(SourceError, match="is a link to another file"):
        all_images(load_robomimic(tmp_path / "linked.hdf5"), "agentview")


def buffers(observation: Any, images: dict[str, np.ndarray]) -> list[Any]:
    from minari.data_collector import EpisodeBuffer

    made, first = [], 0
    for length in LENGTHS:
        part = slice(first, first + length + 1)
        first += length + 1
        values: Any = {"arm": np.zeros((length + 1, 2), np.float32)}
        values |= {name: list(value[part]) for name, value in images.items()}
        made.append(EpisodeBuffer(
            observations=values if "arm" in getattr(observation, "spaces", {}) else list(images["only"][part]),
            actions=list(np.zeros((length, 1), np.float32)), rewards=[0.0] * length, infos={},
            terminations=[False] * length, truncations=[False] * (length - 1) + [True],
        ))  # fmt: skip
    return made


def write_minari_set(name: str, observation: Any, images: dict[str, np.ndarray], **options: Any) -> Any:
    import minari
    from gymnasium import spaces

    return minari.create_dataset_from_buffers(
        name, buffers(observation, images), observation_space=observation,
        action_space=spaces.Box(-1, 1, (1,), np.float32), description="made here", algorithm_name="random",
        author="nobody", author_email="nobody@example.org", code_permalink="none", **options,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")  # it wants an environment, too
@pytest.mark.parametrize("storage", ["hdf5", "arrow", "parquet"])
@pytest.mark.parametrize("pressed", [True, False])
def test_what_minari_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str, pressed: bool) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    pytest.importorskip("minari", reason="minari is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from gymnasium import spaces

    observation = spaces.Dict({
        "arm": spaces.Box(-1, 1, (2,), np.float32),
        "front": spaces.Box(0, 255, (40, 48, 3), np.uint8), "depth_map": spaces.Box(0, 255, (36, 40), np.uint8),
    })  # fmt: skip
    images = {"front": photos(0, 10, 40, 48, 3), "depth_map": photos(1, 10, 36, 40)}
    theirs = write_minari_set("made-v0", observation, images, data_format=storage, jpeg_encoding=pressed)
    table = load_minari(tmp_path / "made-v0")
    assert table.layout.observation.names == ("arm",)
    assert not [note for note in table.notes if "no place" in note]
    colour, grey = all_images(table, "front"), all_images(table, "depth_map")
    for number, episode in enumerate(theirs.iterate_episodes()):
        front, depth = episode.observations["front"], episode.observations["depth_map"]
        # Two decoders of JPEG may round a level differently; arrays are exact.
        assert np.abs(colour[number].astype(int) - front).max() <= 2 * pressed
        assert np.abs(grey[number].astype(int) - depth[..., None]).max() <= 2 * pressed
    assert check_videos(table) == []


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_images_alone_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    pytest.importorskip("minari", reason="minari is not installed")
    from gymnasium import spaces

    images = photos(0, 10, 40, 48, 3)
    write_minari_set("only-v0", spaces.Box(0, 255, (40, 48, 3), np.uint8), {"only": images}, jpeg_encoding=False)
    source = SourceData(load_minari(tmp_path / "only-v0"))
    batch = source.sample_trajectories(1, {"episodes": [1], "images": True})[0]["steps_set"]
    np.testing.assert_array_equal(batch["extra_info"]["images"]["image"], images[6:9])
    np.testing.assert_array_equal(batch["extra_info"]["next_images"]["image"], images[7:10])
    assert batch["observation"] == {}


def test_a_missing_image_is_found(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "few.hdf5", "w") as file:
        for number, count in enumerate((4, 2)):
            demo = file.create_group(f"data/demo_{number}")
            demo["obs/x"], demo["actions"] = np.zeros((4, 1)), np.zeros((4, 1))
            demo["obs/top_image"] = photos(number, count, 24, 32, 3)
    table = load_robomimic(tmp_path / "few.hdf5")
    (finding,) = check_videos(table)
    assert (finding.kind, finding.episode, finding.field, finding.first) == ("camera", 1, "top", 2)
    with Images(table) as source:
        assert source.at([0, 5], "top")[1].tolist() == [True, True]
    file_of_another = replace(table, origin=str(tmp_path / "gone.hdf5"))
    with pytest.raises(SourceError, match="is missing"), Images(file_of_another) as source:
        source.at([0], "top")


def test_pixels_of_any_usual_layout() -> None:
    image = photos(0, 1, 24, 32, 3)[0]
    np.testing.assert_array_equal(pixels_of(image, True, "x"), image)
    np.testing.assert_array_equal(pixels_of(image, False, "x"), image[..., ::-1])
    np.testing.assert_array_equal(pixels_of(np.moveaxis(image, -1, 0), True, "x"), image)
    np.testing.assert_array_equal(pixels_of(np.dstack([image, image[..., :1]]), True, "x"), image)
    np.testing.assert_array_equal(pixels_of(image[..., 0], True, "x"), image[..., [0, 0, 0]])
    for wrong in (image.astype(float), np.zeros((4, 24, 32, 3), np.uint8), b"nonsense", np.zeros(9, np.uint8)):
        with pytest.raises(SourceError, match="x"):
            pixels_of(wrong, True, "x")
