"""Bytes and hashes of messages, compared with ROS 2's own and with damaged ones."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rlenv_ros2.messages import MAX_FIELD_BYTES, NO_HASH, TRIGGER, MessageError, MessageTypes, check_domain, dds_name

pytest.importorskip("rosbags")

HASHES = {  # as ROS 2 Jazzy has them, in lists of other projects that speak to rmw_zenoh
    "std_msgs/msg/String": "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18",
    "sensor_msgs/msg/JointState": "RIHS01_a13ee3a330e346c9d87b5aa18d24e11690752bd33a0350f11c5882bc9179260e",
    "geometry_msgs/msg/Twist": "RIHS01_9c45bf16fe0983d80e3cfe750d6835843d265a9a6c46bd2e609fcddde6fb8d2a",
    TRIGGER: "RIHS01_eeff2cd6fa5ad9d27cdf4dec64818317839b62f212a91e6b5304b634b2062c5f",
    f"{TRIGGER}_Request": "RIHS01_d010825374ce8918e72bfd826c82603e60f45419e932ea976f807b74a863a199",
}


@pytest.mark.parametrize("name", HASHES)
def test_hashes_are_those_of_ros2(name: str) -> None:
    assert MessageTypes("jazzy").hash_of(name) == HASHES[name]
    assert MessageTypes("humble").hash_of(name) == NO_HASH


def test_a_text_has_the_bytes_of_ros2() -> None:
    """The bytes that rmw_zenoh_cpp sends for "hi", and 5 bytes for an empty request."""
    types = MessageTypes()
    assert types.encode(types.make("std_msgs/msg/String", data="hi")).hex() == "0001000003000000686900"
    assert types.encode(types.make(f"{TRIGGER}_Request")).hex() == "0001000000"
    assert dds_name("std_msgs/msg/String") == "std_msgs::msg::dds_::String_"


def joint_state(types: MessageTypes) -> bytes:
    return types.encode(types.make(
        "sensor_msgs/msg/JointState", header=types.header(1_234_567_890, "base"), name=["pan", "lift"],
        position=np.array([1.0, 2.0]), velocity=np.zeros(0), effort=np.zeros(0),
    ))  # fmt: skip


def test_every_truncation_is_refused() -> None:
    types = MessageTypes()
    data = joint_state(types)
    for length in range(len(data)):
        with pytest.raises(MessageError, match="JointState"):
            types.decode(data[:length], "sensor_msgs/msg/JointState")


def test_damaged_bytes_are_refused_or_read_and_nothing_else_happens() -> None:
    types, source = MessageTypes(), random.Random(1)
    data = joint_state(types)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(source.randint(1, 8)):
            damaged[source.randrange(len(damaged))] = source.randrange(256)
        try:
            types.decode(bytes(damaged), "sensor_msgs/msg/JointState")
        except MessageError:
            refused += 1
    assert refused > 500


@pytest.mark.parametrize(
    "data", [b"", b"\0\1\0\0" + b"\xff" * 60, bytes(MAX_FIELD_BYTES + 1), b"\0\1\0\0" + b"\xff\xff\xff\x7f" * 40]
)
def test_lengths_that_lie_are_refused_at_once(data: bytes) -> None:
    with pytest.raises(MessageError):
        MessageTypes().decode(data, "trajectory_msgs/msg/JointTrajectory")


def test_unknown_types_distributions_and_domains_are_refused() -> None:
    with pytest.raises(MessageError, match="my_msgs"):
        MessageTypes().hash_of("my_msgs/msg/Thing")
    with pytest.raises(ValueError, match="jazzy"):
        MessageTypes("noetic")
    for domain in (-1, 233, True, "0"):
        with pytest.raises(ValueError, match="232"):
            check_domain(domain)  # type: ignore[arg-type]
