from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from hal import SourceError
from recorder.formats import registry
from recorder.formats.bags.mapping import EXAMPLE
from recorder.table.table import Table


def test_every_name_has_its_functions() -> None:
    for name in registry.WRITERS:
        write = getattr(importlib.import_module(registry.WRITERS[name]), f"write_{name}")
        assert list(inspect.signature(write).parameters)[:2] == ["table", "path"]
    for name in registry.READERS:
        module = importlib.import_module(registry.READERS[name])
        assert callable(getattr(module, f"is_{name}"))
        assert callable(getattr(module, f"load_{name}"))


def test_a_writer_writes_and_its_reader_is_found(tmp_path: Path, make_table: Callable[..., Table]) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = make_table()
    assert registry.writers()["parquet"](table, tmp_path / "out") == []
    back = registry.read_any(tmp_path / "out")
    assert back is not None
    assert back.rows.tobytes() == table.rows.tobytes()


def test_what_looks_like_nothing_is_none(tmp_path: Path) -> None:
    assert registry.read_any(tmp_path) is None
    with pytest.raises(SourceError, match="does not exist"):
        registry.read_any(tmp_path / "nowhere")


def test_the_page_names_them_all() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "formats.md").read_text()
    for name in registry.WRITERS:
        assert f"| `{name}` |" in page
    assert EXAMPLE in page
