"""Selections: made, saved, opened, joined, parted and refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlenv_robot
from hal import SourceError
from recorder.log.labels import add_labels
from recorder.table.combine import subset
from recorder.table.digest import episode_digests, rows_digest
from rlenv_episode_index.manifest import SelectedSet, Selection, merged, read_selection, write_selection
from rlenv_episode_index.selecting import find_episodes, select, split, without
from rlenv_robot.data.folder import read_folder

Made = Callable[..., Path]


def save(path: Path, *sets: Path, where: str | None = None) -> Selection:
    selection = select(find_episodes(sets, where), where or "", "ana")
    write_selection(selection, path)
    return selection


def digests(path: Path) -> list[str]:
    return episode_digests(read_folder(path))


def test_a_selection_opens_like_its_episodes(tmp_path: Path, lerobot_set: Made) -> None:
    root = lerobot_set("cups")
    path = tmp_path / "long.selection.json"
    selection = save(path, root, where="steps > 4")
    table = read_folder(root)
    assert (len(selection), selection.by, selection.where) == (2, "ana", "steps > 4")
    assert selection.digest == rows_digest(episode_digests(table)[1:])
    source = rlenv_robot.open_source(str(path))
    assert source.table.origin == str(path)
    assert episode_digests(source.table) == episode_digests(subset(table, [1, 2]))
    assert {record["episode"] for record in source.table.episodes} == {1, 2}
    assert source.sample_steps(8, {"min_steps": 7})["extra_info"]["episode"].tolist() == [1] * 8
    assert read_folder(path, episodes=[1]).episodes[0]["episode"] == 2
    again = read_folder(path, keep_last=True)
    assert (again.stops - again.starts).tolist() == [7, 9]


def test_several_runs_and_labels(tmp_path: Path, run_folder: Made) -> None:
    first, second = run_folder("a"), run_folder("b/c", (3, 5, 2))
    path = tmp_path / "some.selection.json"
    save(path, tmp_path / "data", where="steps > 1")
    table = read_folder(path)
    assert episode_digests(table) == [digests(first)[0], *digests(second)[:2]]
    add_labels(second, [1], {"tag": ["odd"], "verdict": "discard"}, "ana")
    assert read_folder(path).episodes[2]["tags"] == ["odd"]
    assert len(find_episodes([path]).records) == 3
    assert [record["episode"] for record in find_episodes([path], "verdict is null").records] == [0, 0]


def test_paths_are_relative_so_that_all_can_move_together(tmp_path: Path, lerobot_set: Made) -> None:
    root = lerobot_set("cups")
    save(root.parent / "all.selection.json", root)
    assert json.loads((root.parent / "all.selection.json").read_text())["sets"][0]["path"] == "cups"
    moved = tmp_path / "elsewhere"
    root.parent.rename(moved)
    assert len(digests(moved / "all.selection.json")) == 3
    # the same set beside the selection, under its name, but not at its path
    path = moved / "deep" / "cups.selection.json"
    path.parent.mkdir()
    save(path, moved / "cups")
    (moved / "cups").rename(moved / "deep" / "cups")
    assert len(digests(path)) == 3
    (moved / "deep" / "cups").rename(tmp_path / "far")
    with pytest.raises(SourceError, match="--moved"):
        read_folder(path)
    found = find_episodes([path], moved=[tmp_path])
    save_to = tmp_path / "new.selection.json"
    write_selection(select(found), save_to)
    assert read_selection(save_to).digest == read_selection(path).digest
    # another set of the same name is not taken for it
    (tmp_path / "far" / "data" / "000000.parquet").unlink()
    (tmp_path / "far").rename(moved / "deep" / "cups")
    path.rename(path.with_name("x.selection.json"))
    with pytest.raises(SourceError):
        read_folder(path.with_name("x.selection.json"))


@pytest.mark.parametrize("change", ["bytes", "gone", "all gone", "renumbered"])
def test_changed_and_missing_episodes_are_refused_by_name(tmp_path: Path, lerobot_set: Made, change: str) -> None:
    root, other = lerobot_set("cups"), lerobot_set("other", seed=5)
    path = tmp_path / "all.selection.json"
    save(path, root, where="episode >= 1")
    if change == "bytes":
        shutil.copy(other / "data" / "000001.parquet", root / "data" / "000001.parquet")
    elif change == "gone":
        (root / "data" / "000001.parquet").unlink()
    elif change == "all gone":
        lines = (root / "meta" / "episodes.jsonl").read_text().splitlines(keepends=True)
        (root / "meta" / "episodes.jsonl").write_text(lines[0])
    else:
        shutil.copytree(other, root, dirs_exist_ok=True)
    with pytest.raises(SourceError, match="episode 1"):
        read_folder(path)
    with pytest.raises(SourceError, match="episode 1"):
        find_episodes([path])
    if change in ("all gone", "renumbered"):
        with pytest.raises(SourceError, match="nothing was selected"):
            select(find_episodes([path], leave_out_changed=True))
        return
    rest = select(find_episodes([path], leave_out_changed=True))
    assert [number for _, number, _ in rest] == [2]
    assert rest.parents == (read_selection(path).digest,)


def test_selections_are_joined_reduced_and_parted_without_copies(tmp_path: Path, lerobot_set: Made) -> None:
    root = lerobot_set("cups", tuple(range(3, 13)))
    low, high, both = (tmp_path / f"{name}.selection.json" for name in ("low", "high", "both"))
    first, second = save(low, root, where="episode < 6"), save(high, root, where="episode > 3")
    union = save(both, low, high)
    assert [number for _, number, _ in union] == list(range(10))
    assert union.parents == (first.digest, second.digest)
    assert [number for _, number, _ in without(union, [second])] == [0, 1, 2, 3]
    train, test = split(both, 0.3, seed=1)
    assert {digest for _, _, digest in train} | {digest for _, _, digest in test} == set(digests(root))
    assert (len(train), len(test), test.parents) == (7, 3, (union.digest,))
    for part in (train, test):
        write_selection(part, tmp_path / f"{len(part)}.selection.json")
        assert digests(tmp_path / f"{len(part)}.selection.json") == [digest for _, _, digest in part]
    assert split(both, 0.3, seed=1)[1].digest == test.digest


def test_copies_are_told_and_left_out_on_request(tmp_path: Path, lerobot_set: Made) -> None:
    root = lerobot_set("cups")
    shutil.copytree(root, root.with_name("copy"))
    found = find_episodes([root.parent])
    assert len(select(found)) == 6
    assert "3 episodes are copies" in found.notes[-1]
    unique = select(found, unique=True)
    assert [one.path.name for one in unique.sets] == ["copy"]
    taken = SelectedSet(root, "", "lerobot", {}, tuple((n, d) for n, d in enumerate(digests(root))))
    assert len(without(select(found), [Selection((taken,))])) == 0


def test_the_best_by_return(tmp_path: Path, run_folder: Made, lerobot_set: Made) -> None:
    run = run_folder("run", (3, 9, 5, 4))
    table = read_folder(run)
    returns = [float(np.sum(table.rows["reward"][a + 1 : b])) for a, b in zip(table.starts, table.stops, strict=True)]
    best = sorted(np.argsort(returns)[-2:].tolist())
    assert [record["episode"] for record in find_episodes([run], top_fraction=0.5).records] == best
    with pytest.raises(SourceError, match="above 0"):
        find_episodes([run], top_fraction=0.0)
    with pytest.raises(SourceError, match="not known"):
        find_episodes([lerobot_set("cups")], top_fraction=0.5)


# -- the file ----------------------------------------------------------------------------------------------------

DIGEST = st.text("0123456789abcdef", min_size=32, max_size=32)
SETS = st.builds(
    SelectedSet, st.sampled_from([Path("/data/a"), Path("/data/ü b"), Path("/else/x.hdf5")]), DIGEST,
    st.sampled_from(["run", "lerobot"]), st.sampled_from([{}, {"columns": {"action": ["a", "b"]}}]),
    st.lists(st.tuples(st.integers(0, 10**9), DIGEST), min_size=1, max_size=4, unique=True).map(tuple),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(SETS, min_size=1, max_size=4), st.text(max_size=20))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, sets: list[SelectedSet], where: str) -> None:
    selection = Selection(merged(sets), where, "ana", "2026-11-26T23:14:34Z", ("0" * 32,))
    path = tmp_path_factory.mktemp("selection") / "a.selection.json"
    write_selection(selection, path)
    assert read_selection(path) == selection
    with pytest.raises(SourceError, match="exists already"):
        write_selection(selection, path)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('"rlenv_robot_selection": 1', '"rlenv_robot_selection": 2', "version 2"), ("[[0,", "[[7,", "again"),
        ('"sets"', '"others"', "can't be read"), ("{", "", "can't be read"),
        ('"path": "', '"path": 3, "x": "', "can't"),
        ('"digest": "', '"digest": "0', "changed or damaged"), ("[[0, ", '[["0", ', "can't be read"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused(tmp_path: Path, lerobot_set: Made, old: str, new: str, word: str) -> None:
    path = tmp_path / "data" / "all.selection.json"
    save(path, lerobot_set("cups"))
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(SourceError, match="episode 7" if word == "again" else word):
        read_folder(path)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    one = SelectedSet(tmp_path, "", "run", {}, ((0, "0" * 32),))
    for path, selection, word in (
        (tmp_path / "a.json", Selection((one,)), "ends in"),
        (tmp_path / "a.selection.json", Selection(()), "no episode"),
        (tmp_path / "none" / "a.selection.json", Selection((one,)), "can't be written"),
    ):  # fmt: skip
        with pytest.raises(SourceError, match=word):
            write_selection(selection, path)


def test_sets_with_other_fields_are_refused(tmp_path: Path, lerobot_set: Made, run_folder: Made) -> None:
    path = tmp_path / "all.selection.json"
    save(path, lerobot_set("cups"), run_folder("run"))
    with pytest.raises(SourceError, match="different fields; make a selection of each"):
        read_folder(path)
