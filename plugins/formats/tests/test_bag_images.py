"""Images in bags that rosbags and mcap-ros2-support wrote, held to what these read and to what was written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from plugins.formats.tests.test_stored_images import photos
from recorder.formats.registry import recognised, sets_in
from recorder.images.images import Images
from rlenv_curate.checks.videos import check_videos
from rlenv_formats.bag_images import pixels_of_message
from rlenv_formats.bags import is_bags, load_bags
from rlenv_robot.source import open_source

pytest.importorskip("rosbags", reason="rosbags is not installed")
pytest.importorskip("cv2", reason="OpenCV is not installed")

import cv2
from rosbags.rosbag2 import Writer

from plugins.formats.tests.test_bags import PLUGINS, STATE, header, state, store

RAW, PRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
MS, BEGIN = 1_000_000, 10**12
FIELDS = """
rate_hz = 20
[observation.joint_position]
topic = "/joint_states"
path = "position"
shape = [3]
[images.top]
topic = "/top/image_raw"
[images.wrist]
topic = "/wrist/image_raw/compressed"
"""
FRAMES = 8
SEEN = photos(3, FRAMES, 24, 30, 3)


def raw(stamp: int, image: np.ndarray, encoding: str = "bgr8", pad: int = 6) -> Any:
    """Return an image whose rows are padded, as drivers align them."""
    height, width, channels = image.shape
    rows = np.zeros((height, width * channels + pad), np.uint8)
    rows[:, : width * channels] = image.reshape(height, -1)
    return store().types[RAW](header(stamp), height, width, encoding, 0, rows.shape[1], rows.reshape(-1))


def pressed(stamp: int, image: np.ndarray) -> Any:
    data = cv2.imencode(".png", image[..., ::-1])[1]
    return store().types[PRESSED](header(stamp), "bgr8; png compressed bgr8", data.reshape(-1))


def messages(begin: int, lag: int = 7 * MS) -> list[tuple[str, str, int, Any]]:
    """States every 50 ms; both cameras see image k at k * 50 + 10 ms, and the message is recorded ``lag`` later."""
    found: list[tuple[str, str, int, Any]] = []
    for k in range(FRAMES):
        stamp = begin + k * 50 * MS
        found.append(("/joint_states", STATE, stamp, state(stamp, k, -k)))
        seen = stamp + 10 * MS
        found.append(("/top/image_raw", RAW, seen + lag, raw(seen, SEEN[k][..., ::-1])))
        found.append(("/wrist/image_raw/compressed", PRESSED, seen + lag, pressed(seen, 255 - SEEN[k])))
    return sorted(found, key=lambda one: one[2])


def write(path: Path, some: list[tuple[str, str, int, Any]], plugin: str = "mcap") -> None:
    with Writer(path, version=9, storage_plugin=PLUGINS[plugin]) as writer:
        kinds = {topic: kind for topic, kind, _, _ in some}
        topics = {topic: writer.add_connection(topic, kind, typestore=store()) for topic, kind in kinds.items()}
        for topic, kind, stamp, message in some:
            writer.write(topics[topic], stamp, store().serialize_cdr(message, kind))


@pytest.mark.parametrize("plugin", list(PLUGINS))
@pytest.mark.parametrize("clock", ["log", "header"])
def test_rows_get_the_latest_image(tmp_path: Path, plugin: str, clock: str) -> None:
    for number in range(2):
        write(tmp_path / f"bag_{number}", messages(BEGIN), plugin)  # of the same time: a clock that starts anew
    (tmp_path / "fields.toml").write_text(f'clock = "{clock}"{FIELDS}')
    source = open_source(tmp_path)
    table = source.table
    assert table.notes[0] == "no action is mapped: the rows hold observations alone"
    assert table.layout.action.names == ()
    assert len(table.rows) == 2 * FRAMES
    with Images(table) as images:
        assert images.cameras() == ("top", "wrist")
        order = np.random.default_rng(0).permutation(len(table.rows))
        for camera, seen in (("top", SEEN), ("wrist", 255 - SEEN)):
            found, mask = images.at(order, camera)
            frames = order % FRAMES  # image k comes after row k, so row k shows image k - 1
            np.testing.assert_array_equal(mask, frames > 0)
            np.testing.assert_array_equal(found[mask], seen[frames[mask] - 1])
        assert not images.at([2], "top", max_age_s=0.03)[1].any()
        nearest, _ = images.at(np.arange(FRAMES), "top", how="nearest")
        np.testing.assert_array_equal(nearest, SEEN)
    batch = source.sample_steps(4, {"images": {"cameras": "wrist"}, "chunk": 2})
    assert batch["extra_info"]["images"]["wrist"].shape == (4, 24, 30, 3)
    assert {(finding.kind, finding.first) for finding in check_videos(table)} == {("camera", 0)}  # before any image


def test_a_single_file_opens(tmp_path: Path) -> None:
    write(tmp_path / "bag", messages(BEGIN))
    (file,) = (tmp_path / "bag").glob("*.mcap")
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(file, alone / "drive.mcap")
    with pytest.raises(SourceError, match=r"fields\.toml .*/top/image_raw \(sensor_msgs/msg/Image\)"):
        open_source(alone / "drive.mcap")
    (alone / "drive.toml").write_text(FIELDS)
    assert is_bags(alone / "drive.mcap")
    table = open_source(alone / "drive.mcap").table
    with Images(table) as images:
        np.testing.assert_array_equal(images.at([3], "top")[0][0], SEEN[2])
    assert sets_in(alone) == [alone]


def test_what_mcap_ros2_support_reads(tmp_path: Path) -> None:
    """The file is by mcap's own writer, in chunks of Zstandard; the expected pixels are by mcap-ros2-support."""
    ros2 = pytest.importorskip("mcap_ros2.reader", reason="mcap-ros2-support is not installed")
    from mcap.writer import Writer as McapWriter

    with (tmp_path / "drive.mcap").open("wb") as file:
        writer = McapWriter(file, chunk_size=4096)
        writer.start("ros2", "a test")
        channels = {}
        for topic, kind, stamp, message in messages(BEGIN):
            if topic not in channels:
                text = store().generate_msgdef(kind, ros_version=2)[0].encode()
                schema = writer.register_schema(kind, "ros2msg", text)
                channels[topic] = writer.register_channel(topic, "cdr", schema)
            data = bytes(store().serialize_cdr(message, kind))
            writer.add_message(channels[topic], log_time=stamp, data=data, publish_time=stamp)
        writer.finish()
    (tmp_path / "fields.toml").write_text(FIELDS)
    entry = recognised(tmp_path / "drive.mcap")
    assert entry is not None
    assert entry.name == "bags"
    table = load_bags(tmp_path / "drive.mcap")
    theirs = [
        np.frombuffer(bytes(one.ros_msg.data), np.uint8).reshape(24, one.ros_msg.step)[:, :90].reshape(24, 30, 3)
        for one in ros2.read_ros2_messages(tmp_path / "drive.mcap", topics=["/top/image_raw"])
    ]
    with Images(table) as images:
        found, mask = images.at(np.arange(FRAMES), "top")
        np.testing.assert_array_equal(found[mask], np.stack(theirs)[:-1, ..., ::-1])
        assert mask.sum() == FRAMES - 1


