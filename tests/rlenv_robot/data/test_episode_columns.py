from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from recorder.table.load import build
from rlenv_robot.data.episode_columns import EpisodeColumns, column_groups, column_table, computed, load_columns
from tests.recorder.conftest import record


def test_values_are_plain(tmp_path: Path) -> None:
    record(tmp_path, [3, 2])
    columns = EpisodeColumns({"score": "REAL", "word": "TEXT"}, lambda table: {
        "score": np.array([1.5, np.nan]), "word": ["a", None],
    })  # fmt: skip
    assert computed("x", columns, build(tmp_path)) == {"score": [1.5, None], "word": ["a", None]}


@pytest.mark.parametrize("values", [{}, {"score": [1.0]}, {"score": [1.0, 2.0], "more": [1, 2]}])
def test_other_columns_than_declared_are_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    record(tmp_path, [3, 2])
    with pytest.raises(SourceError, match="expected 2 values for each of score"):
        computed("x", EpisodeColumns({"score": "REAL"}, lambda table: values), build(tmp_path))


@pytest.mark.parametrize(
    ("declared", "word"),
    [(3, "expected an EpisodeColumns"), (EpisodeColumns({"a b": "REAL"}, lambda t: {}), "identifier"),
     (EpisodeColumns({"a": "BLOB"}, lambda t: {}), "BLOB")],
)  # fmt: skip
def test_declarations_are_checked(monkeypatch: pytest.MonkeyPatch, declared: object, word: str) -> None:
    groups = column_table()
    groups.register("mine", declared)
    try:
        assert "mine" in column_groups()
        with pytest.raises(SourceError, match=word):
            load_columns("mine")
        with pytest.raises(SourceError, match="is unknown"):
            load_columns("yours")
    finally:
        groups.unregister("mine")
