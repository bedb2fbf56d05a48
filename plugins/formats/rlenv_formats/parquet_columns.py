"""Read and write Parquet files as NumPy columns. pyarrow is imported on use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hal import SourceError
from recorder.json_data import JsonObject
from rlenv_formats.foreign import check_file, check_memory
from rlenv_formats.remote.mirror import opened, size_of

__all__ = [
    "IMAGE", "TEXT", "ArrowTable", "Column", "ColumnWriter", "RowGroups", "check_parquet", "column",
    "concatenated_tables", "integers", "parquet_groups", "pyarrow_for", "read_parquet", "writer",
]  # fmt: skip


ArrowTable = Any
"""A pyarrow table, or the metadata of a file; pyarrow has no type hints."""

IMAGE = "image"
"""The dtype of a column of encoded images, stored as in Hugging Face's data sets: bytes and path."""

TEXT = "text"
"""The dtype of a column of strings."""


@dataclass(frozen=True)
class Column:
    """A column to write.

    Attributes:
        name: the column's name.
        dtype: the type of one element: numpy's name, ``bool``, `IMAGE` or `TEXT`.
        size: length of the list in each row; None for one value in each row.
        about: metadata of the column, name -> text.
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
    """Append rows to a file, one row group per call."""

    def __init__(self, arrow: ModuleType, file: Any, columns: Sequence[Column]) -> None:
        self._arrow, self._file, self._columns = arrow, file, columns

    def write(self, values: JsonObject) -> None:
        """Append rows to the file as one row group.

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
            texts = value.reshape(-1).tolist() if isinstance(value, np.ndarray) else value
            cells = self._arrow.array(texts, type=self._arrow.string())
            return cells if one.size is None else self._arrow.FixedSizeListArray.from_arrays(cells, one.size)
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
        path: the file, which is replaced if it exists.
        columns: the columns, in the file's order.
        metadata: metadata of the file, name -> text.

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


def _source(path: Path) -> Path | RawIOBase:
    """Return a file that pyarrow opens: a path, or a reader of the parts of a remote file.

    Raises:
        SourceError: the file is missing, or a Git LFS pointer.
    """
    source = opened(path)
    return check_file(source) if isinstance(source, Path) else source


def check_parquet(path: Path, columns: Sequence[str] | None = None) -> None:
    """Check that a file exists and does not claim implausibly much memory for its size.

    Raises:
        SourceError: the file is missing, damaged or a Git LFS pointer, or claims far more numbers than it can hold.
    """
    pyarrow = pyarrow_for(path)
    source = _source(path)
    try:
        with pyarrow.parquet.ParquetFile(source) as file:
            check_memory(path, _decoded_bytes(file, columns), size_of(path))
    except SourceError:
        raise
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise SourceError(f"{path} can't be read ({error}); fetch it again") from error


def read_parquet(path: Path, columns: list[str] | None = None) -> ArrowTable:
    """Read a file as a pyarrow table.

    Args:
        path: the file.
        columns: names of the columns to read; columns that the file lacks are left out. None reads all.

    Raises:
        SourceError: pyarrow is not installed, or the file is missing or damaged.
    """
    pyarrow = pyarrow_for(path)
    source = _source(path)
    try:
        with pyarrow.parquet.ParquetFile(source) as file:
            existing = set(file.schema_arrow.names)
            chosen = None if columns is None else [name for name in columns if name in existing]
            check_memory(path, _decoded_bytes(file, chosen), size_of(path))
            return file.read(columns=chosen)
    except SourceError:
        raise
    except (OSError, ValueError, TypeError, IndexError, OverflowError, pyarrow.ArrowException) as error:
        raise SourceError(f"{path} can't be read ({error}); fetch it again") from error


def parquet_groups(path: Path, columns: list[str]) -> Iterator[ArrowTable]:
    """Yield a file's row groups as pyarrow tables, one in memory at a time.

    Raises:
        SourceError: as for `read_parquet`.
    """
    check_parquet(path, columns)
    pyarrow = pyarrow_for(path)
    try:
        with pyarrow.parquet.ParquetFile(_source(path)) as file:
            existing = set(file.schema_arrow.names)
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, [name for name in columns if name in existing])
    except (OSError, ValueError, TypeError, IndexError, OverflowError, pyarrow.ArrowException) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{path} can't be read ({error}); fetch it again") from error


_BATCH_ROWS, _BUFFER_BYTES = 1 << 15, 1 << 20
"""Rows decoded at once, and bytes of each column read at once."""


