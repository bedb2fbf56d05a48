"""Text tables of any dialect give what pandas reads of them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import SourceError
from rlenv_formats.csv_files import read_csv, sniffed
from rlenv_formats.mapped import load_mapped

pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")

ROWS = [[k / 10, 1.5 * k, -2.25 * k, k * k] for k in range(6)]


def text(separator: str = ",", comma: bool = False, header: str | None = "t,q1,q2,u", before: str = "") -> str:
    lines = [separator.join(f"{value:.4f}".replace(".", "," if comma else ".") for value in row) for row in ROWS]
    named = [] if header is None else [header.replace(",", separator)]
    return before + "\n".join([*named, *lines]) + "\n"


def columns(path: Path, header: bool | None = None) -> tuple[tuple[str, ...], list[list[float]]]:
    table = read_csv(path, header=header)
    values = [table.columns.column(str(place)).to_pylist() for place in range(len(table.names))]
    return table.names, [list(row) for row in zip(*values, strict=True)]


@pytest.mark.parametrize(
    "content",
    [
        text(), text(";"), text("\t"), text(" "), text("   "), text(";", comma=True), text("\t", comma=True),
        text(before="# made by an arm\n"), text(before="Recorder 3\nDate: Monday\n\n"), text().replace("\n", "\r\n"),
        text().replace("\n1.", "\n# a remark\n1."), "\ufeff" + text(), text(header=None, before="# t,q1,q2,u\n"),
        text(" ", header=None, before="# t q1 q2 u\n"), text() + "0.6,9", text(header='"t","q1","q2","u"'),
    ],
)  # fmt: skip
def test_every_dialect_is_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.csv").write_text(content, encoding="utf-8", newline="")
    assert columns(tmp_path / "a.csv") == (("t", "q1", "q2", "u"), ROWS)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.csv").write_text(text(header="t,q1 [°],q2,u"), encoding=encoding)
    assert columns(tmp_path / "a.csv") == (("t", "q1 [°]", "q2", "u"), ROWS)


def test_a_table_without_names_has_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text(header=None))
    assert columns(tmp_path / "a.csv") == (("0", "1", "2", "3"), ROWS)
    assert columns(tmp_path / "a.csv", header=True)[1] == ROWS[1:]
    (tmp_path / "b.csv").write_text(text(header="0,1,2,3"))  # pandas' names of columns without names
    assert columns(tmp_path / "b.csv") == (("0", "1", "2", "3"), ROWS)
    names: dict[str, Any] = {"observation.q": [1, 2], "action": 3, "time": 0}
    table = load_mapped(tmp_path / "a.csv", names)
    assert table.rows["observation_q"].tolist() == [row[1:3] for row in ROWS]
    assert any("does not name its columns" in note for note in table.notes)
    table = load_mapped(tmp_path / "a.csv", {"observation.q": ["0"]})
    assert (len(table.rows), table.layout.action.names) == (6, ())
    assert any("observations alone" in note for note in table.notes)


def test_equal_names_are_chosen_by_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text(header="t,q,q,u"))
    with pytest.raises(SourceError, match="by its number: 1, 2"):
        load_mapped(tmp_path / "a.csv", {"observation.q": "q"})
    table = load_mapped(tmp_path / "a.csv", {"observation.q": ["1", "2"]})
    assert table.rows["observation_q"].tolist() == [row[1:3] for row in ROWS]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("", "is empty"),
        ("\n\n", "no line"),
        ("t,q\n0,rad\n1,2\n", "'rad'"),
        ("t,q\n0,1\n1,2,3\n2,3\n", "Expected 2 columns"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: str, word: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(SourceError, match=word):
        load_mapped(tmp_path / "a.csv", {"observation.q": "q"})


finite = st.floats(-1e9, 1e9, allow_nan=False)


@settings(max_examples=60)
@given(
    st.lists(st.lists(finite, min_size=3, max_size=3), min_size=1, max_size=30),
    st.sampled_from([",", ";", "\t", " "]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_numbers_come_back(rows: list[list[float]], separator: str, comma: bool, named: bool) -> None:
    comma = comma and separator != ","
    lines = [separator.join(repr(one).replace(".", ",") if comma else repr(one) for one in row) for row in rows]
    head = "\n".join([separator.join(("time", "q", "u")), *lines] if named else lines) + "\n"
    dialect = sniffed(head, named or None if rows and rows[0] == [0.0, 1.0, 2.0] else None)
    assert dialect.separator == separator or len(rows) + named == 1
    assert dialect.names == (("time", "q", "u") if named else ("0", "1", "2"))
    has_comma = any("," in cell for line in lines for cell in line.split(separator))
    assert dialect.decimal_comma == (comma and has_comma)


def test_a_character_that_python_takes_for_a_line_break_costs_no_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text(before="# an arm\x0bof\x0cours\x1c\u2028\x85\n"))
    assert columns(tmp_path / "a.csv") == (("t", "q1", "q2", "u"), ROWS)


def test_pandas_reads_the_same(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    rng = np.random.default_rng(0)
    for separator in (",", ";", "\t"):
        frame = pandas.DataFrame(rng.normal(size=(50, 4)), columns=["t", "q1", "q2", "u"])
        frame.to_csv(tmp_path / "a.csv", sep=separator)
        names, rows = columns(tmp_path / "a.csv")
        assert names == ("", "t", "q1", "q2", "u")  # the first is pandas' index
        again = pandas.read_csv(tmp_path / "a.csv", sep=separator, float_precision="round_trip")
        np.testing.assert_array_equal(np.array(rows), again.to_numpy())


def test_files_of_the_csv_module(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("w", newline="") as file:
        out = csv.writer(file, quoting=csv.QUOTE_ALL)
        out.writerows([["t", "q1", "q2", "u, desired"], *ROWS])
    assert columns(tmp_path / "a.csv") == (("t", "q1", "q2", "u, desired"), ROWS)
