"""Images go along into other projects' formats, and are read there and here."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Image, SourceError
from recorder.formats.images import Filming
from recorder.images.images import Images
from recorder.log.mcap_writer import McapWriter
from recorder.table.load import load_runs
from recorder.table.table import Table
from rlenv_formats.lerobot.read import load_lerobot
from rlenv_formats.lerobot.write import write_lerobot
from rlenv_formats.minari import load_minari, write_minari
from rlenv_formats.parquet import load_parquet, write_parquet
from rlenv_formats.robomimic import load_robomimic, write_robomimic

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
Make = Callable[..., Table]
LENGTHS = (5, 1, 4)


def drawn(episode: int, frame: int) -> np.ndarray:
    """Bars that say which image it is; (48, 64, 3), RGB, with a red one at its end."""
    bits = np.array([(16 * episode + frame) >> place & 1 for place in range(7)], np.uint8) * 255
    bars = np.repeat(np.repeat(bits, 8)[None, :, None], 48, 0).repeat(3, 2)
    return np.concatenate([bars, np.full((48, 8, 3), (220, 20, 20), np.uint8)], axis=1)


def says(pixels: np.ndarray, episode: int, frame: int) -> bool:
    return bool(np.abs(pixels.astype(int) - drawn(episode, frame)).mean() < 12)


def film(folder: Path, plain: Table, first: int = 0) -> Table:
    """The table as a log with a camera, which takes its first image at frame ``first``."""
    sink = McapWriter(folder / "run", plain.layout, {})
    for episode, (start, stop) in enumerate(zip(plain.starts, plain.stops, strict=True)):
        sink.episode("begin", episode, '{"task": "reach"}', 0)
        for frame, row in enumerate(plain.rows[start:stop]):
            sink.frame(row.tobytes(), int(row["wall_ns"]))
            if frame >= first:
                data = cv2.imencode(".jpg", drawn(episode, frame)[..., ::-1])[1].tobytes()
                sink.image("top", Image(data, "jpeg", int(row["stamp_ns"])), int(row["wall_ns"]))
        sink.episode("end", episode, '{"end": "time", "success": true}', 0)
    sink.close()
    return load_runs(folder)


@pytest.fixture
def filmed(tmp_path: Path, make_table: Make) -> Table:
    return film(tmp_path / "log", make_table(LENGTHS, "ttt"))


def check_images(back: Table) -> None:
    """Every frame has its own, the last of each episode too."""
    with Images(back) as source:
        assert source.cameras() == ("top",)
        order = np.random.default_rng(0).permutation(len(back.rows))
        images, mask = source.at(order, "top")
    assert mask.all()
    episode = np.searchsorted(back.starts, order, "right") - 1
    for image, number, row in zip(images, episode.tolist(), order.tolist(), strict=True):
        assert says(image, number, row - int(back.starts[number])), (number, row)


@pytest.mark.requirement("R3.1")
def test_videos_of_a_lerobot_data_set(tmp_path: Path, filmed: Table) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    notes = write_lerobot(filmed, tmp_path / "set")
    assert not [note for note in notes if "image" in note]
    back = load_lerobot(tmp_path / "set")
    assert len(back.rows) == len(filmed.rows)
    check_images(back)
    assert len(list((tmp_path / "set" / "videos").rglob("*.mp4"))) == 1


def test_a_real_clock_is_kept_beside_the_videos(tmp_path: Path, make_table: Make) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    plain = make_table(LENGTHS, "ttt")
    plain.rows["stamp_ns"] += np.random.default_rng(0).integers(0, 2_000_000, len(plain.rows))
    filmed = film(tmp_path / "log", plain)
    notes = write_lerobot(filmed, tmp_path / "set")
    assert "timestamp counts frames, as LeRobot's videos want; the robot's clock is in meta/episodes" in notes
    back = load_lerobot(tmp_path / "set")
    np.testing.assert_array_equal(back.rows["stamp_ns"], plain.rows["stamp_ns"])
    check_images(back)


def test_videos_without_pyav(tmp_path: Path, filmed: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    monkeypatch.setitem(sys.modules, "av", None)
    write_lerobot(filmed, tmp_path / "set")
    check_images(load_lerobot(tmp_path / "set"))


def test_embedded_images_are_the_bytes_of_the_log(tmp_path: Path, filmed: Table) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    write_lerobot(filmed, tmp_path / "set", Filming(embedded=True))
    check_images(load_lerobot(tmp_path / "set"))
    cells = pq.read_table(tmp_path / "set" / "data" / "chunk-000" / "file-000.parquet")["observation.images.top"]
    assert len(cells) == sum(LENGTHS)
    first = cv2.imencode(".jpg", drawn(0, 0)[..., ::-1])[1].tobytes()
    assert cells[0].as_py() == {"bytes": first, "path": None}
    again = load_lerobot(tmp_path / "set")
    write_lerobot(again, tmp_path / "second")  # from a data set's images to videos
    check_images(load_lerobot(tmp_path / "second"))


def test_minari_itself_sees_the_images(tmp_path: Path, filmed: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    minari = pytest.importorskip("minari", reason="minari is not installed")
    assert write_minari(filmed, tmp_path / "arm" / "film-v0", Filming(size=(40, 50))) == []
    seen = minari.load_dataset("arm/film-v0")
    assert seen.observation_space["images"]["top"].shape == (40, 50, 3)
    with Images(filmed, size=(40, 50)) as source:
        for number, episode in enumerate(seen.iterate_episodes()):
            rows = np.arange(filmed.starts[number], filmed.stops[number])
            images = episode.observations["images"]["top"]
            np.testing.assert_array_equal(images, source.at(rows, "top")[0])  # T + 1 of them
            assert episode.observations["images"]["top"][0] in seen.observation_space["images"]["top"]
            wanted = filmed.rows["observation_goal"][rows]
            np.testing.assert_array_equal(episode.observations["goal"], wanted)
    back = load_minari(tmp_path / "arm" / "film-v0")
    np.testing.assert_array_equal(back.rows["observation_goal"], filmed.rows["observation_goal"])


def test_robomimic_has_them_twice(tmp_path: Path, filmed: Table) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    assert write_robomimic(filmed, tmp_path / "film.hdf5") == []
    with h5py.File(tmp_path / "film.hdf5") as file:
        for number, count in enumerate(LENGTHS):
            demo = file[f"data/demo_{number}"]
            for part, later in (("obs", 0), ("next_obs", 1)):
                images = demo[f"{part}/top_image"]
                assert (images.shape, images.dtype) == ((count, 48, 64, 3), np.uint8)
                assert all(says(images[frame], number, frame + later) for frame in range(count))
    back = load_robomimic(tmp_path / "film.hdf5")
    np.testing.assert_array_equal(back.rows["observation_goal"], filmed.rows["observation_goal"])


@pytest.mark.parametrize(("write", "load", "name"), [
    (write_robomimic, load_robomimic, "film.hdf5"), (write_minari, load_minari, "film-v0"),
])  # fmt: skip
def test_a_copy_has_its_own_images(tmp_path: Path, filmed: Table, write: Any, load: Any, name: str) -> None:
    pytest.importorskip("h5py", reason="h5py is not installed")
    write(filmed, tmp_path / name)  # whose episodes are told the run that they came from
    write(filmed, tmp_path / f"none-{name}", Filming(cameras=()))
    with Images(load(tmp_path / f"none-{name}")) as source:
        assert source.cameras() == ()
        with pytest.raises(SourceError, match="has no camera 'top', it has none"):
            source.at([0], "top")
    shutil.rmtree(tmp_path / "log")
    check_images(load(tmp_path / name))


def test_long_episodes_are_written_part_by_part(tmp_path: Path, make_table: Make) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    filmed = film(tmp_path / "log", make_table((70,), "t"))
    write_robomimic(filmed, tmp_path / "film.hdf5")
    with h5py.File(tmp_path / "film.hdf5") as file:
        for part, later in (("obs", 0), ("next_obs", 1)):
            images = file[f"data/demo_0/{part}/top_image"]
            assert all(says(images[frame], 0, frame + later) for frame in range(70))


def test_parquet_finds_them_in_the_log(tmp_path: Path, filmed: Table) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    (note,) = write_parquet(filmed, tmp_path / "out")
    assert note.startswith("images stay in the logs")
    check_images(load_parquet(tmp_path / "out"))


def test_they_can_be_left_out_and_what_is_missing_is_said(tmp_path: Path, make_table: Make) -> None:
    pytest.importorskip("h5py", reason="h5py is not installed")
    late = film(tmp_path / "log", make_table(LENGTHS, "ttt"), first=1)
    notes = write_robomimic(late, tmp_path / "all.hdf5")
    assert notes == ["3 images of camera top are black: none was there"]
    assert write_robomimic(late, tmp_path / "none.hdf5", Filming(cameras=())) == []
    assert (tmp_path / "none.hdf5").stat().st_size < (tmp_path / "all.hdf5").stat().st_size / 2
    with pytest.raises(SourceError, match="has no camera 'side', it has top"):
        write_robomimic(late, tmp_path / "side.hdf5", Filming(cameras=("side",)))
    assert not (tmp_path / "side.hdf5").exists()


@pytest.mark.skipif(importlib.util.find_spec("av") is None, reason="PyAV is not installed")
def test_odd_sizes_grow_by_a_pixel(tmp_path: Path, filmed: Table) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    write_lerobot(filmed, tmp_path / "set", Filming(size=(47, 63)))
    with Images(load_lerobot(tmp_path / "set")) as source:
        images: Any = source.at([2], "top")[0]
    assert images.shape == (1, 48, 64, 3)