class RowGroups:
    """Read chosen row groups of a file, some rows at a time, so that files and groups may have any size.

    Args:
        path: the file.
        columns: names of the columns to read; columns that the file lacks are left out.

    Attributes:
        counts: the number of rows in each row group, (G,) int64.
        names: the names of all columns in the file, in order.

    Raises:
        SourceError: as for `read_parquet`.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path, self._arrow = path, pyarrow_for(path)
        source = _source(path)
        with self._errors():
            # Of a remote file a column of a row group is asked for at once. Buffering ahead would hold the whole file.
            buffered = _BUFFER_BYTES if isinstance(source, Path) else 0
            self._file = self._arrow.parquet.ParquetFile(source, buffer_size=buffered, pre_buffer=False)
            self.names: tuple[str, ...] = tuple(self._file.schema_arrow.names)
            self._columns = [name for name in columns if name in self.names]
            check_memory(path, _decoded_bytes(self._file, self._columns), size_of(path))
            metadata = self._file.metadata
            self.counts = np.array([metadata.row_group(one).num_rows for one in range(metadata.num_row_groups)], int)

    def batches(self, groups: Sequence[int], columns: Sequence[str] | None = None) -> Iterator[ArrowTable]:
        """Yield the rows of row groups in order, as pyarrow tables.

        Args:
            groups: numbers of the row groups.
            columns: names of some of the columns; None reads all columns named in the constructor.

        Raises:
            SourceError: the file is damaged.
        """
        names = self._columns if columns is None else [name for name in columns if name in self._columns]
        with self._errors():
            for batch in self._file.iter_batches(_BATCH_ROWS, list(groups), names) if len(groups) else ():
                yield self._arrow.Table.from_batches([batch])

    def read(self, columns: Sequence[str] | None = None) -> ArrowTable:
        """Return the rows of all row groups.

        Raises:
            SourceError: the file is damaged.
        """
        with self._errors():
            return self._file.read(self._columns if columns is None else list(columns))

    def close(self) -> None:
        """Close the file. Safe to call more than once."""
        self._file.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SourceError:
            raise
        except (OSError, ValueError, TypeError, IndexError, OverflowError, self._arrow.ArrowException) as error:
            raise SourceError(f"{self._path} can't be read ({error}); fetch it again") from error


def concatenated_tables(tables: Sequence[ArrowTable]) -> ArrowTable:
    """Concatenate tables of the same columns, at least one, without copying rows."""
    if len(tables) == 1:
        return tables[0]
    import pyarrow

    return pyarrow.concat_tables(tables)


_TEXT_BYTES = 16
"""Memory overhead of a string or a list, bytes."""


def _decoded_bytes(file: ArrowTable, columns: Sequence[str] | None) -> int:
    """Return about how much memory the columns of an open file take, by its own description.

    The description of a column chunk is not looked at: where that is damaged, pyarrow ends the process.
    """
    fields = [field for field in file.schema_arrow if columns is None or field.name in columns]
    stored = sum(file.metadata.row_group(group).total_byte_size for group in range(file.metadata.num_row_groups))
    return max(int(file.metadata.num_rows) * max(sum(_width(field.type) for field in fields), 1), int(stored))


def _width(kind: ArrowTable) -> int:
    """Return the bytes of one value of a type; a list of any length and a string count as `_TEXT_BYTES`."""
    if hasattr(kind, "list_size"):
        return int(kind.list_size) * _width(kind.value_type)
    if kind.num_fields and not hasattr(kind, "value_type"):
        return sum(_width(kind.field(number).type) for number in range(kind.num_fields))
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:  # no fixed width
        return _TEXT_BYTES


def column(table: ArrowTable, name: str, dtype: Any, shape: tuple[int, ...], where: str) -> np.ndarray:
    """Return one column as an array, (rows, *shape).

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
    if np.dtype(dtype).kind == "U":
        return _texts(values.to_pylist(), name, np.dtype(dtype), (table.num_rows, *shape), where)
    flat = values.to_numpy(zero_copy_only=False)
    if flat.dtype.kind not in "fiub":
        raise SourceError(f"{where}: column {name!r} holds {flat.dtype}, expected numbers")
    if flat.size != table.num_rows * int(np.prod(shape)):
        raise SourceError(
            f"{where}: column {name!r} has {flat.size} numbers for {table.num_rows} rows of shape {shape}"
        )
    if np.dtype(dtype).kind in "iu" and flat.dtype.kind == "f" and not np.isfinite(flat).all():
        raise SourceError(f"{where}: column {name!r} has NaN or infinite values, expected whole numbers")
    with np.errstate(invalid="ignore", over="ignore"):  # a float64 beyond float32 becomes infinite, which checks report
        return np.asarray(flat, dtype).reshape(table.num_rows, *shape)


def integers(cell: ArrowTable) -> np.ndarray | object:
    """Return a cell with a list of whole numbers as an int64 array, and any other cell as a Python object."""
    values = getattr(cell, "values", None)
    if values is None or values.null_count or not str(values.type).startswith(("int", "uint")):
        other: object = cell.as_py()
        return other
    return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)


def _texts(values: list[object], name: str, dtype: np.dtype, shape: tuple[int, ...], where: str) -> np.ndarray:
    """Return strings as an array.

    Raises:
        SourceError: a value is no text, one is too long, or there are more or fewer.
    """
    longest = dtype.itemsize // 4
    wrong = next((one for one in values if not isinstance(one, str) or len(one) > longest or "\0" in one), None)
    if wrong is not None:
        raise SourceError(f"{where}: column {name!r} holds {wrong!r:.80}, expected texts of up to {longest} characters")
    if len(values) != int(np.prod(shape)):
        raise SourceError(f"{where}: column {name!r} has {len(values)} texts for shape {shape}")
    return np.array(values, dtype).reshape(shape)
