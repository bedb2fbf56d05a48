from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Field, LogError, SourceError, Spec
from recorder.figures.plot import FAULT, GOAL, MEASURED, PERSON, pick_lines, plot_episode
from recorder.frame_layout import FrameLayout
from recorder.table.load import build
from recorder.table.table import Table

pytest.importorskip("matplotlib")


def amount(path: Path, colour: str) -> int:
    """Pixels of about that colour; thin lines are blended with the white around them."""
    from matplotlib.image import imread

    wanted = np.frombuffer(bytes.fromhex(colour[1:]), np.uint8)
    return int((np.abs(imread(path)[..., :3] * 255 - wanted).max(-1) < 45).sum())


@pytest.mark.requirement("R1.5")
def test_a_sheet_shows_what_happened(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path / "run", [40])
    table = build(tmp_path / "run")
    rows = np.array(table.rows)
    rows["stamp_ns"] = np.arange(40) * 33_000_000
    plain = plot_episode(Table(table.layout, rows, table.starts, table.stops, table.episodes), 0, tmp_path / "a.png")
    assert min(amount(plain, GOAL), amount(plain, MEASURED)) > 500
    assert amount(plain, FAULT) < 20
    rows["intervention"][10:20] = 1
    rows["acted"][5] = 0
    rows["frame_no"][5:] -= 1  # the refused action's frame number did not rise
    marked = plot_episode(Table(table.layout, rows, table.starts, table.stops, table.episodes), 0, tmp_path / "b.png")
    assert amount(marked, FAULT) > amount(plain, FAULT) + 20
    assert amount(marked, PERSON) > amount(plain, PERSON) + 5_000


def test_measurements_meet_their_goals() -> None:
    joints = Field("joint_position", (2,), unit="rad", elements=("shoulder_pan", "gripper"))
    layout = FrameLayout(Spec("o", (joints,)), Spec("a", (Field("joint_target", (2,)),)))
    rows = layout.spec.rows(3)
    rows["observation_joint_position"], rows["action_joint_target"] = 1, 2
    lines = pick_lines(layout, rows)
    assert lines.names == ("shoulder pan", "gripper")
    assert lines.goal is not None
    assert (lines.measured == 1).all()
    assert (lines.goal == 2).all()


def test_a_board_game_is_drawn_in_part_and_says_so(tmp_path: Path) -> None:
    layout = FrameLayout(Spec("o", (Field("board", (19, 19), "int32"),)), Spec("a", (Field("move", (), "int32"),)),
                         agents=("black", "white"))  # fmt: skip
    rows = layout.spec.rows(5)
    table = Table(layout, rows, np.array([0]), np.array([5]), ({"task": "go"},))
    path = plot_episode(table, 0, tmp_path / "go.svg")
    assert path.stat().st_size > 1000
    assert len(pick_lines(layout, rows).names) == 12


def test_what_cannot_be_drawn_is_said(tmp_path: Path, make_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make_log(tmp_path / "run", [3])
    table = build(tmp_path / "run")
    with pytest.raises(SourceError, match="has no episode 7, it has 1"):
        plot_episode(table, 7, tmp_path / "a.png")
    with pytest.raises(LogError, match="can't be written"):
        plot_episode(table, 0, tmp_path / "a.xyz")
    with pytest.raises(SourceError, match="nothing to draw"):
        pick_lines(FrameLayout(Spec("o"), Spec("a")), FrameLayout(Spec("o"), Spec("a")).spec.rows(2))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(LogError, match=r"rlenv-robot\[demo\]"):
        plot_episode(table, 0, tmp_path / "a.png")


def test_a_lost_robot_is_not_called_a_refused_action(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path / "run", [10])
    table = build(tmp_path / "run")
    rows = np.array(table.rows)
    rows["acted"][-1], rows["truncated"][-1] = 0, 1
    ends = ({**table.episodes[0], "end": "fault: the server does not answer within 2 s"},)
    path = plot_episode(Table(table.layout, rows, table.starts, table.stops, ends), 0, tmp_path / "lost.svg")
    words = _words(path)
    assert "robot lost, action perhaps not carried out" in words
    assert "action refused" not in words


def _words(path: Path) -> str:
    """The texts of an image, which matplotlib says in a comment before it draws them as outlines."""
    return "\n".join(re.findall(r"<!-- (.*?) -->", path.read_text()))


def test_images_are_drawn_above_the_measurements(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    from rlenv_formats.robomimic import load_robomimic

    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        demo = file.create_group("data/demo_0")
        demo["obs/x"], demo["actions"] = np.linspace(0, 1, 20)[:, None], np.zeros((20, 1))
        demo["obs/top_image"] = np.full((20, 24, 32, 3), (255, 0, 255), np.uint8)
    sheet = plot_episode(load_robomimic(tmp_path / "a.hdf5"), 0, tmp_path / "a.png")
    assert amount(sheet, "#ff00ff") > 50_000  # the strip is 8 by 0.8 inches at 130 dots an inch
    with h5py.File(tmp_path / "b.hdf5", "w") as file:
        demo = file.create_group("data/demo_0")
        demo["obs/x"], demo["actions"] = np.linspace(0, 1, 20)[:, None], np.zeros((20, 1))
        demo["obs/top_image"] = np.zeros((20, 24, 32, 3), np.uint8)
    table = load_robomimic(tmp_path / "b.hdf5")
    (tmp_path / "b.hdf5").write_bytes(b"gone")
    assert (
        plot_episode(table, 0, tmp_path / "b.png").stat().st_size > 10_000
    )  # the rows are drawn, and the title says why
