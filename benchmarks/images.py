"""Random camera frames: from a log, and as images of sampled steps, beside only decoding them on all cores.

    python benchmarks/images.py [--seconds 5] [--rounds 3] [--folder DIR]

Images are 640 x 480 with noise, encoded as JPEG at quality 90. The log is larger than any cache of decoded images
that is used here; its file is in the page cache of the system, as it is for training that reads it more than once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from hal import Field, Image, Spec
from recorder.frame_layout import FrameLayout
from recorder.images.images import Images
from recorder.images.sources import ImageIndex
from recorder.log.mcap_writer import McapWriter
from recorder.table.load import build
from recorder.table.table import Table
from rlenv_robot.source import SourceData

BATCH = 256
PERIOD_NS = 33_333_333
LAYOUT = FrameLayout(Spec("o", (Field("x", (6,)),)), Spec("a", (Field("u", (6,)),)))


def encoded_images(count: int) -> list[bytes]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        smooth = cv2.resize(rng.integers(0, 255, (60, 80, 3), np.uint8), (640, 480), interpolation=cv2.INTER_CUBIC)
        noisy = np.clip(smooth + rng.normal(0, 3, smooth.shape), 0, 255).astype(np.uint8)
        found.append(cv2.imencode(".jpg", noisy, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes())
    return found


def record(folder: Path, encoded: list[bytes], count: int) -> Table:
    sink = McapWriter(folder, LAYOUT, {})
    sink.episode("begin", 0, "{}", 0)
    for frame in range(count):
        row = LAYOUT.spec.rows()
        row["frame_no"], row["stamp_ns"], row["acted"] = frame, frame * PERIOD_NS, frame > 0
        sink.frame(row.tobytes(), frame * PERIOD_NS)
        sink.image("top", Image(encoded[frame % len(encoded)], "jpeg", frame * PERIOD_NS), frame * PERIOD_NS)
    sink.episode("end", 0, '{"end": "time"}', count * PERIOD_NS)
    sink.close()
    return build(folder)


def decode_only(encoded: list[bytes], seconds: float, threads: int) -> float:
    """Images a second, by that many threads that do nothing else."""

    def work(seed: int) -> int:
        rng, done, until = np.random.default_rng(seed), 0, time.perf_counter() + seconds
        while time.perf_counter() < until:
            for number in rng.integers(0, len(encoded), 16):
                cv2.imdecode(np.frombuffer(encoded[number], np.uint8), cv2.IMREAD_COLOR)
            done += 16
        return done

    begun = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        total = sum(pool.map(work, range(threads)))
    return total / (time.perf_counter() - begun)


def from_log(images: Images, rows: int, seconds: float, out: np.ndarray | None) -> float:
    """Images a second, in batches of random rows."""
    rng, done, begun = np.random.default_rng(), 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        images.at(rng.integers(0, rows, BATCH), "top", out=out)
        done += BATCH
    return done / (time.perf_counter() - begun)


def from_samples(data: SourceData, rows: int, seconds: float, out: np.ndarray | None) -> float:
    """Images a second, in batches of random steps with the images of both observations."""
    done, begun, choice = 0, time.perf_counter(), {"images": {"cache_bytes": 0}}
    while time.perf_counter() - begun < seconds:
        extra = data.sample_steps(BATCH // 2, choice)["extra_info"]
        done += len(extra["images"]["top"]) + len(extra["next_images"]["top"])
    return done / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one measurement; they alternate")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--frames", type=int, default=4000)
    parser.add_argument("--folder", type=Path, help="where the log is written for as long as it takes")
    args = parser.parse_args()
    cv2.setNumThreads(1)
    threads = len(os.sched_getaffinity(0))
    encoded = encoded_images(64)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        table = record(Path(folder) / "run", encoded, args.frames)
        with Images(table, cache_bytes=0) as images:
            begun = time.perf_counter()
            images.at(np.arange(1), "top")
            size = (Path(folder) / "run" / "log.mcap").stat().st_size
            print(
                f"{threads} threads, load {os.getloadavg()[0]:.1f}; log of {size / 1e6:.0f} MB, {args.frames} images"
                f" of {statistics.mean(map(len, encoded)) / 1e3:.0f} kB, indexed in {time.perf_counter() - begun:.2f} s"
            )
            begun = time.perf_counter()
            ImageIndex.load_or_build(Path(folder) / "run")
            print(f"opened again with its kept index in {(time.perf_counter() - begun) * 1e3:.1f} ms")
            _compare(images, SourceData(table), encoded, args, threads)


def _compare(images: Images, data: SourceData, encoded: list[bytes], args: argparse.Namespace, threads: int) -> None:
    kept = np.empty((BATCH, 480, 640, 3), np.uint8)
    ways: dict[str, tuple[Any, Any, np.ndarray | None]] = {
        "from the log, into the same array": (from_log, images, kept),
        "from the log": (from_log, images, None),
        "through sample_steps": (from_samples, data, None),
    }
    shares: dict[str, list[float]] = {name: [] for name in ways}
    limits = []
    for _ in range(args.rounds):
        for name, (way, source, out) in ways.items():
            before = decode_only(encoded, args.seconds / 2, threads)
            ours = way(source, args.frames, args.seconds, out)
            limit = (before + decode_only(encoded, args.seconds / 2, threads)) / 2
            limits.append(limit)
            shares[name].append(ours / limit)
    print(f"decoding alone: {statistics.median(limits):.0f} images/s")
    for name, values in shares.items():
        low, _, high = statistics.quantiles(values, n=4)
        print(f"{name}: {statistics.median(values):.0%} of that (quartiles {low:.0%} to {high:.0%})")


if __name__ == "__main__":
    main()
