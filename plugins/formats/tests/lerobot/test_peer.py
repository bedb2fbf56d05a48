"""LeRobot's own dataset module reads what we write. It needs: pip install --no-deps lerobot==0.4.4, and
accelerate, datasets, draccus, einops, huggingface-hub<0.36, jsonlines, torch. Torchvision, which is only there for
images, may be missing."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Image
from recorder.formats.images import Filming
from recorder.images.images import Images
from recorder.log.mcap_writer import McapWriter
from recorder.table.load import load_runs
from recorder.table.table import Table
from rlenv_formats.lerobot.read import load_lerobot
from rlenv_formats.lerobot.write import write_lerobot

NEEDED = ("lerobot", "torch", "datasets", "accelerate", "pandas", "pyarrow")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"LeRobot's dataset module needs {', '.join(MISSING)}, not installed"),
    pytest.mark.filterwarnings("ignore"),
]


def stand_in_for_torchvision() -> None:
    def module(name: str) -> Any:
        made = types.ModuleType(name)
        made.__spec__ = importlib.machinery.ModuleSpec(name, None)
        made.__path__ = []
        sys.modules[name] = made
        return made

    if importlib.util.find_spec("torchvision") is None:
        for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.v2"):
            made = module(name)
        made.Transform = object
        sys.modules["torchvision.transforms"].v2 = made  # type: ignore[attr-defined]
        sys.modules["torchvision"].transforms = sys.modules["torchvision.transforms"]  # type: ignore[attr-defined]
        made.functional = module("torchvision.transforms.v2.functional")


class VideoReader:
    """The class of this name that torchvision had until it gave up videos: LeRobot still reads videos with it."""

    def __init__(self, path: str, stream: str) -> None:
        import av

        self.container = av.open(path)

    def seek(self, seconds: float, keyframes_only: bool) -> None:
        stream = self.container.streams.video[0]
        self.container.seek(int(seconds / stream.time_base), stream=stream)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        import torch

        for frame in self.container.decode(video=0):
            data = torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1)
            yield {"data": data, "pts": float(frame.time)}


def to_tensor(image: Any) -> Any:
    """As torchvision's: (3, height, width), 0 to 1."""
    import torch

    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


@pytest.fixture
def dataset_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    for name, value in (("HF_HOME", str(tmp_path / "hf")), ("HF_HUB_OFFLINE", "1"), ("HF_DATASETS_OFFLINE", "1")):
        monkeypatch.setenv(name, value)
    if "torchvision" not in sys.modules:
        stand_in_for_torchvision()
    vision: Any = sys.modules["torchvision"]
    monkeypatch.setattr(vision, "set_video_backend", lambda name: None, raising=False)
    monkeypatch.setattr(vision.transforms, "ToTensor", lambda: to_tensor, raising=False)
    monkeypatch.setattr(vision, "io", types.SimpleNamespace(VideoReader=VideoReader), raising=False)
    import datasets
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return lambda root, **more: LeRobotDataset("local/set", root=root, **more)


@pytest.mark.requirement("R3.1")
def test_every_frame_value_by_value(tmp_path: Path, make_table: Callable[..., Table], dataset_of: Any) -> None:
    table = make_table()
    write_lerobot(table, tmp_path / "out")
    seen = dataset_of(tmp_path / "out")
    assert (seen.num_episodes, seen.num_frames, seen.fps, len(seen)) == (3, 10, 50, 10)
    index = 0
    for episode, (start, stop) in enumerate(zip(table.starts, table.stops, strict=True)):
        rows = table.rows[start:stop]
        for frame in range(stop - start - 1):
            item, row, after = seen[index], rows[frame], rows[frame + 1]
            state = np.concatenate([np.ravel(row[f"observation_{name}"]) for name in table.layout.observation.names])
            np.testing.assert_array_equal(item["observation.state"].numpy(), state.astype(np.float32))
            np.testing.assert_array_equal(item["action"].numpy(), after["action_joint_target"])
            assert item["next.reward"].item() == after["reward"]
            last = frame == stop - start - 2
            assert item["next.done"].item() == last
            assert item["next.truncated"].item() == bool(after["truncated"])
            assert item["next.success"].item() == (last and bool(after["terminated"]))
            assert item["complementary_info.is_intervention"].item() == bool(after["intervention"])
            assert item["complementary_info.log_probability"].item() == after["log_probability"]
            assert item["timestamp"].item() == pytest.approx(frame / 50)
            assert (item["episode_index"].item(), item["frame_index"].item()) == (episode, frame)
            assert item["task"] == "reach"
            index += 1
    assert index == len(seen)
    assert seen.meta.stats["action"]["mean"].shape == (2,)
    assert seen.meta.episodes[2]["dataset_to_index"] == 10


