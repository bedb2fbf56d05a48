"""Read text tables of any dialect: separators, decimal commas, comments, and with or without names of the columns."""

from __future__ import annotations

import csv
import mmap
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hal import SourceError
from rlenv_formats.foreign import check_file
from rlenv_formats.parquet_columns import ArrowTable, pyarrow_for

__all__ = ["Dialect", "TextTable", "read_csv", "sniffed"]

_CSV_BYTES = 4 << 30
_HEAD_BYTES = 256 << 10
_HEAD_LINES = 200
_SEPARATORS = (",", ";", "\t", " ")
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*|\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)
_COMMA_NUMBER = re.compile(r"\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class Dialect:
    """The dialect of a text table.

    Attributes:
        separator: between two columns; a space stands for any number of spaces and tabs.
        decimal_comma: whether numbers have a comma where English has a point.
        names: the names of the columns; their numbers from 0 if the table has none.
        has_header: whether the first row names its columns.
        skipped: number of lines before the first row of numbers.
        notes: a sentence for each thing that was guessed and may be wrong.
    """

    separator: str
    decimal_comma: bool
    names: tuple[str, ...]
    has_header: bool
    skipped: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextTable:
    """The columns of a text table.

    Attributes:
        names: the names of all columns, in order.
        columns: a pyarrow table, of which column k of the file is named ``str(k)``.
        notes: as in `Dialect`.
    """

    names: tuple[str, ...]
    columns: ArrowTable
    notes: tuple[str, ...]


def _cells(line: str, separator: str) -> list[str]:
    if separator == " ":
        return [line] if "\t" in line else line.split()  # a first cell before a tab may be empty
    return next(csv.reader([line], delimiter=separator), [])


def sniffed(head: str, header: bool | None = None) -> Dialect:
    """Return the dialect of a text table.

    Args:
        head: its first lines, all of them whole.
        header: whether it names its columns; None decides by whether the first row holds numbers alone.

    Raises:
        ValueError: there is no line.
    """
    lines = head.split("\n")  # as pyarrow and `_rows` count them: `splitlines` breaks at further characters
    kept = [(number, line) for number, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")]
    if not kept:
        raise ValueError("it has no line with columns")
    scores = {one: _score([line for _, line in kept], one) for one in _SEPARATORS}
    separator = max(_SEPARATORS, key=lambda one: scores[one])  # of equal ones the first
    width = scores[separator][2]
    if width < 2:
        separator = ","
    rows = [(number, _cells(line, separator)) for number, line in kept]
    first = next((place for place, (_, cells) in enumerate(rows) if len(cells) == width), 0)
    notes = [f"its first {first} lines are not columns and are left out"] if first else []
    body = [cells for _, cells in rows[first:]]
    numbers = separator != "," and any(_COMMA_NUMBER.fullmatch(cell) for cells in body for cell in cells)
    named = header if header is not None else _names_columns(body, numbers, notes)
    if named:
        names = [cell.strip().lstrip("\ufeff") for cell in body[0]]
        skipped = rows[first][0] + 1
    else:
        names, skipped = _commented(lines[: rows[first][0]], separator, width), rows[first][0]
        if header is None and not names:
            notes.append(
                f"it does not name its columns, which are numbered 0 to {width - 1}; otherwise give header=True"
            )
    names = names or [str(number) for number in range(width)]
    return Dialect(separator, numbers, tuple(names), named, skipped, tuple(notes))


def _score(lines: Sequence[str], separator: str) -> tuple[float, float, int]:
    """Return how well a separator fits: the share of lines of the usual width, that of numbers, and the width."""
    rows = [_cells(line, separator) for line in lines]
    width = Counter(map(len, rows)).most_common(1)[0][0]
    equal = [cells for cells in rows if len(cells) == width]
    if width < 2:
        return 0.0, 0.0, width
    form = (lambda cell: _is_number(cell) or _COMMA_NUMBER.fullmatch(cell)) if separator != "," else _is_number
    numbers = sum(bool(form(cell)) for cells in equal for cell in cells)
    share = len(equal) / len(rows)
    return (1.0 if share > 0.8 or len(rows) < 3 else share), numbers / (width * len(equal)), width


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def _names_columns(body: Sequence[Sequence[str]], decimal_comma: bool, notes: list[str]) -> bool:
    """Return whether the first row names the columns: it holds something else than numbers, or 0, 1, 2, ..."""
    first = [cell.strip() for cell in body[0]]
    form = _COMMA_NUMBER if decimal_comma else _NUMBER
    if not all(_is_number(cell) or form.fullmatch(cell) for cell in first):
        return True
    counted = first == [str(number) for number in range(len(first))] and len(first) > 2
    if counted and len(body) > 1 and any("." in cell or "," in cell for cell in body[1]):
        notes.append("its first row, 0, 1, 2, ..., is taken for the names of its columns; otherwise give header=False")
        return True
    return False


def _commented(lines: Sequence[str], separator: str, width: int) -> list[str]:
    """Return the names in the last comment before the rows, as NumPy's ``savetxt`` writes them; empty if none fit."""
    comments = [line.lstrip().lstrip("#").strip() for line in lines if line.lstrip().startswith("#")]
    names = [name.strip() for name in _cells(comments[-1], separator)] if comments else []
    return names if len(names) == width and len(set(names)) == width and not any(map(_is_number, names)) else []


def read_csv(file: Path, columns: Sequence[str] | None = None, header: bool | None = None) -> TextTable:
    """Read the columns of a text table.

    Args:
        file: the file.
        columns: names or numbers of the columns to read; unknown ones are left out. None reads all.
        header: see `sniffed`.

    Raises:
        SourceError: the file is missing, empty, too large or not a table, or pyarrow is not installed.
    """
    arrow = pyarrow_for(file)
    size = check_file(file).stat().st_size
    if size > _CSV_BYTES:
        raise SourceError(f"{file} is larger than {_CSV_BYTES} bytes; convert it to Parquet first")
    if not size:
        raise SourceError(f"{file} is empty; fetch or record it again")
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as whole:
            data = _utf8(whole)
            head, rest = _head(data)
            dialect = sniffed(head.decode("utf-8", errors="replace"), header)
            rows, notes = _rows(data, dialect, rest)
            width = len(dialect.names)
            chosen = range(width) if columns is None else sorted({_place(dialect.names, one) for one in columns} - {-1})
            table = _parsed(arrow, rows, dialect, [str(number) for number in chosen])
            return TextTable(dialect.names, table, (*dialect.notes, *notes))
    except (arrow.ArrowException, OSError, ValueError, csv.Error) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{file} is not a table of text (CSV): {error!s:.300}") from error


def _place(names: Sequence[str], column: str) -> int:
    """Return the number of a column by its name, or by its number; -1 if there is none."""
    if column in names:
        return names.index(column)
    return int(column) if column.isdecimal() and int(column) < len(names) else -1


def _utf8(whole: mmap.mmap) -> mmap.mmap | bytes:
    """Return the text in UTF-8; UTF-16 is recognised by its first bytes, and anything else is taken for Latin-1."""
    if whole[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return whole[:].decode("utf-16").encode()
    if whole[:3] == b"\xef\xbb\xbf":
        return whole[3:]
    try:
        whole[:_HEAD_BYTES].decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < min(len(whole), _HEAD_BYTES) - 4:
            return whole[:].decode("latin-1").encode()
    return whole


def _head(data: mmap.mmap | bytes) -> tuple[bytes, bool]:
    """Return the first whole lines, and whether more follow."""
    head = data[:_HEAD_BYTES]
    if len(data) > len(head):
        head = head[: head.rfind(b"\n") + 1] or head
    lines = head.splitlines(keepends=True)[:_HEAD_LINES]
    head = b"".join(lines)
    return head, len(head) < len(data)


def _rows(data: mmap.mmap | bytes, dialect: Dialect, rest: bool) -> tuple[Any, list[str]]:
    """Return the bytes of the rows alone, and a note if the last one is cut off."""
    start = 0
    for _ in range(dialect.skipped):
        start = data.find(b"\n", start) + 1 or len(data)
    stop, notes = len(data), []
    tail = data.rfind(b"\n", start, stop) + 1
    last = data[max(tail, start) : stop].decode("utf-8", errors="replace")
    if last.strip() and tail > start:
        if len(_cells(last, dialect.separator)) < len(dialect.names):
            stop, notes = tail, ["its last line is cut off and left out"]
        else:
            notes = ["its last line has no line break; if the recorder was stopped, its last number may be cut off"]
    commented = data.find(b"#", start, stop) >= 0
    if dialect.separator != " " and not commented:
        return memoryview(data)[start:stop] if isinstance(data, bytes) else data[start:stop], notes
    lines = (line for line in data[start:stop].splitlines() if not line.lstrip().startswith(b"#"))
    return b"\n".join(b" ".join(line.split()) if dialect.separator == " " else line for line in lines), notes


def _parsed(arrow: Any, rows: Any, dialect: Dialect, chosen: list[str]) -> ArrowTable:
    from pyarrow import csv as arrow_csv

    names = [str(number) for number in range(len(dialect.names))]
    return arrow_csv.read_csv(
        arrow.BufferReader(arrow.py_buffer(rows)),
        read_options=arrow_csv.ReadOptions(column_names=names),
        parse_options=arrow_csv.ParseOptions(delimiter=dialect.separator),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=chosen, decimal_point="," if dialect.decimal_comma else "."
        ),
    )
