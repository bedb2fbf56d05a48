from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hal import LogError
from recorder.log.labels import add_labels, is_success, labelled, read_labels, undo_labels
from recorder.names import LABELS
from recorder.table.load import build, load_runs


def test_labels_reach_the_table_and_leave_the_log_alone(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path, [4, 4, 4])
    log = (tmp_path / "log.mcap").read_bytes()
    assert "verdict" not in build(tmp_path).episodes[1]  # the cache is made before anything is said
    add_labels(tmp_path, [1, 2], {"verdict": "failure", "source": "expert"}, "ana", 7)
    add_labels(tmp_path, [2], {"verdict": "success"}, "ben", 8)
    infos = build(tmp_path).episodes
    assert "verdict" not in infos[0]
    assert (infos[1]["verdict"], infos[1]["source"], infos[1]["labelled"]) == (
        "failure",
        "expert",
        {"who": "ana", "wall_ns": 7},
    )
    assert (infos[2]["verdict"], infos[2]["source"], infos[2]["labelled"]) == (
        "success",
        "expert",
        {"who": "ben", "wall_ns": 8},
    )
    assert (tmp_path / "log.mcap").read_bytes() == log


def test_what_an_undone_label_replaced_counts_again(tmp_path: Path) -> None:
    add_labels(tmp_path, [0, 1], {"verdict": "failure", "tag": ["a"]}, "ana", 7)
    add_labels(tmp_path, [0, 1], {"verdict": "discard", "tag": ["b"], "note": "x"}, "ben", 8)
    undo_labels(tmp_path, [0], 8, "ben")
    infos: list[dict[str, Any]] = [{"episode": 0, "success": True}, {"episode": 1}]
    first, second = labelled(tmp_path, infos)
    assert (first["verdict"], first["tags"], first["labelled"]) == ("failure", ["a"], {"who": "ana", "wall_ns": 7})
    assert "note" not in first
    assert (second["verdict"], second["tags"], second["note"]) == ("discard", ["a", "b"], "x")
    undo_labels(tmp_path, [0], 7, "ana")
    assert labelled(tmp_path, infos)[0] == infos[0]


def test_a_verdict_outweighs_the_success_that_was_recorded(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path, [2])
    add_labels(tmp_path, [0], {"verdict": "failure"}, "ana")
    (info,) = labelled(tmp_path, [{"episode": 0, "success": True}])
    assert (info["verdict"], info["success"]) == ("failure", None)
    add_labels(tmp_path, [0], {"success": True}, "ana")
    (info,) = labelled(tmp_path, [{"episode": 0, "success": False}])
    assert info["success"] is True
    assert is_success(info) is True


def test_a_label_of_success_leaves_an_episode_discarded(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path, [2, 2])
    add_labels(tmp_path, [0, 1], {"success": True}, "ana")
    discarded, failed = labelled(tmp_path, [{"episode": 0, "verdict": "discard"}, {"episode": 1, "verdict": "failure"}])
    assert discarded["verdict"] == "discard"
    assert is_success(failed) is True
    add_labels(tmp_path, [1], {"verdict": "discard"}, "ana")
    add_labels(tmp_path, [1], {"success": False}, "ana")
    assert read_labels(tmp_path)[1]["verdict"] == "discard"


def test_a_torn_line_says_nothing_and_swallows_nothing(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path, [2, 2])
    add_labels(tmp_path, [0], {"note": "good"}, "ana")
    whole = (tmp_path / LABELS).read_bytes()
    for length in range(len(whole)):
        (tmp_path / LABELS).write_bytes(whole[:length])
        assert read_labels(tmp_path).get(0, {}).get("note") in (None, "good")
        add_labels(tmp_path, [1], {"expert": True}, "ben")
        assert read_labels(tmp_path)[1]["expert"] is True
    (tmp_path / LABELS).write_text('[1]\n{"episode": "x"}\n3\n\xff\n')
    assert read_labels(tmp_path) == {}


