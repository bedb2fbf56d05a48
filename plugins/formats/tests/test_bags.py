from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import SourceError
from rlenv_formats.bag_mapping import EXAMPLE, read_mapping
from rlenv_formats.bags import is_bags, load_bags

pytest.importorskip("rosbags", reason="rosbags is not installed")

from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore
from ruamel.yaml import YAML


@functools.cache
def store() -> Typestore:
    """Return the message types of ROS 2 Humble; loading them takes a second."""
    return get_typestore(Stores.ROS2_HUMBLE)


STATE, POSE, NUMBER = "sensor_msgs/msg/JointState", "geometry_msgs/msg/PoseStamped", "std_msgs/msg/Float64"
PLUGINS = {"sqlite": StoragePlugin.SQLITE3, "mcap": StoragePlugin.MCAP}
MS = 1_000_000


def header(stamp: int) -> Any:
    time = store().types["builtin_interfaces/msg/Time"](sec=stamp // 10**9, nanosec=stamp % 10**9)
    return store().types["std_msgs/msg/Header"](stamp=time, frame_id="")


def state(stamp: int, pan: float, lift: float) -> Any:
    position = np.array([9.0, lift, pan])
    return store().types[STATE](header(stamp), ["gripper", "lift", "pan"], position, np.zeros(0), np.zeros(0))


def pose(stamp: int, x: float, y: float) -> Any:
    point = store().types["geometry_msgs/msg/Point"](x, y, 0.0)
    turn = store().types["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0)
    return store().types[POSE](header(stamp), store().types["geometry_msgs/msg/Pose"](point, turn))


def number(value: float) -> Any:
    return store().types[NUMBER](value)


KINDS = {"/joint_states": STATE, "/command": POSE, "/score": NUMBER}


def write_bag(path: Path, messages: list[tuple[str, int, Any]], plugin: str = "mcap") -> None:
    path.parent.mkdir(exist_ok=True)
    with Writer(path, version=9, storage_plugin=PLUGINS[plugin]) as writer:
        topics = {
            topic: writer.add_connection(topic, KINDS[topic], typestore=store())
            for topic in {one[0] for one in messages}
        }
        for topic, stamp, message in messages:
            writer.write(topics[topic], stamp, store().serialize_cdr(message, KINDS[topic]))


def usual(frames: int = 6, begin: int = 10**12) -> list[tuple[str, int, Any]]:
    """States every 10 ms, a command every 50 ms, 3 ms after a row; a score every 50 ms, at once."""
    messages: list[tuple[str, int, Any]] = []
    for k in range(frames * 5):
        stamp = begin + k * 10 * MS
        messages.append(("/joint_states", stamp, state(stamp, k, -k)))
        if k % 5 == 0:
            messages.append(("/score", stamp - 1, number(k / 5)))
            messages.append(("/command", stamp + 3 * MS, pose(stamp, 100 + k, 200 + k)))
    return sorted(messages, key=lambda one: one[1])


@pytest.mark.parametrize("plugin", list(PLUGINS))
@pytest.mark.requirement("R3.1")
def test_topics_become_rows(tmp_path: Path, plugin: str) -> None:
    for name, begin in (("first", 10**12), ("second", 2 * 10**12)):
        write_bag(tmp_path / "bags" / name, usual(begin=begin), plugin)
    (tmp_path / "bags" / "fields.toml").write_text(EXAMPLE)
    assert is_bags(tmp_path / "bags")
    assert is_bags(tmp_path / "bags" / "first")
    table = load_bags(tmp_path / "bags")
    assert (table.starts.tolist(), table.stops.tolist()) == ([0, 6], [6, 12])
    assert [info["bag"] for info in table.episodes] == ["first", "second"]
    rows = table.rows[:6]
    assert (rows["stamp_ns"] - 10**12).tolist() == [k * 50 * MS for k in range(6)]
    assert rows["observation_joint_position"].tolist() == [[5 * k, -5 * k] for k in range(6)]  # chosen by name
    assert rows["action_joint_target"][1:].tolist() == [[100 + 5 * k, 200 + 5 * k] for k in range(5)]  # 3 ms after
    assert rows["reward"][1:].tolist() == [1, 2, 3, 4, 5]
    assert rows["truncated"].tolist() == [0, 0, 0, 0, 0, 1]
    field = table.layout.observation["joint_position"]
    assert (field.elements, field.unit) == (("pan", "lift"), "rad")
    assert table.notes == ()


@pytest.mark.parametrize("early", [True, False])
def test_frames_without_any_observation_at_an_end_are_told(tmp_path: Path, early: bool) -> None:
    """The states begin late, or end early, as where a file of a split bag lost their topic."""
    messages = [one for one in usual(20) if one[0] != "/joint_states" or (one[1] < 10**12 + 500 * MS) is not early]
    write_bag(tmp_path / "bag", messages)
    (tmp_path / "fields.toml").write_text(EXAMPLE)
    table = load_bags(tmp_path)
    assert len(table.rows) == 10
    (note,) = table.notes
    assert note == "bag: 9 of its frames are left out, a value was too old or missing there"


def test_messages_that_only_the_description_has_are_told(tmp_path: Path) -> None:
    write_bag(tmp_path / "bag", usual())
    (tmp_path / "fields.toml").write_text(EXAMPLE)
    path, yaml = tmp_path / "bag" / "metadata.yaml", YAML(typ="safe")
    about = yaml.load(path.read_text())
    for one in about["rosbag2_bagfile_information"]["topics_with_message_count"]:
        one["message_count"] += 2 * (one["topic_metadata"]["name"] == "/command")
    yaml.dump(about, path)
    assert load_bags(tmp_path).notes == ("bag: 2 described messages of /command are missing",)


def test_a_bag_without_a_mapped_camera_is_told(tmp_path: Path) -> None:
    write_bag(tmp_path / "bag", usual())
    (tmp_path / "fields.toml").write_text(EXAMPLE + '\n[images.side]\ntopic = "/side/image"\n')
    notes = load_bags(tmp_path).notes
    assert any("bag has no topic /side/image for the images of side; it has /" in note for note in notes)


def test_an_old_value_cuts_the_episode(tmp_path: Path) -> None:
    messages = [one for one in usual(20) if not (one[0] == "/joint_states" and 200 * MS <= one[1] - 10**12 < 500 * MS)]
    write_bag(tmp_path / "bag", messages)
    (tmp_path / "fields.toml").write_text(EXAMPLE)
    table = load_bags(tmp_path)
    # States end at 190 ms and are fresh up to 290 ms; they begin anew at 500 ms.
    stamps = [
        ((table.rows["stamp_ns"][a:b] - 10**12) // MS).tolist() for a, b in zip(table.starts, table.stops, strict=True)
    ]
    assert stamps == [[0, 50, 100, 150, 200, 250], list(range(500, 1000, 50))]
    assert [info["end"] for info in table.episodes] == ["gap", "end of recording"]
    assert table.notes == ("bag: 4 of its frames are left out, a value was too old or missing there",)
    messages = [one for one in usual(20) if one[0] != "/command" or one[1] > 10**12 + 300 * MS]
    write_bag(tmp_path / "late" / "bag", messages)
    late = load_bags(tmp_path / "late", tmp_path / "fields.toml")
    assert (late.rows["stamp_ns"][0] - 10**12) // MS == 300  # the command of 303 ms led to the row of 350 ms


def test_the_stamp_in_a_message(tmp_path: Path) -> None:
    sent = [one for one in usual() if one[0] != "/score"]
    delays = np.random.default_rng(0).integers(0, 60, len(sent))  # so that they are recorded out of order
    messages = [
        (topic, stamp + int(late) * MS, message) for (topic, stamp, message), late in zip(sent, delays, strict=True)
    ]
    write_bag(tmp_path / "bag", messages)
    text = EXAMPLE.replace('"log"', '"header"').split("[reward]")[0]
    (tmp_path / "fields.toml").write_text(text)
    table = load_bags(tmp_path)
    assert table.rows["stamp_ns"][0] == 10**12
    assert table.rows["observation_joint_position"].tolist() == [[5 * k, -5 * k] for k in range(6)]
    assert np.isnan(table.rows["reward"][1:]).all()
    assert any("no rewards were recorded" in note for note in table.notes)


def any_step(stamps: np.ndarray, period: int, age: int) -> bool:
    """Whether two rows follow one another, by the plainest reckoning; if not, it is an error."""

    def fresh(now: int, seen: np.ndarray) -> bool:
        return len(seen) > 0 and now - int(seen[-1]) <= age

    for now in range(int(stamps[0]), int(stamps[-1]) - period + 1, period):
        after = now + period
        both = fresh(now, stamps[stamps <= now]) and fresh(after, stamps[stamps <= after])
        if both and fresh(after, stamps[stamps < after]):
            return True
    return False


@given(st.lists(st.integers(1, 120), min_size=3, max_size=40), st.integers(10, 100), st.integers(5, 200))
def test_every_value_is_the_latest_and_none_is_too_old(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[int], period: int, age: int
) -> None:
    folder = tmp_path_factory.mktemp("bags")
    stamps = 10**12 + np.cumsum(gaps) * MS
    messages = [("/score", int(stamp), number(float(k))) for k, stamp in enumerate(stamps)]
    write_bag(folder / "bag", messages)
    source = f'topic = "/score"\npath = "data"\ndtype = "float64"\nmax_age_s = {age / 1000}\n'
    (folder / "fields.toml").write_text(f"rate_hz = {1000 / period!r}\n[observation.x]\n{source}[action.y]\n{source}")
    if not any_step(stamps, period * MS, age * MS):
        with pytest.raises(SourceError, match="no two frames in a row"):
            load_bags(folder)
        return
    for row in load_bags(folder).rows:
        now = row["stamp_ns"]
        seen = np.flatnonzero(stamps <= now)[-1]
        assert row["observation_x"] == seen
        assert now - stamps[seen] <= age * MS
        if row["acted"]:
            led = np.flatnonzero(stamps < now)[-1]
            assert row["action_y"] == led
            assert now - stamps[led] <= age * MS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rate_hz = 20", "rate_hz = 0"), "rate_hz is 0, expected a number above 0"),
        (('clock = "log"', 'clock = "sun"'), "clock is 'sun', allowed are 'log' and 'header'"),
        (
            ('topic = "/score"', 'topic = "/scores"'),
            "has no message of /scores; it has /command, /joint_states, /score",
        ),
        (
            ('path = "position"', 'path = "positions"'),
            "has no 'positions': no 'positions' in .*, which has header, name",
        ),
        (('"pan", "lift"', '"pan", "elbow"'), "has no elbow, it names gripper, lift, pan"),
        (("shape = [2]", "shape = [3]"), r"joint_target has shape \(3,\), a message of /command does not fit"),
        (('unit = "rad"', 'units = "rad"'), "joint_position: units is unknown, allowed are shape, dtype"),
        (('names = "name"', ""), "select and names go together"),
        (("[action.joint_target]", "[actions.joint_target]"), "actions is unknown"),
        (("rate_hz = 20", 'rate_hz = 20\ntypestore = "ros3"'), "typestore is 'ros3', allowed are"),
        (("shape = [2]", "shape = [0]"), "must hold positive whole numbers"),
    ],
)
def test_a_wrong_mapping_is_said(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    write_bag(tmp_path / "bag", usual())
    assert change[0] in EXAMPLE
    (tmp_path / "fields.toml").write_text(EXAMPLE.replace(*change))
    with pytest.raises(SourceError, match=message):
        load_bags(tmp_path)


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="holds no ROS bag"):
        load_bags(tmp_path)
    write_bag(tmp_path / "bag", usual())
    with pytest.raises(SourceError, match=r"fields\.toml .*/command \(geometry_msgs/msg/PoseStamped\)"):
        load_bags(tmp_path)
    (tmp_path / "fields.toml").write_text("rate_hz = [")
    with pytest.raises(SourceError, match="is not TOML"):
        load_bags(tmp_path)
    (tmp_path / "fields.toml").write_text(EXAMPLE)
    assert read_mapping(tmp_path / "fields.toml").period_ns == 50 * MS
    next((tmp_path / "bag").glob("*.mcap")).write_bytes(b"nonsense")
    with pytest.raises(SourceError, match="can't be read"):
        load_bags(tmp_path)
    monkeypatch.setitem(sys.modules, "rosbags.highlevel", None)
    with pytest.raises(SourceError, match=r"needs rosbags: pip install 'rlenv-robot\[bags\]'"):
        load_bags(tmp_path)
