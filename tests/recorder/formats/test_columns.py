"""A table of plain arrays holds what they hold, and gives them back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hal import SourceError
from recorder.formats.columns import table, table_columns
from recorder.table.transitions import Transitions


def columns() -> dict[str, Any]:
    return {
        "observation": {"position": np.arange(10.0).reshape(5, 2)},
        "action": {"force": np.array([1, 2, 0, 3, 0], np.float32)},
        "episode": np.array([4, 4, 4, 7, 7]),
        "reward": np.array([0.5, 0.25, np.nan, 1.0, np.nan]),
        "terminated": np.array([False, False, True, False, False]),
    }


def test_the_arrays_come_back() -> None:
    made = table(**columns(), rate_hz=10)
    assert (made.starts.tolist(), made.stops.tolist()) == ([0, 3], [3, 5])
    facts = Transitions.of(made).facts
    assert facts["reward"].tolist() == [0.5, 0.25, 1.0]
    assert (facts["terminated"].tolist(), facts["truncated"].tolist()) == ([0, 1, 0], [0, 0, 1])
    assert made.rows["stamp_ns"].tolist() == [0, 100_000_000, 200_000_000, 0, 100_000_000]
    returned, notes = table_columns(made)
    given = columns()
    for group in ("observation", "action"):
        for name, value in given[group].items():
            np.testing.assert_array_equal(returned[group][name], value)
    for name in ("reward", "terminated"):
        np.testing.assert_array_equal(returned[name], given[name])
    assert returned["episode"].tolist() == [0, 0, 0, 1, 1]
    assert notes == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"episode": np.zeros(0)}, r"episode has shape \(0,\)"),
        ({"episode": np.array([1, 1, 2, 1, 1])}, "do not follow one another"),
        ({"episode": np.array([1, 1, 1, 1, 2])}, "episode 2 has a single row"),
        ({"reward": np.zeros(4)}, r"reward has shape \(4,\), expected 5 rows"),
        ({"reward": np.zeros((5, 1))}, r"reward has shape \(5, 1\), expected \(5,\)"),
        ({"action": {"force": ["a"] * 5}}, "action 'force' has type <U1, expected numbers"),
        ({"infos": [{}]}, "infos are 1, expected one for each of 2 episodes"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(SourceError, match=problem):
        table(**{**columns(), **change})
