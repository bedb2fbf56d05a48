from __future__ import annotations

from dataclasses import replace

import numpy as np

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_curate.checks.copies import check_copies
from rlenv_curate.checks.motion import check_motion
from rlenv_curate.checks.quality import scores
from rlenv_curate.checks.table import DataSet, Finding

PERIOD_NS, FRAMES, EPISODES = 40_000_000, 400, 5
LAYOUT = FrameLayout(
    Spec("o", (Field("joint_position", (2,), elements=("pan", "lift")),)),
    Spec("a", (Field("joint_target", (2,), elements=("pan", "lift")),)),
)


def made(rest: tuple[int, int] | None = None, jump: int | None = None, copy: bool = False) -> Table:
    """Joints that move on; the second episode rests from one frame to another, or its command jumps."""
    rng = np.random.default_rng(0)
    rows = LAYOUT.spec.rows(EPISODES * FRAMES)
    for episode in range(EPISODES):
        ill = rows[episode * FRAMES : (episode + 1) * FRAMES]
        time = np.arange(FRAMES) / 12.0
        if rest is not None and episode == 1:
            time[rest[0] : rest[1]] = time[rest[0]]
            time[rest[1] :] -= time[rest[1]] - time[rest[0]]
        path = np.stack([np.sin(time + rng.uniform(0, 6)), np.sin(1.3 * time + rng.uniform(0, 6))], 1)
        ill["observation_joint_position"] = path + rng.normal(0, 2e-4, path.shape)
        ill["action_joint_target"][1:] = path[1:]
        if jump is not None and episode == 1:
            ill["action_joint_target"][jump, 0] += 1.5
        ill["frame_no"], ill["episode"] = np.arange(FRAMES), episode
        ill["stamp_ns"] = np.arange(FRAMES) * PERIOD_NS
        ill["acted"] = np.arange(FRAMES) > 0
    if copy:
        rows[3 * FRAMES : 4 * FRAMES] = rows[:FRAMES]
        rows[4 * FRAMES :] = rows[FRAMES : 2 * FRAMES]
        rows["observation_joint_position"][4 * FRAMES :] += 1e-4
    starts = np.arange(EPISODES) * FRAMES
    infos = tuple({"episode": number, "end": "time"} for number in range(EPISODES))
    return Table(LAYOUT, rows, starts, starts + FRAMES, infos)


def test_steady_motion_has_no_findings() -> None:
    assert check_motion(DataSet(made())) == []
    assert check_copies(DataSet(made()), []) == []


def test_a_pause_amid_an_episode_and_rests_at_its_ends() -> None:
    for rest, kind in (((150, 270), "stall"), ((0, 120), "idle"), ((270, FRAMES - 1), "idle")):
        (finding,) = check_motion(DataSet(made(rest)))
        assert (finding.kind, finding.episode) == (kind, 1)
        assert abs(finding.first - rest[0]) <= 20
        assert abs(finding.last - rest[1]) <= 20
    assert check_motion(DataSet(made((150, 190)))) == []
    for begin in (0, 150, FRAMES - 81):  # 3.2 s, hardly more than what is reported
        assert [one.episode for one in check_motion(DataSet(made((begin, begin + 80))))] == [1]


def test_a_command_that_jumps_and_a_gripper_that_may() -> None:
    table = made(jump=200)
    (finding,) = check_motion(DataSet(table))
    assert (finding.kind, finding.episode, finding.field) == ("jump", 1, "action_joint_target[pan]")
    assert (finding.first, finding.last) == (200, 201)
    gripper = Spec("a", (Field("joint_target", (2,), elements=("gripper", "lift")),))
    assert check_motion(DataSet(replace(table, layout=replace(LAYOUT, action=gripper)))) == []


def test_copies_exact_and_up_to_rounding() -> None:
    findings = check_copies(DataSet(made(copy=True)), [])
    assert [(finding.kind, finding.episode) for finding in findings] == [("copy", 3), ("copy", 4)]
    assert "rows as episode 0" in findings[0].message
    assert "episode 1, up to rounding" in findings[1].message


def test_the_score_counts_kinds_and_shares() -> None:
    table = made()
    findings = [
        Finding("blank", 0, "camera top", 0, 99, ""),
        Finding("blank", 0, "camera side", 50, 99, ""),
        Finding("idle", 1, "", 0, 199, ""),
        Finding("lag", 2, "camera top", -1, -1, ""),
        Finding("jump", 3, "", 7, 7, ""),
        Finding("lag", -1, "camera top", -1, -1, ""),
    ]
    assert scores(table, findings) == [0.75, 0.85, 0.2, 0.95, 1.0]


def test_rests_of_most_episodes_are_one_finding() -> None:
    table = made()
    for episode in range(3):
        place = slice(episode * FRAMES + 200, (episode + 1) * FRAMES)
        for name in ("observation_joint_position", "action_joint_target"):
            table.rows[name][place] = table.rows[name][episode * FRAMES + 199]
    (finding,) = [one for one in check_motion(DataSet(table)) if one.kind == "idle"]
    assert finding.episode == -1
    assert "3 of 5" in finding.message
