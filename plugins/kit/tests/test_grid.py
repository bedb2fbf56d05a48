"""The kit sees each kind of perversion at any place and time that the grids hold (R4.3).

A run looks at a sample; ``RLENV_GRID=1`` looks at all cells, which takes hours, and ``RLENV_GRID=20`` at one in 20.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from plugins.kit.tests import grid_batches, grid_environments, grid_sources
from plugins.kit.tests.grid_perverted import Cell
from plugins.kit.tests.grid_worlds import WORLDS
from rlenv_kit import check_environment, check_source, check_vector
from rlenv_kit.report import Report

pytestmark = [pytest.mark.requirement("R4.3"), pytest.mark.slow]

PARTS: dict[str, tuple[Callable[[], list[Cell]], Callable[[Cell], Report], type[Any], int]] = {
    "environment": (grid_environments.cells, lambda cell: check_environment(lambda: cell.made()),
                    grid_environments.Perverted, 1300),
    "vector": (grid_batches.cells, lambda cell: check_vector(lambda num_envs: cell.made(num_envs)),
               grid_batches.PervertedBatch, 800),
    "source": (grid_sources.cells, lambda cell: check_source(lambda: cell.made()), grid_sources.PervertedSource, 1400),
}  # fmt: skip
"""Part -> its cells, its check, the class that counts what was perverted, and how many cells one stands for."""

SAMPLE = [
    pytest.param(part, cell, id=f"{part}-{cell.name}")
    for part, (cells, _, _, usual) in PARTS.items()
    for cell in cells()[5 :: int(os.environ.get("RLENV_GRID", usual))]
]


@pytest.mark.parametrize(("part", "cell"), SAMPLE)
def test_a_perversion_is_seen(part: str, cell: Cell) -> None:
    _, check, kind, _ = PARTS[part]
    before = _hits(kind)
    report = check(cell)
    if _hits(kind) == before and not report.failures:
        pytest.skip("the cell changes nothing of its subject")
    assert report.failures, report.lines(verbose=False)


def _hits(kind: type[Any]) -> int:
    return int(vars(kind).get("hits", 0)) + sum(map(_hits, kind.__subclasses__()))


@pytest.mark.parametrize("made", WORLDS)
def test_a_world_of_the_grid_is_not_accused(made: Any) -> None:
    check_environment(lambda: made()).raise_if_failed()
