"""Pictures in samples: each with the row that it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Field, Image, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.log.mcap_writer import McapWriter
from rlenv_robot.source import SourceData, open_source

cv2 = pytest.importorskip("cv2")

PERIOD, FRAMES = 20_000_000, 9
LAYOUT = FrameLayout(Spec("o", (Field("place", (2,)),)), Spec("a", (Field("push", ()),)))


def colour(episode: Any, frame: Any) -> np.ndarray:
    """Tells which picture it is, and whether colours were swapped."""
    episode, frame = np.broadcast_arrays(episode, frame)
    return np.stack([40 + episode * 60, 20 + frame * 8, np.full_like(frame, 200)], -1).astype(np.uint8)


def record(folder: Path, cameras: tuple[str, ...] = ("top", "wrist"), first: int = 0, lost: int = -1) -> Path:
    """Two episodes of 9 frames; the camera wrist begins with frame ``first``; row ``lost`` is not recorded."""
    sink = McapWriter(folder, LAYOUT, {})
    for episode in range(2):
        sink.episode("begin", episode, "{}", 0)
        for frame in range(FRAMES):
            row = LAYOUT.spec.rows()
            row["episode"], row["frame_no"], row["stamp_ns"], row["acted"] = episode, frame, frame * PERIOD, frame > 0
            row["observation_place"] = episode, frame
            if frame != lost:
                sink.frame(row.tobytes(), episode * 10**12 + frame * PERIOD)
            for camera in cameras:
                if camera == "wrist" and frame < first:
                    continue
                image = np.tile(colour(episode, frame)[::-1], (12, 16, 1))
                data = cv2.imencode(".png", 255 - image if camera == "wrist" else image)[1].tobytes()
                sink.image(camera, Image(data, "png", frame * PERIOD), episode * 10**12 + frame * PERIOD)
        sink.episode("end", episode, '{"end": "time"}', 0)
    sink.close()
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> SourceData:
    return open_source(record(tmp_path_factory.mktemp("runs") / "run"))


def fits(images: np.ndarray, observation: np.ndarray) -> bool:
    """Whether each picture is that of the observation beside it."""
    obs = observation.astype(int)
    return bool((images[..., 3, 3, :] == colour(obs[..., 0], obs[..., 1])).all())


@pytest.mark.requirement("R3.3")
def test_images_of_both_observations_come_along(data: SourceData) -> None:
    batch = data.sample_steps(64, {"images": True})
    extra = batch["extra_info"]
    assert set(extra["images"]) == set(extra["next_images"]) == {"top", "wrist"}
    assert (extra["images"]["top"].shape, extra["images"]["top"].dtype) == ((64, 12, 16, 3), np.uint8)
    assert fits(extra["images"]["top"], batch["observation"]["place"])
    assert fits(extra["next_images"]["top"], batch["next_observation"]["place"])
    assert fits(255 - extra["images"]["wrist"], batch["observation"]["place"])
    for mask in ("images_mask", "next_images_mask"):
        assert extra[mask]["wrist"].shape == (64,)
        assert extra[mask]["wrist"].all()


def test_a_choice_of_all_kinds(data: SourceData) -> None:
    choice = {"cameras": "top", "crop": (2, 2, 8, 8), "size": (4, 6), "order": "bgr", "layout": "chw", "next": False}
    batch = data.sample_steps(16, {"images": choice})
    extra = batch["extra_info"]
    assert list(extra["images"]) == ["top"]
    assert "next_images" not in extra
    images = extra["images"]["top"]
    assert images.shape == (16, 3, 4, 6)
    obs = batch["observation"]["place"].astype(int)
    assert (images[:, ::-1, 1, 1] == colour(obs[:, 0], obs[:, 1])).all()


def test_stacks_follow_the_batchs_or_their_own(data: SourceData) -> None:
    batch = data.sample_steps(64, {"images": "top", "stack": 3, "n_step": 2})
    extra = batch["extra_info"]
    assert extra["images"]["top"].shape == (64, 3, 12, 16, 3)
    assert fits(extra["images"]["top"], batch["observation"]["place"])
    assert fits(extra["next_images"]["top"], batch["next_observation"]["place"])
    own = data.sample_steps(64, {"images": {"cameras": ["top"], "stack": 2}, "future": 3})
    obs, extra = own["observation"]["place"], own["extra_info"]
    assert obs.shape == (64, 2)
    assert fits(extra["images"]["top"][:, 1], obs)
    assert fits(extra["images"]["top"][:, 0], np.stack([obs[:, 0], np.maximum(obs[:, 1] - 1, 0)], 1))
    assert fits(extra["future_images"]["top"], extra["future_observation"]["place"])


def test_no_window_of_images_crosses_a_lost_frame(tmp_path: Path) -> None:
    data = open_source(record(tmp_path / "run", lost=4))
    batch = data.sample_steps(200, {"images": "top", "stack": 3})
    assert fits(batch["extra_info"]["images"]["top"], batch["observation"]["place"])
    assert fits(batch["extra_info"]["next_images"]["top"], batch["next_observation"]["place"])
    (whole, *_) = data.sample_trajectories(1, {"images": "top"})
    steps = whole["steps_set"]
    assert fits(steps["extra_info"]["next_images"]["top"], steps["next_observation"]["place"])


@pytest.mark.requirement("R3.4")
def test_trajectories_decode_every_image_once(data: SourceData, monkeypatch: pytest.MonkeyPatch) -> None:
    for trajectory in data.sample_trajectories(2, {"images": {"cameras": "top", "cache_bytes": 0}}):
        steps = trajectory["steps_set"]
        extra = steps["extra_info"]
        assert extra["images"]["top"].shape == (FRAMES - 1, 12, 16, 3)
        assert fits(extra["images"]["top"], steps["observation"]["place"])
        assert fits(extra["next_images"]["top"], steps["next_observation"]["place"])
        assert np.shares_memory(extra["images"]["top"][1:], extra["next_images"]["top"][:-1])
    (piece,) = data.sample_trajectories(1, {"images": {"stack": 2}, "length": 3})
    steps = piece["steps_set"]
    assert fits(steps["extra_info"]["images"]["top"][:, 1], steps["observation"]["place"])


def test_missing_images_are_masked_or_refused(tmp_path: Path) -> None:
    data = open_source(record(tmp_path / "run", first=3))
    batch = data.sample_steps(64, {"images": True})
    frame, extra = batch["observation"]["place"][:, 1], batch["extra_info"]
    assert (extra["images_mask"]["wrist"] == (frame >= 3)).all()
    assert not extra["images"]["wrist"][frame < 3].any()
    assert extra["images_mask"]["top"].all()
    with pytest.raises(SourceError, match=r"'wrist' has no image .* frame [012] of episode [01]"):
        data.sample_steps(64, {"images": {"missing": "error"}})


def test_inference_sees_what_the_robot_saw(tmp_path: Path) -> None:
    data = open_source(record(tmp_path / "run"), mode="inference")
    batch = data.sample_steps(8, {"images": "top"})
    assert fits(batch["extra_info"]["images"]["top"], batch["observation"]["place"])


def test_a_batch_keeps_its_images_while_others_are_drawn(data: SourceData) -> None:
    batch = data.sample_steps(8, {"images": "top"})
    for _ in range(5):
        data.sample_steps(8, {"images": "top"})
    assert fits(batch["extra_info"]["images"]["top"], batch["observation"]["place"])


@pytest.mark.parametrize(
    ("images", "told"),
    [
        ("side", "has no camera 'side', it has top, wrist"),
        (3, "allowed is True, names of cameras, or a mapping"),
        ({"camera": "top"}, "allowed is a mapping with cameras, crop, .*; not 'camera'"),
        ({"size": 84}, r"allowed is \(height, width\) in pixels as 'size'"),
        ({"layout": "nchw"}, "allowed is one of hwc, chw as 'layout'"),
        ({"crop": (0, 0, 13, 4)}, "does not fit images of"),
    ],
)
def test_wrong_choices(data: SourceData, images: Any, told: str) -> None:
    with pytest.raises(SourceError, match=told):
        data.sample_steps(4, {"images": images})


def test_data_without_images_say_so(tmp_path: Path) -> None:
    data = open_source(record(tmp_path / "run", cameras=()))
    with pytest.raises(SourceError, match="has no images"):
        data.sample_steps(4, {"images": True})
