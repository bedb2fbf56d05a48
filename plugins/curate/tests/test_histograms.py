"""Histograms of a data set: each panel counts what the table holds, and nothing is hidden without a word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib.axes import Axes

from hal import Field, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.combine import subset
from recorder.table.load import build
from recorder.table.table import Table
from rlenv_curate.histograms import plot_histograms


@pytest.fixture
def table(tmp_path: Path, make_log: Callable[..., FrameLayout]) -> Table:
    make_log(tmp_path / "run", [40, 60, 50])
    return build(tmp_path / "run")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Values that were handed to a histogram."""
    drawn: list[np.ndarray] = []
    draw = Axes.hist

    def hist(axis: Axes, values: np.ndarray, *arguments: Any, **options: Any) -> Any:
        drawn.append(np.asarray(values))
        return draw(axis, values, *arguments, **options)

    monkeypatch.setattr(Axes, "hist", hist)
    return drawn


def test_each_panel_counts_what_the_table_holds(table: Table, counted: list[np.ndarray], tmp_path: Path) -> None:
    path = plot_histograms(table, tmp_path / "new" / "histograms.png")
    assert path.read_bytes()[:4] == b"\x89PNG"
    rewards = [
        table.rows["reward"][start + 1 : stop].sum() for start, stop in zip(table.starts, table.stops, strict=True)
    ]
    acted = np.concatenate(
        [
            table.rows["action_joint_target"][start + 1 : stop]
            for start, stop in zip(table.starts, table.stops, strict=True)
        ]
    )
    assert np.allclose(counted[0], rewards)
    assert counted[1].tolist() == [39, 59, 49]
    assert np.allclose(counted[-2], acted[:, 0])
    assert np.allclose(counted[-1], acted[:, 1])


def test_actions_beyond_the_twelfth_are_named(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = FrameLayout(Spec("o", (Field("a", ()),)), Spec("a", (Field("many", (20,)),)))
    rows = wide.spec.rows(10)
    rows["action_many"] = np.random.default_rng(0).normal(size=(10, 20))
    many = Table(wide, rows, np.array([0]), np.array([10]), ({},), "many")
    titles: list[str] = []
    monkeypatch.setattr("rlenv_curate.histograms.heading", lambda figure, title, facts: titles.extend(facts))
    plot_histograms(many, tmp_path / "many.svg")
    assert any("8 more" in title for title in titles)


def test_values_that_are_all_the_same_or_missing_are_written(table: Table, tmp_path: Path) -> None:
    rows = np.array(table.rows)
    rows["reward"], rows["action_joint_target"] = np.nan, 0.5
    path = plot_histograms(replace(table, rows=rows), tmp_path / "same.svg")
    assert path.stat().st_size > 1000
    with pytest.raises(SourceError):
        plot_histograms(subset(table, []), tmp_path / "none.png")
