"""The messages have the vendor's layout as C structures, and on the wire what cyclonedds itself writes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.errors import WireError
from rlenv_unitree.messages import (
    GO_LOW_CMD,
    GO_LOW_STATE,
    HG_LOW_CMD,
    HG_LOW_STATE,
    MODE_ON,
    POS_STOP,
    VEL_STOP,
    Message,
    Record,
    go_command,
    hg_command,
)

MESSAGES = (GO_LOW_CMD, GO_LOW_STATE, HG_LOW_CMD, HG_LOW_STATE)
IDS = [message.typename for message in MESSAGES]

# Formats of the vendor's C structures (unitree_sdk2_python 37116c5, utils/crc.py); B and H where its IDL is unsigned.
STRUCTURES = {
    GO_LOW_CMD: "<4B4IH2x" + "B3x5f3I" * 20 + "4B" + "55Bx2I",
    GO_LOW_STATE: "<4B4IH2x" + "13fB3x" + "B3x7fB3x3I" * 20 + "4BiH4B15H" + "8hI41B3xf2B2x2f4H2I",
    HG_LOW_CMD: "<2B2x" + "B3x5fI" * 35 + "5I",
    HG_LOW_STATE: "<2I2B2xI" + "13fh2x" + "B3x4f2hf7I" * 35 + "40B5I",
}


def plain(message: Message, values: Any) -> Any:
    """Return the members of a record as plain objects, as cyclonedds's own conversion takes them."""

    def member_of(kind: str | Message, value: Any) -> Any:
        if isinstance(kind, Message):
            return [plain(kind, each) for each in value] if value.ndim else plain(kind, value)
        return value.tolist()

    return SimpleNamespace(**{name: member_of(kind, values[name]) for name, kind, _ in message.members})


def numbers(message: Message, values: Any) -> Iterator[float]:
    """Yield all numbers of a record in order."""
    for name, kind, _ in message.members:
        for value in np.atleast_1d(values[name]):
            if isinstance(kind, Message):
                yield from numbers(kind, value)
            else:
                yield value.item()


def random_record(message: Message, seed: int) -> Record:
    """Return a message of random numbers."""
    rng = np.random.default_rng(seed)

    def fill(message: Message, record: Any) -> None:
        for name, kind, _ in message.members:
            if isinstance(kind, Message):
                fill(kind, record[name])
            elif kind == "f4":
                record[name] = rng.normal(size=record[name].shape)
            else:
                bounds = np.iinfo(kind)
                record[name] = rng.integers(bounds.min, bounds.max, record[name].shape, kind, endpoint=True)

    record = message.new()
    fill(message, record)
    return record


@pytest.mark.parametrize("message", MESSAGES, ids=IDS)
def test_members_lie_where_the_vendors_structure_has_them(message: Message) -> None:
    record = random_record(message, 0)
    assert record.tobytes() == struct.pack(STRUCTURES[message], *numbers(message, record))


@pytest.mark.parametrize("message", MESSAGES, ids=IDS)
def test_bytes_on_the_wire_are_those_of_cyclonedds(message: Message) -> None:
    pytest.importorskip("cyclonedds", reason="pip install 'rlenv-robot[unitree]'")
    from rlenv_unitree.channel import idl_type

    for seed in range(5):
        record = random_record(message, seed)
        assert message.to_wire(record) == idl_type(message).__idl__.serialize(plain(message, record))


@pytest.mark.parametrize("message", MESSAGES, ids=IDS)
@given(seed=st.integers(0, 2**32 - 1))
def test_messages_come_back_from_the_wire(message: Message, seed: int) -> None:
    record = random_record(message, seed)
    assert message.from_wire(message.to_wire(record)).tobytes() == record.tobytes()


def test_other_encodings_and_lengths_are_refused() -> None:
    data = GO_LOW_CMD.to_wire(go_command())
    for wrong in (data[:-1], data + b"\0", b"\0\0" + data[2:], b"", HG_LOW_CMD.to_wire(HG_LOW_CMD.new())):
        with pytest.raises(WireError, match=r"unitree_go.msg.dds_.LowCmd_: got .* expected 812"):
            GO_LOW_CMD.from_wire(wrong)


def test_new_commands_give_no_torque() -> None:
    go, hg = go_command(), hg_command(mode_machine=5)
    for command in (go, hg):
        motors = command["motor_cmd"]
        assert (motors["mode"] == MODE_ON).all()
        assert not any(motors[name].any() for name in ("kp", "kd", "tau"))
    assert (go["motor_cmd"]["q"] == np.float32(POS_STOP)).all()
    assert (go["motor_cmd"]["dq"] == np.float32(VEL_STOP)).all()
    assert (go["head"].tolist(), int(go["level_flag"])) == ([0xFE, 0xEF], 0xFF)
    assert (int(hg["mode_machine"]), int(hg["mode_pr"])) == (5, 0)
