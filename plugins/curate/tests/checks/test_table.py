from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Field, Image, Spec
from recorder.frame_layout import FrameLayout
from recorder.log.mcap_writer import McapWriter
from recorder.table.load import build
from recorder.table.table import Table
from rlenv_curate.checks.logs import check_cameras
from rlenv_curate.checks.table import ADVICE, DataSet, Finding, check_table
from rlenv_robot.data.folder import read_folder

PERIOD_NS = 20_000_000
FRAMES = 200
JOINTS = ("pan", "lift")

LAYOUT = FrameLayout(
    Spec("o", (Field("joint_position", (2,), unit="rad", elements=JOINTS),)),
    Spec("a", (Field("joint_target", (2,), low=-2, high=2, unit="rad", elements=JOINTS),)),
    applied=Spec("p", (Field("joint_target", (2,), low=-2, high=2, unit="rad", elements=JOINTS),)),
    sensors=Spec("s", (Field("joint_position", (2,), low=-3, high=3, unit="rad", elements=JOINTS),)),
)


def healthy(episodes: int = 3, frames: int = FRAMES) -> Table:
    """Joints that follow their goals, with a little noise, at 50 Hz."""
    rng = np.random.default_rng(0)
    rows = LAYOUT.spec.rows(episodes * frames)
    frame = np.tile(np.arange(frames), episodes)
    rows["stamp_ns"] = np.arange(len(rows)) * PERIOD_NS + rng.integers(-100_000, 100_000, len(rows))
    rows["frame_no"], rows["episode"] = frame, np.repeat(np.arange(episodes), frames)
    goal = np.sin(frame / 20)[:, None] * [1.0, 1.5]
    rows["action_joint_target"] = rows["applied_joint_target"] = np.where(frame[:, None] > 0, goal, 0)
    rows["sensor_joint_position"] = goal * 0.9 + rng.normal(0, 1e-3, goal.shape)
    rows["observation_joint_position"] = rows["sensor_joint_position"]
    rows["acted"] = frame > 0
    rows["truncated"] = frame == frames - 1
    starts = np.arange(episodes) * frames
    return Table(LAYOUT, rows, starts, starts + frames, tuple({"episode": n, "end": "time"} for n in range(episodes)))


def spoil(name: str, rows: np.ndarray) -> None:
    """Give rows 200 to 400, the second episode, one fault."""
    ill = rows[FRAMES : 2 * FRAMES]
    if name == "gap":
        ill["stamp_ns"][80:] += 3 * PERIOD_NS
    elif name == "clock":
        ill["stamp_ns"][81] = ill["stamp_ns"][80]
    elif name == "jitter":
        ill["stamp_ns"] += np.random.default_rng(5).normal(0, 0.15 * PERIOD_NS, FRAMES).astype(np.int64)
    elif name == "rate":
        ill["stamp_ns"] = ill["stamp_ns"][0] + np.arange(FRAMES) * PERIOD_NS * 1.2
    elif name == "frozen":
        ill["sensor_joint_position"][50:150, 1] = ill["sensor_joint_position"][50, 1]
    elif name == "limit_cycle":
        ill["action_joint_target"][100:180, 0] += 0.06 * (-1.0) ** np.arange(80)
        ill["applied_joint_target"] = ill["action_joint_target"]
    elif name == "duplicate":
        for frame in range(50, 80, 5):
            ill["sensor_joint_position"][frame] = ill["sensor_joint_position"][frame - 1]
    elif name == "clipped":
        ill["action_joint_target"][50:100, 0] = ill["applied_joint_target"][50:100, 0] = 2
    elif name == "limited":
        ill["applied_joint_target"][50:100, 0] *= 0.5
    elif name == "not_finite":
        ill["observation_joint_position"][60:63, 1] = np.nan
    elif name == "range":
        ill["sensor_joint_position"][60:63, 1] = 3.5


EXPECTED = {
    "gap": ("", 79, 80, "80 ms between two frames, 20.0 ms are usual"),
    "clock": ("stamp_ns", 80, 81, "1 stamps do not rise"),
    "jitter": ("stamp_ns", 0, FRAMES - 1, "time stamps scatter: the time between frames varies by 19% of 20.0 ms"),
    "rate": ("", -1, -1, "41.67 Hz, the data set has "),
    "frozen": ("sensor_joint_position[lift]", 50, 149, "for 2.0 s while it is commanded to move"),
    "limit_cycle": ("applied_joint_target[pan]", 76, 199, "degrees to either side, at 4 Hz or faster"),
    "duplicate": ("", 50, 75, "6 of 200 frames repeat the one before"),
    "clipped": ("action_joint_target[pan]", 50, 99, "25% of the actions are at the limit"),
    "limited": ("action_joint_target[pan]", 50, 99, "25% of the actions were limited"),
    "not_finite": ("observation_joint_position[lift]", 60, 62, "3 values are NaN or infinite"),
    "range": ("sensor_joint_position[lift]", 60, 62, "3 values outside -3 to 3, such as 3.5"),
}


