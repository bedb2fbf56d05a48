from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

av = pytest.importorskip("av")
cv2 = pytest.importorskip("cv2")

from recorder.table.table import VideoSpan  # noqa: E402
from rlenv_curate.checks.thumbnails import (  # noqa: E402
    HEIGHT,
    MOST_FRAMES,
    WIDTH,
    frames_to_read,
    read_video,
    sharpness,
)


def write(path: Path, count: int, fps: int = 30) -> None:
    """A video whose frame number, modulo 5, is its brightness."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=fps, options={"qp": "0"})
        stream.height, stream.width, stream.pix_fmt = 120, 160, "yuv420p"
        for number in range(count):
            frame = np.full((120, 160, 3), 20 + 40 * (number % 5), np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        file.mux(stream.encode())


def test_each_row_gets_its_frame(tmp_path: Path) -> None:
    write(tmp_path / "v.mp4", 90)
    strip = read_video(VideoSpan("top", tmp_path / "v.mp4", 0, 1.0, 40, 30.0), np.arange(41))
    assert strip.rows.tolist() == list(range(40))
    assert strip.pixels.shape == (40, HEIGHT, WIDTH, 3)
    assert np.abs(strip.pixels.mean((1, 2, 3)) - (20 + 40 * ((30 + np.arange(40)) % 5))).max() < 5
    assert np.flatnonzero(np.isfinite(strip.sharpness)).tolist() == list(range(0, 40, 8))
    assert strip.faults == ()


def test_a_damaged_video_is_a_fault_and_no_crash(tmp_path: Path) -> None:
    write(tmp_path / "v.mp4", 60)
    data = (tmp_path / "v.mp4").read_bytes()
    for number, damaged in enumerate((data[: len(data) // 2], b"", bytes(200) + data[200:])):
        path = tmp_path / f"d{number}.mp4"
        path.write_bytes(damaged)
        strip = read_video(VideoSpan("top", path, 0, 0.0, 60, 30.0), np.arange(60))
        assert len(strip.rows) < 60
        assert strip.faults


def test_of_a_long_episode_stretches_are_read() -> None:
    assert frames_to_read(10).tolist() == list(range(10))
    chosen = frames_to_read(100_000)
    assert len(chosen) <= MOST_FRAMES
    assert (chosen[0], chosen[-1]) == (0, 99_999)
    assert (np.diff(chosen) == 1).mean() > 0.99


def test_defocus_lowers_the_sharpness_and_contrast_does_not() -> None:
    image = cv2.resize(np.random.default_rng(0).integers(0, 200, (60, 80), np.uint8), (640, 480))
    sharp = [sharpness(cv2.GaussianBlur(image, (0, 0), sigma)) for sigma in (0.5, 1, 2, 4)]
    assert sharp == sorted(sharp, reverse=True)
    assert sharpness(image // 2) == pytest.approx(sharpness(image), abs=0.15)
