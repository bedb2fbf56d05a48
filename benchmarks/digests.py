"""Processor time that a log's chain of digests costs its writer (`recorder.log.chain`), beside the same log without.

Rows are those of so101-reach at 30 Hz, with a sync every 0.7 s. With and without the chain take turns; given are the
medians. ``jpeg`` has an image of 60 kB that the camera has encoded with each row, ``pixels`` one of 640 x 480 that the
writer encodes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import rlenv_robot as rr
from hal import Image
from recorder.frame_layout import FrameLayout
from recorder.log.chain import Chain
from recorder.log.mcap_writer import McapWriter

ROWS = {"rows": 2000, "jpeg": 600, "pixels": 150}
PERIOD_NS = 33_333_333
SYNCED = 21
"""Rows between two syncs."""


def record(kind: str, layout: FrameLayout, folder: str, chained: bool) -> tuple[float, int]:
    """Return the writer's processor time in seconds, and the size of its log in bytes."""
    noise = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)
    pixels, jpeg = noise.repeat(16, 0).repeat(16, 1), np.random.default_rng(0).bytes(60_000)
    rows = layout.spec.rows(ROWS[kind])
    with tempfile.TemporaryDirectory(dir=folder) as name:
        chain = Chain(Path(name), "benchmark") if chained else None
        writer = McapWriter(Path(name), layout, {}, chain=chain)
        began = time.thread_time()
        for number, row in enumerate(rows):
            now_ns = number * PERIOD_NS
            writer.frame(row.tobytes(), now_ns)
            if kind != "rows":
                image = Image(pixels, "rgb8", now_ns) if kind == "pixels" else Image(jpeg, "jpeg", now_ns)
                writer.image("front", image, now_ns)
            if number % SYNCED == SYNCED - 1:
                writer.sync()
        writer.close()
        took, size = time.thread_time() - began, writer.size
        if chain is not None:
            chain.end()
    return took, size


def main() -> None:
    """Measure all kinds, and print a line of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", help="where the logs are written (default: the system's folder for such files)")
    args = parser.parse_args()
    with rr.make("so101-reach") as env:
        layout = FrameLayout(env.observation, env.action)
    for kind in ROWS:
        took: dict[bool, list[float]] = {False: [], True: []}
        for number in range(2 * args.rounds):
            seconds, size = record(kind, layout, args.folder or tempfile.gettempdir(), bool(number % 2))
            took[bool(number % 2)].append(seconds)
        without, chained = (statistics.median(took[which]) for which in (False, True))
        print(
            f"{kind:7} {size / 1e6:6.1f} MB: {without * 1e3:7.1f} ms without, {chained * 1e3:7.1f} ms with digests: "
            f"{(chained / without - 1) * 100:5.1f} % more, load {os.getloadavg()[0]:.0f}"
        )


if __name__ == "__main__":
    main()
