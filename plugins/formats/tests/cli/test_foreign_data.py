"""The commands work on data sets of other projects, and say so plainly where a data set does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError, SpecMismatch
from rlenv_curate.checks.table import check_table
from rlenv_robot.cli.main import main
from rlenv_robot.data.folder import read_folder

pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")


@pytest.fixture
def reach(tmp_path: Path) -> Path:
    """A LeRobot data set of an arm that moves far, three episodes of two seconds."""
    rng = np.random.default_rng(0)
    with rr.make("so101-reach", record=tmp_path / "runs", steps=60) as env:
        for seed in range(3):
            obs = env.reset({"seed": seed})
            while not (obs["terminated"] or obs["truncated"]):
                action = env.action.sample(rng)
                obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
    assert main(["data", "export", str(tmp_path / "runs"), str(tmp_path / "reach"), "--to", "lerobot"]) == 0
    return tmp_path / "reach"


def test_a_goal_among_the_observations_is_not_a_frozen_sensor(reach: Path) -> None:
    table = read_folder(reach)
    assert "observation_target_position" in table.layout.spec
    assert "frozen" not in {finding.kind for finding in check_table(table)}
    rows = np.array(table.rows)
    rows["observation_joint_position"][table.starts[1] + 5 : table.stops[1], 1] = 0.123
    ill = type(table)(table.layout, rows, table.starts, table.stops, table.episodes)
    assert "observation_joint_position[shoulder_lift]" in {finding.field for finding in check_table(ill)}


def test_the_twin_is_drawn_from_what_was_observed(reach: Path, tmp_path: Path) -> None:
    pytest.importorskip("cv2", reason="neither opencv-python nor opencv-python-headless is installed")
    assert (
        main(["data", "replay", str(reach), "--episode", "1", "--step", "30", "--frames", str(tmp_path / "frames")])
        == 0
    )
    assert (tmp_path / "frames" / "000030.png").stat().st_size > 1000


def test_what_is_for_our_runs_says_what_this_is(
    reach: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(reach.parent)
    assert main(["data", "recover", "reach"]) == 2
    assert "it is a data set of lerobot, which this verb does not take" in capsys.readouterr().err


FORMATS = pytest.mark.parametrize("name", ["lerobot", "minari", "robomimic", "parquet"])


@FORMATS
def test_sets_are_labelled_cut_merged_and_exported_with_filters(
    name: str, reach: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("h5py", reason="the extra 'hdf5' is not installed")
    monkeypatch.chdir(reach.parent)
    end = ".hdf5" if name == "robomimic" else ""
    old, few, all_, good = (f"{word}-v0{end}" for word in ("old", "few", "all", "good"))
    assert main(["data", "export", "runs", old, "--to", name]) == 0
    whole = read_folder(reach.parent / old)
    assert main(["data", "label", old, "0,2", "--verdict", "success", "--by", "ana"]) == 0
    verdicts = [info.get("verdict") for info in read_folder(reach.parent / old).episodes]
    assert verdicts[::2] == ["success", "success"] != verdicts[1:2] * 2
    assert main(["data", "cut", old, few, "--episodes", "1-", "--success"]) == 0
    assert main(["data", "merge", old, few, "--to", all_]) == 0
    assert main(["data", "export", old, good, "--to", name, "--top-fraction", "0.3"]) == 0
    tables = [read_folder(reach.parent / path) for path in (few, all_, good)]
    assert [len(table.starts) for table in tables] == [1, 4, 1]
    for table, number, original in ((tables[0], 0, 2), (tables[1], 1, 1), (tables[1], 3, 2)):
        rows = table.rows[table.starts[number] : table.stops[number]]
        expected = whole.rows[whole.starts[original] : whole.stops[original]]
        np.testing.assert_array_equal(rows["reward"], expected["reward"])
        np.testing.assert_array_equal(rows["action_joint_target"], expected["action_joint_target"])
    capsys.readouterr()
    assert main(["data", "cut", old, "x", "--from", "1"]) == 2
    assert "--from and --until are for our own runs" in capsys.readouterr().err


def test_several_sets_open_as_one(reach: Path) -> None:
    source = rr.open_source([reach, reach])
    assert len(source.table.starts) == 6
    assert len(rr.open_source([reach, reach], episodes=[0, 5]).table.starts) == 2
    with pytest.raises(SpecMismatch, match="hold different rows"):
        rr.open_source([reach, reach.parent / "runs"])


def test_ls_lists_each_data_set_once_whatever_it_is(reach: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("h5py", reason="the extra 'hdf5' is not installed")
    folder = reach.parent
    for name, path in (("minari", "deep/arm-v0"), ("robomimic", "arm.hdf5"), ("parquet", "rows")):
        assert main(["data", "export", str(folder / "runs"), str(folder / path), "--to", name]) == 0
    capsys.readouterr()
    assert main(["data", "ls", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    (run,) = (folder / "runs").iterdir()
    assert [line.split()[0] for line in lines] == [f"runs/{run.name}", "arm.hdf5", "deep/arm-v0", "reach", "rows"]
    assert all(line.split()[-1] == "whole" for line in lines)


def test_a_bag_without_its_file_is_told_how_to_get_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rosbag2 = pytest.importorskip("rosbags.rosbag2", reason="the extra 'bags' is not installed")
    from rosbags.typesys import Stores, get_typestore

    store, path = get_typestore(Stores.ROS2_HUMBLE), tmp_path / "bag"
    with rosbag2.Writer(path, version=9) as writer:
        number = store.types["std_msgs/msg/Float64"]
        where = writer.add_connection("/score", "std_msgs/msg/Float64", typestore=store)
        writer.write(where, 1, store.serialize_cdr(number(1.0), "std_msgs/msg/Float64"))
    assert main(["data", "show", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "/score (std_msgs/msg/Float64)" in line
    assert line.endswith(f"data fields {path} --out {path / 'fields.toml'}")
    with pytest.raises(SourceError, match="data fields"):
        rr.open_source(path)
