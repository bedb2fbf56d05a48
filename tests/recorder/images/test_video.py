from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import LogError
from recorder.images.video import encode_video, open_video, write_video

cv2 = pytest.importorskip("cv2")


def moving_bar(count: int, height: int = 48, width: int = 64) -> Iterator[np.ndarray]:
    """Red on blue, so that swapped colour channels show."""
    for index in range(count):
        frame = np.zeros((height, width, 3), np.uint8)
        frame[..., 2] = 120
        frame[:, index * 4 : index * 4 + 12] = (220, 0, 0)
        yield frame


def decode(path: Path) -> tuple[list[np.ndarray], float]:
    capture = cv2.VideoCapture(str(path))
    frames = []
    while (found := capture.read())[0]:
        frames.append(found[1][..., ::-1].astype(int))
    return frames, capture.get(cv2.CAP_PROP_FPS)


@pytest.mark.requirement("R1.5")
def test_what_goes_in_comes_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "episode.mp4"
    assert write_video(path, moving_bar(12), 30) == 12
    frames, fps = decode(path)
    assert fps == 30
    assert len(frames) == 12
    for wanted, got in zip(moving_bar(12), frames, strict=True):
        assert np.abs(got - wanted).mean() < 12
    assert capfd.readouterr() == ("", "")  # the codec is chosen so that FFmpeg has nothing to say
    assert b"vp09" in path.read_bytes()
    assert [file.name for file in path.parent.iterdir()] == ["episode.mp4"]


def test_odd_sizes(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", moving_bar(3, 47, 63), 10)
    assert decode(tmp_path / "a.mp4")[0][0].shape == (48, 64, 3)


def test_what_does_not_fit_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    def two_sizes() -> Iterator[np.ndarray]:
        yield from moving_bar(2)
        yield from moving_bar(1, 50, 64)

    path = tmp_path / "a.mp4"
    with pytest.raises(LogError, match=r"\(50, 64, 3\), expected .* \(48, 64, 3\)"):
        write_video(path, two_sizes(), 30)
    with pytest.raises(LogError, match=r"float64 .* uint8 of shape \(4, 4, 3\)"):
        write_video(path, [np.zeros((4, 4, 3))], 30)
    with pytest.raises(LogError, match="video of no frames"):
        write_video(path, [], 30)
    with pytest.raises(LogError, match="0 frames a second"):
        write_video(path, moving_bar(1), 0)
    with pytest.raises(LogError, match=r"ends in \.mp4"):
        write_video(tmp_path / "a.avi", moving_bar(1), 30)
    assert list(tmp_path.iterdir()) == []


def test_without_opencv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(LogError, match=r"rlenv-robot\[headless\]'.*\[vision\]"):
        write_video(tmp_path / "a.mp4", moving_bar(1), 30)


def test_it_replaces_an_older_one(tmp_path: Path) -> None:
    path: Any = tmp_path / "a.mp4"
    write_video(path, moving_bar(2), 30)
    write_video(str(path), moving_bar(5), 30)
    assert len(decode(path)[0]) == 5


class Counted:
    """An open video that notes the times of the frames that it decodes."""

    def __init__(self, file: Any) -> None:
        self._file, self.times = file, list[float]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def decode(self, stream: Any) -> Iterator[Any]:
        for frame in self._file.decode(stream):
            self.times.append(frame.time)
            yield frame


def test_frames_in_any_order_with_few_of_them_decoded(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    path = tmp_path / "a.mp4"
    writer = threading.Thread(target=encode_video, args=(path, list(moving_bar(40)), 10))
    writer.start()
    writer.join()
    with av.open(str(path)) as file:
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    decoder: Any = open_video(path, "av")
    for number in [*np.random.default_rng(0).permutation(40).tolist(), 3, 4, 5, 39, 39]:
        np.testing.assert_array_equal(decoder.at(number / 10), frames[number])
    counted = decoder._file = Counted(decoder._file)
    for number in (10, 11, 12, 25, 30):  # every other frame is a key frame, as LeRobot has it
        decoder.at(number / 10)
    assert counted.times == pytest.approx([1.0, 1.1, 1.2, 2.4, 2.5, 3.0])
    decoder.close()