def test_healthy_data_have_no_findings() -> None:
    assert check_table(healthy()) == []


@pytest.mark.parametrize("name", EXPECTED)
def test_each_fault_is_found_where_it_is_and_nothing_else(name: str) -> None:
    table = healthy()
    spoil(name, table.rows)
    (finding,) = [each for each in check_table(table) if (name, each.kind) != ("rate", "gap")]
    field, first, last, message = EXPECTED[name]
    assert (finding.kind, finding.episode, finding.field) == (name, 1, field)
    assert (finding.first, finding.last) == (first, last)
    assert message in finding.message
    assert finding.to_dict()["advice"] == ADVICE[name]


def test_ends_and_lengths() -> None:
    table = healthy(4)
    stops = table.stops.copy()
    stops[2] = table.starts[2] + 4
    infos = ({"end": "time"}, {"end": "torn"}, {"end": "time"}, {"end": "interrupted"})
    found = check_table(
        Table(table.layout, table.rows, table.starts, stops, infos, notes=("2 frames are missing", "hm"))
    )
    assert [(each.kind, each.episode) for each in found] == [("lost", -1), ("no_end", 1), ("short", 2), ("no_end", 3)]
    assert "3 steps, the median is 199" in found[2].message


def test_jitter_of_most_episodes_is_one_finding_of_the_set() -> None:
    table = healthy()
    noise = np.random.default_rng(5).normal(0, 0.15 * PERIOD_NS, len(table.rows))
    table.rows["stamp_ns"] += noise.astype(np.int64)
    assert [(one.kind, one.episode) for one in check_table(table)] == [("jitter", -1)]


def test_a_joint_that_starts_late_repeats_no_old_value() -> None:
    table = healthy()
    ill = table.rows[FRAMES : 2 * FRAMES]
    ill["sensor_joint_position"][:60] = np.round(ill["sensor_joint_position"][40] * np.ones((60, 1)), 2)
    ill["action_joint_target"][1:30] = ill["applied_joint_target"][1:30] = ill["applied_joint_target"][30]
    assert check_table(table) == []


