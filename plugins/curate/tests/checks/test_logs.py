"""Faults of a native-rate stream are found, and a healthy stream has no finding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.log.writer import LogWriter
from recorder.table.load import build
from rlenv_curate.checks.logs import check_streams
from rlenv_curate.checks.table import ADVICE, Finding

IMU = Spec("imu", (Field("gyro", (3,), "float64"),))
LAYOUT = FrameLayout(Spec("o"), Spec("a", (Field("target", (2,)),)), streams=("imu",))
EPISODES, FRAMES, FRAME_NS, SAMPLE_NS = 3, 50, 40_000_000, 2_000_000
LENGTH_NS = (FRAMES - 1) * FRAME_NS


def record(folder: Path, ill: str) -> list[Finding]:
    """Three episodes of 2 s with 10 s between them, in which nothing is sampled; the second has what is said."""
    rng = np.random.default_rng(0)
    with LogWriter(folder, LAYOUT) as log:
        imu = log.stream("imu", IMU, 1e9 / SAMPLE_NS)
        for episode in range(EPISODES):
            begin = episode * 10_000_000_000
            stamps = np.arange(begin, begin + LENGTH_NS + 1, SAMPLE_NS)
            values = rng.normal(size=(len(stamps), 3))
            if episode == 1:
                stamps, values = spoil(ill, stamps, values)
            number = log.begin({})
            for stamp, gyro in zip(stamps.tolist(), values, strict=True):
                if ill == "lost" and episode == 1 and stamp == stamps[300]:
                    imu._next += 2  # as if two had found no room
                imu.write({"gyro": gyro}, stamp)
            for frame in range(FRAMES):
                row = LAYOUT.spec.rows()
                row["episode"], row["frame_no"], row["acted"] = number, frame, frame > 0
                row["stamp_ns"] = begin + frame * FRAME_NS
                row["action_target"] = 0.5 if ill == "still" and episode == 1 else np.sin(frame / 10)
                log.frame(row)
            log.end({"end": "time"})
    return check_streams(folder, build(folder))


def spoil(ill: str, stamps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if ill == "gap":
        kept = (stamps - stamps[0] < 800_000_000) | (stamps - stamps[0] > 1_000_000_000)
        return stamps[kept], values[kept]
    if ill == "rate":
        return stamps[::2], values[::2]
    if ill in ("frozen", "still"):
        values[100:700] = values[100]
    if ill == "clock":
        stamps[50] -= 3 * SAMPLE_NS
    return stamps, values


@pytest.mark.parametrize("ill", ["", "still"])
def test_a_healthy_stream_has_nothing_and_standing_still_is_none(tmp_path: Path, ill: str) -> None:
    assert record(tmp_path, ill) == []


@pytest.mark.parametrize(
    ("ill", "episode", "frames", "message"),
    [
        ("gap", 1, (19, 26), "204.0 ms without a sample, 2.00 ms are promised"),
        ("rate", 1, (-1, -1), "250 Hz, 500 Hz are promised"),
        ("frozen", 1, (5, 34), "the same values for 1.2 s"),
        ("clock", -1, (-1, -1), "1 stamps fall, the first at sample"),
        ("lost", -1, (-1, -1), "2 of 2945 samples are missing in the log"),
    ],
)
def test_an_ill_one_is_found(tmp_path: Path, ill: str, episode: int, frames: tuple[int, int], message: str) -> None:
    (found,) = record(tmp_path, ill)
    assert found.kind == ill
    assert ill in ADVICE
    assert (found.episode, found.field, (found.first, found.last)) == (episode, "stream imu", frames)
    assert message in found.message


def test_a_stream_without_samples_is_said(tmp_path: Path) -> None:
    with LogWriter(tmp_path, LAYOUT) as log:
        log.stream("imu", IMU, 500)
    (found,) = check_streams(tmp_path, build(tmp_path))
    assert (found.kind, found.message) == ("gap", "there is not one sample of it")
