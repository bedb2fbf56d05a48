"""What a batch of simulations may be told, and whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from hal.errors import IllegalAction, Violation

__all__ = ["Writer", "checked", "rows_of"]

Writer = tuple[str, np.ndarray, Any, tuple[int, ...], np.dtype]
"""A command's name, the live array that holds it and the index in it, and its shape and dtype for all."""


def checked(commands: Mapping[str, np.ndarray], writers: Sequence[Writer]) -> dict[str, np.ndarray]:
    """The commands as new arrays of the right dtypes.

    Raises:
        IllegalAction: wrong names or shapes, or a value that isn't finite.
    """
    values = {}
    for name, _, _, shape, dtype in writers:
        value = np.asarray(commands[name]) if name in commands else None
        if value is None or value.shape != shape or not np.isfinite(value).all():
            _refuse(name, value, shape, writers)
        values[name] = value.astype(dtype)
    if len(commands) != len(values):
        unknown = next(name for name in commands if name not in values)
        _illegal("unknown", unknown, (), f"command.{unknown} is unknown, allowed are {', '.join(values)}")
    return values


def _refuse(name: str, value: np.ndarray | None, shape: tuple[int, ...], writers: Sequence[Writer]) -> NoReturn:
    if value is None:
        wanted = ", ".join(writer[0] for writer in writers)
        _illegal("missing", name, (), f"command.{name} is missing, wanted are {wanted}")
    if value.shape != shape:
        _illegal("shape", name, (), f"command.{name} has shape {value.shape}, wanted {shape}")
    index = tuple(int(axis) for axis in np.argwhere(~np.isfinite(value))[0])
    _illegal("not_finite", name, index, f"command.{name}{list(index)} is {value[index]}, it must be finite")


def rows_of(ids: Sequence[int] | np.ndarray | None, num: int) -> np.ndarray:
    """The simulations' numbers, shape (n,).

    Raises:
        ValueError: they are no rising whole numbers of 0..num-1 without repetition, and no mask of shape (num,).
    """
    if ids is None:
        return np.arange(num)
    array = np.asarray(ids)
    if array.dtype == bool and array.shape == (num,):
        return np.flatnonzero(array)
    if array.size == 0:
        return np.zeros(0, int)
    whole = array.dtype.kind in "iu" and array.ndim == 1
    if not whole or array[0] < 0 or array[-1] >= num or not (np.diff(array.astype(int)) > 0).all():
        raise ValueError(f"ids {array.tolist()} are no rising numbers of 0..{num - 1} and no mask of shape ({num},)")
    return array.astype(int)


def _illegal(code: str, name: str, index: tuple[int, ...], message: str) -> NoReturn:
    raise IllegalAction(Violation(code, f"command.{name}", index, message))
