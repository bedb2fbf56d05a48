"""Convert plain data about runs, episodes and events to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from hal import LogError
from hal.field import JsonDict, JsonObject

__all__ = ["JsonDict", "JsonObject", "from_json", "is_plain", "to_json"]


def to_json(value: Any, what: str) -> str:
    """Convert plain data to JSON. Numpy arrays and numbers become lists and numbers, tuples become lists.

    Args:
        value: mappings with text keys, sequences, texts, numbers, None, numpy arrays.
        what: a name for the data, for the message.

    Raises:
        LogError: the value holds anything else.
    """
    try:
        return json.dumps(value, default=_numpy)
    except (TypeError, ValueError, RecursionError) as error:
        raise LogError(
            f"{what} can't be recorded: {error}; allowed are mappings, lists, texts, numbers, None and numpy arrays"
        ) from error


def _numpy(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufU":
        return value.tolist()
    raise TypeError(f"a value of type {type(value).__name__}")


def is_plain(value: Any) -> bool:
    """Return whether `to_json` can convert a value."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biufU"
    return value is None or isinstance(value, str | int | float)


def from_json(text: str, what: str) -> Any:
    """Convert JSON to plain data.

    Raises:
        LogError: the text is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LogError(f"{what} is not JSON: {error}") from error
