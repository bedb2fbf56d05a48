"""A table of measurements as source data: which row an action belongs to, and what can't be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from rlenv_bridges.tabular import open_table
from rlenv_kit import check_source

pytestmark = pytest.mark.requirement("R3.1", "R6.5")

HEAD = "run,x,y,u,gain,over"
LINES = ["a,0,5,0.1,1,0", "a,1,6,0.2,2,0", "a,2,7,0.3,4,1", "b,9,8,0.4,8,0", "b,8,7,0.5,16,0"]
FIELDS: dict[str, Any] = {
    "observation": {"state": ["x", "y"]},
    "action": {"u": "u"},
    "reward": "gain",
    "episode": "run",
}


def _csv(folder: Path, *lines: str, head: str = HEAD) -> Path:
    path = folder / "plant.csv"
    path.write_text("\n".join((head, *lines)) + "\n", encoding="utf-8")
    return path


def _as_parquet(path: Path) -> Path:
    pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
    from pyarrow import csv, parquet

    parquet.write_table(csv.read_csv(path), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


@pytest.mark.requirement("6.3.1-1", "B.5.2-3")
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_row_s_action_leads_to_the_next_row(tmp_path: Path, form: str) -> None:
    path = _csv(tmp_path, *LINES)
    data = open_table(path if form == "csv" else _as_parquet(path), **FIELDS, terminated="over", units={"u": "V"})
    assert len(data) == 3
    steps = [one["steps_set"] for one in data.sample_trajectories(40)]
    first = next(one for one in steps if len(one["reward"]) == 2)
    np.testing.assert_array_equal(first["observation"]["state"], [[0, 5], [1, 6]])
    np.testing.assert_array_equal(first["next_observation"]["state"], [[1, 6], [2, 7]])
    np.testing.assert_array_equal(first["action"]["u"], [0.1, 0.2])
    np.testing.assert_array_equal(first["reward"], [1, 2])
    np.testing.assert_array_equal(first["extra_info"]["terminated"], [0, 1])
    assert data.table.layout.action["u"].unit == "V"
    check_source(data).raise_if_failed()


def test_what_is_no_table_of_steps_is_refused(tmp_path: Path) -> None:
    def refused(text: str, *lines: str, head: str = HEAD, **changes: Any) -> None:
        with pytest.raises(SourceError, match=text):
            open_table(_csv(tmp_path, *lines, head=head), **{**FIELDS, **changes})

    refused("no column 'z', it has run, x, y, u, gain, over", *LINES, observation={"state": "z"})
    refused("column 'x': .*far", *LINES[:2], "a,far,0,0,0,0")
    refused("row 3 is nan", *LINES[:2], "a,nan,0,0,0,0")
    refused("line 3 has 5 values, the head line has 6", LINES[0], "a,1,6,0.2,2")
    refused("episode a are not together; sort", *LINES, "a,3,3,3,3,0")
    refused("0 rows")
    refused("names no field", *LINES, action={})
    with pytest.raises(SourceError, match="can't be read"):
        open_table(tmp_path / "nothing.csv", **FIELDS)


def test_rewards_may_be_left_out(tmp_path: Path) -> None:
    data = open_table(_csv(tmp_path, *LINES), **{**FIELDS, "reward": None})
    assert np.isnan(data.sample_steps(5)["reward"]).all()
