"""Random images of AV1 videos beside decoding the same videos from front to back.

The videos are as LeRobot writes them: AV1, every other frame a key frame, 640x480. All are measured in turns, in
milliseconds of the processor for an image: all frames in order by PyAV, converted to RGB; batches of random rows by
`Images`, as `sample_steps` has them; and batches of pairs of neighbours, as with the next observation.

    python benchmarks/videos.py [--frames 300] [--rounds 5] [--batch 64]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.images.images import Images
from recorder.images.video import Decoder, encode_video, open_video
from recorder.table.table import ImageSource, Table

FPS = 30


def scenes(count: int) -> Iterator[np.ndarray]:
    """Frames with a textured background, a moving arm-like bar and noise of a camera."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(40, 215, (30, 40, 3), np.uint8)
    background = np.repeat(np.repeat(coarse, 16, 0), 16, 1)
    for number in range(count):
        frame = background.copy()
        at = 60 + int(250 * (1 + np.sin(number / 20)))
        frame[100:400, at : at + 60] = (200, 120, 40)
        yield np.clip(frame + rng.normal(0, 3, frame.shape), 0, 255).astype(np.uint8)


class OneVideo(ImageSource):
    """The frames of one video, numbered as the rows; each thread has a decoder of its own."""

    def __init__(self, path: Path) -> None:
        import threading

        self._path, self._mine = path, threading.local()

    @property
    def cameras(self) -> tuple[str, ...]:
        return ("top",)

    def numbers(self, camera: str, rows: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        return rows["frame_no"].astype(np.int64)

    def decode(self, camera: str, number: int, rgb: bool) -> np.ndarray:
        decoder: Decoder | None = getattr(self._mine, "decoder", None)
        if decoder is None:
            decoder = self._mine.decoder = open_video(self._path)
        return decoder.at(number / FPS)


def in_order(path: Path) -> float:
    import av

    begun, count = time.process_time(), 0
    with av.open(str(path)) as file:
        file.streams.video[0].thread_type = "AUTO"
        for frame in file.decode(video=0):
            frame.to_ndarray(format="rgb24")
            count += 1
    return (time.process_time() - begun) / count * 1e3


def in_batches(images: Images, frames: int, batch: int, pairs: bool) -> float:
    rng, begun, count = np.random.default_rng(), time.process_time(), 0
    while count < frames:
        rows = rng.integers(0, frames - 1, batch // 2 if pairs else batch)
        images.at(np.stack([rows, rows + 1], 1).reshape(-1) if pairs else rows, "top")
        count += batch
    return (time.process_time() - begun) / count * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    given = parser.parse_args()
    layout = FrameLayout(Spec("o", (Field("x"),)), Spec("a", (Field("u"),)))
    rows = layout.spec.rows(given.frames)
    rows["frame_no"] = np.arange(given.frames)
    ends = np.array([0]), np.array([given.frames])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "top.mp4"
        codec = encode_video(path, scenes(given.frames), FPS)
        table = Table(layout, rows, *ends, ({},), folder, open_images=lambda _: OneVideo(path))
        size = path.stat().st_size / given.frames / 1e3
        print(f"{codec}, {size:.1f} kB a frame, load {os.getloadavg()[0]:.1f}")
        with Images(table, cache_bytes=0) as images:
            ways: dict[str, Callable[[], float]] = {
                "all frames in order, by PyAV": lambda: in_order(path),
                "random frames": lambda: in_batches(images, given.frames, given.batch, False),
                "random pairs of neighbours": lambda: in_batches(images, given.frames, given.batch, True),
            }
            for way in ways.values():
                way()
            figures: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(given.rounds):
                for name, way in ways.items():
                    figures[name].append(way())
    base = statistics.median(figures["all frames in order, by PyAV"])
    for name, values in figures.items():
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        print(f"{name:32} {middle:7.2f} ms ({low:.2f} to {high:.2f}), {middle / base:.2f} of in order")


if __name__ == "__main__":
    main()
