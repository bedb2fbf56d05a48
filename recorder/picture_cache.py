"""The index of a log's pictures on disk, beside its table: thrown away and made again at will."""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from recorder.cache import FOLDER, stamps

__all__ = ["Place", "load", "save"]

Place = np.dtype([("episode", "<i8"), ("stamp_ns", "<i8"), ("chunk", "<i8"), ("start", "<i8"), ("stop", "<i8")])
"""Of one picture: the number of its episode in the run, its stamp, its chunk, and its bytes in that."""

_NAME = "pictures.npz"
_FORMAT = 1
_ABOUT = "about"


def load(files: Mapping[int, Path]) -> dict[str, np.ndarray] | None:
    """Camera -> shape (N,) of `Place`, as it was saved for the log as it is now; None if there is no such index.

    Args:
        files: of the log, by number.
    """
    try:
        with np.load(_path(files), allow_pickle=False) as kept:
            about = json.loads(bytes(kept[_ABOUT]))
            if about["format"] != _FORMAT or about["files"] != stamps(files):
                return None
            places = {camera: kept[f"camera{number}"] for number, camera in enumerate(about["cameras"])}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None  # whatever is wrong with it, it can be made again
    return places if all(each.dtype == Place and each.ndim == 1 for each in places.values()) else None


def save(files: Mapping[int, Path], seen: Mapping[str, Any], places: Mapping[str, np.ndarray]) -> None:
    """Keep an index; it appears whole or not at all, and not where nothing can be written.

    Args:
        files: of the log, by number.
        seen: `recorder.cache.stamps` of them from before they were read, so that what grew meanwhile is stale.
        places: as `load` gives them.
    """
    about = json.dumps({"format": _FORMAT, "files": seen, "cameras": list(places)}).encode()
    arrays = {f"camera{number}": each for number, each in enumerate(places.values())}
    path = _path(files)
    fresh = path.with_name(f".pictures-{os.getpid()}.npz")
    try:
        path.parent.mkdir(exist_ok=True)
        with fresh.open("wb") as file:
            np.savez(file, **{_ABOUT: np.frombuffer(about, np.uint8)}, **arrays)  # type: ignore[arg-type]
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def _path(files: Mapping[int, Path]) -> Path:
    return next(iter(files.values())).parent / FOLDER / _NAME
