from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.log.labels import add_labels
from recorder.table.digest import episode_digests
from recorder.table.load import build, load_runs
from recorder.table.transitions import Transitions
from rlenv_robot.data.episode_records import COLUMNS, COSTLY, episode_records, from_sql, info_record, sql_row
from tests.recorder.conftest import record


def test_records_of_a_run(tmp_path: Path) -> None:
    record(tmp_path / "run", [4, 2])
    add_labels(
        tmp_path / "run", [1], {"verdict": "success", "tag": ["b", "a"], "note": "fine", "source": "expert"}, "ana"
    )
    table = load_runs(tmp_path)
    first, second = episode_records(table)
    assert list(first) == list(second) == list(COLUMNS)
    assert (first["path"], first["format"], first["episode"]) == (str((tmp_path / "run").resolve()), "run", 0)
    assert [first["steps"], second["steps"]] == [3, 1]
    assert [first["tags"], second["tags"]] == [[], ["a", "b"]]
    assert [second[name] for name in ("success", "expert", "verdict", "note", "source")] == [
        1,
        1,
        "success",
        "fine",
        "expert",
    ]
    assert [first[name] for name in ("success", "expert", "note")] == [None, None, None]
    assert [first["digest"], second["digest"]] == episode_digests(table)
    assert first["return"] == pytest.approx(float(Transitions.of(table).returns[0]))
    assert first["end_reason"] == "time"
    cheap, _ = episode_records(table, costly=())
    assert [cheap[name] for name in COSTLY] == [None, None, None]
    assert {**cheap, **{name: first[name] for name in COSTLY}} == first


def test_times_are_those_of_the_clocks(tmp_path: Path) -> None:
    record(tmp_path / "run", [4])
    table = build(tmp_path / "run")
    rows = np.array(table.rows)
    rows["stamp_ns"], rows["wall_ns"] = np.arange(4) * 500_000_000, 1_763_695_477_000_000_000
    (told,) = episode_records(replace(table, rows=rows))
    assert (told["seconds"], told["began"]) == (1.5, "2025-11-21T03:24:37Z")
    rows["wall_ns"] = 2**63 - 1  # no year that anybody can write
    assert episode_records(replace(table, rows=rows))[0]["began"] is not None
    rows["wall_ns"] = 0
    assert episode_records(replace(table, rows=rows))[0]["began"] is None


@pytest.mark.parametrize(
    ("info", "column", "value"),
    [
        ({"tasks": ["wipe", "dry"], "task": "wipe"}, "task_text", "wipe; dry"),
        ({"task": {"name": "so101-reach", "settings": {}}}, "task", "so101-reach"),
        ({"task": "so101-reach"}, "task_text", "so101-reach"),
        ({"world": "go"}, "task", "go"),
        ({"instruction": "wipe it", "task": "t1"}, "task_text", "wipe it"),
        ({"source": "expert"}, "expert", 1),
        ({"source": "random"}, "expert", 0),
        ({"length": 11, "fps": 10}, "seconds", 1.0),
        ({"length": 11, "fps": 10}, "steps", 10),
        ({}, "steps", None),
        ({"copied_from": {"run": "/runs/a", "episode": 3}}, "run", "a"),
        ({}, "run", "set"),
        ({"env_id": 3}, "env", "3"),
    ],
)
def test_what_an_info_tells(info: dict[str, Any], column: str, value: object) -> None:
    assert info_record(info, "/data/set", "lerobot", 4)[column] == value
    assert info_record(info, "/data/set", "lerobot", 4)["episode"] == 4


def test_tags_go_into_conditions_and_come_back() -> None:
    told = info_record({"tags": ["a b", "c"]}, "/set", "x", 0)
    assert sql_row(told, ("tags", "episode")) == (",a b,c,", 0)
    assert [from_sql("tags", ",a b,c,"), from_sql("tags", None), from_sql("steps", 3)] == [["a b", "c"], [], 3]
