"""Record for a long time as a robot would, then read the log back and report losses, delays and leaks.

    python benchmarks/soak.py record FOLDER [--seconds 3600]
    python benchmarks/soak.py verify FOLDER

Four sensor streams at 500 Hz in a thread of their own, frames at 50 Hz, two cameras at 25 Hz (pixels, encoded by the
log's thread) and an episode every 20 s. Every number that is recorded follows from its sequence number, so reading
back proves each one. ``record`` writes ``soak.json``: how long each call took, how late each period began, and how
much memory the process held, every ten seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from hal import Field, Image, Spec
from recorder.frame_layout import FrameLayout
from recorder.log.image_codec import opencv
from recorder.log.writer import LogWriter, StreamWriter
from recorder.read.reader import LogReader

STREAMS = {
    "joints": Spec("joints", (Field("position", (7,), unit="rad"), Field("velocity", (7,), unit="rad/s"))),
    "torque": Spec("torque", (Field("torque", (7,), unit="N*m"),)),
    "wrench": Spec("wrench", (Field("force", (3,), unit="N"), Field("moment", (3,), unit="N*m"))),
    "imu": Spec("imu", (Field("acceleration", (3,), unit="m/s^2"), Field("rate", (3,), unit="rad/s"))),
}
STREAM_HZ, FRAME_HZ, CAMERA_EVERY, EPISODE_S = 500, 50, 2, 20.0
CAMERAS = ("wrist", "top")
_JOINTS = (Field("position", (7,), unit="rad"),)
LAYOUT = FrameLayout(
    Spec("observation", _JOINTS), Spec("action", _JOINTS), (), Spec("applied", _JOINTS), Spec("sensors", _JOINTS),
    tuple(STREAMS),
)  # fmt: skip


def values(spec: Spec, numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Return the values of the samples with these numbers, one sample along the first axis each."""
    turn = numbers.reshape(-1, 1) * 0.7
    return {field.name: np.sin(turn + np.arange(field.size)).astype(np.float32) for field in spec}


class Times:
    """A histogram of durations in microseconds, a hundred bins a decade from 0.1 µs to 10 s."""

    def __init__(self) -> None:
        self.bins = np.zeros(801, np.int64)
        self.worst = 0.0

    def add(self, nanoseconds: int) -> None:
        self.bins[min(max(int(100 * np.log10(max(nanoseconds, 1) / 100)), 0), 800)] += 1
        self.worst = max(self.worst, nanoseconds / 1e3)

    def summary(self) -> dict[str, float]:
        share = np.cumsum(self.bins) / max(self.bins.sum(), 1)
        at = {f"p{q}_us": round(0.1 * 10 ** ((int(np.searchsorted(share, q / 100)) + 1) / 100), 2) for q in QUANTILES}
        return {"count": int(self.bins.sum()), **at, "max_us": round(self.worst, 1)}


QUANTILES = (50, 99, 99.9, 99.99)


class Pace:
    """Waits for one period after another without drift, and keeps how late each began."""

    def __init__(self, hertz: float, late: Times) -> None:
        self._period, self._late, self._due = round(1e9 / hertz), late, time.monotonic_ns()

    def wait(self) -> None:
        self._due += self._period
        rest = self._due - time.monotonic_ns()
        if rest > 0:
            time.sleep(rest / 1e9)
        self._late.add(time.monotonic_ns() - self._due)


class SensorThread(threading.Thread):
    """Write all streams at their rates until a stop is requested; ``latest`` is the number of the newest sample."""

    def __init__(self, log: LogWriter) -> None:
        super().__init__(name="sensors")
        self.latest, self.write, self.late = -1, Times(), Times()
        self.ending = threading.Event()
        self._handles = [log.stream(name, spec, STREAM_HZ) for name, spec in STREAMS.items()]
        numbers = np.arange(1000)  # one period of what is recorded, so that the test itself costs little
        self._known = [values(handle.stream.spec, numbers) for handle in self._handles]

    def run(self) -> None:
        pace = Pace(STREAM_HZ, self.late)
        while not self.ending.is_set():
            pace.wait()
            stamp = time.monotonic_ns()
            for handle, known in zip(self._handles, self._known, strict=True):
                self._one(handle, {name: array[(self.latest + 1) % 1000] for name, array in known.items()}, stamp)
            self.latest += 1

    def _one(self, handle: StreamWriter, sample: dict[str, np.ndarray], stamp: int) -> None:
        begun = time.perf_counter_ns()
        handle.write(sample, stamp)
        self.write.add(time.perf_counter_ns() - begun)


