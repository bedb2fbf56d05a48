"""Read and write Parquet files as numpy columns. pyarrow is imported on use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hal import SourceError
from recorder.json_data import JsonObject

__all__ = ["IMAGE", "TEXT", "Column", "ColumnWriter", "column", "pyarrow_for", "read_parquet", "writer"]


IMAGE = "image"
"""The dtype of a column of encoded images, stored as Hugging Face's data sets have them: bytes and path."""

TEXT = "text"
"""The dtype of a column of strings."""


@dataclass(frozen=True)
class Column:
    """A column to write.

    Attributes:
        name: the column's name.
        dtype: the type of one element: numpy's name, ``bool``, `IMAGE` or `TEXT`.
        size: length of the list in each row; None for one value in each row.
        about: texts by name, stored in the file as the column's metadata.
    """

    name: str
    dtype: str
    size: int | None = None
    about: Mapping[str, str] = field(default_factory=dict)


def pyarrow_for(what: Path | str) -> ModuleType:
    """Return the module pyarrow, with ``pyarrow.parquet``.

    Raises:
        SourceError: pyarrow is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError:
        raise SourceError(f"{what} needs pyarrow: pip install 'rlenv-robot[parquet]'") from None
    module: ModuleType = pyarrow
    return module


class ColumnWriter:
    """Appends rows to a file, one row group with each call."""

    def __init__(self, arrow: ModuleType, file: Any, columns: Sequence[Column]) -> None:
        self._arrow, self._file, self._columns = arrow, file, columns

    def write(self, values: JsonObject) -> None:
        """Append rows.

        Args:
            values: name -> (N, ...) for every column; for a column of images, N encoded images.
        """
        arrays = [self._array(one, values[one.name]) for one in self._columns]
        self._file.write_table(self._arrow.Table.from_arrays(arrays, schema=self._file.schema), row_group_size=2**30)

    def _array(self, one: Column, value: Any) -> Any:
        if one.dtype == IMAGE:
            cells = [{"bytes": encoded, "path": None} for encoded in value]
            return self._arrow.array(cells, type=_image(self._arrow))
        if one.dtype == TEXT:
            return self._arrow.array(value, type=self._arrow.string())
        flat = self._arrow.array(np.ascontiguousarray(value).reshape(-1).astype(one.dtype, copy=False))
        return flat if one.size is None else self._arrow.FixedSizeListArray.from_arrays(flat, one.size)


def _image(arrow: ModuleType) -> Any:
    return arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])


def _element(arrow: ModuleType, dtype: str) -> Any:
    if dtype == IMAGE:
        return _image(arrow)
    return arrow.string() if dtype == TEXT else arrow.from_numpy_dtype(np.dtype(dtype))


@contextmanager
def writer(path: Path, columns: Sequence[Column], metadata: Mapping[str, str] | None = None) -> Iterator[ColumnWriter]:
    """Open a file to append rows to; the file is complete once the block ends.

    Args:
        path: the file, which is made anew.
        columns: the columns, in the file's order.
        metadata: texts by name, stored in the file.

    Raises:
        SourceError: pyarrow is not installed.
    """
    arrow = pyarrow_for(path)
    fields = []
    for one in columns:
        element = _element(arrow, one.dtype)
        kind = element if one.size is None else arrow.list_(element, one.size)
        fields.append(arrow.field(one.name, kind, metadata=dict(one.about) or None))
    schema = arrow.schema(fields, metadata=dict(metadata) if metadata else None)
    with arrow.parquet.ParquetWriter(path, schema, compression="snappy") as file:
        yield ColumnWriter(arrow, file, columns)


def read_parquet(path: Path, columns: list[str] | None = None) -> Any:
    """Read a file as a pyarrow table.

    Args:
        path: the file.
        columns: names of the columns to read; columns that the file lacks are left out. None reads all.

    Raises:
        SourceError: pyarrow is not installed, or the file is missing or damaged.
    """
    pyarrow = pyarrow_for(path)
    if not path.is_file():
        raise SourceError(f"{path} is missing; the data set is incomplete, fetch it again")
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            existing = set(file.schema_arrow.names)
            return file.read(columns=None if columns is None else [name for name in columns if name in existing])
    except (OSError, pyarrow.ArrowException) as error:
        raise SourceError(f"{path} can't be read ({error}); fetch it again") from error


def column(table: Any, name: str, dtype: Any, shape: tuple[int, ...], where: str) -> np.ndarray:
    """Return one column, of shape (rows, *shape).

    Raises:
        SourceError: the column is missing, has empty values, or has another shape.
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
        raise SourceError(f"{where}: column {name!r} holds {flat.dtype}, expected numbers")
    if flat.size != table.num_rows * int(np.prod(shape)):
        raise SourceError(
            f"{where}: column {name!r} has {flat.size} numbers for {table.num_rows} rows of shape {shape}"
        )
    return np.asarray(flat, dtype).reshape(table.num_rows, *shape)
