from __future__ import annotations

import numpy as np
import pytest

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_curate.checks.following import check_following
from rlenv_curate.checks.motion import check_motion
from rlenv_curate.checks.table import DataSet

PERIOD_NS, FRAMES, EPISODES, LATE = 40_000_000, 300, 5, 3
NAMES = ("pan", "lift", "gripper")


def made(names: tuple[str, ...] = NAMES) -> Table:
    """Three joints that follow their commands three frames late, with noise of a sensor."""
    rng = np.random.default_rng(0)
    fields = (Field("joint_position", (3,), elements=names),), (Field("joint_target", (3,), elements=names),)
    layout = FrameLayout(Spec("o", fields[0]), Spec("a", fields[1]))
    rows = layout.spec.rows(EPISODES * FRAMES)
    for episode in range(EPISODES):
        part = rows[episode * FRAMES : (episode + 1) * FRAMES]
        time = np.arange(-LATE, FRAMES)[:, None] / 12.0 * [1.0, 1.3, 0.7] + rng.uniform(0, 6, 3)
        part["observation_joint_position"] = np.sin(time[:-LATE]) + rng.normal(0, 3e-4, (FRAMES, 3))
        part["action_joint_target"][1:] = np.sin(time[LATE + 1 :])
        part["frame_no"], part["episode"] = np.arange(FRAMES), episode
        part["stamp_ns"] = np.arange(FRAMES) * PERIOD_NS
        part["acted"] = np.arange(FRAMES) > 0
    starts = np.arange(EPISODES) * FRAMES
    return Table(layout, rows, starts, starts + FRAMES, tuple({"episode": n, "end": "time"} for n in range(EPISODES)))


def stand(table: Table, begin: int, end: int) -> None:
    """Let all joints of the second episode stand, with noise, from one frame to another."""
    measured = table.rows["observation_joint_position"][FRAMES : 2 * FRAMES]
    measured[begin:end] = measured[begin] + np.random.default_rng(1).normal(0, 3e-4, (end - begin, 3))


def test_joints_that_follow_have_no_findings() -> None:
    assert check_following(DataSet(made())) == []
    assert check_following(DataSet(made(()))) == []


@pytest.mark.parametrize("element", range(3))
def test_a_reversed_joint_is_found_by_name_and_episode(element: int) -> None:
    table = made()
    table.rows["observation_joint_position"][3 * FRAMES : 4 * FRAMES, element] *= -1
    (finding,) = check_following(DataSet(table))
    assert (finding.kind, finding.episode) == ("reversed", 3)
    assert finding.field == f"observation_joint_position[{NAMES[element]}]"


def test_a_sign_that_is_reversed_in_commands_too_is_found_by_where_the_joint_begins() -> None:
    table = made()
    for episode in range(EPISODES):
        part = table.rows[episode * FRAMES : (episode + 1) * FRAMES]
        for name in ("observation_joint_position", "action_joint_target"):
            part[name][:, 1] = 2 + 0.3 * (part[name][:, 1] - part["observation_joint_position"][0, 1])
    assert check_following(DataSet(table)) == []
    for name in ("observation_joint_position", "action_joint_target"):
        table.rows[name][3 * FRAMES : 4 * FRAMES, :2] *= -1
    (finding,) = check_following(DataSet(table))  # the other joint begins anywhere, and is as usual either way
    assert (finding.kind, finding.episode, finding.field) == ("reversed", 3, "observation_joint_position[lift]")


def test_a_joint_that_is_reversed_in_every_episode_is_as_usual() -> None:
    table = made()
    table.rows["observation_joint_position"][:, 0] *= -1
    assert check_following(DataSet(table)) == []


@pytest.mark.parametrize("names", [NAMES, ()])
def test_a_robot_that_stands_while_it_is_commanded(names: tuple[str, ...]) -> None:
    table = made(names)
    stand(table, 100, 150)
    (finding,) = check_following(DataSet(table))
    assert (finding.kind, finding.episode) == ("stall", 1)
    assert abs(finding.first - 100) <= 2
    assert abs(finding.last - 149) <= 2


def test_a_robot_that_rests_as_commanded_or_holds_a_thing_is_not_stalled() -> None:
    for still in (slice(0, 3), slice(0, 2)):  # the gripper's command goes on where the thing stops the fingers
        table = made()
        stand(table, 100, 150)
        command = table.rows["action_joint_target"][FRAMES : 2 * FRAMES]
        command[95:150, still] = command[95, still]
        assert check_following(DataSet(table)) == []


def test_a_single_wrong_value_is_found_and_a_step_or_a_turn_is_not() -> None:
    for change, found in ((1.0, True), (2 * np.pi, False)):
        table = made()
        table.rows["observation_joint_position"][2 * FRAMES + 70, 1] += change
        findings = check_motion(DataSet(table))
        assert [(one.kind, one.episode, one.first, one.last) for one in findings] == [("spike", 2, 70, 70)] * found
    table = made()
    table.rows["observation_joint_position"][2 * FRAMES + 70 : 3 * FRAMES, 1] += 1.0
    assert check_motion(DataSet(table)) == []
