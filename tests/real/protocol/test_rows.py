"""Rows and readings survive the wire bit by bit; damaged ones are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Fault, Field, Image, RobotSpec, RobotState, Spec, WireError
from hal.field import DTYPES
from hal.robots.so101 import SO101
from real.protocol.messages import MessageKind, decode, encode
from real.protocol.rows import RobotStateCodec, RowCodec

fields = st.builds(
    lambda shape, dtype: (tuple(shape), dtype), st.lists(st.integers(1, 3), max_size=2), st.sampled_from(DTYPES)
)
specs = st.lists(fields, max_size=6).map(
    lambda parts: Spec("any", tuple(Field(f"f{n}", shape, dtype) for n, (shape, dtype) in enumerate(parts)))
)


def same(first, second):
    assert list(first) == list(second)
    for name in first:
        assert first[name].dtype == second[name].dtype
        np.testing.assert_array_equal(first[name], second[name])


@given(specs, st.integers(0, 2**32))
def test_any_row_comes_back(spec, seed):
    values = spec.sample(np.random.default_rng(seed))
    values = {name: np.asarray(value) for name, value in values.items()}
    codec = RowCodec(spec)
    packed = codec.pack(values)
    assert packed == spec.pack(values), "the row that Spec lays out"
    same(codec.read(packed), values)


@given(specs, specs, st.integers(0, 2**32), st.integers(0, 2**62), st.lists(st.text(max_size=20), max_size=3))
def test_any_reading_comes_back(sensors, commands, seed, stamp_ns, faults):
    rng = np.random.default_rng(seed)
    codec = RobotStateCodec(RobotSpec("any", sensors, commands, 10))
    arrays = [{name: np.asarray(value) for name, value in spec.sample(rng).items()} for spec in (sensors, commands)]
    images = {"a": Image(rng.integers(0, 255, (2, 3, 3), np.uint8), "rgb8", 1), "b": Image(b"\xff", "jpeg", 2)}
    for robot_state in (
        RobotState(*arrays, stamp_ns),
        RobotState(*arrays, stamp_ns, {"f0": 17}, images, tuple(Fault("", "", text) for text in faults)),
    ):
        message = decode(encode(MessageKind.READING, 1, 1, *codec.encode(robot_state)))
        got = codec.decode(message.detail, message.frames)
        same(got.sensors, robot_state.sensors)
        same(got.applied, robot_state.applied)
        assert (got.stamp_ns, got.age_ns, got.faults) == (stamp_ns, robot_state.age_ns, robot_state.faults)
        assert got.images.keys() == robot_state.images.keys()
        for name, image in robot_state.images.items():
            assert got.images[name][1:] == image[1:]
            np.testing.assert_array_equal(got.images[name].data, image.data)


def test_a_row_of_another_length_is_refused():
    codec = RowCodec(SO101.commands)
    for length in (0, 23, 25):
        with pytest.raises(WireError, match=f"has {length} bytes, it must have 24"):
            codec.read(bytes(length))


@pytest.mark.parametrize(
    ("value", "problem"),
    [(np.float32(0), "of shape ()"), (np.zeros(5, np.float32), "of shape (5,)"), ([0.0] * 6, "of shape (6,)")],
)
def test_a_value_of_another_shape_is_never_spread(value, problem):
    with pytest.raises(WireError) as caught:
        RowCodec(SO101.commands).pack({"joint_target": value})
    assert problem in str(caught.value)


def good():
    sensors = {field.name: np.zeros(field.shape, field.dtype) for field in SO101.sensors}
    robot_state = RobotState(sensors, {"joint_target": np.zeros(6, np.float32)}, 5, {"joint_position": 3})
    return RobotStateCodec(SO101).encode(robot_state)


@pytest.mark.parametrize(
    "damage",
    [
        lambda detail, frames: (detail[:3], frames),
        lambda detail, frames: (None, frames),
        lambda detail, frames: (detail, []),
        lambda detail, frames: (detail, [frames[0][:-1]]),
        lambda detail, frames: (detail, [*frames, b"a picture nobody announced"]),
        lambda detail, frames: (["late", *detail[1:]], frames),
        lambda detail, frames: ([detail[0], [1, 2], None, None], frames),
        lambda detail, frames: ([*detail[:3], [["a", "rgb8", 1, [2, 2, 3]]]], [*frames, bytes(11)]),
        lambda detail, frames: ([*detail[:3], [["a", "rgb8", 1, [-1, -12, 1]]]], [*frames, bytes(12)]),
        lambda detail, frames: ([*detail[:3], [["a", "pickle", 1, None]]], [*frames, bytes(12)]),
        lambda detail, frames: ([*detail[:3], [["a"]]], [*frames, bytes(12)]),
        lambda detail, frames: ([*detail[:3], [["a", "rgb8", 1, 7]]], [*frames, bytes(12)]),
        lambda detail, frames: ([*detail[:3], {"a": 1}], [*frames, bytes(12)]),
    ],
)
def test_a_damaged_reading_is_refused(damage):
    detail, frames = good()
    with pytest.raises(WireError):
        RobotStateCodec(SO101).decode(*damage(detail, frames))
