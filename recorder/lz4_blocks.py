"""A stretch of an LZ4 frame without what comes before it.

A frame is a row of blocks, each of which holds the same number of bytes when it is decompressed, but for the last. A
block that would not shrink, as pictures don't, is stored as it is. The layout is that of the LZ4 frame format 1.6.
"""

from __future__ import annotations

import struct

import lz4.block  # type: ignore[import-untyped]

__all__ = ["Lz4Blocks"]

_MAGIC = b"\x04\x22\x4d\x18"
_SIZES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_WORD = struct.Struct("<I")
_STORED = 1 << 31


class Lz4Blocks:
    """The blocks of one frame.

    Args:
        data: the frame.
        size: of what is in it.

    Raises:
        ValueError: it can't be said without decompressing all of it where a block's bytes belong.
    """

    def __init__(self, data: memoryview, size: int) -> None:
        if bytes(data[:4]) != _MAGIC or data[4] >> 6 != 1 or data[5] >> 4 & 7 not in _SIZES or data[4] & 1:
            raise ValueError("not a frame of a kind that is known here")
        self._data, self._size, self._block = data, size, _SIZES[data[5] >> 4 & 7]
        self._linked = not data[4] & 0x20
        self._places: list[tuple[int, int, bool]] = []  # start, length, stored
        at = 15 if data[4] & 8 else 7  # behind the descriptor, perhaps with the content's size
        checksum = 4 if data[4] & 0x10 else 0
        while word := _WORD.unpack_from(data, at)[0]:
            length = word & ~_STORED
            self._places.append((at + 4, length, bool(word & _STORED)))
            at += 4 + length + checksum
        self._check()

    def _check(self) -> None:
        """That all blocks but the last are full follows where the last is stored: its length is known then."""
        *others, (_, length, stored) = self._places
        full = all(size == self._block for _, size, plain in others if plain)
        if not (full and stored and len(others) * self._block + length == self._size):
            raise ValueError("where its blocks begin is not certain")

    def stretch(self, start: int, stop: int) -> memoryview:
        """The bytes from start to stop."""
        first, last = start // self._block, (stop - 1) // self._block
        whole = memoryview(b"".join([self._content(number) for number in range(first, last + 1)]))
        return whole[start - first * self._block : stop - first * self._block]

    def _content(self, number: int) -> memoryview | bytes:
        begin = number  # a linked block needs the one before it, back to one that is stored
        while begin and self._linked and not self._places[begin][2]:
            begin -= 1
        content: memoryview | bytes = b""
        for start, length, stored in self._places[begin : number + 1]:
            block = self._data[start : start + length]
            content = block if stored else lz4.block.decompress(block, self._block, dict=bytes(content))
        return content
