"""Frames, data classes and samples under the names of a Kaiwu project, and samples as rows of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, TypeAlias, cast

import numpy as np

__all__ = ["Frame", "SampleCodec", "Samples", "create_cls"]

Samples: TypeAlias = Sequence[object]
"""Training samples as a project makes them, of any class."""

Encode: TypeAlias = Callable[[object], np.ndarray]
"""A project's ``SampleData2NumpyData``."""

Decode: TypeAlias = Callable[[object], object]
"""A project's ``NumpyData2SampleData``."""


class Frame:
    """One step of an episode, with the attributes that the project sets."""

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)

    def __repr__(self) -> str:
        return f"Frame({', '.join(f'{name}={value!r:.40}' for name, value in self.__dict__.items())})"


def create_cls(class_name: str, **attributes: object) -> type:
    """Return a class with these attributes, as ``create_cls`` in Kaiwu's documentation.

    Args:
        class_name: the class's name, such as ``ObsData``.
        attributes: name -> default value. In a ``SampleData`` of projects since 2026 a whole number is instead the
            attribute's length in a row, and the default is None.

    Returns:
        A class whose constructor takes these names as keywords. Instances may get more attributes later.
    """
    defaults = {
        name: None if isinstance(value, int) and not isinstance(value, bool) else value
        for name, value in attributes.items()
    }

    def init(self: object, **values: object) -> None:
        unknown = values.keys() - defaults.keys()
        if unknown:
            raise TypeError(f"{class_name} has no {min(unknown)!r}, it has {', '.join(defaults) or 'no attributes'}")
        self.__dict__.update(defaults | values)

    def shown(self: object) -> str:
        return f"{class_name}({', '.join(f'{name}={value!r:.40}' for name, value in vars(self).items())})"

    def reduced(self: object) -> tuple[object, ...]:
        return _rebuilt, (class_name, attributes, vars(self))

    methods = {"__init__": init, "__repr__": shown, "__reduce__": reduced, "__declared__": dict(attributes)}
    return type(class_name, (), methods)


_REBUILT: dict[tuple[str, ...], type] = {}


def _rebuilt(class_name: str, attributes: dict[str, object], values: dict[str, object]) -> object:
    """Make an instance that another process sent, of a class of the same names."""
    key = (class_name, *attributes)
    if key not in _REBUILT:
        _REBUILT[key] = create_cls(class_name, **attributes)
    instance: object = _REBUILT[key]()
    vars(instance).update(values)
    return instance


class SampleCodec:
    """Convert samples to float32 rows for the sample pool, and back for the learner.

    A project has a pair of functions for this or, since 2026, a ``SampleData`` that declares the length of each
    attribute. The samples of any other project are sent unchanged.

    Args:
        definition: name -> object, for the names in the project's ``feature/definition.py`` and its attached names.
    """

    def __init__(self, definition: Mapping[str, object]) -> None:
        encode, decode = (definition.get(name) for name in ("SampleData2NumpyData", "NumpyData2SampleData"))
        self._class = definition.get("SampleData")
        self._functions: tuple[Encode, Decode] | None = None
        if callable(encode) and callable(decode):
            self._functions = cast("Encode", encode), cast("Decode", decode)
        declared: Mapping[str, object] = getattr(self._class, "__declared__", {})
        self._lengths = {name: int(str(length)) for name, length in declared.items() if _is_length(length)}
        if self._functions is None and len(self._lengths) != len(declared):
            self._lengths = {}  # a class of another kind, whose attributes have plain values

    @property
    def makes_rows(self) -> bool:
        """Whether samples become rows of numbers; otherwise they are sent unchanged."""
        return self._functions is not None or bool(self._lengths)

    def encode(self, samples: Samples) -> list[object]:
        """Return a float32 row for each sample, or the samples themselves.

        Raises:
            ValueError: an attribute does not have its declared length.
        """
        if self._functions is not None:
            return [np.asarray(self._functions[0](sample), np.float32) for sample in samples]
        return [self._row(sample) for sample in samples] if self._lengths else list(samples)

    def decode(self, rows: Sequence[object]) -> list[Any]:
        """Convert rows from `encode` back to samples of tensors (arrays without PyTorch)."""
        if self._functions is not None:
            return [self._functions[1](_tensor(row)) for row in rows]
        return [self._sample(row) for row in rows] if self._lengths else list(rows)

    def _row(self, sample: object) -> np.ndarray:
        parts = []
        for name, length in self._lengths.items():
            value = getattr(sample, name, None)
            part = np.ravel(np.asarray(0.0 if value is None else value, np.float32))
            if value is None or len(part) != length:
                raise ValueError(
                    f"SampleData.{name} is {value!r:.60} with {0 if value is None else len(part)} numbers, the project "
                    f"declares {length}: create_cls('SampleData', {name}={length}, ...)"
                )
            parts.append(part)
        return np.concatenate(parts)

    def _sample(self, row: object) -> object:
        assert callable(self._class)
        tensor, values, start = _tensor(row), {}, 0
        for name, length in self._lengths.items():
            values[name] = tensor[start : start + length]
            start += length
        return self._class(**values)


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _tensor(row: object) -> Any:
    """Return a row as a tensor, since projects stack samples with PyTorch; as it is where PyTorch is missing."""
    if find_spec("torch") is None:
        return row
    import torch

    return torch.as_tensor(row)