@pytest.mark.parametrize(
    "line",
    ['{"episode": 1, "verdict": "disc', '{"episode": 1, "verdict": "dhscard"}', '{"episode": 1, "verdhct": "discard"}',
     '{"episode": "?", "verdict": "discard"}', '{"episode": 1}', "[]"],
)  # fmt: skip
def test_a_damaged_label_is_told(tmp_path: Path, make_log: Any, line: str) -> None:
    make_log(tmp_path, [4, 4, 4])
    add_labels(tmp_path, [0], {"verdict": "failure", "tag": ["a"]}, "ana", 7)
    add_labels(tmp_path, [0], {"tag": ["b"]}, "ana", 8)
    undo_labels(tmp_path, [0], 8, "ana")
    assert not any(LABELS in note for note in load_runs(tmp_path).notes)
    with (tmp_path / LABELS).open("a") as file:
        file.write(line)
    (note,) = (note for note in load_runs(tmp_path).notes if LABELS in note)
    assert "1 of 4 lines are damaged" in note


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "no value"),
        ({"mood": "good"}, "'mood' is no key of a label, allowed are verdict, success"),
        ({"verdict": "great"}, "verdict is 'great', allowed are success, failure, discard"),
        ({"expert": "yes"}, "expert is 'yes'"),
        ({"source": 3}, "source is 3"),
    ],
)
def test_what_cannot_be_said(tmp_path: Path, make_log: Any, values: dict[str, Any], told: str) -> None:
    make_log(tmp_path, [2])
    with pytest.raises(LogError, match=told):
        add_labels(tmp_path, [0], values, "ana")
    assert not (tmp_path / LABELS).exists()


def test_who_and_when_are_kept(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path, [2])
    path = add_labels(tmp_path, [0], {"verdict": "discard"}, "ana", 5)
    assert json.loads(path.read_text()) == {"episode": 0, "verdict": "discard", "who": "ana", "wall_ns": 5}
    with pytest.raises(LogError, match="does not exist"):
        add_labels(tmp_path / "elsewhere", [0], {"verdict": "discard"}, "ana")


@pytest.mark.parametrize(
    ("info", "success"),
    [
        ({}, None),
        ({"success": True}, True),
        ({"success": None, "verdict": "failure"}, False),
        ({"success": True, "verdict": "failure"}, False),  # the person decides over the task
        ({"success": False, "verdict": "success"}, True),
        ({"success": True, "verdict": "discard"}, True),
    ],
)
def test_a_person_s_verdict_decides_over_the_task(info: dict[str, Any], success: bool | None) -> None:
    assert is_success(info) is success


def test_tags_are_added_and_removed(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path, [2])
    add_labels(tmp_path, [0], {"tag": ["wrist", "odd"]}, "ana")
    add_labels(tmp_path, [0], {"untag": ["odd", "old"], "note": "look again"}, "ben")
    (info,) = labelled(tmp_path, [{"episode": 0, "tags": ["old", "kept"]}])
    assert (info["tags"], info["note"]) == (["kept", "wrist"], "look again")
    add_labels(tmp_path, [0], {"tag": ["odd"]}, "ana")
    (info,) = labelled(tmp_path, [{"episode": 0}])
    assert info["tags"] == ["odd", "wrist"]


@pytest.mark.parametrize("tag", ["", "a,b", " a", "a\n", "x" * 65, 3, None])
def test_what_is_no_tag(tmp_path: Path, make_log: Any, tag: object) -> None:
    make_log(tmp_path, [2])
    with pytest.raises(LogError, match="tag"):
        add_labels(tmp_path, [0], {"tag": [tag]}, "ana")
    with pytest.raises(LogError, match="tag"):
        add_labels(tmp_path, [0], {"untag": "text"}, "ana")


def test_old_lines_stay_readable(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path, [2])
    (tmp_path / LABELS).write_text('{"episode": 0, "remark": "late", "who": "ana", "wall_ns": 1}\n')
    assert read_labels(tmp_path)[0]["note"] == "late"


def test_labels_of_a_fetched_snapshot_lie_at_home_and_follow_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    snapshot = tmp_path / "hub" / "datasets--a--b" / "snapshots" / "1234"
    snapshot.mkdir(parents=True)
    (snapshot / "rows.bin").write_bytes(b"1" * 5000)
    path = add_labels(snapshot, [3], {"tag": ["good"]}, "ana")
    assert path.is_relative_to(tmp_path / "home")
    assert not (snapshot / LABELS).exists()
    assert read_labels(snapshot)[3]["tags"] == {"good": True}
    moved = snapshot.rename(snapshot.with_name("5678"))
    assert read_labels(moved)[3]["tags"] == {"good": True}
    (moved / "rows.bin").write_bytes(b"2" * 5000)
    assert read_labels(moved) == {}


def test_labels_of_a_folder_that_cannot_be_written_lie_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    data = tmp_path / "set.hdf5"
    data.write_bytes(b"rows")
    beside = add_labels(data, [0], {"tag": ["early"]}, "ana")
    assert beside == tmp_path / f"set.hdf5.{LABELS}"
    monkeypatch.setattr("os.access", lambda path, mode: False)  # as for a disk that is mounted to be read
    assert add_labels(data, [0], {"tag": ["late"]}, "ana").parent == tmp_path / "home" / "rlenv-robot" / "labels"
    assert read_labels(data)[0]["tags"] == {"early": True, "late": True}
