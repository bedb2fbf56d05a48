"""Cost of recording and speed of reading a log, beside the writers and readers of others, in one run.

    pip install 'rlenv-robot[headless]' mcap-ros2-support
    python benchmarks/recording.py [--rounds 3] [--folder .]

Hot path: a frame and two images (JPEG bytes, 30 kB each) at 50 Hz, while a stream is written at 500 Hz; measured in
the calling thread, for the time of ``--seconds``. Frames to disk: images of 100 kB that do not compress, until all of
it is on the disk, beside plain writes of the same bytes to the same disk. Reading: a log of rows with two arrays of
seven floats each, as a table, and message by message. Every round does everything once, one after the other; given are
medians.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import foxglove
import numpy as np
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer

sys.path.insert(0, str(Path(__file__).parent))
from soak import LAYOUT, STREAMS, Pace, SensorThread, Times

from hal import Image
from recorder.log.mcap_writer import McapWriter
from recorder.log.ros2 import COMPRESSED_IMAGE, compressed_image, message_type
from recorder.log.writer import LogWriter
from recorder.read.reader import LogReader
from recorder.table.load import build

IMAGES, IMAGE_BYTES = 3000, 100_000
ROWS, EPISODE = 300_000, 1000
Figures = dict[str, list[float]]


def hot_path(folder: Path, seconds: float) -> dict[str, float]:
    """Microseconds of a step's calls: one frame and two images."""
    images = [noise(30_000, seed) for seed in range(8)]
    times, row = Times(), LAYOUT.spec.rows()
    with LogWriter(folder, LAYOUT) as log:
        sensors = SensorThread(log)
        sensors.start()
        log.begin({})
        pace = Pace(50, Times())
        for frame in range(round(seconds * 50)):
            pace.wait()
            begun = time.perf_counter_ns()
            row["frame_no"] = frame
            log.frame(row)
            for camera in ("wrist", "top"):
                log.image(camera, Image(images[frame % 8], "jpeg", frame))
            times.add(time.perf_counter_ns() - begun)
        sensors.ending.set()
        sensors.join()
    return times.summary()


def noise(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).tobytes()


# -- images to the disk ------------------------------------------------------------------------------------


def raw_writes(folder: Path, data: list[bytes]) -> None:
    with (folder / "raw").open("xb", buffering=0) as file:
        for index in range(IMAGES):
            file.write(data[index % len(data)])
        os.fsync(file.fileno())


def our_writer(folder: Path, data: list[bytes]) -> None:
    with LogWriter(folder, LAYOUT, capacity=1 << 30) as log:
        for index in range(IMAGES):
            log.image("wrist", Image(data[index % len(data)], "jpeg", index))
        log.sync(60)
        assert log.dropped == 0


def bare_foxglove(folder: Path, data: list[bytes]) -> None:
    context = foxglove.Context()
    writer = foxglove.open_mcap(folder / "foxglove.mcap", context=context)
    robot_model = COMPRESSED_IMAGE
    schema = foxglove.Schema(name=robot_model.name, encoding="ros2msg", data=robot_model.definition.encode())
    channel = foxglove.Channel("/camera/wrist", schema=schema, message_encoding="cdr", context=context)
    for index in range(IMAGES):
        message = compressed_image(Image(data[index % len(data)], "jpeg", index), "wrist")
        channel.log(message, log_time=index)
    writer.close()
    synced(folder / "foxglove.mcap")


def mcap_writer(folder: Path, data: list[bytes]) -> None:
    with (folder / "mcap.mcap").open("xb") as file:
        writer = Writer(file, compression=CompressionType.LZ4)
        writer.start("ros2")
        schema = writer.register_schema(COMPRESSED_IMAGE.name, "ros2msg", COMPRESSED_IMAGE.definition.encode())
        channel = writer.register_channel("/camera/wrist", "cdr", schema)
        for index in range(IMAGES):
            message = compressed_image(Image(data[index % len(data)], "jpeg", index), "wrist")
            writer.add_message(channel, index, message, index)
        writer.finish()
    synced(folder / "mcap.mcap")


