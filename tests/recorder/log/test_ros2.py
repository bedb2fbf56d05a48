"""Strangers decode our rows: mcap-ros2-support and rosbags read the very values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcap_ros2._dynamic import generate_dynamic
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from hal import Field, Image, LogError, Spec
from hal.field import DTYPES
from recorder.log.ros2 import (
    COMPRESSED_IMAGE,
    EPISODE,
    HEADER,
    JOINT_STATE,
    CdrReader,
    JointStates,
    MessageType,
    compressed_image,
    message_type,
    note,
    read_compressed_image,
    read_note,
)

NAMES = st.from_regex(r"[a-z](_?[a-z0-9]){0,12}", fullmatch=True)


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    names = draw(st.lists(NAMES, min_size=1, max_size=8, unique=True))
    fields = []
    for name in names:
        shape = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
        meaning = draw(st.text(max_size=30))
        fields.append(Field(name, shape, draw(st.sampled_from(DTYPES)), unit="rad/s", meaning=meaning))
    return Spec("random", tuple(fields))


def by_mcap_ros2(kind: MessageType, message: bytes) -> Any:
    return generate_dynamic(kind.name, kind.definition)[kind.name](message)


def by_rosbags(kind: MessageType, message: bytes) -> Any:
    store = get_typestore(Stores.ROS2_HUMBLE if kind.name.startswith("sensor_msgs") else Stores.EMPTY)
    if not kind.name.startswith("sensor_msgs"):
        store.register(get_types_from_msg(kind.definition, kind.name))
    return store.deserialize_cdr(message, kind.name)


READERS = pytest.mark.parametrize("read", [by_mcap_ros2, by_rosbags])


@READERS
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spec=specs(), seed=st.integers(0, 2**32 - 1))
def test_a_row_is_a_message(read: Any, spec: Spec, seed: int) -> None:
    values = spec.sample(np.random.default_rng(seed))
    decoded = read(message_type(spec), HEADER + spec.pack(values))
    for name, value in values.items():
        got = np.asarray(bytearray(x) if isinstance(x := getattr(decoded, name), bytes) else x)
        np.testing.assert_array_equal(got.reshape(value.shape), value)


def test_definition_says_unit_meaning_and_elements() -> None:
    spec = Spec("s", (Field("small", (), "uint8"), Field("pose", (2, 2), "float32", unit="m", meaning="where\nit is")))
    assert message_type(spec).definition == "float32[4] pose  # [m] where it is shape 2x2\nuint8 small\n"


@READERS
def test_episode_note(read: Any) -> None:
    message = note("begin", 7, '{"goal": [1, 2]}')
    decoded = read(EPISODE, message)
    assert (decoded.kind, decoded.episode, decoded.data) == ("begin", 7, '{"goal": [1, 2]}')
    assert read_note(message) == ("begin", 7, '{"goal": [1, 2]}')


@given(st.text().filter(lambda text: "\x00" not in text), st.integers(-(2**31), 2**31 - 1), st.text(alphabet="aé€"))
def test_note_round_trip(kind: str, episode: int, data: str) -> None:
    assert read_note(note(kind, episode, data)) == (kind, episode, data)


@READERS
def test_image(read: Any) -> None:
    image = Image(b"\xff\xd8abc", "jpeg", 12_000_000_345)
    message = compressed_image(image, "wrist")
    decoded = read(COMPRESSED_IMAGE, message)
    assert (decoded.header.stamp.sec, decoded.header.stamp.nanosec) == (12, 345)
    assert (decoded.header.frame_id, decoded.format, bytes(decoded.data)) == ("wrist", "jpeg", b"\xff\xd8abc")
    assert read_compressed_image(message) == image


@READERS
@pytest.mark.parametrize("velocity", [True, False])
def test_joint_states(read: Any, velocity: bool) -> None:
    fields = [Field("sensor_joint_position", (3,), elements=("a", "bc", "def"))]
    fields += [Field("sensor_joint_velocity", (3,))] * velocity
    spec = Spec("frame", tuple(fields))
    values = spec.sample(np.random.default_rng(0))
    assert JointStates.possible(spec)
    decoded = read(JOINT_STATE, JointStates(spec).message(spec.pack(values), 5_000_000_009))
    assert (decoded.header.stamp.sec, decoded.header.stamp.nanosec) == (5, 9)
    assert list(decoded.name) == ["a", "bc", "def"]
    np.testing.assert_array_equal(decoded.position, values["sensor_joint_position"])
    np.testing.assert_array_equal(decoded.velocity, values["sensor_joint_velocity"] if velocity else [])
    assert len(decoded.effort) == 0


@given(st.binary(max_size=64))
def test_garbage_is_a_log_error_or_a_note(garbage: bytes) -> None:
    try:
        kind, episode, data = read_note(garbage)
    except LogError:
        return
    assert isinstance(kind, str)
    assert math.isfinite(episode)
    assert isinstance(data, str)


def test_only_little_endian() -> None:
    with pytest.raises(LogError, match="little-endian CDR with 00 01"):
        CdrReader(b"\x00\x00\x00\x00")
