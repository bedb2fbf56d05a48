"""Arrays of zarr in every layout that is read, held to zarr's own reader; and files that are made to use up memory."""

from __future__ import annotations

import bz2
import json
import zipfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hal import SourceError
from rlenv_formats.zarr_arrays import ZarrArray, open_arrays

zarr = pytest.importorskip("zarr", reason="zarr is not installed")
numcodecs = pytest.importorskip("numcodecs", reason="numcodecs is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:The codec")

ONES = [
    numcodecs.Blosc("lz4"), numcodecs.Blosc("zstd", shuffle=2), numcodecs.Zstd(3), numcodecs.LZ4(), numcodecs.Zlib(),
    numcodecs.GZip(), numcodecs.BZ2(), None,
]  # fmt: skip
"""Compressors of version 2."""
CHAINS: list[Any] = [
    [zarr.codecs.BloscCodec(cname="zstd")], [zarr.codecs.ZstdCodec(checksum=True)], [zarr.codecs.GzipCodec()],
    [zarr.codecs.Crc32cCodec()], [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()], None,
]  # fmt: skip
"""Compressors of version 3."""


@st.composite
def layouts(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any], int]:
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    dtype = np.dtype(draw(st.sampled_from(["<f4", ">f8", "<i2", "|u1", "|b1", "<f2", "<u8"])))
    version = draw(st.sampled_from([2, 3]))
    seed = draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)
    options: dict[str, Any] = {
        "chunks": tuple(draw(st.integers(1, size)) for size in shape),
        "compressors": draw(st.sampled_from(ONES if version == 2 else CHAINS)),
        "fill_value": draw(st.sampled_from([0, 1])),
        "chunk_key_encoding": {"name": "v2", "separator": draw(st.sampled_from([".", "/"]))},
    }
    if version == 2:
        options["order"] = draw(st.sampled_from(["C", "F"]))
    elif draw(st.booleans()):
        options["chunk_key_encoding"] = {"name": "default", "separator": draw(st.sampled_from([".", "/"]))}
    return values, options, version


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(layouts(), st.data())
def test_values_are_those_of_zarr(layout: tuple[np.ndarray, dict[str, Any], int], data: st.DataObject) -> None:
    values, options, version = layout
    with TemporaryDirectory() as folder:
        group = zarr.create_group(folder, zarr_format=version)
        array = group.create_array("data/x", shape=values.shape, dtype=values.dtype, **options)
        array[:] = values
        read = open_arrays(Path(folder))["data/x"]
        assert isinstance(read, ZarrArray)
        read.check_size()
        begin = data.draw(st.integers(0, len(values)))
        stop = data.draw(st.integers(begin, len(values)))
        got = read.read(begin, stop)
        np.testing.assert_array_equal(got, zarr.open_group(folder, mode="r")["data/x"][begin:stop])
        np.testing.assert_array_equal(got, values[begin:stop])


def one_chunk(path: Path, data: bytes, compressor: Any, **about: Any) -> ZarrArray:
    """Return an array of one chunk of 400 bytes."""
    stated = {
        "zarr_format": 2, "shape": [100], "chunks": [100], "dtype": "<f4", "order": "C", "fill_value": 0,
        "filters": None, "compressor": compressor and {"id": compressor},
    }  # fmt: skip
    (path / "x").mkdir()
    (path / "x" / ".zarray").write_text(json.dumps(stated | about))
    (path / "x" / "0").write_bytes(data)
    array = open_arrays(path)["x"]
    assert isinstance(array, ZarrArray)
    return array


ZEROS = bytes(1 << 24)


@pytest.mark.parametrize(
    ("compressor", "data", "word"),
    [
        ("gzip", numcodecs.GZip().encode(ZEROS), "does not end"),
        ("zlib", zlib.compress(ZEROS), "does not end"),
        ("bz2", bz2.compress(ZEROS), "does not end"),
        ("zstd", numcodecs.Zstd().encode(ZEROS), "states 16777216"),
        ("lz4", numcodecs.LZ4().encode(ZEROS), "states 16777216"),
        ("blosc", numcodecs.Blosc().encode(ZEROS), "states 16777216"),
        ("zstd", b"\x28\xb5\x2f\xfd\x00\x58\x01\x00\x00", "states -1"),
        ("gzip", numcodecs.GZip().encode(bytes(300)), "300 bytes, expected 400"),
        ("gzip", numcodecs.GZip().encode(bytes(400))[:-1], "does not end"),
        ("zlib", zlib.compress(bytes(400))[:-1] + b"!", "can't be read"),
        (None, bytes(399), "399 bytes"),
        ("zstd", b"", "can't be read"),
        ("lzma", b"", "known are"),
    ],
    # gzip has the time among its bytes, by which each worker would collect tests of other names.
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else str(value),
)
def test_a_chunk_of_another_size_takes_no_memory(
    tmp_path: Path, compressor: str | None, data: bytes, word: str
) -> None:
    with pytest.raises(SourceError, match=word):
        one_chunk(tmp_path, data, compressor).read(0, 100)


def test_a_bomb_in_a_zip_file(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("x/.zarray", "w") as one:
        for _ in range(257):
            one.write(b" " * (1 << 20))
    assert "claim to hold" in str(open_arrays(path)["x"])


def test_a_damaged_byte_in_a_zip_file_is_found(tmp_path: Path) -> None:
    """Its checksum finds what raw numbers could not."""
    path = tmp_path / "set.zip"
    with zarr.storage.ZipStore(path, mode="w") as store:
        zarr.create_array(store, name="x", shape=(100,), dtype="<f4", chunks=(100,), compressors=None, zarr_format=2)[
            :
        ] = np.arange(100, dtype=np.float32)
    data = path.read_bytes()
    at = data.index(np.arange(50, 60, dtype=np.float32).tobytes())
    path.write_bytes(data[:at] + b"\x01" + data[at + 1 :])
    array = open_arrays(path)["x"]
    assert isinstance(array, ZarrArray)
    with pytest.raises(SourceError, match="CRC"):
        array.read(0, 100)


def test_a_checksum_of_version_3(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path, zarr_format=3)
    array = group.create_array("x", shape=(10,), dtype="u1", compressors=[zarr.codecs.Crc32cCodec()])
    array[:] = np.arange(10, dtype=np.uint8)
    path = tmp_path / "x" / "c" / "0"
    path.write_bytes(b"\x07" + path.read_bytes()[1:])
    read = open_arrays(tmp_path)["x"]
    assert isinstance(read, ZarrArray)
    with pytest.raises(SourceError, match="checksum"):
        read.read(0, 10)


def test_shards_are_refused(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path, zarr_format=3)
    group.create_array("x", shape=(8,), dtype="u1", chunks=(2,), shards=(4,))
    error = open_arrays(tmp_path)["x"]
    assert isinstance(error, SourceError)
    assert "shards" in str(error)
