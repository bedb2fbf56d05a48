from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from plugins.curate.tests.checks.test_motion import EPISODES, FRAMES, made
from recorder.table.table import Table
from rlenv_curate.checks.lost_rows import check_lost_rows
from rlenv_curate.checks.table import DataSet

NAMES = ("observation_joint_position", "action_joint_target")


def lose(table: Table, episode: int, rows: list[int]) -> None:
    """Remove rows of an episode, and fill its end up with copies of its last row."""
    kept = np.setdiff1d(np.arange(FRAMES), rows)
    kept = np.append(kept, np.full(len(rows), FRAMES - 1)) + episode * FRAMES
    for name in NAMES:
        table.rows[name][episode * FRAMES : (episode + 1) * FRAMES] = table.rows[name][kept]


def rounded(table: Table) -> Table:
    """Round the measurements as an encoder does, so that neighbouring rows may be equal."""
    rows = table.rows.copy()
    for name in NAMES:
        rows[name] = np.round(rows[name], 3)
        rows[name][40:60] = rows[name][40]
    return replace(table, rows=rows)


def test_steady_motion_has_no_findings() -> None:
    assert check_lost_rows(DataSet(made())) == []
    assert check_lost_rows(DataSet(rounded(made()))) == []


def test_copies_at_an_end_are_counted() -> None:
    table = made()
    lose(table, 1, [100, 150, 200])
    findings = {finding.kind: finding for finding in check_lost_rows(DataSet(table))}
    assert findings["padded"].episode == 1
    assert (findings["padded"].first, findings["padded"].last) == (FRAMES - 3, FRAMES - 1)


def test_copies_tell_nothing_where_rows_repeat_anyway() -> None:
    table = rounded(made())
    lose(table, 1, [100, 150, 200])
    assert "padded" not in {finding.kind for finding in check_lost_rows(DataSet(table))}


def test_copies_in_most_episodes_are_one_finding() -> None:
    table = made()
    for episode in range(EPISODES):
        lose(table, episode, [100, 101])
    assert [one.episode for one in check_lost_rows(DataSet(table)) if one.kind == "padded"] == [-1]


@pytest.mark.parametrize("rows", [list(range(100, 105)), list(range(60, 340, 20))])
def test_a_leap_and_many_steps_of_twice_the_length_are_found(rows: list[int]) -> None:
    table = made()
    table.rows["observation_joint_position"] += np.random.default_rng(3).normal(0, 1e-3, (len(table.rows), 2))
    lose(table, 1, rows)
    skipped = [one for one in check_lost_rows(DataSet(table)) if one.kind == "skipped"]
    assert [one.episode for one in skipped] == [1]
    assert abs(skipped[0].first - rows[0]) <= 2
