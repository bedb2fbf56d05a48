from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Field, SourceError, Spec, SpecMismatch
from recorder.frame_layout import FrameLayout
from recorder.images.sources import ImageSources
from recorder.table.combine import joined, subset
from recorder.table.load import build
from recorder.table.table import ImageSource, Table


@pytest.fixture
def table(tmp_path: Path, make_log: Callable[..., FrameLayout]) -> Table:
    make_log(tmp_path / "run", [4, 2, 3])
    return build(tmp_path / "run")


def episode(table: Table, number: int) -> bytes:
    return bytes(table.rows[table.starts[number] : table.stops[number]].tobytes())


def test_a_subset_has_these_episodes_in_this_order(table: Table) -> None:
    part = subset(table, [2, 0])
    assert [episode(part, 0), episode(part, 1)] == [episode(table, 2), episode(table, 0)]
    assert [info["episode"] for info in part.episodes] == [2, 0]
    with pytest.raises(SourceError, match="no episode 3"):
        subset(table, [3])


def test_joined_tables_keep_their_episodes_and_their_images(table: Table) -> None:
    opened = []

    def opener(path: Path) -> ImageSource | None:
        opened.append(path)
        return None

    other = Table(
        table.layout, table.rows, table.starts[1:], table.stops[1:], table.episodes[1:], "set", ("a note",), opener
    )
    both = joined([table, other], "both")
    assert [episode(both, number) for number in range(5)] == [episode(table, number) for number in (0, 1, 2, 1, 2)]
    assert both.notes == ("set: a note",)
    sources = ImageSources(both)
    assert sources.where(4) == "set"
    assert sources.at(sources.where(4)) is None
    assert opened == [Path("set")]
    assert sources.where(0) == table.origin


def test_tables_of_other_rows_are_not_joined(table: Table) -> None:
    layout = FrameLayout(Spec("o", (Field("x"),)), Spec("a", (Field("u"),)))
    other: Any = Table(layout, layout.spec.rows(2), np.array([0]), np.array([2]), ({},), "other")
    with pytest.raises(SpecMismatch, match="other"):
        joined([table, other], "both")
