from __future__ import annotations

import numpy as np
import pytest

from plugins.curate.tests.checks.test_following import EPISODES, FRAMES, LATE, made
from recorder.table.combine import subset
from recorder.table.table import Table
from rlenv_curate.checks.alignment import check_alignment
from rlenv_curate.checks.table import DataSet


def move(table: Table, episode: int, rows: int) -> None:
    """Move the commands of an episode by some rows against its measurements."""
    command = table.rows["action_joint_target"][episode * FRAMES + 1 : (episode + 1) * FRAMES]
    command[:] = command[np.clip(np.arange(len(command)) - rows, 0, len(command) - 1)]


def test_commands_that_all_lie_alike_have_no_findings() -> None:
    assert check_alignment(DataSet(made())) == []
    assert check_alignment(DataSet(subset(made(), [0]))) == []


@pytest.mark.parametrize(("rows", "word"), [(1, "1 row earlier"), (-1, "1 row later"), (2, "2 rows earlier")])
def test_an_episode_with_moved_commands_is_found(rows: int, word: str) -> None:
    table = made()
    move(table, 2, rows)
    (finding,) = check_alignment(DataSet(table))
    assert (finding.kind, finding.episode, finding.first, finding.last) == ("shifted", 2, 0, FRAMES - 1)
    assert word in finding.message


def test_of_two_episodes_neither_is_named_as_the_moved_one() -> None:
    table = subset(made(), [0, 1])
    move(table, 1, 1)
    findings = check_alignment(DataSet(table))
    assert findings
    assert {finding.episode for finding in findings} == {-1}


def test_a_whole_set_is_told_only_where_joints_move_before_their_commands() -> None:
    table = made()
    for episode in range(EPISODES):
        move(table, episode, LATE)
    assert check_alignment(DataSet(table)) == []
    for episode in range(EPISODES):
        move(table, episode, 2)
    (finding,) = check_alignment(DataSet(table))
    assert (finding.kind, finding.episode) == ("shifted", -1)
    assert "1 rows before" in finding.message


def test_arms_of_different_delays_are_no_finding() -> None:
    table = made()
    for episode, rows in enumerate((0, 1, -1, 2, 0)):
        move(table, episode, rows)
    assert check_alignment(DataSet(table)) == []


def test_arms_whose_delays_were_drawn_are_not_compared() -> None:
    table = made()
    move(table, 2, 2)
    for info in table.episodes:
        info["controller"] = {"conditions": {"timing": [["command_delay", "uniform from 0.01 to 0.065", "s"]]}}
    assert check_alignment(DataSet(table)) == []


def test_a_joint_that_stands_still_and_a_single_leap_change_nothing() -> None:
    table = made()
    table.rows["observation_joint_position"][:, 2] = 0.5
    for name in ("observation_joint_position", "action_joint_target"):
        table.rows[name][FRAMES + 100 : 2 * FRAMES, 0] += 3
    assert check_alignment(DataSet(table)) == []
    assert np.isfinite(table.rows["observation_joint_position"]).all()