def synced(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


# -- reading -------------------------------------------------------------------------------------------------


def make_log(folder: Path) -> None:
    """Rows like a robot's: joints that move a little each period. Written as fast as it goes."""
    rows, rng = LAYOUT.spec.rows(ROWS), np.random.default_rng(0)
    rows["sensor_position"] = np.cumsum(rng.normal(0, 0.01, (ROWS, 7)), 0)
    rows["observation_position"], rows["stamp_ns"] = rows["sensor_position"], np.arange(ROWS) * 20_000_000
    rows["action_position"] = rows["applied_position"] = rng.normal(0, 1, (ROWS, 7))
    rows["episode"], rows["frame_no"] = np.divmod(np.arange(ROWS), EPISODE)
    sink = McapWriter(folder, LAYOUT, {})
    for start in range(0, ROWS, EPISODE):
        sink.episode("begin", start // EPISODE, '{"seed": 1}', start)
        for index in range(start, start + EPISODE):
            sink.frame(rows[index].tobytes(), index)
        sink.episode("end", start // EPISODE, '{"end": "time"}', start)
    sink.close()


def our_table(folder: Path) -> int:
    shutil.rmtree(folder / "table", ignore_errors=True)
    return len(build(folder).rows)


def our_rows(folder: Path) -> int:
    return len(LogReader(folder).frames())


def mcap_reader(folder: Path) -> int:
    with (folder / "log.mcap").open("rb") as file:
        return sum(1 for _ in make_reader(file).iter_messages(topics="/frame", log_time_order=False))


def mcap_ros2(folder: Path) -> int:
    """Decode a tenth of the log, since this reader is slow."""
    from mcap_ros2.decoder import DecoderFactory

    with (folder / "log.mcap").open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        decoded = reader.iter_decoded_messages(topics="/frame", log_time_order=False)
        return sum(1 for _, _ in zip(range(ROWS // 10), decoded, strict=False))


def timed(figures: Figures, name: str, amount: Callable[[], float]) -> None:
    """Amount a second."""
    begun = time.perf_counter()
    done = amount()
    figures[name].append(done / (time.perf_counter() - begun))


def one_round(root: Path, writing: Figures, robot_state: Figures) -> None:
    data = [noise(IMAGE_BYTES, seed) for seed in range(64)]
    for name, write in WRITERS.items():
        with tempfile.TemporaryDirectory(dir=root) as folder:

            def act(write: Callable[[Path, list[bytes]], None] = write, folder: str = folder) -> float:
                write(Path(folder), data)
                return IMAGES * IMAGE_BYTES / 1e6

            timed(writing, name, act)
    for name, read in READERS.items():
        timed(robot_state, name, lambda read=read: read(root / "log"))  # type: ignore[misc]


WRITERS = {
    "plain writes": raw_writes,
    "LogWriter": our_writer,
    "foxglove-sdk, bare": bare_foxglove,
    "mcap, LZ4": mcap_writer,
}
READERS = {
    "table (build)": our_table,
    "rows (LogReader)": our_rows,
    "mcap, not decoded": mcap_reader,
    "mcap-ros2-support, decoded": mcap_ros2,
}


def show(title: str, figures: Figures, base: str) -> None:
    print(f"{title:<34}{'median':>12}{'to ' + base.split(',')[0]:>20}")
    for name, values in figures.items():
        ratio = statistics.median(mine / theirs for mine, theirs in zip(values, figures[base], strict=True))
        print(f"  {name:<32}{statistics.median(values):>12,.0f}{ratio:>20.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--folder", type=Path, default=Path("."), help="on the disk that is measured")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        root = Path(folder)
        print(
            f"a frame and two images, {len(STREAMS)} streams at 500 Hz beside: {hot_path(root / 'hot', args.seconds)}"
        )
        make_log(root / "log")
        writing: Figures = defaultdict(list)
        robot_state: Figures = defaultdict(list)
        for _ in range(args.rounds):
            one_round(root, writing, robot_state)
    row = message_type(LAYOUT.spec).name, LAYOUT.spec.row_dtype.itemsize
    show("images to the disk, MB/s", writing, "plain writes")
    show(f"reading, rows/s ({row[1]} bytes)", robot_state, "mcap, not decoded")


if __name__ == "__main__":
    main()
