"""Recorded runs outlive the software that wrote them: a log, its table and its samples stay as they were."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from recorder.read.reader import LogReader
from recorder.table.load import load_runs
from rlenv_robot.rendering.show import render_history
from tests.golden.describe_log import FILES
from tests.golden.stored import check


@pytest.mark.parametrize("name", FILES)
def test_a_recorded_run_is_as_it_was(name: str) -> None:
    check(name, FILES[name]())


def test_a_log_that_version_0_1_wrote_has_the_rows_that_its_own_reader_found(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parent / "data" / "log_of_0_1.mcap", tmp_path / "log.mcap")
    log = LogReader(tmp_path)
    assert log.metadata["versions"]["rlenv-robot"] == "0.1.0"
    assert log.complete
    rows = log.frames()
    # by the reader of 0.1:
    assert hashlib.sha256(rows.tobytes()).hexdigest().startswith("73cbb127949b605c2ca9bccb1ac1c892")
    assert log.layout.spec.digest.startswith("3f904f2e0df0a54f")
    table = load_runs(tmp_path)
    assert (table.stops - table.starts).tolist() == [9, 9]
    assert table.episodes[1]["return"] == 0.4769030213356018
    assert render_history(tmp_path, 1, plot=tmp_path / "plot.png") == ()
