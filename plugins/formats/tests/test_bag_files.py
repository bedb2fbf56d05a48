"""Open ROS 1 bags, and renamed, loose and split ROS 2 bags; errors name what is missing and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from rlenv_formats.bag_mapping import EXAMPLE
from rlenv_formats.bag_proposal import proposed_mapping
from rlenv_formats.bags import is_bags, load_bags
from rlenv_robot import open_source
from rlenv_robot.cli.main import main

pytest.importorskip("rosbags", reason="rosbags is not installed")

from rosbags.rosbag1 import Writer as Writer1
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from .test_bags import MS, usual, write_bag

OWN = "float64[] tension\nstring note\n"


def ros1() -> Any:
    """Return the message types of ROS 1, with one that only the bag itself defines."""
    store = get_typestore(Stores.ROS1_NOETIC)
    store.register(get_types_from_msg(OWN, "my_arm/msg/Tensions"))
    return store


def write_ros1(path: Path, frames: int = 6, begin: int = 10**12, compression: str | None = None) -> np.ndarray:
    """Write joint states, a command, a type of its own and images at 20 Hz; return the images' colours."""
    store, rng = ros1(), np.random.default_rng(0)
    types = store.types
    time, header = types["builtin_interfaces/msg/Time"], types["std_msgs/msg/Header"]
    colours = rng.integers(0, 255, (frames, 1, 1, 3)).astype(np.uint8)
    writer = Writer1(path)
    if compression:
        writer.set_compression(Writer1.CompressionFormat[compression])
    with writer:
        kinds = {
            "/joint_states": "sensor_msgs/msg/JointState", "/arm/command": "geometry_msgs/msg/Point",
            "/tensions": "my_arm/msg/Tensions", "/camera/image_raw": "sensor_msgs/msg/Image",
        }  # fmt: skip
        topics = {name: writer.add_connection(name, kind, typestore=store) for name, kind in kinds.items()}
        for k in range(frames):
            stamp = begin + k * 50 * MS
            head = header(k, time(stamp // 10**9, stamp % 10**9), "")
            pixels = np.broadcast_to(colours[k], (4, 5, 3)).reshape(-1)
            messages = {
                "/joint_states": types[kinds["/joint_states"]](
                    head, ["pan", "lift"], np.array([k, -k], float), np.zeros(0), np.zeros(0)
                ),
                "/arm/command": types[kinds["/arm/command"]](k + 0.5, k + 0.25, 0.0),
                "/tensions": types[kinds["/tensions"]](np.array([k, k * 0.1, 3.0]), "firm"),
                "/camera/image_raw": types[kinds["/camera/image_raw"]](head, 4, 5, "rgb8", 0, 15, pixels),
            }
            for name, message in messages.items():
                writer.write(topics[name], stamp + MS, store.serialize_ros1(message, kinds[name]))
    return colours


ROS1_FIELDS = """
rate_hz = 20
[observation.q]
topic = "/joint_states"
path = "position"
names = "name"
select = ["lift", "pan"]
dtype = "float64"
[observation.tension]
topic = "/tensions"
path = "tension"
dtype = "float64"
[action.aim]
topic = "/arm/command"
path = ["x", "y"]
dtype = "float64"
[images.top]
topic = "/camera/image_raw"
"""


@pytest.mark.parametrize("compression", [None, "BZ2", "LZ4"])
def test_a_ros1_bag_opens_with_its_own_definitions(tmp_path: Path, compression: str | None) -> None:
    colours = write_ros1(tmp_path / "drive.bag", compression=compression)
    (tmp_path / "drive.toml").write_text(ROS1_FIELDS)
    source = open_source(tmp_path / "drive.bag")
    rows = source.table.rows
    assert rows["observation_q"].tolist() == [[-k, k] for k in range(6)]
    assert rows["observation_tension"].tolist() == [[k, k * 0.1, 3.0] for k in range(6)]
    assert rows["action_aim"][1:].tolist() == [[k + 0.5, k + 0.25] for k in range(5)]
    assert source.table.layout.action["aim"].elements == ("x", "y")
    images = source.table.open_images(tmp_path)
    numbers = images.numbers("top", rows, "before", 1e12)
    for k, number in enumerate(numbers):
        np.testing.assert_array_equal(images.decode("top", int(number), True)[0, 0], colours[k, 0, 0])
    assert rows["stamp_ns"][0] == 10**12 + MS
    stamped = 'clock = "header"' + ROS1_FIELDS.split("[observation.tension]")[0]
    (tmp_path / "drive.toml").write_text(stamped)
    assert load_bags(tmp_path / "drive.bag").rows["stamp_ns"][0] == 10**12


def test_a_bag_that_was_not_closed_is_refused(tmp_path: Path) -> None:
    write_ros1(tmp_path / "drive.bag")
    data = bytearray((tmp_path / "drive.bag").read_bytes())
    at = data.index(b"index_pos=") + len(b"index_pos=")
    data[at : at + 8] = bytes(8)
    (tmp_path / "drive.bag").write_bytes(data)
    (tmp_path / "fields.toml").write_text(ROS1_FIELDS)
    with pytest.raises(SourceError, match="rosbag reindex"):
        load_bags(tmp_path)


@pytest.mark.parametrize("plugin", ["sqlite", "mcap"])
def test_a_renamed_bag_opens(tmp_path: Path, plugin: str) -> None:
    write_bag(tmp_path / "bag", usual(), plugin)
    (tmp_path / "fields.toml").write_text(EXAMPLE)
    plain = load_bags(tmp_path / "bag")
    (file,) = (one for one in (tmp_path / "bag").iterdir() if one.suffix in (".db3", ".mcap"))
    renamed = file.rename(file.with_name(f"monday{file.suffix}"))
    table = load_bags(tmp_path / "bag")
    assert table.rows.tobytes() == plain.rows.tobytes()
    assert any(file.name in note and renamed.name in note for note in table.notes)
    renamed.unlink()
    with pytest.raises(SourceError, match=file.name):
        load_bags(tmp_path / "bag")


@pytest.mark.parametrize(("gap", "episodes"), [(0, 1), (5 * 10**9, 2)])
def test_parts_of_a_split_bag_are_one_episode(tmp_path: Path, gap: int, episodes: int) -> None:
    """Numbered files without metadata.yaml are one bag where one begins when the other ends."""
    messages = usual(24)
    half = len(messages) // 2
    parts = [messages[:half], [(topic, stamp + gap, message) for topic, stamp, message in messages[half:]]]
    for number, part in enumerate(parts):
        write_bag(tmp_path / f"part{number}", part, "mcap")
        (file,) = (tmp_path / f"part{number}").glob("*.mcap")
        file.rename(tmp_path / f"drive_{number}.mcap")
        (tmp_path / f"part{number}" / "metadata.yaml").unlink()
    (tmp_path / "fields.toml").write_text(EXAMPLE)
    assert is_bags(tmp_path)
    table = load_bags(tmp_path)
    assert len(table.starts) == episodes
    if not gap:
        write_bag(tmp_path / "whole" / "bag", messages, "mcap")
        whole = load_bags(tmp_path / "whole", tmp_path / "fields.toml")
        assert table.rows.tobytes() == whole.rows.tobytes()
        assert any("one split bag" in note for note in table.notes)
        (tmp_path / "drive_0.mcap").unlink()
        (note,) = load_bags(tmp_path).notes
        assert note.startswith("drive_1.mcap: drive_0.mcap is not there")


def test_the_error_names_each_place_of_the_mapping(tmp_path: Path) -> None:
    write_ros1(tmp_path / "drive.bag")
    with pytest.raises(SourceError) as caught:
        open_source(tmp_path / "drive.bag")
    for word in ("drive.toml", "fields.toml", "/tensions (my_arm/msg/Tensions)", "data fields"):
        assert word in str(caught.value)


def test_a_shape_is_that_of_the_first_message(tmp_path: Path) -> None:
    write_bag(tmp_path / "bag", usual())
    (tmp_path / "fields.toml").write_text(EXAMPLE.replace("shape = [2]", "#"))
    field = load_bags(tmp_path).layout.action["joint_target"]
    assert (field.shape, field.elements) == ((2,), ("pose.position.x", "pose.position.y"))
    (tmp_path / "fields.toml").write_text(EXAMPLE.replace("shape = [2]", "#").replace("position.y", "position.up"))
    with pytest.raises(SourceError, match="which has x, y, z"):
        load_bags(tmp_path)


@pytest.mark.parametrize("kind", ["ros1", "ros2"])
def test_a_proposed_mapping_opens_the_bag(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    if kind == "ros1":
        colours = write_ros1(tmp_path / "drive.bag", 40)
    else:
        write_bag(tmp_path / "bag", usual(40))
    assert main(["data", "fields", str(tmp_path), "--out", str(tmp_path / "fields.toml")]) == 0
    assert "wrote" in capsys.readouterr().out
    assert (
        main(["data", "fields", str(tmp_path), "--out", str(tmp_path / "fields.toml")]) == 2
    )  # nothing is overwritten
    table = load_bags(tmp_path)
    if kind == "ros1":
        assert table.layout.observation.names == ("joint_states_position", "tensions_tension")
        assert table.layout.action.names == ("arm_command",)
        assert table.rows["observation_tensions_tension"][7].tolist() == [7, 0.7000000000000001, 3.0]
        images = table.open_images(tmp_path)
        number = images.numbers("camera_image_raw", table.rows[:1], "before", 1e12)[0]
        np.testing.assert_array_equal(images.decode("camera_image_raw", int(number), True)[0, 0], colours[0, 0, 0])
    else:
        assert set(table.layout.observation.names) == {"joint_states_position", "score"}
        assert table.layout.observation["joint_states_position"].elements == ("gripper", "lift", "pan")
    with pytest.raises(SourceError, match="holds no ROS bag"):
        proposed_mapping(tmp_path / "nothing")
