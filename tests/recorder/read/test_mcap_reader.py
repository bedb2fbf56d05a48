from __future__ import annotations

from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import Image, LogError
from recorder.log.writer import LogWriter
from recorder.read.mcap_reader import ChunkMessages, Lz4Blocks, open_files, open_mcap

# What the reader makes of torn and damaged files is tested in test_torn_logs.py.


@pytest.fixture
def log(tmp_path: Path, layout: Any, make_row: Any) -> Path:
    """A log of three chunks, each with frames and an image of noise."""
    with LogWriter(tmp_path / "run", layout) as writer:
        writer.begin({})
        for frame in range(30):
            writer.frame(make_row(layout, 0, frame))
            if frame % 10 == 9:
                noise = np.random.default_rng(frame).bytes(100_000)
                writer.image("top", Image(noise, "jpeg", frame))
                writer.sync()
        writer.end({"end": "time"})
    return tmp_path / "run" / "log.mcap"


def test_the_index_and_a_walk_find_the_same_messages(log: Path) -> None:
    reader = open_mcap(log)
    for chunk in reader.chunks():
        walked = ChunkMessages(chunk._content, {})
        assert chunk.offsets.keys() == walked.offsets.keys()
        for channel, offsets in chunk.offsets.items():
            np.testing.assert_array_equal(offsets, walked.offsets[channel])
        assert chunk.definitions == walked.definitions
    assert len(list(reader.messages(["/camera/top"]))) == 3


def test_an_index_that_does_not_fill_the_chunk_is_not_believed(log: Path) -> None:
    chunk = next(open_mcap(log).chunks())
    channel, offsets = max(chunk.offsets.items(), key=lambda item: len(item[1]))
    for wrong in (offsets[:-1], offsets + 1, np.append(offsets, offsets[-1])):
        again = ChunkMessages(chunk._content, {**chunk.offsets, channel: wrong.astype(np.uint64)})
        np.testing.assert_array_equal(again.offsets[channel], offsets)


def test_a_part_of_a_chunk_is_that_of_the_checked_chunk(log: Path) -> None:
    reader = open_mcap(log)
    for chunk in list(reader.chunks()):
        content = chunk._content
        for start, stop in ((0, 9), (len(content) // 3, len(content) // 2), (len(content) - 1, len(content))):
            assert bytes(reader.chunk_part(chunk.number, start, stop)) == content[start:stop]


def test_only_the_first_file_of_a_log_must_be_readable(log: Path) -> None:
    second = log.with_name("log-0001.mcap")
    second.write_bytes(b"")
    assert [number for number, _ in open_files({0: log, 1: second})] == [0]
    with pytest.raises(LogError, match="empty"):
        list(open_files({0: second}))


def mixed(seed: int, parts: int) -> bytes:
    """Stretches that shrink and stretches that don't, and one at the end that doesn't."""
    rng = np.random.default_rng(seed)
    shrinking = [bytes(rng.integers(0, 3, rng.integers(1, 90_000), np.uint8)) for _ in range(parts)]
    noise = [rng.bytes(int(rng.integers(1, 150_000))) for _ in range(parts)]
    return b"".join(a + b for a, b in zip(shrinking, noise, strict=True)) + rng.bytes(130_000)


@settings(max_examples=60)
@given(st.integers(0, 50), st.booleans(), st.booleans(), st.integers(0, 3), st.data())
def test_every_part_of_an_lz4_frame_is_right(
    seed: int, linked: bool, size: bool, parts: int, data: st.DataObject
) -> None:
    content = mixed(seed, parts)
    frame = lz4.frame.compress(
        content, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=linked, store_size=size, content_checksum=True
    )
    start = data.draw(st.integers(0, len(content) - 1))
    stop = data.draw(st.integers(start + 1, len(content)))
    assert bytes(Lz4Blocks(memoryview(frame), len(content)).part(start, stop)) == content[start:stop]


@pytest.mark.parametrize(
    ("frame", "size"),
    [
        (b"\x28\xb5\x2f\xfd stands for zstd", 100),
        (lz4.frame.compress(b"a" * 200_000), 200_000),  # its last block is compressed: where it begins is not certain
        (lz4.frame.compress(mixed(0, 0), block_size=lz4.frame.BLOCKSIZE_MAX64KB), 7),
    ],
)
def test_an_lz4_frame_with_uncertain_blocks_is_refused(frame: bytes, size: int) -> None:
    with pytest.raises(ValueError, match=r"not an LZ4 frame|not certain"):
        Lz4Blocks(memoryview(frame), size)
