"""Read the episodes that Minari keeps in Arrow or Parquet files, in the form of its HDF5 files.

Layout: the sources of Minari 0.5, ``arrow_storage.py``. ``data/<n>/`` holds episode n: T + 1 rows, where actions,
rewards and flags have a last row of padding; a ``Dict`` or ``Tuple`` is a struct, an array a list of fixed size.
pyarrow is imported only on use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from hal import SourceError
from recorder.formats.minari.space import Leaf

__all__ = ["FORMATS", "ArrowEpisode", "arrow_episodes"]

FORMATS = ("arrow", "parquet")

_PADDED = ("actions", "rewards", "terminations", "truncations")


class ArrowEpisode:
    """One episode, with those members of an HDF5 group that `recorder.formats.hdf5.read_numbers` uses.

    Args:
        folder: the episode's folder.
        table: all its rows, a ``pyarrow.Table``.
        leaves: the leaves of observations and actions, which have the arrays' shapes.
    """

    def __init__(self, folder: Path, table: Any, leaves: dict[str, list[Leaf]]) -> None:
        self.name, self.file = folder.name, SimpleNamespace(filename=str(folder))
        about = folder / "metadata.json"
        said = json.loads(about.read_text()) if about.is_file() else {}
        self.attrs = {key: said[key] for key in ("seed",) if isinstance(said.get(key), int)}
        self._table = table
        self._shapes = {
            "/".join((f"{kind}s", *leaf.path)): leaf.field.shape
            for kind, some in leaves.items()
            for leaf in some
            if leaf.field is not None
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.column_names)

    def get(self, name: str) -> np.ndarray | None:
        """Return an array by its path in HDF5, such as ``observations/goal``; None if there is none."""
        first, *parts = name.split("/")
        if first not in self._table.column_names:
            return None
        column = self._table.column(first).combine_chunks()
        for part in parts:
            key = part.removeprefix("_index_")
            if key not in {field.name for field in column.type}:
                return None
            column = column.field(key)
        values = _numbers(column, self._shapes.get(name, ()))
        return values[:-1] if first in _PADDED else values


def _numbers(column: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a column of numbers, or of lists of numbers that stand for arrays of a shape."""
    flat = column.flatten() if str(column.type).startswith("fixed_size_list") else column
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), *shape)


def arrow_episodes(folder: Path, kind: str, count: int, leaves: dict[str, list[Leaf]]) -> Iterator[ArrowEpisode]:
    """Yield the episodes of a data set, in order.

    Args:
        folder: the folder with a folder for each episode.
        kind: one of `FORMATS`.
        count: the number of episodes.
        leaves: see `ArrowEpisode`.

    Raises:
        SourceError: an episode is missing or damaged, or pyarrow is not installed.
    """
    try:
        import pyarrow as arrow
        from pyarrow import dataset
    except ImportError:
        raise SourceError(f"{folder} needs pyarrow: pip install 'rlenv-robot[parquet]'") from None
    for number in range(count):
        place = folder / str(number)
        if not place.is_dir():
            raise SourceError(f"{place} is missing, {count} episodes are told of; fetch the data set again")
        try:
            hidden = ["_", ".", "metadata.json"]
            table = dataset.dataset(str(place), format=kind, ignore_prefixes=hidden).to_table()
            yield ArrowEpisode(place, table, leaves)
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise SourceError(f"{place} can't be read ({error}); fetch the data set again") from error
