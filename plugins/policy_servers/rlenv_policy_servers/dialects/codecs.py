"""Encode and decode the messages of openpi, GR00T and LeRobot, without pickle in any of them.

A decoder checks types and sizes before it takes memory: an array never takes more than the message itself.
"""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Mapping
from typing import Any, cast

import msgpack
import numpy as np

from hal import WireError

__all__ = [
    "decode_fields", "encode_field", "pack_groot", "pack_openpi", "pack_safe", "unpack_groot", "unpack_openpi",
    "unpack_safe",
]  # fmt: skip

_KINDS = "biuf"
_PICKLE = 0x80
"""First byte of a pickle of protocol 2 or higher (Python's ``pickletools``: the opcode PROTO)."""


def _array(data: object, dtype: np.dtype, shape: object, fortran: bool = False) -> np.ndarray:
    if dtype.kind not in _KINDS:
        raise WireError(f"an array has dtype {str(dtype)!r:.40}, allowed are numbers and booleans")
    sizes = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    if len(sizes) > 32 or not all(type(size) is int and size >= 0 for size in sizes):
        raise WireError(f"an array has shape {sizes!r:.80}, expected whole numbers")
    if not isinstance(data, bytes) or math.prod(sizes) * dtype.itemsize != len(data):
        raise WireError(f"an array of shape {sizes!r:.80} and dtype {dtype} does not have the size of its data")
    return np.frombuffer(data, dtype).reshape(sizes, order="F" if fortran else "C")


def _unpack(data: bytes, hook: Any) -> object:
    try:
        return msgpack.unpackb(data, object_hook=hook, strict_map_key=False)
    except WireError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, msgpack.exceptions.UnpackException) as error:
        raise WireError(f"a message is no msgpack, or an array in it is damaged: {error!r:.200}") from None


# -- openpi: openpi_client/msgpack_numpy.py (Physical-Intelligence/openpi 15a9616) ----------------------------


def pack_openpi(message: Mapping[str, Any]) -> bytes:
    """Return a message of openpi."""
    return cast("bytes", msgpack.packb(message, default=_pack_openpi))


def _pack_openpi(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    if isinstance(value, np.generic) and value.dtype.kind in _KINDS:
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    raise TypeError(f"a {type(value).__name__} can't be sent")


def unpack_openpi(data: bytes) -> object:
    """Return the content of a message of openpi, with arrays as read-only NumPy arrays.

    Raises:
        WireError: the message is damaged, or has an array of objects.
    """
    return _unpack(data, _unpack_openpi)


def _unpack_openpi(value: dict) -> Any:
    if b"__ndarray__" in value:
        return _array(value[b"data"], np.dtype(value[b"dtype"]), value[b"shape"])
    if b"__npgeneric__" in value:
        dtype = np.dtype(value[b"dtype"])
        if dtype.kind not in _KINDS:
            raise WireError(f"a number has dtype {str(dtype)!r:.40}")
        return dtype.type(value[b"data"])
    return value


# -- GR00T: gr00t/policy/server_client.py (NVIDIA/Isaac-GR00T 38624df) ------------------------------------------


def pack_groot(message: object) -> bytes:
    """Return a message of GR00T."""
    return cast("bytes", msgpack.packb(message, default=_pack_groot))


def _pack_groot(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        stream = io.BytesIO()
        np.lib.format.write_array(stream, value, allow_pickle=False)
        return {"__ndarray_class__": True, "as_npy": stream.getvalue()}
    raise TypeError(f"a {type(value).__name__} can't be sent")


def unpack_groot(data: bytes) -> object:
    """Return the content of a message of GR00T. A modality's configuration is returned as a dictionary.

    Raises:
        WireError: the message is damaged, or has an array of objects.
    """
    return _unpack(data, _unpack_groot)


def _unpack_groot(value: dict) -> Any:
    if "__ModalityConfig_class__" in value:
        return value["as_json"]
    if "__ndarray_class__" not in value:
        return value
    stream = io.BytesIO(value["as_npy"])
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise WireError(f"an array is .npy of version {version}, allowed are 1.0 and 2.0")
    shape, fortran, dtype = readers[version](stream)
    return _array(stream.read(), dtype, shape, fortran)


# -- LeRobot's asynchronous inference in its safe form (huggingface/lerobot pull request 3048) ------------------


def pack_safe(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> bytes:
    """Return a message of LeRobot: the length of the JSON, 4 bytes, big-endian; the JSON; the arrays as safetensors."""
    from safetensors.numpy import save

    text = json.dumps(header).encode()
    contiguous = {name: np.ascontiguousarray(array) for name, array in (arrays or {}).items()}
    return struct.pack(">I", len(text)) + text + (save(contiguous) if contiguous else b"")


def unpack_safe(data: bytes, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the JSON and the arrays of a message of LeRobot.

    Args:
        data: the message.
        kind: the expected ``type`` in the JSON.

    Raises:
        WireError: the message is a pickle, which would run code, or it is damaged or of another type.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if data[:1] == bytes([_PICKLE]):
        raise WireError(
            "the message is a pickle, which is refused: decoding it would run code of the sender. LeRobot's released "
            "programs send pickles (CVE-2026-25874); use the form of its pull request 3048 on both ends"
        )
    length = int.from_bytes(data[:4], "big")
    if len(data) < 4 or length > len(data) - 4:
        raise WireError("the message has no length, JSON and safetensors; perhaps it is a pickle, which is refused")
    try:
        header = json.loads(data[4 : 4 + length])
        arrays = load(data[4 + length :]) if len(data) > 4 + length else {}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise WireError(f"the message's JSON or safetensors are damaged: {error!r:.200}") from None
    if not isinstance(header, dict) or header.get("type") != kind:
        got = header.get("type") if isinstance(header, dict) else type(header).__name__
        raise WireError(f"the message is a {got!r:.40}, expected {kind}")
    return header, arrays


# -- The messages of protobuf in LeRobot's services.proto, each of which has bytes and at most an enumeration -------


def encode_field(number: int, value: bytes | int) -> bytes:
    """Return one field of a protobuf message: bytes, or a whole number from 0."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def decode_fields(data: bytes) -> dict[int, bytes | int]:
    """Return the fields of a protobuf message by number; of a repeated number, the last.

    Raises:
        WireError: the message is damaged.
    """
    fields, place = dict[int, bytes | int](), 0

    def varint() -> int:
        nonlocal place
        value = 0
        for shift in range(0, 70, 7):
            byte = data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise IndexError

    try:
        while place < len(data):
            tag = varint()
            size = {1: 8, 5: 4}.get(tag & 7)
            if tag & 7 == 0:
                fields[tag >> 3] = varint()
                continue
            size = varint() if tag & 7 == 2 else size
            if size is None or place + size > len(data):
                raise IndexError
            fields[tag >> 3] = data[place : place + size]
            place += size
    except IndexError:
        raise WireError("a protobuf message is damaged") from None
    return fields
