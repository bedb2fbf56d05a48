from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from recorder.log.labels import add_labels
from recorder.table.digest import episode_digests
from recorder.table.table import Table
from rlenv_episode_index.database import default_file
from rlenv_episode_index.index import EpisodeIndex
from rlenv_robot.data.episode_columns import EpisodeColumns, column_table
from rlenv_robot.data.episode_records import COLUMNS, episode_records
from rlenv_robot.data.folder import read_folder

Made = Callable[..., Path]


@pytest.fixture
def data(tmp_path: Path, lerobot_set: Made, run_folder: Made) -> Path:
    lerobot_set("cups")
    lerobot_set("more", (5, 7), seed=1)
    run_folder("deep/run")
    return tmp_path / "data"


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the sets that are read from now on."""
    paths: list[str] = []
    described = EpisodeIndex._described
    monkeypatch.setattr(
        EpisodeIndex, "_described", lambda index, found: paths.append(found.path) or described(index, found)
    )
    return paths


def test_records_are_those_of_the_tables(data: Path) -> None:
    with EpisodeIndex.open(data) as index:
        assert [(one.path, one.format, one.episodes) for one in index.sets()] == [
            (str(data / "cups"), "lerobot", 3), (str(data / "deep" / "run"), "run", 2),
            (str(data / "more"), "lerobot", 2),
        ]  # fmt: skip
        assert index.notes == []
        index.compute("rows")
        for path, name in ((data / "cups", "lerobot"), (data / "deep" / "run", None), (data / "more", "lerobot")):
            table = read_folder(path)
            told = [{k: record[k] for k in COLUMNS} for record in index.find(f"path = '{path}'")]
            assert told == episode_records(table, name)
            assert [record["digest"] for record in told] == episode_digests(table)


def test_before_the_rows_are_read_all_but_their_columns_is_known(data: Path) -> None:
    with EpisodeIndex.open(data / "cups") as index:
        before = index.find()
        assert [record["digest"] for record in before] == [None] * 3
        assert (index.missing("rows"), index.needed("return > 1", "digest"), index.needed("steps > 1")) == (
            3,
            ["rows"],
            [],
        )
        done: list[tuple[int, int]] = []
        index.prepare("digest is not null", report=lambda now, total: done.append((now, total)))
        assert done[-1] == (3, 3)
        assert index.missing("rows") == 0
        changed = {"digest", "seconds"}  # LeRobot's stamps are float32
        for old, new in zip(before, index.find(), strict=True):
            assert {k: v for k, v in old.items() if k not in changed} == {
                k: v for k, v in new.items() if k not in changed
            }
            assert old["seconds"] == pytest.approx(new["seconds"], abs=1e-3)


def test_questions(data: Path) -> None:
    with EpisodeIndex.open([data]) as index:
        assert (index.count(), index.count("steps > 4"), index.count("task_text like '%CUP%'")) == (7, 3, 3)
        assert [record["steps"] for record in index.find("format = 'lerobot'", "steps desc")] == [7, 6, 5, 4, 3]
        assert [record["steps"] for record in index.find("format = 'lerobot'", "steps desc", 2, 1)] == [6, 5]
        assert [record["key"] for record in index.find(limit=2)] == [f"{data}/cups#0", f"{data}/cups#1"]
        assert index.record(f"{data}/cups#1") == index.find("episode = 1", limit=1)[0]
        for ask in (lambda: index.find("nonsense = 1"), lambda: index.count("1; drop table sets"),
                    lambda: index.find(order="nonsense"), lambda: index.compute("nonsense"),
                    lambda: index.record("nonsense#1"),
                    lambda: index.find("(select count(*) from sets) > 0")):  # fmt: skip
            with pytest.raises(SourceError):
                ask()
    index.close()


def test_random_questions_are_answered_as_by_plain_sqlite(data: Path) -> None:
    draw = random.Random(0)
    terms = ("steps > 3", "steps between 2 and 5", "task_text like '%cup%'", "format = 'run'", "episode % 2 = 0",
             "tags is null", "robot is not null", "seconds < 0.5", "has(tags, 'x')")  # fmt: skip
    with EpisodeIndex.open(data) as index, sqlite3.connect(":memory:") as judge:
        records = index.find()
        judge.create_function("has", 2, lambda tags, tag: int(tags is not None and f",{tag}," in tags))
        judge.execute(f"CREATE TABLE e ({', '.join(chr(34) + name + chr(34) for name in index.columns())})")
        marks = ", ".join("?" * len(index.columns()))
        judge.executemany(f"INSERT INTO e VALUES ({marks})", [
            [None if isinstance(value, list) else value for value in record.values()] for record in records
        ])  # fmt: skip
        for _ in range(100):
            where = draw.choice(terms)
            for term in draw.sample(terms, 2):
                where = f"({where}) {draw.choice(('and', 'or', 'and not'))} ({term})"
            limit, offset = draw.randint(0, 5), draw.randint(0, 3)
            keys = [record["key"] for record in index.find(where, "steps desc, key", limit, offset)]
            rows = judge.execute(
                f"SELECT key FROM e WHERE {where} ORDER BY steps DESC, key LIMIT {limit} OFFSET {offset}"
            )
            assert keys == [key for (key,) in rows]
            assert index.count(where) == judge.execute(f"SELECT count(*) FROM e WHERE {where}").fetchone()[0]
    judge.close()


# -- following the files -----------------------------------------------------------------------------------------


def test_only_what_changed_is_read_again(data: Path, lerobot_set: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    EpisodeIndex.open(data).close()
    paths = reads(monkeypatch)
    with EpisodeIndex.open(data) as index:
        assert paths == []
        index.compute("rows")
        (data / "cups" / "data" / "000001.parquet").touch()
        lerobot_set("new")
        shutil.rmtree(data / "more")
        index.refresh()
        assert paths == [str(data / "cups"), str(data / "new")]
        assert [Path(one.path).name for one in index.sets()] == ["cups", "run", "new"]
        assert (index.missing("rows"), index.count("digest is not null")) == (6, 2)
        (data / "new").rename(data / "deep" / "newer")
        index.refresh()
        assert [Path(one.path).name for one in index.sets()] == ["cups", "newer", "run"]


def test_labels_count_at_once_and_keep_the_digests(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EpisodeIndex.open(data) as index:
        index.compute("rows")
        paths = reads(monkeypatch)
        add_labels(data / "cups", [1], {"tag": ["wrist"], "note": "odd", "success": True}, "ana")
        add_labels(data / "deep" / "run", [0], {"verdict": "failure"}, "ana")
        index.refresh()
        assert [record["key"] for record in index.find("has(tags, 'wrist') and success and note = 'odd'")] == [
            f"{data}/cups#1"
        ]
        assert [record["episode"] for record in index.find("verdict = 'failure' and success = 0")] == [0]
        add_labels(data / "cups", [1], {"untag": ["wrist"]}, "ana")
        index.refresh()
        assert index.record(f"{data}/cups#1")["tags"] == []
        assert (paths, index.missing("rows")) == ([], 0)


@pytest.mark.parametrize("damage", ["gone", "rubbish", "cut", "middle", "version", "tables"])
def test_a_damaged_index_is_made_again(data: Path, damage: str) -> None:
    with EpisodeIndex.open(data) as index:
        index.compute("rows")
        index._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file = default_file()
    content = file.read_bytes()
    if damage == "gone":
        file.unlink()
    elif damage in ("version", "tables"):
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA user_version = 77" if damage == "version" else "DROP TABLE stored")
        connection.close()
    else:
        spoilt = {"rubbish": b"no database " * 999, "cut": content[: len(content) // 2],
                  "middle": content[:4096] + b"\xff" * 8192 + content[12288:]}[damage]  # fmt: skip
        file.write_bytes(spoilt)
    with EpisodeIndex.open(data) as index:
        assert (index.count(), index.count("steps > 4")) == (7, 3)


def test_an_index_that_is_spoilt_while_it_is_open_is_made_again(data: Path) -> None:
    with EpisodeIndex.open(data) as index:
        index._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file = default_file()
        file.write_bytes(file.read_bytes()[:4096] + b"\xff" * (file.stat().st_size - 4096))
        index._connection.execute("PRAGMA shrink_memory")
        assert index.count() == 7
        index.refresh()
        assert index.count("steps > 4") == 3


def test_what_cannot_be_read_has_its_reason(data: Path, lerobot_set: Made) -> None:
    (data / "cups" / "meta" / "episodes.jsonl").write_text("{")
    (lerobot_set("half") / "data" / "000001.parquet").write_bytes(b"cut")
    with EpisodeIndex.open(data) as index:
        assert "cups" in index.notes[0]
        assert index.count(f"path = '{data}/half'") == 3
        index.compute("rows")
        assert index.count(f"path = '{data}/half'") == 2
        assert index.missing("rows") == 0
    with pytest.raises(SourceError, match="does not exist"):
        EpisodeIndex.open(data / "none")
    (data / "empty").mkdir()
    with pytest.raises(SourceError, match="no run and no data set"):
        EpisodeIndex.open(data / "empty")


def test_options_of_reading_have_their_own_records(data: Path) -> None:
    with (
        EpisodeIndex.open(data / "cups") as plain,
        EpisodeIndex.open(data / "cups", reading={"keep_last": True}) as kept,
    ):
        assert [record["steps"] for record in plain.find()] == [3, 5, 7]
        assert [record["steps"] for record in kept.find()] == [4, 6, 8]
        kept.compute("rows")
        plain.compute("rows")
        digests = [[record["digest"] for record in index.find()] for index in (plain, kept)]
        assert digests[0] == digests[1], "the row that keep_last adds does not count"
        assert len(set(digests[0])) == 3


# -- columns of packages -----------------------------------------------------------------------------------------


@pytest.fixture
def score() -> Iterator[list[str]]:
    """The origins of the tables for which the columns ``score`` and ``word`` were computed."""
    origins: list[str] = []

    def compute(table: Table) -> dict[str, Any]:
        origins.append(Path(table.origin).name)
        return {"score": (table.stops - table.starts) / 2, "word": [None] * len(table.episodes)}

    column_table().register("demo", EpisodeColumns({"score": "REAL", "word": "TEXT"}, compute))
    yield origins
    column_table().unregister("demo")


def test_columns_of_packages_are_computed_once(data: Path, score: list[str]) -> None:
    with EpisodeIndex.open(data) as index:
        assert index.columns()["score"] == "REAL"
        assert index.needed("score > 2") == ["demo"]
        assert index.find("score > 2") == []
        index.prepare("score > 2")
        assert [record["score"] for record in index.find("score > 2", "score desc")] == [4.0, 3.5, 3.0, 2.5]
    with EpisodeIndex.open(data) as index:
        index.prepare(order="score")
        assert sorted(score) == ["cups", "more", "run"]
        (data / "cups" / "data" / "000001.parquet").touch()
        index.refresh()
        assert index.missing("demo") == 3
        index.compute("demo", [f"{data}/cups#1"])
        assert (index.missing("demo"), score[-1]) == (2, "cups")


def test_a_broken_package_hides_no_episode(data: Path) -> None:
    column_table().register("broken", "no_such_module:COLUMNS")
    column_table().register("taken", EpisodeColumns({"steps": "REAL"}, lambda table: {}))
    try:
        with EpisodeIndex.open(data) as index:
            assert index.count() == 7
            assert not {"broken", "taken"} & set(index.groups())
    finally:
        column_table().unregister("broken")
        column_table().unregister("taken")


# -- other processes ---------------------------------------------------------------------------------------------

_BUILD = """
import sys
from pathlib import Path
from rlenv_episode_index.index import EpisodeIndex
index = EpisodeIndex.open(sys.argv[1])
print("open", flush=True)
index.compute("rows")
print(index.count(), index.missing("rows"), flush=True)
"""


def builder(data: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", _BUILD, str(data)], stdout=subprocess.PIPE, text=True, env=environment
    )


@pytest.mark.slow
@pytest.mark.process
def test_kills_and_two_at_once_lose_nothing(data: Path, lerobot_set: Made) -> None:
    for number in range(60):
        lerobot_set(f"set-{number}", (3, 4, 5, 6), seed=number)
    draw = random.Random(1)
    for _ in range(6):
        process = builder(data)
        if draw.random() < 0.5 and process.stdout is not None:
            process.stdout.readline()  # open, so that rows are being computed
        time.sleep(draw.uniform(0.0, 1.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    two = [builder(data) for _ in range(2)]
    assert [process.communicate(timeout=100)[0] for process in two] == ["open\n247 0\n"] * 2
    with EpisodeIndex.open(data) as index:
        rows = {record["key"]: record["digest"] for record in index.find()}
    with EpisodeIndex.open(data, file=data.parent / "other.sqlite") as judge:
        judge.compute("rows")
        assert rows == {record["key"]: record["digest"] for record in judge.find()}
    assert len(np.unique(list(rows.values()))) == 247