def test_windows_of_time(tmp_path: Path, make_table: Callable[..., Table], dataset_of: Any) -> None:
    table = make_table()
    write_lerobot(table, tmp_path / "out")
    seen = dataset_of(tmp_path / "out", delta_timestamps={"action": [0.0, 0.02, 0.04]})
    wanted = table.rows["action_joint_target"][1:4]
    np.testing.assert_array_equal(seen[0]["action"].numpy(), wanted)
    assert seen[4]["action_is_pad"].tolist() == [False, True, True]  # the end of the first episode


def test_what_lerobot_writes_we_read(tmp_path: Path, dataset_of: Any) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    features = {  # vectors only: its 0.4.4 can't write single numbers with numpy 2.4
        "observation.state": {"dtype": "float32", "shape": (3,), "names": ["a", "b", "c"]},
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    }
    made = LeRobotDataset.create("local/made", 20, features, root=tmp_path / "made", use_videos=False)
    values = np.random.default_rng(0).normal(size=(2, 5, 5)).astype(np.float32)
    for episode in values:
        for value in episode:
            made.add_frame({"observation.state": value[:3], "action": value[3:], "task": "push"})
        made.save_episode()
    made.finalize()
    table = load_lerobot(tmp_path / "made")
    assert table.rows["episode"].tolist() == [0] * 5 + [1] * 5
    np.testing.assert_array_equal(table.rows["observation_state"].reshape(2, 5, 3), values[:, :, :3])
    np.testing.assert_array_equal(table.rows["action_target"].reshape(2, 5, 2)[:, 1:], values[:, :4, 3:])
    assert table.episodes[1]["task"] == "push"


def filmed(folder: Path, plain: Table) -> Table:
    """The table as a log with a camera, whose images' colour says episode and frame."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    sink = McapWriter(folder / "run", plain.layout, {})
    for episode, (start, stop) in enumerate(zip(plain.starts, plain.stops, strict=True)):
        sink.episode("begin", episode, '{"task": "reach"}', 0)
        for frame, row in enumerate(plain.rows[start:stop]):
            sink.frame(row.tobytes(), int(row["wall_ns"]))
            image = np.full((48, 64, 3), (200, 30 * frame, 60 * episode), np.uint8)  # BGR
            data = cv2.imencode(".png", image)[1].tobytes()
            sink.image("top", Image(data, "png", int(row["stamp_ns"])), int(row["wall_ns"]))
        sink.episode("end", episode, '{"end": "time", "success": true}', 0)
    sink.close()
    return load_runs(folder)


@pytest.mark.parametrize("embedded", [False, True])
def test_its_images_are_ours(tmp_path: Path, make_table: Callable[..., Table], dataset_of: Any, embedded: bool) -> None:
    pytest.importorskip("av", reason="PyAV is not installed")
    plain = make_table((5, 1, 4), "ttt")
    plain.rows["stamp_ns"] += np.random.default_rng(0).integers(0, 2_000_000, len(plain.rows))  # a real clock
    table = filmed(tmp_path / "log", plain)
    write_lerobot(table, tmp_path / "out", Filming(embedded=embedded))
    seen = dataset_of(tmp_path / "out", video_backend="pyav")
    assert seen.meta.camera_keys == ["observation.images.top"]
    assert len(seen) == 10
    for index in np.random.default_rng(0).permutation(10).tolist():
        item = seen[index]
        image = item["observation.images.top"].numpy()  # (3, height, width), 0 to 1
        wanted = np.array([60 * item["episode_index"].item(), 30 * item["frame_index"].item(), 200]) / 255
        assert image.shape == (3, 48, 64)
        assert np.abs(image.mean((1, 2)) - wanted).max() < (0.002 if embedded else 0.02), index
    stats = seen.meta.stats["observation.images.top"]
    assert stats["mean"].shape == (3, 1, 1)
    assert stats["mean"][2].item() == pytest.approx(200 / 255, abs=0.001)


def test_images_that_lerobot_writes_we_read(tmp_path: Path, dataset_of: Any) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    top = {"dtype": "image", "shape": (48, 64, 3), "names": ["height", "width", "channels"]}
    features = {
        "observation.state": {"dtype": "float32", "shape": (2,), "names": ["a", "b"]},
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
        "observation.images.top": top,
    }
    made = LeRobotDataset.create("local/made", 20, features, root=tmp_path / "made", use_videos=False)
    images = np.random.default_rng(0).integers(0, 255, (2, 5, 48, 64, 3), np.uint8)
    zeros = np.zeros(2, np.float32)
    for episode in images:
        for image in episode:
            made.add_frame({
                "observation.state": zeros, "action": zeros, "observation.images.top": image, "task": "look"
            })  # fmt: skip
        made.save_episode()
    made.finalize()
    with Images(load_lerobot(tmp_path / "made")) as reader:
        found, mask = reader.at(np.arange(10), "top")
    assert mask.all()
    np.testing.assert_array_equal(found.reshape(images.shape), images)
