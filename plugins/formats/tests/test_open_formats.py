from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError
from recorder.formats.registry import writable_format, writable_names
from recorder.table.table import Table

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
