"""Read TFRecord files, and the ``tf.train.Example`` in each record, without TensorFlow.

A record is its length (8 bytes), a CRC-32C of the length, the data, and a CRC-32C of the data; both are masked
(https://www.tensorflow.org/tutorials/load_data/tfrecord). google-crc32c and protobuf are imported on use.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from hal import SourceError
from rlenv_formats.foreign import check_file
from rlenv_formats.remote.mirror import opened, size_of

__all__ = ["Example", "Record", "read_example", "records_in"]

_HEAD, _TAIL = struct.Struct("<QI"), struct.Struct("<I")
_LARGEST = 2**31 - 1
"""Largest record: protobuf reads no larger one."""
_EXAMPLE = """
name: "rlenv_formats/example.proto" package: "rlenv_formats" syntax: "proto3"
message_type { name: "Bytes" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "Floats" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Integers" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type { name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes" number: 1 type: TYPE_MESSAGE type_name: ".rlenv_formats.Bytes" oneof_index: 0 }
  field { name: "floats" number: 2 type: TYPE_MESSAGE type_name: ".rlenv_formats.Floats" oneof_index: 0 }
  field { name: "integers" number: 3 type: TYPE_MESSAGE type_name: ".rlenv_formats.Integers" oneof_index: 0 } }
message_type { name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
    type_name: ".rlenv_formats.Features.FeatureEntry" }
  nested_type { name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".rlenv_formats.Feature" } } }
message_type { name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".rlenv_formats.Features" } }
"""
"""The messages of ``tensorflow/core/example/example.proto`` and ``feature.proto``."""


@dataclass(frozen=True)
class Record:
    """The place of a record's data.

    Attributes:
        file: the file.
        offset: where the data begin.
        size: their length in bytes.
    """

    file: Path
    offset: int
    size: int


def records_in(path: Path) -> Iterator[Record]:
    """Yield the place of each record of a file; the data are not read.

    Raises:
        SourceError: the file is missing, or what follows the last yielded record is damaged.
    """
    crc32c = _crc32c(path)
    size, at = size_of(_existing(path)), 0
    with _open(path) as file:
        while at < size:
            file.seek(at)
            head = file.read(_HEAD.size)
            length, checksum = _HEAD.unpack(head) if len(head) == _HEAD.size else (size, 0)
            if len(head) < _HEAD.size or checksum != _masked(crc32c(head[:8])):
                raise SourceError(f"{path} is damaged at byte {at}; fetch it again")
            if length > min(size - at - _HEAD.size - _TAIL.size, _LARGEST):
                raise SourceError(f"{path} ends within its record at byte {at}; fetch it again")
            yield Record(path, at + _HEAD.size, length)
            at += _HEAD.size + length + _TAIL.size


def _existing(path: Path) -> Path:
    """Return the path of a file that may be remote, without fetching all of it.

    Raises:
        SourceError: the file is missing, or a Git LFS pointer.
    """
    source = opened(path)
    if isinstance(source, Path):
        check_file(source)
    return path


def _open(path: Path) -> BinaryIO:
    source = opened(path)
    return source.open("rb") if isinstance(source, Path) else cast(BinaryIO, source)


class Example:
    """The named values of a ``tf.train.Example``.

    Args:
        features: name -> message.
        where: the record, for messages.
    """

    def __init__(self, features: Any, where: str) -> None:
        self._features, self.where = features, where

    def __contains__(self, name: str) -> bool:
        return name in self._features

    def numbers(self, name: str) -> np.ndarray:
        """Return numbers as float32 or int64, which are all that an example holds, (N,).

        Raises:
            SourceError: there are none of this name.
        """
        kind = self._kind(name)
        if kind not in ("floats", "integers"):
            raise SourceError(f"{self.where}: {name} has no numbers; it is damaged")
        values = getattr(self._features[name], kind).value
        return np.fromiter(values, np.float32 if kind == "floats" else np.int64, len(values))

    def strings(self, name: str) -> Any:
        """Return strings of bytes, such as encoded images, as a sequence.

        Raises:
            SourceError: there are none of this name.
        """
        if self._kind(name) != "bytes":
            raise SourceError(f"{self.where}: {name} has no strings; it is damaged")
        return self._features[name].bytes.value

    def _kind(self, name: str) -> str | None:
        return self._features[name].WhichOneof("kind") if name in self._features else None


def read_example(record: Record) -> Example:
    """Read a record and check it.

    Raises:
        SourceError: it does not match its checksum, or is no ``tf.train.Example``; or a package is missing.
    """
    where = f"{record.file}, record at byte {record.offset - _HEAD.size}"
    with _open(record.file) as file:
        file.seek(record.offset)
        data = file.read(record.size + _TAIL.size)
    body = memoryview(data)[: record.size]
    if len(data) != record.size + _TAIL.size or _TAIL.unpack(data[record.size :])[0] != _masked(
        _crc32c(record.file)(bytes(body))
    ):
        raise SourceError(f"{where} does not match its checksum; fetch the file again")
    message, failure = _example_class(record.file)
    try:
        example = message.FromString(bytes(body))
    except failure as error:
        raise SourceError(f"{where} is no tf.train.Example ({error})") from error
    return Example(example.features.feature, where)


def _masked(checksum: int) -> int:
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc32c(what: Path) -> Any:
    try:
        import google_crc32c
    except ImportError:
        raise SourceError(f"{what} needs google-crc32c: pip install 'rlenv-robot[rlds]'") from None
    return google_crc32c.value


def _example_class(what: Path) -> tuple[Any, type[Exception]]:
    """Return the class of messages, and the error of parsing one."""
    try:
        return _built()
    except ImportError:
        raise SourceError(f"{what} needs protobuf: pip install 'rlenv-robot[rlds]'") from None


@cache
def _built() -> tuple[Any, type[Exception]]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory, text_format

    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_EXAMPLE, descriptor_pb2.FileDescriptorProto()))
    described = pool.FindMessageTypeByName("rlenv_formats.Example")
    return message_factory.GetMessageClass(described), message.DecodeError
