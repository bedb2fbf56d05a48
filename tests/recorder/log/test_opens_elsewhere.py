"""A log in the hands of other projects' programs, where they are installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Field, Image, Spec
from recorder.frame_layout import FrameLayout
from recorder.log.writer import LogWriter
from recorder.read.reader import LogReader

FRAMES = 20


@pytest.fixture
def run(tmp_path: Path, layout: FrameLayout, make_row: Any) -> Path:
    """Frames, a stream with five samples a frame, and the beginnings of JPEG files as images."""
    with LogWriter(tmp_path / "run", layout) as log:
        imu = log.stream("imu", Spec("imu", (Field("gyro", (3,)),)), 500)
        number = log.begin({"goal": {"target": [1.0]}})
        for frame in range(FRAMES):
            row = make_row(layout, number, frame)
            row["stamp_ns"] = frame * 10_000_000
            log.frame(row)
            log.image("wrist", Image(b"\xff\xd8\xff" + bytes([frame]), "jpeg", frame * 10_000_000))
            for part in range(5):
                imu.write({"gyro": [frame, part, 0.5]}, frame * 10_000_000 + part * 2_000_000)
        log.end({"end": "time"})
    return tmp_path / "run"


def _call(*command: str | Path, home: Path) -> str:
    """Run a program with a home folder of its own; return what it printed."""
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "NO_COLOR": "1"}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.process
@pytest.mark.parametrize("storage", ["sqlite3", "mcap"])
def test_rosbags_converts_it_to_a_ros_2_bag_folder(run: Path, tmp_path: Path, storage: str) -> None:
    """ROS 2's own tools take metadata.yaml, and the messages in either of its two storages."""
    highlevel = pytest.importorskip("rosbags.highlevel", reason="rosbags is not installed")
    bag = tmp_path / "bag"
    command = (
        sys.executable,
        "-m",
        "rosbags.convert",
        "--src",
        run / "log.mcap",
        "--dst",
        bag,
        "--dst-storage",
        storage,
    )
    _call(*command, home=tmp_path)
    frames, samples = LogReader(run).frames(), LogReader(run).samples("imu")
    got: dict[str, list[Any]] = {}
    with highlevel.AnyReader([bag]) as reader:
        for connection, _, raw in reader.messages():
            got.setdefault(connection.topic, []).append(reader.deserialize(raw, connection.msgtype))
    assert {topic: len(messages) for topic, messages in got.items()} == {
        "/frame": FRAMES, "/joint_states": FRAMES, "/camera/wrist": FRAMES, "/sensor/imu": 5 * FRAMES, "/episode": 2,
    }  # fmt: skip
    for message, row in zip(got["/frame"], frames, strict=True):
        assert message.frame_no == row["frame_no"]
        assert message.reward == row["reward"]
        np.testing.assert_array_equal(message.observation_joint_position, row["observation_joint_position"])
    assert [m.gyro.tolist() for m in got["/sensor/imu"]] == samples["gyro"].tolist()
    assert [bytes(m.data) for m in got["/camera/wrist"]] == [b"\xff\xd8\xff" + bytes([n]) for n in range(FRAMES)]
    assert [m.name for m in got["/joint_states"]] == [["pan", "lift"]] * FRAMES


@pytest.mark.process
@pytest.mark.tier("learning")  # which installs Rerun
def test_rerun_shows_its_images_joints_and_numbers(run: Path, tmp_path: Path) -> None:
    rerun = shutil.which("rerun", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
    if rerun is None:
        pytest.skip("Rerun's command line is not installed (pip install rerun-sdk)")
    checked = _call(rerun, "mcap", "check", run / "log.mcap", home=tmp_path)
    lines = re.findall(r"^(\S+) +\d+ +\d+ +(/\S+)", checked, re.MULTILINE)
    assert {topic: word for word, topic in lines} == dict.fromkeys(
        ("/frame", "/joint_states", "/camera/wrist", "/sensor/imu", "/episode"), "ok"
    )
    _call(rerun, "mcap", "convert", run / "log.mcap", "-o", tmp_path / "log.rrd", home=tmp_path)
    shown = _call(rerun, "rrd", "print", "-v", tmp_path / "log.rrd", home=tmp_path)
    rows: Counter[str] = Counter()
    for count, columns in re.findall(r"with (\d+) rows .*? - data columns: \[(.*?)\]", shown):
        rows.update(dict.fromkeys(columns.split(), int(count)))
    assert rows["/camera/wrist@EncodedImage:blob"] == FRAMES
    assert rows["/joint_states/position@Scalars:scalars"] == FRAMES
    assert rows["/frame@rlenv_robot_msgs.msg.Frame:message"] == FRAMES
    assert rows["/sensor/imu@rlenv_robot_msgs.msg.ImuSample:message"] == 5 * FRAMES
