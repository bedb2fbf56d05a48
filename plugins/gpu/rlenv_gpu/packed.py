"""Pack arrays of several types into one array, so that one operation on the device moves all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from rlenv_gpu.tensor_array import TensorArray, torch_type

__all__ = ["Nested", "PackedRows", "PackedTables", "copy_all", "tensors_in"]

Nested: TypeAlias = Any
"""Tensors and `TensorArray`, alone or in nested dictionaries and tuples."""

_WORD = 8
"""Bytes of a word. A field begins at a word, so that each of its elements is aligned."""
_ALIGNED = 16
"""Bytes to which a table is aligned in its buffer."""


class PackedRows:
    """The fields of one environment, one after the other in a row of int64 words.

    Args:
        fields: name -> dtype and shape of an environment's value. Fields without elements take no word.

    Attributes:
        width: number of words in a row.
    """

    def __init__(self, fields: Mapping[str, tuple[np.dtype, tuple[int, ...]]]) -> None:
        self._fields: dict[str, tuple[np.dtype, tuple[int, ...], slice]] = {}
        self.width = 0
        for name, (dtype, shape) in fields.items():
            words = -(-dtype.itemsize * int(np.prod(shape, dtype=int)) // _WORD)
            self._fields[name] = dtype, shape, slice(self.width, self.width + words)
            self.width += words

    def pack(self, values: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Return the values of all fields, each (rows, ...), as rows of words, (rows, width)."""
        packed = np.zeros((rows, self.width), np.int64)
        plain = packed.view(np.uint8).reshape(rows, self.width * _WORD)
        for name, (dtype, _, words) in self._fields.items():
            flat = np.ascontiguousarray(values[name], dtype).reshape(rows, -1).view(np.uint8)
            plain[:, words.start * _WORD : words.start * _WORD + flat.shape[1]] = flat
        return packed

    def views(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the fields of packed rows as tensors (n, ...) that share their memory.

        Args:
            rows: int64, (n, width), with adjacent words.
        """
        return {name: _part(rows[:, words], dtype, shape) for name, (dtype, shape, words) in self._fields.items()}


def _part(words: torch.Tensor, dtype: np.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    kind, size = torch_type(dtype), int(np.prod(shape, dtype=int))
    values = words.view(kind)[:, :size] if size else words.new_zeros((len(words), 0), dtype=kind)
    return values.reshape(len(words), *shape)


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of an element -> the type as which it is copied without a change."""


def copy_all(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Copy tensors: those with elements of the same size with one operation.

    Args:
        pairs: targets and values, of the same shape. A value of another type is converted.
    """
    alike: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
    for target, value in pairs:
        if target.numel():
            kind = _BITS[target.itemsize]
            targets, values = alike.setdefault(kind, ([], []))
            targets.append(target.view(kind))
            values.append(value.to(target.dtype).view(kind))
    for targets, values in alike.values():
        torch._foreach_copy_(targets, values)


class PackedTables:
    """The results of a step in one buffer with a fixed place, whose copy the host enqueues as a single operation.

    Attributes:
        buffer: the bytes of all tables, one after the other; None before the first `put`.
    """

    def __init__(self) -> None:
        self.buffer: torch.Tensor | None = None
        self._places: list[tuple[torch.dtype, tuple[int, ...], int]] = []
        self._tables: list[torch.Tensor] = []
        self._build: Callable[[Iterator[torch.Tensor]], Nested] = next

    def put(self, values: Nested) -> None:
        """Copy results into the buffer: tensors or `TensorArray` in nested dictionaries, the same ones in each call."""
        tensors = list(tensors_in(values))
        if self.buffer is None:
            self._allocate(tensors)
            self._build = _builder(values)
        copy_all(zip(self._tables, tensors, strict=True))

    def _allocate(self, tensors: list[torch.Tensor]) -> None:
        size = 0
        for tensor in tensors:
            self._places.append((tensor.dtype, tuple(tensor.shape), size // tensor.itemsize))
            size += -(-tensor.numel() * tensor.itemsize // _ALIGNED) * _ALIGNED
        self.buffer = torch.zeros(size, dtype=torch.uint8, device=tensors[0].device)
        self._tables = self._views(self.buffer)

    def _views(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """Return the tables of a buffer as contiguous tensors that share its memory."""
        flat = {kind: buffer.view(kind) for kind in {kind for kind, _, _ in self._places}}
        return [
            flat[kind].as_strided(shape, _strides(shape), first if flat[kind].numel() else 0)
            for kind, shape, first in self._places
        ]

    def tables(self) -> list[torch.Tensor]:
        """Return the tables in the buffer, which `put` overwrites; none before the first."""
        return self._tables

    def take(self) -> Nested:
        """Return the results as the caller's own tensors, in the dictionaries that `put` received."""
        assert self.buffer is not None
        return self._build(iter(self._views(self.buffer.clone())))


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def _builder(values: Nested) -> Callable[[Iterator[torch.Tensor]], Nested]:
    """Return a function that puts tensors, in the order of `tensors_in`, into dictionaries like those of ``values``."""
    if not isinstance(values, Mapping):
        return next
    parts = {name: _builder(value) for name, value in values.items()}
    return lambda tensors: {name: part(tensors) for name, part in parts.items()}


def tensors_in(value: Nested) -> Iterator[torch.Tensor]:
    """Yield the tensors of all arrays in nested dictionaries and tuples, in order."""
    if isinstance(value, TensorArray):
        yield value.tensor
    elif isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors_in(each)
    elif isinstance(value, tuple):
        for each in value:
            yield from tensors_in(each)
