from __future__ import annotations

import lz4.frame
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recorder.read.mcap_reader import Lz4Blocks


def mixed(seed: int, parts: int) -> bytes:
    """Stretches that shrink and stretches that don't, and one at the end that doesn't."""
    rng = np.random.default_rng(seed)
    shrinking = [bytes(rng.integers(0, 3, rng.integers(1, 90_000), np.uint8)) for _ in range(parts)]
    noise = [rng.bytes(int(rng.integers(1, 150_000))) for _ in range(parts)]
    return b"".join(a + b for a, b in zip(shrinking, noise, strict=True)) + rng.bytes(130_000)


@settings(max_examples=60)
@given(st.integers(0, 50), st.booleans(), st.booleans(), st.integers(0, 3), st.data())
def test_every_stretch_is_right(seed: int, linked: bool, size: bool, parts: int, data: st.DataObject) -> None:
    content = mixed(seed, parts)
    frame = lz4.frame.compress(
        content, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=linked, store_size=size, content_checksum=True
    )
    start = data.draw(st.integers(0, len(content) - 1))
    stop = data.draw(st.integers(start + 1, len(content)))
    assert bytes(Lz4Blocks(memoryview(frame), len(content)).stretch(start, stop)) == content[start:stop]


@pytest.mark.parametrize(
    ("frame", "size"),
    [
        (b"\x28\xb5\x2f\xfd stands for zstd", 100),
        (lz4.frame.compress(b"a" * 200_000), 200_000),  # its last block is compressed: where it begins is not certain
        (lz4.frame.compress(mixed(0, 0), block_size=lz4.frame.BLOCKSIZE_MAX64KB), 7),
    ],
)
def test_what_is_not_certain_is_refused(frame: bytes, size: int) -> None:
    with pytest.raises(ValueError, match=r"not a frame|not certain"):
        Lz4Blocks(memoryview(frame), size)
