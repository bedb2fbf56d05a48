"""Sensors at their own rates: every sample is there, understood by strangers, and one that was dropped is missed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Field, LogError, Spec
from recorder.frame_layout import FrameLayout
from recorder.log.mcap_writer import McapWriter
from recorder.log.streams import Stream
from recorder.log.writer import LogWriter
from recorder.read.reader import LogReader

IMU = Spec("imu", (Field("acceleration", (3,), unit="m/s^2"), Field("count", (), "int32")))


def write(log: LogWriter, count: int) -> None:
    imu = log.stream("imu_left", IMU, 500)
    for number in range(count):
        assert imu.write({"acceleration": np.full(3, number, np.float32), "count": number}, 1000 * number) == number


def test_every_sample_is_there(tmp_path: Path, layout: FrameLayout) -> None:
    with LogWriter(tmp_path, layout) as log:
        write(log, 1200)
    reader = LogReader(tmp_path)
    assert reader.streams == {"imu_left": Stream("imu_left", IMU, 500)}
    samples = reader.samples("imu_left")
    assert samples["sequence"].tolist() == samples["count"].tolist() == list(range(1200))
    assert samples["stamp_ns"].tolist() == list(range(0, 1_200_000, 1000))
    assert (samples["acceleration"] == np.arange(1200)[:, None]).all()
    assert (np.diff(samples["wall_ns"]) >= 0).all()
    with pytest.raises(LogError, match="no stream 'gyro', it has imu_left"):
        reader.samples("gyro")


def test_strangers_read_samples(tmp_path: Path, layout: FrameLayout) -> None:
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory
    from rosbags.highlevel import AnyReader

    with LogWriter(tmp_path, layout) as log:
        write(log, 5)
    with (tmp_path / "log.mcap").open("rb") as file:
        reader = make_reader(file, validate_crcs=True, decoder_factories=[DecoderFactory()])
        got = [m.decoded_message for m in reader.iter_decoded_messages(topics="/sensor/imu_left")]
    assert [m.count for m in got] == [0, 1, 2, 3, 4]
    with AnyReader([tmp_path / "log.mcap"]) as bag:
        (connection,) = (c for c in bag.connections if c.topic == "/sensor/imu_left")
        assert connection.msgtype == "rlenv_robot_msgs/msg/ImuLeftSample"
        read = [bag.deserialize(raw, c.msgtype) for c, _, raw in bag.messages([connection])]
    assert [m.acceleration.tolist() for m in read] == [[n, n, n] for n in range(5)]


def test_frames_say_which_sample_they_used(tmp_path: Path, make_row: Any) -> None:
    layout = FrameLayout(Spec("o"), Spec("a"), streams=("imu_left",))
    with LogWriter(tmp_path, layout) as log:
        write(log, 3)
        log.begin({})
        row = layout.spec.rows()
        row["used_imu_left"] = 2
        log.frame(row)
    reader = LogReader(tmp_path)
    assert reader.layout == layout
    assert reader.samples("imu_left")["count"][reader.frames()["used_imu_left"]].tolist() == [2]


def test_a_layout_without_streams_is_as_before() -> None:
    assert "streams" not in FrameLayout(Spec("o"), Spec("a")).to_dict()


def test_frames_are_aligned_with_a_stream(tmp_path: Path, layout: FrameLayout, make_row: Any) -> None:
    with LogWriter(tmp_path, layout) as log:
        write(log, 10)
        log.begin({})
        for frame, stamp in enumerate((500, 4600, 99_000)):
            row = make_row(layout, 0, frame)
            row["stamp_ns"] = stamp
            log.frame(row)
    reader = LogReader(tmp_path)
    found = reader.at_frames("imu_left", max_age_ns=1000)
    assert found.sample.tolist() == [0, 4, -1]
    assert found.values["count"].tolist() == [0, 4, 0]
    with pytest.raises(LogError, match=r"1 of 3 moments .* number 2"):
        reader.at_frames("imu_left", max_age_ns=1000, refuse=True)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"acceleration": np.zeros(3)}, "got acceleration, expected acceleration, count"),
        ({"acceleration": np.zeros(3), "gyro": 1}, "count is missing"),
        ({"acceleration": 0.0, "count": 1}, r"acceleration has shape \(\), expected \(3,\)"),
        ({"acceleration": np.zeros(3), "count": 1.5}, "count: Cannot cast"),
    ],
)
def test_wrong_samples_are_refused(tmp_path: Path, layout: FrameLayout, sample: Any, message: str) -> None:
    with LogWriter(tmp_path, layout) as log:
        imu = log.stream("imu_left", IMU, 500)
        with pytest.raises(LogError, match=message):
            imu.write(sample, 0)
        assert imu.write({"acceleration": [1, 2, 3], "count": 4}, 0) == 0
    assert LogReader(tmp_path).samples("imu_left")["count"].tolist() == [4]


def test_wrong_streams_are_refused(tmp_path: Path, layout: FrameLayout) -> None:
    with LogWriter(tmp_path, layout) as log:
        log.stream("imu", IMU, 500)
        with pytest.raises(LogError, match="'imu' is declared already"):
            log.stream("imu", IMU, 500)
        with pytest.raises(LogError, match=r"stream 'IMU'.*a name is lower-case"):
            log.stream("IMU", IMU, 500)
        with pytest.raises(LogError, match="rate_hz is 0"):
            log.stream("gyro", IMU, 0)
        with pytest.raises(LogError, match="fills stamp_ns itself"):
            log.stream("gyro", Spec("s", (Field("stamp_ns"),)), 1)


def test_a_dropped_sample_is_missed(tmp_path: Path, layout: FrameLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, original = threading.Event(), McapWriter.sample

    def slow(self: McapWriter, stream: str, row: bytes, time_ns: int) -> None:
        gate.wait(30)
        original(self, stream, row, time_ns)

    monkeypatch.setattr(McapWriter, "sample", slow)
    with LogWriter(tmp_path, layout, capacity=3000) as log:
        write(log, 100)
        gate.set()
        dropped = log.dropped
    numbers = LogReader(tmp_path).samples("imu_left")["sequence"]
    assert 0 < dropped < 100
    assert len(numbers) == 100 - dropped
    assert len(set(range(100)) - set(numbers.tolist())) == dropped
