"""A table whose parts do not fit together is refused with the name of its format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from recorder.formats.columns import table
from recorder.formats.registry import Format, register_format, unregister_format, writable_format
from recorder.table.table import Table


def whole() -> Table:
    position = np.arange(4, dtype=float)
    return table(observation={"position": position}, action={"force": position}, episode=[0, 0, 1, 1])


def read(returned: Any, tmp_path: Path) -> Table:
    return Format("mine", lambda path: True, lambda path: returned).read(tmp_path)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"stops": np.array([2, 9])}, r"episode 1 is rows\[2:9\], which is not within the 4 rows"),
        ({"starts": np.array([-1, 2])}, r"episode 0 is rows\[-1:2\]"),
        ({"stops": np.array([2])}, "one entry for each episode, they have 2, 1 and 2"),
        ({"episodes": ()}, "they have 2, 2 and 0"),
        ({"starts": np.zeros(0), "stops": np.zeros(0), "episodes": ()}, "the table has no episode"),
        ({"rows": np.zeros(4)}, "rows are not"),
        ({"layout": None}, "layout is a NoneType"),
    ],
)
def test_it_is_refused(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=rf"format 'mine'.*{problem}"):
        read(replace(whole(), **change), tmp_path)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="format 'mine' returned a NoneType, expected a Table"):
        read(None, tmp_path)


def test_a_note_says_what_the_rows_lack(tmp_path: Path) -> None:
    lacking = whole()
    lacking.rows["observation_position"][1] = np.nan
    lacking.rows["truncated"] = 0
    notes = read(lacking, tmp_path).notes
    assert "observation 'position' is NaN in some rows" in notes
    assert any("2 episodes have no end flag" in note for note in notes)


def test_a_writer_that_returns_nothing_is_named(tmp_path: Path) -> None:
    register_format(Format("mine", lambda path: False, lambda path: whole(), lambda table, path: None))  # type: ignore[arg-type, return-value]
    try:
        with pytest.raises(SourceError, match="format 'mine': write returned None, expected a list"):
            writable_format("mine")[1](whole(), tmp_path)
    finally:
        unregister_format("mine")
