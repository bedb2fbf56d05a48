from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import Field, SourceError, Spec
from hal.frame_layout import FrameLayout
from hal.robots.so101 import SO101
from recorder.formats.registry import writable_format, writable_names
from recorder.formats.runs import NO_REWARDS, table_of
from recorder.table.table import Table
from rlenv_robot.data.relabel import relabelled
from rlenv_robot.tasks.reach import Reach

PACKAGES = {"parquet": "pyarrow", "lerobot": "pyarrow", "minari": "h5py", "robomimic": "h5py"}


@pytest.mark.parametrize("name", [name for name in writable_names() if name != "rerun"])  # that is only written
@pytest.mark.requirement("R3.1")
def test_what_was_written_is_opened_by_its_looks(tmp_path: Path, table: Table, name: str) -> None:
    pytest.importorskip(PACKAGES[name], reason=f"{PACKAGES[name]} is not installed")
    path = tmp_path / ("set.hdf5" if name == "robomimic" else "set-v0")
    writable_format(name)[1](table, path)
    data = rr.open_source(path)
    assert len(data) == 8
    batch = data.sample_steps(8, {"replace": False})
    assert sorted(np.asarray(batch["reward"]).tolist()) == [0, 1, 2, 3, 10, 11, 12, 20]
    extra = batch["extra_info"]
    assert (extra["terminated"].sum(), extra["truncated"].sum()) == (1, 2)


def test_what_is_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(SourceError, match="is a file of no known kind"):
        rr.open_source(tmp_path / "x.txt")
    with pytest.raises(SourceError, match=r"holds no data that can be read; .*Minari.*; found x\.txt"):
        rr.open_source(tmp_path)


def test_a_task_takes_the_note_on_rewards_away() -> None:
    layout = FrameLayout(Spec("o", (Field("noise"),)), SO101.commands, (), SO101.commands, SO101.sensors)
    rows = layout.spec.rows(3)
    rows["frame_no"], rows["acted"], rows["reward"] = [0, 1, 2], [0, 1, 1], np.nan
    info = {"goal": {"target_position": [0.2, 0.1, 0.15]}}
    plain = table_of(layout, [rows], [info], "there", ["another note"])
    assert plain.notes == ("another note", NO_REWARDS)
    rewarded = relabelled(plain, Reach())
    assert np.isfinite(rewarded.rows["reward"]).all()
    assert NO_REWARDS not in rewarded.notes
    assert "another note" in rewarded.notes
