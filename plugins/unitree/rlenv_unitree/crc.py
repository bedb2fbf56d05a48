"""Compute the checksum of Unitree's low-level messages.

It is CRC-32 with polynomial 0x04C11DB7 and start value 0xFFFFFFFF over all 32-bit words of the C structure but the last
one, which holds the checksum. Each word enters with its most significant bit first; nothing is reflected or inverted at
the end. (unitree_sdk2_python 37116c5, `unitree_sdk2py/utils/crc.py`.)
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from rlenv_unitree.messages import Record

__all__ = ["checksum", "crc32", "is_valid", "sign"]

_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Each byte with its bits in reverse order."""


def crc32(words: npt.NDArray[np.uint32]) -> int:
    """Return the checksum of some words.

    `zlib.crc32` computes the reflected form of the same code, so the bits of each byte, and at the end those of the
    sum, are put in reverse order; zlib also inverts the sum.
    """
    most_significant_first = words.astype(">u4").tobytes().translate(_REVERSED)
    reflected = zlib.crc32(most_significant_first) ^ 0xFFFFFFFF
    return int.from_bytes(reflected.to_bytes(4, "little").translate(_REVERSED), "big")


def checksum(record: Record) -> int:
    """Return the checksum that belongs into the member ``crc`` of a message."""
    return crc32(np.frombuffer(record.tobytes(), "<u4")[:-1])


def sign(record: Record) -> None:
    """Write the checksum into the member ``crc`` of a message."""
    record["crc"] = checksum(record)


def is_valid(record: Record) -> bool:
    """Return whether the member ``crc`` of a message is its checksum."""
    return int(record["crc"]) == checksum(record)
