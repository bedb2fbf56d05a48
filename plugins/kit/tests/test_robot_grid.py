"""The kit sees each fault of the grid of robots, and accuses none of the robots that it changes."""

from __future__ import annotations

import time

import pytest

from plugins.kit.tests.robot_bench import BENCHES, Bench, Cell
from plugins.kit.tests.robot_grid import cells, why_no_fault
from plugins.kit.tests.unusual_robots import ROBOTS
from rlenv_kit import Deadlines, check_robot

pytestmark = [pytest.mark.requirement("R4.3"), pytest.mark.slow]

CELLS = {name: cell for name, cell in cells().items() if not why_no_fault(name)}
DEADLINES = Deadlines(step=10.0, reset=10.0)
STRIDE = 331


@pytest.fixture(autouse=True)
def _no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no call wait, since the robots have clocks of their own."""
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(0))


def _is_seen(cell: Cell) -> bool:
    return bool(check_robot(cell.make, deadlines=DEADLINES).failures)


@pytest.mark.parametrize("name", sorted(CELLS)[7::STRIDE])
def test_a_sample_of_the_grid_is_seen(name: str) -> None:
    assert _is_seen(CELLS[name])


@pytest.mark.soak
@pytest.mark.parametrize("base", BENCHES)
def test_the_whole_grid_is_seen(base: type[Bench]) -> None:
    """It takes half an hour."""
    mine = {name: cell for name, cell in CELLS.items() if cell.base is base}
    assert [name for name, cell in mine.items() if not _is_seen(cell)] == []


@pytest.mark.parametrize("made", [*BENCHES, *ROBOTS])
def test_no_robot_of_the_grid_or_unusual_one_is_accused(made: type[Bench]) -> None:
    check_robot(made, deadlines=DEADLINES).raise_if_failed()
