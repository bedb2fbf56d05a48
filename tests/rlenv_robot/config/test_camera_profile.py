"""Cameras from the profile to the record: a stranger's camera on a served robot, in a task, in the log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import ProfileError
from recorder.images.images import Images
from recorder.table.load import build
from rlenv_robot.config.profile import load_profile
from rlenv_robot.serving import build_robot
from rlenv_vision.mjpeg_server import MjpegServer


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lab.toml"


def test_each_table_is_a_camera(file):
    file.write_text(
        '[cameras.wrist]\nsource = "0"\nfps = 15\nfrozen_s = inf\n[cameras.front]\nsource = "/dev/video2"\n'
    )
    cameras = load_profile(file).cameras
    assert list(cameras) == ["wrist", "front"]
    assert (cameras["wrist"].name, cameras["wrist"].fps, cameras["wrist"].quality) == ("wrist", 15.0, 90)
    assert cameras["front"].source == "/dev/video2"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cameras = 3", "cameras: is 3, it must be a table for each camera"),
        ("[cameras]\nsource = 'x'", r"cameras.source: is 'x', it must be a table"),
        ("[cameras.wrist]", "cameras.wrist.source: is missing: a device, a file"),
        ("[cameras.wrist]\nsource = 0", "cameras.wrist.source: is 0 \\(int\\), it must be a string"),
        ("[cameras.wrist]\nsource = '0'\nname = 'x'", "cameras.wrist.name: is not allowed"),
        ("[cameras.wrist]\nsource = '0'\nqualty = 5", "cameras.wrist.qualty: is unknown; did you mean 'quality'"),
        ("[cameras.wrist]\nsource = '0'\nquality = 500", "cameras.wrist.quality: is 500, it must be 1 to 100"),
        (
            "[cameras.wrist]\nsource = '0'\nloss = 'cry'",
            "cameras.wrist.loss: is 'cry', allowed are 'note', 'fault', 'stop'",
        ),
        ("[cameras.Wrist]\nsource = '0'", "cameras.Wrist.name: is 'Wrist', it must be lower case"),
    ],
)
def test_a_mistake_is_told_with_its_key(file, text, words):
    file.write_text(text)
    with pytest.raises(ProfileError, match=words):
        load_profile(file)


def test_a_password_stays_out_of_the_log(file):
    file.write_text('[cameras.door]\nsource = "rtsp://admin:secret@10.0.0.9/ch1"\n')
    plain = load_profile(file).to_dict()
    assert plain["cameras"]["door"]["source"] == "rtsp://10.0.0.9/ch1"
    assert "secret" not in repr(plain)


@pytest.fixture
def stranger() -> Iterator[MjpegServer]:
    """Noise at 60 pictures a second; the encoder is OpenCV's."""
    cv2 = pytest.importorskip("cv2", reason="needs OpenCV: the extra headless or vision")
    random = np.random.default_rng(0)

    def shoot() -> bytes:
        pixels = random.integers(0, 255, (48, 64, 3), np.uint8)
        data: bytes = cv2.imencode(".jpg", pixels)[1].tobytes()
        sent[hash(data)] = data
        return data

    sent: dict[int, bytes] = {}
    with MjpegServer(shoot, 60.0) as camera:
        camera.sent = sent  # type: ignore[attr-defined]
        yield camera


@pytest.fixture
def profile(file: Path, stranger: MjpegServer) -> Path:
    file.write_text(
        '[robot]\nwhere = "twin"\n[serve]\naddress = "tcp://127.0.0.1:*"\nwatchdog_s = 5.0\nlower_s = 0.1\n'
        f'[cameras.front]\nsource = "{stranger.url}"\nwidth = 64\nheight = 48\nmax_age_s = 2.0\n'
    )
    return file


def test_a_served_robot_is_described_with_its_cameras(profile):
    from hal.cameras.camera import Camera

    loaded = load_profile(profile)
    robot = build_robot(loaded, cameras=[Camera(settings) for settings in loaded.cameras.values()])
    assert [camera.name for camera in robot.spec.cameras] == ["overhead", "wrist", "front"]
    robot.close()


@pytest.mark.slow
def test_images_of_a_strangers_camera_reach_policy_and_log_as_they_came(profile, stranger, tmp_path):
    command = [sys.executable, "-m", "rlenv_robot", "serve", str(profile)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    try:
        address = server.stdout.readline().split()[-1]
        assert server.stdout.readline().startswith("images of front at tcp://127.0.0.1:")
        obs = []
        with rr.make("so101-reach", robot=address, record=tmp_path / "runs", steps=12) as env:
            table = env.reset({"seed": 0})
            while not (table["terminated"] or table["truncated"]):
                obs.append(table["extra_info"]["images"]["front"])
                action = {"joint_target": table["observation"]["joint_position"].astype(np.float32)}
                table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
            assert table["extra_info"]["truncated_by"] == "time"
            obs.append(table["extra_info"]["images"]["front"])
    finally:
        server.terminate()
        server.communicate(timeout=20)
    assert server.returncode == 0
    assert len(obs) == 13
    assert all(stranger.sent[hash(image.data)] == image.data for image in obs), "not one byte is encoded anew"
    (run,) = (tmp_path / "runs").iterdir()
    images = Images(build(run))
    pixels, _ = images.at(np.arange(13), "front")
    images.close()
    import cv2

    for image, shown in zip(obs, pixels, strict=True):
        decoded = cv2.imdecode(np.frombuffer(image.data, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
        np.testing.assert_array_equal(shown, decoded)
