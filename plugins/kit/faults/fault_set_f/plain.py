"""Turn answers into plain data that can be compared, and keep refusals as such."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np


def plain(answer: Any, own: str = "") -> Any:
    """Return an answer as lists, dictionaries, texts and numbers; ``own`` is a name that instances differ in."""
    if isinstance(answer, np.ndarray):
        return [str(answer.dtype), list(answer.shape), repr(answer.tolist()).replace(own or "\0", "OWN")]
    if isinstance(answer, np.generic):
        return [str(answer.dtype), repr(answer.item())]
    if isinstance(answer, Mapping):
        return {key: plain(value, own) for key, value in answer.items()}
    if isinstance(answer, tuple) and hasattr(answer, "_asdict"):
        return plain(answer._asdict(), own)
    if isinstance(answer, list | tuple):
        return [plain(value, own) for value in answer]
    if isinstance(answer, float):
        return repr(answer)
    return answer.replace(own or "\0", "OWN") if isinstance(answer, str) else deepcopy(answer)


def tried(call: Callable[..., Any], *values: Any) -> Any:
    """Return what a call returns, or its error as data."""
    try:
        return call(*values)
    except Exception as error:
        violation = getattr(error, "violation", None)
        return {"error": type(error).__name__, **({} if violation is None else violation.to_dict())}
