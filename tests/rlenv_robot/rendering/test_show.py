"""Showing what was recorded (R1.5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from hal import Image, RobotError, SourceError
from recorder.log.mcap_writer import McapWriter
from recorder.table.load import build
from recorder.table.table import Table
from rlenv_robot.rendering import show
from rlenv_robot.rendering.show import render_history

cv2 = pytest.importorskip("cv2")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two episodes of eight steps, with pictures of a camera whose brightness tells the frame."""
    folder = tmp_path_factory.mktemp("runs")
    with rlenv_robot.make("so101-reach", record=folder / "plain", steps=8) as env:
        for seed in range(2):
            obs = env.reset({"seed": seed})
            while not (obs["terminated"] or obs["truncated"]):
                action = {"joint_target": obs["extra_info"]["applied"]["joint_target"]}
                obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
    table = build(next((folder / "plain").iterdir()))
    sink = McapWriter(folder / "filmed", table.layout, {})
    for number, info in enumerate(table.episodes):
        sink.episode("begin", number, f'{{"task": "so101-reach", "robot": "so101", "seed": {info["seed"]}}}', 0)
        for row in table.rows[table.starts[number] : table.stops[number]]:
            sink.frame(row.tobytes(), int(row["wall_ns"]))
            image = np.full((24, 32, 3), 20 * int(row["frame_no"]) + 40, np.uint8)
            data = cv2.imencode(".png", image)[1].tobytes()
            sink.image("top", Image(data, "png", int(row["stamp_ns"])), int(row["wall_ns"]))
        sink.episode("end", number, '{"end": "time"}', 0)
    sink.close()
    return folder / "filmed"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the cameras that are drawn, by a renderer that needs no graphics."""
    asked: list[str] = []

    def draw(robot: str, sensors: Any, goal: Any, options: Any) -> Any:
        asked.append(options.get("camera", "view"))
        return iter([np.full((48, 64, 3), 200, np.uint8) for _ in sensors["joint_position"]])

    monkeypatch.setattr(show, "draw", draw)
    return asked


def frames_of(path: Path) -> list[np.ndarray]:
    capture, found = cv2.VideoCapture(str(path)), []
    while (got := capture.read())[0]:
        found.append(got[1])
    return found


@pytest.mark.slow
@pytest.mark.requirement("R1.5")
def test_a_montage_has_cameras_twin_and_signals(run: Path, drawn: list[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert render_history(run, 1, video=tmp_path / "m.mp4", montage=True, frames=tmp_path / "m") == ()
    assert len(frames_of(tmp_path / "m.mp4")) == 9
    assert [path.name for path in sorted((tmp_path / "m").iterdir())] == [f"{n:06d}.png" for n in range(9)]
    last = cv2.imread(str(tmp_path / "m" / "000008.png"))
    assert (last == 200).all(-1).sum() > 100_000  # the camera's last picture is as bright as the twin
    first = cv2.imread(str(tmp_path / "m" / "000000.png"))
    assert (first == 40).all(-1).sum() > 100_000
    assert drawn == ["view"]


def test_one_step(run: Path, drawn: list[str], tmp_path: Path) -> None:
    render_history(run, 0, step=-2, frames=tmp_path / "one", montage=True)
    (path,) = (tmp_path / "one").iterdir()
    assert path.name == "000007.png"
    assert (cv2.imread(str(path)) == 180).all(-1).sum() > 100_000
    with pytest.raises(SourceError, match=r"no frame 9, .* 0 to 8"):
        render_history(run, 0, step=9, frames=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_the_twin_is_fine_for_one_step_or_when_asked(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks: list[bool] = []

    def draw(robot: str, sensors: Any, goal: Any, options: Any) -> Any:
        looks.append(options["fine"])
        return iter([np.zeros((8, 8, 3), np.uint8) for _ in sensors["joint_position"]])

    monkeypatch.setattr(show, "draw", draw)
    render_history(run, 0, frames=tmp_path / "a")
    render_history(run, 0, frames=tmp_path / "b", fine=True)
    render_history(run, 0, frames=tmp_path / "c", step=2)
    assert looks == [False, True, True]


def test_a_plot_that_moves(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    render_history(run, 0, plot=tmp_path / "p.mp4")
    assert len(frames_of(tmp_path / "p.mp4")) == 9


@pytest.mark.slow
def test_what_cannot_be_drawn_is_said_and_the_rest_is_shown(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def draw(*_: Any) -> Any:
        raise RobotError("nothing here can draw")

    pytest.importorskip("matplotlib")
    monkeypatch.setattr(show, "draw", draw)
    notes = render_history(run, 0, video=tmp_path / "m.mp4", montage=True)
    assert notes == ("no simulated twin: nothing here can draw",)
    assert len(frames_of(tmp_path / "m.mp4")) == 9
    with pytest.raises(RobotError, match="nothing here can draw"):
        render_history(run, 0, video=tmp_path / "v.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["m.mp4"]


def test_history_is_a_mode_of_render(run: Path, drawn: list[str], tmp_path: Path) -> None:
    with rlenv_robot.make("so101-reach") as env:
        env.reset()
        env.render({"mode": "history", "run": run, "episode": 0, "step": 3, "frames": tmp_path / "f"})
        assert [path.name for path in (tmp_path / "f").iterdir()] == ["000003.png"]
        with pytest.raises(ValueError, match="render option 'movie' is unknown"):
            env.render({"mode": "history", "run": run, "movie": 1})
        with pytest.raises(ValueError, match=r"'path' is 'x.bmp2', its name must end in .png, .jpg, .jpeg"):
            env.render({"mode": "file", "path": "x.bmp2"})
        with pytest.raises(ValueError, match="'to' is 5, expected a function that takes Table 4"):
            env.render({"mode": "call", "to": 5})


def test_lerobots_episodes_are_shown_too(shared_data: Path, drawn: list[str], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    render_history(shared_data / "so101-pick-place", 0, step=100, frames=tmp_path / "f", montage=True)
    assert (tmp_path / "f" / "000100.png").is_file()
    notes = render_history(shared_data / "g1-pick-bottle", 0, step=5, frames=tmp_path / "g", montage=True)
    assert "records no joint_position" in notes[0]


def test_episodes_count_from_both_ends(run: Path) -> None:
    table, number = show.find_episode(run, -1)
    assert isinstance(table, Table)
    assert number == 1
    with pytest.raises(SourceError, match=r"episode 2, .* 0 to 1"):
        show.find_episode(run, 2)