def test_every_encoding() -> None:
    image = photos(5, 1, 24, 30, 3)[0]
    alpha = np.full((24, 30, 1), 9, np.uint8)
    grey = image[..., :1]
    for encoding, data, expected in (
        ("rgb8", image, image), ("bgr8", image[..., ::-1], image), ("8UC3", image[..., ::-1], image),
        ("rgba8", np.dstack([image, alpha]), image), ("bgra8", np.dstack([image[..., ::-1], alpha]), image),
        ("mono8", grey, grey.repeat(3, 2)), ("8UC1", grey, grey.repeat(3, 2)),
        ("mono16", np.dstack([alpha, grey]), grey.repeat(3, 2)),
    ):  # fmt: skip
        message = raw(0, data, encoding)
        np.testing.assert_array_equal(pixels_of_message(message, True, "x"), expected, err_msg=encoding)
        np.testing.assert_array_equal(pixels_of_message(message, False, "x"), expected[..., ::-1], err_msg=encoding)
    red = np.zeros((8, 8, 1), np.uint8)
    red[::2, ::2] = 200  # of RGGB: the first pixel of each pair of rows and columns is red
    mean = pixels_of_message(raw(0, red, "bayer_rggb8"), True, "x")[2:-2, 2:-2].mean((0, 1))
    assert mean[0] > 150 > 20 > max(mean[1:])
    yuyv = np.tile(np.array([81, 90, 81, 240], np.uint8).reshape(2, 2), (8, 4, 1))  # red, by BT.601
    assert np.abs(pixels_of_message(raw(0, yuyv, "yuv422_yuy2"), True, "x").astype(int) - [255, 0, 0]).max() <= 3
    for encoding in ("16UC1", "32FC1", "nonsense"):
        with pytest.raises(SourceError, match=f"encoded as '{encoding}', .* allowed are rgb8"):
            pixels_of_message(raw(0, grey, encoding), True, "x")
    short = raw(0, image)
    short.data = short.data[:100]
    with pytest.raises(SourceError, match="x has 100 bytes in rows of"):
        pixels_of_message(short, True, "x")
    depth = store().types[PRESSED](header(0), "16UC1; compressedDepth png", np.zeros(20, np.uint8))
    with pytest.raises(SourceError, match="are not a JPEG or PNG"):
        pixels_of_message(depth, True, "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[images.top]\ntopic = "/none"', "has no image of /none"),
        ('[images.top]\ntopic = "/joint_states"', "has sensor_msgs/msg/JointState, expected sensor_msgs/msg/Image or"),
        ('[images.Top]\ntopic = "/top/image_raw"', "in small letters, such as top"),
        ("[images]\ntop = 3", "images.top is 3, expected only a topic"),
        ('[images.a]\ntopic = "/t"\n[images.b]\ntopic = "/t"', "two cameras have the same topic"),
    ],
)
def test_a_wrong_camera_is_said(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path / "bag", messages(BEGIN))
    (tmp_path / "fields.toml").write_text(FIELDS.partition("[images.top]")[0] + text)
    with pytest.raises(SourceError, match=message), Images(load_bags(tmp_path)) as images:
        images.at([0], "top")
