"""A file format for a policy's numbers, and nothing but numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from hal import RobotError

__all__ = ["load_arrays", "save_arrays"]


def save_arrays(path: str | Path, robot_model: str, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Write a policy's numbers as NumPy's ``.npz``, with plain data about it in ``about`` (JSON).

    Args:
        path: ending in ``.npz``.
        kind: which policy class reads it.
        arrays: the numbers.
        about: how it came about, for people.
    """
    header = np.frombuffer(json.dumps({"kind": robot_model, "about": about}).encode(), np.uint8)
    everything: dict[str, Any] = {"header": header, **arrays}
    np.savez(path, **everything)


def load_arrays(path: str | Path, robot_model: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `save_arrays` wrote; no code is ever run from a file.

    Returns:
        The arrays, and ``about``.

    Raises:
        RobotError: the file is missing, or no policy of this kind.
    """
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
        found = header["kind"]
    except FileNotFoundError:
        raise RobotError(f"{path}: there is no such policy file") from None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise RobotError(f"{path}: not a policy file as `rlenv-robot train` writes it, or a damaged one") from error
    if found != robot_model:
        raise RobotError(f"{path}: holds a policy of kind {found!r}, wanted is {robot_model!r}")
    return arrays, header["about"]
