from __future__ import annotations

import importlib.util
import json
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from recorder.images.images import Images
from recorder.images.video import open_video, write_video
from rlenv_formats.lerobot.images import LeRobotVideos
from rlenv_formats.lerobot.read import load_lerobot

pytest.importorskip("cv2", reason="OpenCV is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

TOP = "observation.images.top"
FPS, LENGTHS = 10, (5, 30, 7)
NEEDS_AV = pytest.mark.skipif(importlib.util.find_spec("av") is None, reason="PyAV is not installed")
BY = pytest.mark.parametrize("by", [pytest.param("av", marks=NEEDS_AV), "cv2"])
VERSIONS = pytest.mark.parametrize("version", ["v3.0", "v2.1", "v2.0"])


def image(episode: int, frame: int) -> np.ndarray:
    """Black and white bars that say which it is, and a red one that says which way round the colours are."""
    bits = np.array([(32 * episode + frame) >> place & 1 for place in range(7)], np.uint8) * 255
    made = np.repeat(np.repeat(bits, 8)[None, :, None], 48, 0).repeat(3, 2)
    return np.concatenate([made, np.full((48, 8, 3), (220, 20, 20), np.uint8)], axis=1)


def says(pixels: np.ndarray, episode: int, frame: int) -> bool:
    centres = pixels[24, 4::8].astype(int)
    number = sum((value > 128) << place for place, value in enumerate(centres[:7].mean(1)))
    return bool(number == 32 * episode + frame and centres[7, 0] > 150 and centres[7, 2] < 100)


def write_set(root: Path, version: str) -> None:
    """Three episodes; in v3.0 the first two are in one video."""
    v3, count = version == "v3.0", sum(LENGTHS)
    (root / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    (root / "data" / "chunk-000").mkdir(parents=True)
    columns = {
        "observation.state": np.arange(count, dtype=np.float32),
        "action": np.arange(count, dtype=np.float32),
        "timestamp": np.concatenate([np.arange(n) / FPS for n in LENGTHS]).astype(np.float32),
        "frame_index": np.concatenate([np.arange(n) for n in LENGTHS]),
        "episode_index": np.repeat(np.arange(3), LENGTHS),
        "index": np.arange(count),
        "task_index": np.zeros(count, int),
    }
    scalar = {"dtype": "float32", "shape": [1], "names": None}
    info: dict[str, Any] = {
        "codebase_version": version, "fps": FPS, "total_episodes": 3, "total_frames": count, "chunks_size": 1000,
        "features": {"observation.state": scalar, "action": scalar, TOP: {"dtype": "video", "shape": [48, 64, 3]}},
    }  # fmt: skip
    video = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    data = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    if not v3:
        video = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
        data = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    (root / "meta" / "info.json").write_text(json.dumps(info | {"video_path": video, "data_path": data}))
    entries = [{"episode_index": e, "length": n, "tasks": ["look"]} for e, n in enumerate(LENGTHS)]
    films = [[image(e, f) for f in range(n)] for e, n in enumerate(LENGTHS)]
    table = pa.table(columns)
    if v3:
        pq.write_table(table, root / "data" / "chunk-000" / "file-000.parquet")
        for entry, file, begin in zip(entries, (0, 0, 1), (0.0, LENGTHS[0] / FPS, 0.0), strict=True):
            entry |= {"data/chunk_index": 0, "data/file_index": 0}
            entry |= {f"videos/{TOP}/chunk_index": 0, f"videos/{TOP}/file_index": file}
            entry |= {f"videos/{TOP}/from_timestamp": begin}
        pq.write_table(pa.Table.from_pylist(entries), root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
        for number, film in enumerate((films[0] + films[1], films[2])):
            write_video(root / video.format(video_key=TOP, chunk_index=0, file_index=number), film, FPS)
        return
    (root / "meta" / "episodes.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    for e, film in enumerate(films):
        part = table.filter(pc.equal(table["episode_index"], e))
        pq.write_table(part, root / data.format(episode_chunk=0, episode_index=e))
        write_video(root / video.format(video_key=TOP, episode_chunk=0, episode_index=e), film, FPS)


@BY
@VERSIONS
@pytest.mark.requirement("R3.1")
def test_every_frame_is_the_right_one(tmp_path: Path, version: str, by: str) -> None:
    write_set(tmp_path, version)
    with LeRobotVideos(tmp_path, by) as videos:
        assert videos.cameras == (TOP,)
        places = [(e, f) for e, n in enumerate(LENGTHS) for f in range(n)]
        for episode, frame in places:  # in order
            assert says(videos.at(TOP, episode, frame), episode, frame), (episode, frame)
        for number in np.random.default_rng(0).permutation(len(places))[:25]:  # and not
            assert says(videos.at(TOP, *places[number]), *places[number]), places[number]


def test_images_of_rows(tmp_path: Path) -> None:
    write_set(tmp_path, "v3.0")
    table = load_lerobot(tmp_path)
    assert not [note for note in table.notes if "image" in note]
    with Images(table) as images:
        assert images.cameras() == ("top",)
        found, mask = images.at(np.random.default_rng(0).permutation(len(table.rows)), "top")
        assert mask.all()
        for pixels, row in zip(found, np.random.default_rng(0).permutation(table.rows), strict=True):
            assert says(pixels, int(row["episode"]), int(row["frame_no"]))
    rows = np.array([40, 3, 3, 20])
    with LeRobotVideos(tmp_path) as videos:
        found = videos.of_rows(table, rows, TOP)
        assert found.shape == (4, 48, 64, 3)
        for pixels, row in zip(found, table.rows[rows], strict=True):
            assert says(pixels, int(row["episode"]), int(row["frame_no"]))


def test_what_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set(tmp_path, "v3.0")
    videos = LeRobotVideos(tmp_path, "cv2")
    for wrong, message in (
        (("side", 0, 0), "has no camera 'side', it has observation.images.top"),
        ((TOP, 0, 5), "no image of frame 5 in episode 0: it has 5"),
        ((TOP, 3, 0), "no image of frame 0 in episode 3: there is no such episode"),
    ):
        with pytest.raises(SourceError, match=message):
            videos.at(*wrong)
    file = videos.place(TOP, 2, 0).file
    decoder = open_video(file, "cv2")
    with pytest.raises(SourceError, match=r"has no frame at 3\.0000 s"):
        decoder.at(3.0)
    assert says(decoder.at(0.1), 2, 1)  # and goes on
    decoder.close()
    videos.close()
    file.write_bytes(b"nonsense")
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(SourceError, match="is no video"):
        open_video(file)
    file.unlink()
    with pytest.raises(SourceError, match="is missing; fetch the videos"):
        videos.at(TOP, 2, 0)


def _write_av1(path: Path) -> None:
    import av

    with av.open(str(path), "w") as file:
        stream = file.add_stream("libsvtav1", rate=FPS, options={"g": "2", "crf": "30"})
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for frame in range(20):
            pixels = np.full((64, 64, 3), 10 * frame, np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                file.mux(packet)
        for packet in stream.encode():
            file.mux(packet)


@NEEDS_AV
def test_av1_as_lerobot_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "x.mp4"
    writer = threading.Thread(target=_write_av1, args=(path,))  # SVT-AV1 makes a thread real-time, as root
    writer.start()
    writer.join()
    decoder = open_video(path)
    for frame in (0, 7, 19, 3, 4):
        assert abs(decoder.at(frame / FPS).mean() - 10 * frame) < 4
    with pytest.raises(SourceError, match=r"has no frame at 2\.0000 s"):
        decoder.at(2.0)
    with pytest.raises(SourceError, match=r"AV1, .* pip install av"):
        open_video(path, "cv2")
