"""The checksum is the vendor's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlenv_unitree.crc import checksum, crc32, is_valid, sign
from rlenv_unitree.messages import GO_LOW_CMD, HG_LOW_CMD, Record, go_command


def go_default() -> Record:
    """Return the vendor's default command with its head, as its examples send it."""
    record = GO_LOW_CMD.new()
    record["head"], record["level_flag"] = (0xFE, 0xEF), 0xFF
    return record


def bit_by_bit(words: list[int]) -> int:
    """Compute the checksum as a shift register does, bit by bit."""
    register = 0xFFFFFFFF
    for word in words:
        for bit in range(31, -1, -1):
            carry = (register >> 31) ^ (word >> bit & 1)
            register = (register << 1 & 0xFFFFFFFF) ^ (0x04C11DB7 * carry)
    return register


def test_vectors_of_the_vendors_library() -> None:
    assert crc32(np.array([1, 2, 3], np.uint32)) == 0x64C51784
    assert checksum(go_default()) == 0x322AC991
    assert checksum(HG_LOW_CMD.new()) == 0xFE172F9F


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40))
def test_it_is_the_shift_registers(words: list[int]) -> None:
    assert crc32(np.array(words, np.uint32)) == bit_by_bit(words)


@given(st.integers(0, 8 * 808 - 1))
def test_any_changed_bit_is_noticed(bit: int) -> None:
    command = go_command()
    sign(command)
    assert is_valid(command)
    data = bytearray(command.tobytes())
    data[bit // 8] ^= 1 << bit % 8
    assert not is_valid(np.frombuffer(bytes(data), GO_LOW_CMD.dtype)[0:1].reshape(()))


@pytest.mark.parametrize("message", [GO_LOW_CMD, HG_LOW_CMD])
def test_signing_changes_nothing_else(message: object) -> None:
    command = go_default()
    # NumPy's own copy leaves the padding between members undefined.
    before = np.frombuffer(bytearray(command.tobytes()), command.dtype).reshape(command.shape)
    sign(command)
    assert int(command["crc"]) == checksum(before)
    before["crc"] = command["crc"]
    assert before.tobytes() == command.tobytes()