def test_an_object_that_lies_still_is_not_frozen() -> None:
    sensors = Spec("s", (Field("joint_position", (2,), elements=JOINTS), Field("cube_positions", (2,))))
    table = healthy()
    layout = replace(table.layout, sensors=sensors)
    rows = layout.spec.rows(len(table.rows))
    for name in table.rows.dtype.names or ():
        rows[name] = table.rows[name]
    rows["sensor_cube_positions"] = np.repeat(np.linspace(0.1, 0.3, len(rows) // 100), 100)[:, None]
    data_set = DataSet(replace(table, layout=layout, rows=rows))
    assert data_set.command_of(layout.spec["sensor_cube_positions"]) is None
    assert data_set.command_of(layout.spec["sensor_joint_position"]) is layout.spec["applied_joint_target"]
    assert check_table(data_set.table) == []


def test_a_velocity_that_stands_while_its_joint_turns_steadily_is_not_frozen() -> None:
    table = healthy()
    layout = replace(
        table.layout, sensors=Spec("s", (*table.layout.sensors, Field("joint_velocity", (2,), elements=JOINTS)))
    )
    rows = layout.spec.rows(len(table.rows))
    for name in table.rows.dtype.names or ():
        rows[name] = table.rows[name]
    rows["sensor_joint_velocity"] = np.gradient(rows["sensor_joint_position"], PERIOD_NS / 1e9, axis=0)
    ill = rows[FRAMES : 2 * FRAMES]
    ill["sensor_joint_velocity"][60:160, 1] = -0.7
    assert [one.field for one in check_table(replace(table, layout=layout, rows=rows))] == [
        "sensor_joint_velocity[lift]"
    ]
    ill["sensor_joint_position"][60:160, 1] = np.linspace(1.4, 0.0, 100) - np.linspace(0, 1e-9, 100)
    assert check_table(replace(table, layout=layout, rows=rows)) == []


def test_a_joint_at_its_stop_or_at_rest_is_not_frozen() -> None:
    table = healthy()
    ill = table.rows[FRAMES : 2 * FRAMES]
    ill["sensor_joint_position"][50:150, 1] = table.rows["sensor_joint_position"][:, 1].max()
    assert check_table(table) == []
    ill["sensor_joint_position"][50:150, 1] = 0
    assert check_table(table) == []


@pytest.mark.parametrize(("name", "unit_deg"), [("so101-pick-place", 1.0), ("g1-pick-bottle", math.degrees(1))])
def test_a_person_who_moves_a_robot_makes_no_limit_cycle(shared_data: Path, name: str, unit_deg: float) -> None:
    """The G1's targets are in rad, the SO-101's in hundredths of half a joint's range, about a degree."""
    pytest.importorskip("pyarrow")
    table = read_folder(shared_data / name)
    action = Spec("action", tuple(replace(field, unit="rad") for field in table.layout.action))
    layout = replace(table.layout, action=action)
    angles = Table(layout, table.rows.copy(), table.starts, table.stops, table.episodes)
    (field,) = angles.layout.action
    angles.rows[f"action_{field.name}"] *= math.radians(unit_deg)
    assert "limit_cycle" not in {each.kind for each in check_table(angles)}
    buzz = 0.02 * (-1.0) ** np.arange(len(angles.rows))
    angles.rows[f"action_{field.name}"] += buzz[:, None]  # so these data are looked at
    assert "limit_cycle" in {each.kind for each in check_table(angles)}


def test_a_target_in_other_units_than_rad_has_no_limit_cycle() -> None:
    unit = replace(LAYOUT.action["joint_target"], unit="1")
    layout = replace(LAYOUT, action=Spec("a", (unit,)), applied=Spec("p", (unit,)))
    table = healthy()
    spoil("limit_cycle", table.rows)
    assert check_table(Table(layout, table.rows, table.starts, table.stops, table.episodes)) == []


def test_data_without_a_clock_and_empty_data() -> None:
    table = healthy()
    table.rows["stamp_ns"] = 0
    assert [each.kind for each in check_table(table)] == ["clock"] * 0
    nothing = Table(LAYOUT, LAYOUT.spec.rows(0), np.zeros(0, np.int64), np.zeros(0, np.int64), ())
    assert check_table(nothing) == []
    board = FrameLayout(Spec("o", (Field("board", (3, 3), "int32"),)), Spec("a", (Field("move", (), "int32"),)))
    assert check_table(Table(board, board.spec.rows(6), np.array([0]), np.array([6]), ({"end": "won"},))) == []


@pytest.fixture
def filmed(tmp_path: Path) -> Callable[..., list[Finding]]:
    """A run of 100 frames at 50 Hz, with images of the given stamps, which are not decoded here."""

    def make(stamps: Any, same: range = range(0)) -> list[Finding]:
        sink = McapWriter(tmp_path / "run", LAYOUT, {})
        sink.episode("begin", 0, "{}", 0)
        table = healthy(1, 100)
        for number, row in enumerate(table.rows):
            sink.frame(row.tobytes(), number)
            for stamp in [at for at in stamps if round(at / PERIOD_NS) == number]:
                content = b"\xff\xd8" + (b"frozen" if number in same else bytes([number]))
                sink.image("wrist", Image(content, "jpeg", int(stamp)), number)
        sink.episode("end", 0, '{"end": "time"}', 101)
        sink.close()
        return check_cameras(tmp_path / "run", build(tmp_path / "run"))

    return make


def test_a_good_camera(filmed: Any) -> None:
    assert filmed([n * PERIOD_NS for n in range(100)]) == []


def test_a_camera_at_half_the_rate_is_fine(filmed: Any) -> None:
    assert filmed([n * PERIOD_NS for n in range(0, 100, 2)]) == []


def test_images_that_repeat(filmed: Any) -> None:
    (finding,) = filmed([n * PERIOD_NS for n in range(100)], range(20, 40))
    assert (finding.kind, finding.field, finding.first, finding.last) == ("duplicate", "camera wrist", 21, 39)
    assert "19 of 100 images" in finding.message


def test_a_camera_that_lags(filmed: Any, tmp_path: Path) -> None:
    from rlenv_curate.checks.logs import _examine

    seen = [(n * PERIOD_NS - 30_000_000, n * PERIOD_NS, n) for n in range(50)]
    (finding,) = _examine("wrist", 0, seen, 50, PERIOD_NS)
    assert finding.kind == "camera"
    assert "-30.0 ms from their frames at the median, that is 1.5 control periods" in finding.message


def test_a_camera_that_stops_for_a_while(filmed: Any) -> None:
    (finding,) = filmed([n * PERIOD_NS for n in range(100) if not 40 <= n < 60])
    assert (finding.kind, finding.first, finding.last) == ("gap", 39, 40)
    assert "the longest 420 ms, 20.0 ms are usual" in finding.message
