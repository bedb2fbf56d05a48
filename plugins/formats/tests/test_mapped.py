from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from recorder.table.digest import episode_digests
from rlenv_formats.mapped import load_mapped
from rlenv_robot.source import open_source

pa = pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
import pyarrow.parquet as pq  # noqa: E402

NAMES: dict[str, Any] = {
    "observation.state": ["q1", "q2"], "action": "u", "reward": "r", "time": "t", "episode": "n",
}  # fmt: skip


def columns(lengths: tuple[int, ...] = (4, 3)) -> dict[str, np.ndarray]:
    count, rng = sum(lengths), np.random.default_rng(0)
    return {
        "q1": rng.normal(size=count), "q2": rng.normal(size=count), "u": rng.normal(size=count),
        "r": np.arange(count, dtype=float), "t": np.concatenate([np.arange(n) / 20 for n in lengths]),
        "n": np.repeat(np.arange(len(lengths)) + 7, lengths),
    }  # fmt: skip


def write(path: Path, values: dict[str, np.ndarray]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.table(values), path)
    else:
        lines = [
            ",".join(values),
            *(",".join(map(repr, map(float, row))) for row in zip(*values.values(), strict=True)),
        ]
        path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_become_rows(tmp_path: Path, suffix: str) -> None:
    values = columns()
    table = load_mapped(write(tmp_path / f"all{suffix}", values), NAMES)
    assert (table.starts.tolist(), table.stops.tolist()) == ([0, 4], [4, 7])
    np.testing.assert_array_equal(table.rows["observation_state"], np.stack([values["q1"], values["q2"]], 1))
    np.testing.assert_array_equal(table.rows["action_target"][1:4], values["u"][:3])  # the action before the frame
    assert table.rows["reward"][1:4].tolist() == [0, 1, 2]
    assert table.layout.observation["state"].elements == ("q1", "q2")
    assert np.diff(table.rows["stamp_ns"][:4]).tolist() == pytest.approx([5e7] * 3, abs=1)
    assert table.episodes[0]["last_action"] == {"target": values["u"][3]}
    kept = load_mapped(tmp_path / f"all{suffix}", NAMES, keep_last=True)
    assert kept.stops.tolist() == [5, 9]
    assert kept.rows["action_target"][4] == values["u"][3]
    np.testing.assert_array_equal(kept.rows["observation_state"][4], kept.rows["observation_state"][3])


def test_a_file_is_an_episode_without_a_column_for_it(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write(tmp_path / name, columns((5,)))
    source = open_source(tmp_path, columns={"observation.state": ["q1", "q2"], "action": "u"})
    assert (len(source.table.starts), len(source)) == (2, 8)
    assert any("no time was named" in note for note in source.table.notes)


def test_groups_of_an_hdf5_file_are_episodes(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="the extra 'hdf5' is not installed")
    rng = np.random.default_rng(0)
    seen, acted = rng.normal(size=(11, 6, 3)), rng.normal(size=(11, 5, 2))
    with h5py.File(tmp_path / "aloha.hdf5", "w") as file:
        for number in range(11):
            file[f"data/take_{number}/qpos"], file[f"data/take_{number}/act"] = seen[number], acted[number]
    names = {"observation.qpos": "qpos", "action.goal": "act", "episode": "data/*"}
    table = load_mapped(tmp_path / "aloha.hdf5", names)
    assert len(table.starts) == 11
    for number in (0, 2, 10):  # one observation more than actions: nothing is left out or repeated
        rows = table.rows[table.starts[number] : table.stops[number]]
        np.testing.assert_array_equal(rows["observation_qpos"], seen[number])
        np.testing.assert_array_equal(rows["action_goal"][1:], acted[number])


def test_a_missing_row_is_told_by_the_times_around_it(tmp_path: Path) -> None:
    lines = [f"{k / 10:.2f},{k},{k}" for k in range(12)]
    names = {"observation.state": "q", "action": "u", "time": "t"}
    notes = []
    for name, rows in (("whole", lines), ("torn", lines[:5] + lines[6:])):
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(["t,q,u", *rows, ""]))
        notes.append(set(load_mapped(path, names).notes))
    assert notes[1] - notes[0] == {"time jumps in 1 places by over 1.5 usual steps; rows may be missing there"}


def test_rows_of_one_episode_that_lie_apart_are_told(tmp_path: Path) -> None:
    lines = [f"{n},{k},{k}" for n in (0, 1, 0, 2) for k in range(4)]
    (tmp_path / "a.csv").write_text("\n".join(["n,q,u", *lines]) + "\n")
    table = load_mapped(tmp_path / "a.csv", {"observation.q": "q", "action": "u", "episode": "n"})
    assert len(table.episodes) == 4
    assert any("rows of one n lie apart" in note for note in table.notes)


def test_an_episode_has_one_digest_with_and_without_its_last_action(tmp_path: Path) -> None:
    lines = [f"{n},{k + n},{k},{int(n == 1 and k == 5)}" for n in range(2) for k in range(6)]
    (tmp_path / "a.csv").write_text("\n".join(["n,q,u,done", *lines]) + "\n")
    names = {"observation.q": "q", "action": "u", "episode": "n", "terminated": "done"}
    kept, short = (load_mapped(tmp_path / "a.csv", names, keep_last=keep) for keep in (True, False))
    assert (kept.stops - kept.starts).tolist() == [7, 7]
    assert (short.stops - short.starts).tolist() == [6, 7], "the second one has terminated"
    assert episode_digests(kept) == episode_digests(short)
    kept.rows["observation_q"][4] += 1
    assert episode_digests(kept)[0] != episode_digests(short)[0]


def test_irregular_times_are_told_in_one_sentence(tmp_path: Path) -> None:
    names = {"observation.q": "q", "action": "u", "time": "t"}
    rng = np.random.default_rng(0)
    for share, told in ((0.0, False), (0.02, False), (0.2, True)):
        times = np.arange(60) / 30 + rng.normal(0, share / 30, 60)
        lines = [f"{t:.6f},{k},{k}" for k, t in enumerate(times.tolist())]
        path = tmp_path / f"{share}.csv"
        path.write_text("\n".join(["t,q,u", *lines]) + "\n")
        table = load_mapped(path, names)
        irregular = [note for note in table.notes if "irregular" in note]
        assert len(irregular) == told, table.notes
        assert np.allclose(table.rows["stamp_ns"] / 1e9, times[: len(table.rows)], atol=1e-6)
        assert not any("jumps" in note for note in table.notes), "irregular rows are not missing ones"
    assert "in 1 episodes" in irregular[0]
    assert "of the usual 32.9" in irregular[0]
    assert "a policy takes the rows as evenly spaced" in irregular[0]


def test_damaged_episodes_are_left_out(tmp_path: Path) -> None:
    values = columns()
    write(tmp_path / "a.csv", values)
    values["t"][2] = np.nan
    write(tmp_path / "b.csv", values)
    (tmp_path / "c.csv").write_text("q1,q2\n1,2\n")
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    table = load_mapped(tmp_path, NAMES)
    assert len(table.starts) == 3
    assert "3 of 6 episodes are damaged or missing and left out" in table.notes[0]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({}, "names no observation"),
        ({"state": "q1", "action": "u"}, "allowed are observation.<name>"),
        ({"observation.state": "q9", "action": "u"}, "no column 'q9', it has q1"),
        ({"observation.state": [], "action": "u"}, "names 0 columns"),
        ({**NAMES, "episode": "file"}, "no column 'file'"),
    ],
)
def test_wrong_mappings_are_refused(tmp_path: Path, names: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        load_mapped(write(tmp_path / "all.csv", columns()), names)
