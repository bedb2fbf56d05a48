"""Parquet files as numpy columns; pyarrow is imported only here and only on use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError

__all__ = ["column", "read_parquet"]


def read_parquet(path: Path, columns: list[str] | None = None) -> Any:
    """A pyarrow table.

    Args:
        path: of the file.
        columns: which; those that the file lacks are left out.

    Raises:
        SourceError: pyarrow is not installed, or the file is missing or damaged.
    """
    try:
        import pyarrow.parquet
    except ImportError:
        raise SourceError(f"{path} needs pyarrow to be read: pip install 'rlenv-robot[parquet]'") from None
    if not path.is_file():
        raise SourceError(f"{path} is missing; the data set is incomplete, fetch it again")
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            there = set(file.schema_arrow.names)
            return file.read(columns=None if columns is None else [name for name in columns if name in there])
    except (OSError, pyarrow.ArrowException) as error:
        raise SourceError(f"{path} can't be read ({error}); fetch it again") from error


def column(table: Any, name: str, dtype: Any, shape: tuple[int, ...], where: str) -> np.ndarray:
    """One column, of shape (rows, *shape).

    Raises:
        SourceError: it is missing, holds nothing in places, or has another shape.
    """
    if name not in table.column_names:
        raise SourceError(f"{where} has no column {name!r}, it has {', '.join(table.column_names)}")
    values = table.column(name).combine_chunks()
    while not values.null_count and hasattr(values, "flatten") and hasattr(values.type, "value_type"):
        values = values.flatten()
    if values.null_count:
        raise SourceError(f"{where}: column {name!r} has {values.null_count} empty values, none are allowed")
    flat = values.to_numpy(zero_copy_only=False)
    if flat.dtype.kind not in "fiub":
        raise SourceError(f"{where}: column {name!r} holds {flat.dtype}, wanted numbers")
    if flat.size != table.num_rows * int(np.prod(shape)):
        raise SourceError(
            f"{where}: column {name!r} has {flat.size} numbers for {table.num_rows} rows of shape {shape}"
        )
    return np.asarray(flat, dtype).reshape(table.num_rows, *shape)
