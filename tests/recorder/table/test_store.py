from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recorder.frame_layout import FrameLayout
from recorder.log.labels import add_labels
from recorder.table import load
from recorder.table.load import load_runs
from recorder.table.store import INDEX_NAME
from recorder.table.table import Table

Make = Callable[..., FrameLayout]


@pytest.fixture
def runs(tmp_path: Path, make_log: Make, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five runs, of which an index is kept, and one that is torn."""
    monkeypatch.setattr(load, "_INDEXED", 3)
    for number in range(5):
        make_log(tmp_path / "runs" / f"{number:02d}", [4, 2])
    log = tmp_path / "runs" / "04" / "log.mcap"
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 2 // 3])
    return tmp_path / "runs"


def same(first: Table, second: Table) -> bool:
    equal = first.episodes == second.episodes and first.notes == second.notes
    parts = [[bytes(t.rows[a:b].tobytes()) for a, b in zip(t.starts, t.stops, strict=True)] for t in (first, second)]
    return equal and parts[0] == parts[1]


def count_built(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    built: list[Path] = []
    real = load._built

    def counted(log: Path, cache: Path | None = None):  # type: ignore[no-untyped-def]
        built.append(log)
        return real(log, cache)

    monkeypatch.setattr(load, "_built", counted)
    return built


def test_a_second_opening_reads_the_index_alone(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_runs(runs)
    built = count_built(monkeypatch)
    assert same(load_runs(runs), first)
    assert built == []


@pytest.mark.parametrize("copied", [0, 1 << 40], ids=["mapped", "copied"])
def test_what_has_changed_is_opened_again(
    runs: Path, make_log: Make, monkeypatch: pytest.MonkeyPatch, copied: int
) -> None:
    monkeypatch.setattr(load, "_COPY_BYTES", copied)
    load_runs(runs)
    built = count_built(monkeypatch)
    shutil.rmtree(runs / "01")
    make_log(runs / "01", [3])
    shutil.rmtree(runs / "02" / "table")
    shutil.rmtree(runs / "00")
    add_labels(runs / "03", [0], {"verdict": "success"}, "ana")
    table = load_runs(runs)
    assert sorted(log.parent.name for log in built) == ["01", "02"]
    assert [info["verdict"] for info in table.episodes if info.get("labelled")] == ["success"]
    (runs / INDEX_NAME).unlink()
    assert same(load_runs(runs), table)


@pytest.mark.parametrize("content", [b"", b"1 5\n{}", b"\xff"])
def test_a_damaged_index_is_made_again(runs: Path, content: bytes) -> None:
    first = load_runs(runs)
    whole = (runs / INDEX_NAME).read_bytes()
    (runs / INDEX_NAME).write_bytes(content)
    assert same(load_runs(runs), first)
    assert json.loads((runs / INDEX_NAME).read_text().partition("\n")[2]) == json.loads(whole.partition(b"\n")[2])


def test_a_cache_folder_keeps_tables_out_of_the_runs(runs: Path, tmp_path: Path) -> None:
    shutil.rmtree(runs / "00" / "table", ignore_errors=True)
    before = sorted(runs.rglob("*"))
    table = load_runs(runs, tmp_path / "cache")
    assert sorted(runs.rglob("*")) == before
    assert same(load_runs(runs, tmp_path / "cache"), table)
    assert len(list((tmp_path / "cache").glob("*/rows.bin"))) == 5
