"""The table of a signed run comes from its log, whatever lies beside it and whoever can write there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from recorder.log.labels import add_labels
from recorder.names import CHAIN
from recorder.read.reader import LogReader
from recorder.read.verify import add_signature, claims_signature
from recorder.table import load, proven
from recorder.table.comparison import table_findings
from recorder.table.load import build, load_runs
from tests.recorder.conftest import record
from tests.recorder.read.test_signed_runs import forge_rewards


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A signed run with a forged table beside its log."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = tmp_path / "runs" / "run"
    record(run, [3, 4])
    assert not claims_signature(run)
    build(run)
    forge_rewards(run)
    assert set(build(run).rows["reward"]) == {100.0}, "the forgery is read where nothing is signed"
    add_signature(run, tmp_path / "key")
    assert claims_signature(run)
    return run


def test_forged_rows_of_a_signed_run_are_not_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = LogReader(run).frames()["reward"]
    for table in (build(run), load_runs(run), load_runs(run.parent), build(run)):
        assert np.array_equal(table.rows["reward"], expected)
        assert table.stored is None
    monkeypatch.setattr(load, "_INDEXED", 1)  # the index of many runs names files of rows, and anybody may write it
    for _ in range(2):
        assert np.array_equal(load_runs(run.parent).rows["reward"], expected)


def test_forged_rows_are_a_finding_in_any_run(run: Path) -> None:
    (finding,) = table_findings(run)
    assert "table/" in finding
    (run / "table" / "episodes.json").unlink()
    assert table_findings(run) == [], "what can't be read as a table is made again"


def test_an_honest_table_is_no_finding(tmp_path: Path) -> None:
    record(tmp_path, [3, 4])
    assert table_findings(tmp_path) == []
    build(tmp_path)
    assert table_findings(tmp_path) == []
    os.utime(tmp_path / "log.mcap")
    assert table_findings(tmp_path) == []


def test_a_run_is_verified_once_and_again_after_a_change(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[Path] = []
    whole = proven.verify_run

    def counting(folder: Path) -> object:
        verified.append(folder)
        return whole(folder)

    monkeypatch.setattr(proven, "verify_run", counting)
    build(run)
    build(run)
    assert len(verified) == 1
    os.utime(run / "log.mcap")
    build(run)
    assert len(verified) == 2


def test_a_log_that_is_not_the_signed_one_is_read_with_a_note(run: Path) -> None:
    """Also with the time of the signed one: nobody can set the time of an inode's change."""
    build(run)
    log = run / "log.mcap"
    status, content = log.stat(), bytearray(log.read_bytes())
    content[-20] ^= 1
    log.write_bytes(content)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert any("not as it was signed" in note for note in load_runs(run).notes)


def test_a_claim_that_is_no_signature_proves_nothing(run: Path) -> None:
    lines = (run / CHAIN).read_bytes().splitlines(keepends=True)
    (run / CHAIN).write_bytes(b"".join(lines[:-1]) + b'{"signature":{}}\n')
    table = build(run)
    assert any("claims a signature" in note for note in table.notes)
    assert np.array_equal(table.rows["reward"], LogReader(run).frames()["reward"])


def test_labels_without_a_signature_are_noted(run: Path, tmp_path: Path) -> None:
    assert not any("labels" in note for note in build(run).notes)
    add_labels(run, [0], {"verdict": "success"}, "somebody")
    for _ in range(2):
        assert any("labels.jsonl" in note for note in load_runs(run).notes)
    add_signature(run, tmp_path / "key")
    assert not any("labels" in note for note in build(run).notes)


def test_a_folder_that_others_can_write_to_proves_nothing(run: Path, tmp_path: Path) -> None:
    folder = proven.own_folder(None)
    assert folder is not None
    folder.chmod(0o777)
    assert proven.own_folder(None) is None
    assert np.array_equal(build(run).rows["reward"], LogReader(run).frames()["reward"])
    assert list(folder.iterdir()) == []
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    assert proven.own_folder(None) is None


def test_without_a_home_a_signed_run_is_read_and_nothing_is_proven(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert proven.own_folder(None) is None
    assert np.array_equal(build(run).rows["reward"], LogReader(run).frames()["reward"])


def test_the_oldest_tables_make_room(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proven, "BYTES", 1)
    build(run)
    record(tmp_path / "second", [2], key=tmp_path / "key")
    build(tmp_path / "second")
    folder = proven.own_folder(None)
    assert folder is not None
    assert len(list(folder.iterdir())) == 1