class Frames:
    """The control loop: frames, pictures and episodes."""

    def __init__(self, log: LogWriter, sensors: SensorThread) -> None:
        self.log, self.sensors = log, sensors
        self.count, self.images, self.step, self.late = 0, 0, Times(), Times()
        rng = np.random.default_rng(0)
        self._pixels = [np.repeat(np.repeat(rng.integers(0, 255, (15, 20, 3), np.uint8), 8, 0), 8, 1) for _ in range(8)]

    def run(self, seconds: float) -> list[dict[str, float]]:
        pace, begun, memory = Pace(FRAME_HZ, self.late), time.monotonic(), []
        each, row = round(EPISODE_S * FRAME_HZ), LAYOUT.spec.rows()
        while time.monotonic() - begun < seconds:
            episode, frame = divmod(self.count, each)
            if frame == 0:
                if episode:
                    self.log.end({"end": "time"})
                self.log.begin({"seed": episode})
                memory.append({"s": round(time.monotonic() - begun, 1), "mib": resident_mib()})
            pace.wait()
            self._frame(row, episode, frame)
        self.log.end({"end": "time"})
        return memory

    def _frame(self, row: np.ndarray, episode: int, frame: int) -> None:
        position = values(LAYOUT.sensors, np.array([self.count]))["position"][0]
        row["stamp_ns"], row["wall_ns"] = time.monotonic_ns(), time.time_ns()
        row["episode"], row["frame_no"], row["reward"], row["acted"] = episode, frame, self.count, frame > 0
        row["observation_position"] = row["sensor_position"] = position
        for name in STREAMS:
            row[f"used_{name}"] = self.sensors.latest
        begun = time.perf_counter_ns()
        self.log.frame(row)
        if self.count % CAMERA_EVERY == 0:
            for camera in CAMERAS:
                self.log.image(camera, Image(self._pixels[self.images % 8], "rgb8", self.images))
            self.images += 1
        self.step.add(time.perf_counter_ns() - begun)
        self.count += 1


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def record(folder: Path, seconds: float, **options: Any) -> dict[str, Any]:
    """Record; returns and stores what was measured."""
    opencv("the soak's cameras")  # imported now, not by the first picture
    log = LogWriter(folder, LAYOUT, {"soak": seconds}, **options).open()
    sensors = SensorThread(log)
    frames = Frames(log, sensors)
    sensors.start()
    try:
        memory = frames.run(seconds)
    finally:
        sensors.ending.set()
        sensors.join()
        log.close()
    report = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[1]:.1f}",
        "seconds": seconds,
        "samples": sensors.latest + 1,
        "frames": frames.count,
        "pictures": frames.images,
        "dropped": log.dropped,
        "frame and two pictures": frames.step.summary(),
        "sample": sensors.write.summary(),
        "frames begin late": frames.late.summary(),
        "samples begin late": sensors.late.summary(),
        "memory": memory,
    }
    (folder / "soak.json").write_text(json.dumps(report, indent=1))
    return report


def verify(folder: Path) -> list[str]:
    """Return a sentence for each error; none if every message is there and right."""
    report, reader = json.loads((folder / "soak.json").read_text()), LogReader(folder)
    wrong = [f"note: {note}" for note in reader.notes]
    for name, spec in STREAMS.items():
        rows = reader.samples(name)
        wrong += _check(name, rows["sequence"], rows, values(spec, np.arange(len(rows)) % 1000), report["samples"])
    rows = reader.frames()
    known = values(LAYOUT.sensors, np.arange(len(rows)))
    wrong += _check("frames", rows["reward"], rows, {"sensor_position": known["position"]}, report["frames"])
    for name in STREAMS:
        used = rows[f"used_{name}"]
        if (np.diff(used) < 0).any() or used[-1] >= report["samples"]:
            wrong.append(f"frames: the samples of {name} that were used are out of order")
    for camera in CAMERAS:
        stamps = [image.stamp_ns for image in reader.images(camera)]
        if stamps != list(range(report["pictures"])):
            wrong.append(f"camera {camera}: {len(stamps)} of {report['images']} pictures, or out of order")
    wrong += _check_memory(report["memory"])
    return wrong


def _check(what: str, numbers: np.ndarray, rows: np.ndarray, known: dict[str, np.ndarray], count: int) -> list[str]:
    if len(rows) != count or not np.array_equal(numbers, np.arange(count)):
        return [f"{what}: {len(rows)} of {count}, or out of order"]
    return [f"{what}: wrong {name}" for name, array in known.items() if not np.array_equal(rows[name], array)]


def _check_memory(memory: list[dict[str, float]]) -> list[str]:
    """Growth from the second quarter to the last one: what is needed to begin with is no leak."""
    sizes = [line["mib"] for line in memory]
    if len(sizes) < 8:
        return []
    quarter = len(sizes) // 4
    early, late = np.median(sizes[quarter : 2 * quarter]), np.median(sizes[-quarter:])
    return [f"memory grew from {early:.0f} to {late:.0f} MiB"] if late - early > 10 else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "verify"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=3600.0)
    args = parser.parse_args()
    if args.what == "record":
        print(json.dumps(record(args.folder, args.seconds), indent=1))
        return
    wrong = verify(args.folder)
    print("\n".join(wrong) or "every message is there and right")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
