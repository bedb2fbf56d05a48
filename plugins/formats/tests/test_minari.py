from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Field, SourceError, Spec
from plugins.formats.tests.test_round_trips import check_same
from recorder.formats.runs import NO_REWARDS
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_formats.minari import is_minari, load_minari, write_minari

h5py = pytest.importorskip("h5py", reason="h5py is not installed")

Make = Callable[..., Table]


@pytest.fixture
def minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return pytest.importorskip("minari", reason="minari is not installed")


@pytest.mark.requirement("R3.1")
def test_minari_itself_reads_every_value(tmp_path: Path, make_table: Make, minari: Any) -> None:
    table = make_table()
    assert write_minari(table, tmp_path / "arm" / "reach-v0") == []
    assert is_minari(tmp_path / "arm" / "reach-v0" / "data")
    seen = minari.load_dataset("arm/reach-v0")
    assert (seen.total_episodes, seen.total_steps) == (3, 10)
    assert seen.observation_space["joint_position"].high.tolist() == [3, 3]
    assert seen.observation_space["goal"].high.tolist() == [np.inf] * 3
    assert seen.observation_space["goal"].low.tolist() == [-np.inf] * 3
    assert (seen.observation_space["phase"].n, seen.action_space.shape) == (5, (2,))
    for episode, (start, stop) in zip(
        seen.iterate_episodes(), zip(table.starts, table.stops, strict=True), strict=True
    ):
        rows = table.rows[start:stop]
        for name in table.layout.observation.names:  # T + 1 of them
            np.testing.assert_array_equal(episode.observations[name], rows[f"observation_{name}"])
        np.testing.assert_array_equal(episode.actions, rows["action_joint_target"][1:])
        np.testing.assert_array_equal(episode.rewards, rows["reward"][1:])
        np.testing.assert_array_equal(episode.terminations, rows["terminated"][1:])
        np.testing.assert_array_equal(episode.truncations, rows["truncated"][1:])
        np.testing.assert_array_equal(episode.infos["sensor"]["joint_position"], rows["sensor_joint_position"])
        np.testing.assert_array_equal(episode.infos["applied"]["joint_target"], rows["applied_joint_target"])
        np.testing.assert_array_equal(episode.infos["log_probability"], rows["log_probability"])
    assert [meta["seed"] for meta in seen.storage.get_episode_metadata(range(3))] == [40, 41, 42]


def buffers_of(lengths: Sequence[int], observation: Any, action: Any) -> list[Any]:
    """Return Minari's buffers of episodes that are drawn from two spaces."""
    from minari.data_collector import EpisodeBuffer

    observation.seed(0)
    action.seed(0)
    buffers = []
    for length in lengths:
        seen = [observation.sample() for _ in range(length + 1)]
        buffers.append(
            EpisodeBuffer(
                observations={
                    "Arm": [value["Arm"] for value in seen],
                    "more": tuple([value["more"][i] for value in seen] for i in range(2)),
                    "camera": [value["camera"] for value in seen],
                },
                actions=[action.sample() for _ in range(length)],
                rewards=list(np.arange(length) / 2),
                terminations=[False] * (length - 1) + [length == 2],
                truncations=[False] * (length - 1) + [length == 3],
                seed=length,
                infos={},
            )
        )
    return buffers


@pytest.mark.filterwarnings("ignore::UserWarning")  # it wants an environment, too
@pytest.mark.parametrize("storage", ["hdf5", "arrow", "parquet"])
def test_what_minari_writes_we_read(tmp_path: Path, minari: Any, storage: str) -> None:
    if storage != "hdf5":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from gymnasium import spaces

    observation = spaces.Dict({
        "Arm": spaces.Box(-1, 1, (2,), np.float32),
        "more": spaces.Tuple([spaces.Discrete(4, start=-1), spaces.MultiBinary(3)]),
        "camera": spaces.Box(0, 255, (40, 40, 3), np.uint8),
    })  # fmt: skip
    action, lengths = spaces.MultiDiscrete([2, 5]), (3, 2)
    buffers = buffers_of(lengths, observation, action)
    minari.create_dataset_from_buffers(
        "made-v0", buffers, observation_space=observation, action_space=action,
        description="made here", algorithm_name="random", author="nobody",
        author_email="nobody@example.org", code_permalink="none", data_format=storage,
    )  # fmt: skip
    table = load_minari(tmp_path / "made-v0")
    layout = table.layout.observation
    assert {field.name: (field.shape, field.dtype) for field in layout} == {
        "arm": ((2,), "float32"), "more_index_0": ((), "int64"), "more_index_1": ((3,), "int8"),
    }  # fmt: skip
    assert (layout["more_index_0"].low, layout["more_index_0"].high) == (-1, 2)
    assert table.layout.action["action"].high == (1, 4)
    for buffer, (start, stop) in zip(buffers, zip(table.starts, table.stops, strict=True), strict=True):
        rows = table.rows[start:stop]
        np.testing.assert_array_equal(rows["observation_arm"], buffer.observations["Arm"])
        np.testing.assert_array_equal(rows["observation_more_index_1"], buffer.observations["more"][1])
        np.testing.assert_array_equal(rows["action_action"][1:], buffer.actions)
        np.testing.assert_array_equal(rows["reward"][1:], buffer.rewards)
    assert table.rows["terminated"].tolist() == [0] * 6 + [1]
    assert table.rows["truncated"].tolist() == [0, 0, 0, 1, 0, 0, 0]
    assert [info["seed"] for info in table.episodes] == list(lengths)
    assert not [note for note in table.notes if "camera" in note]  # its images are read apart
    assert "no time was recorded; the stamps count frames as seconds" in table.notes
    if storage != "hdf5":
        (part,) = (tmp_path / "made-v0" / "data" / "1").glob(f"*.{storage}")
        part.write_bytes(part.read_bytes()[:40])
        left = load_minari(tmp_path / "made-v0")
        assert len(left.starts) == len(lengths) - 1
        assert re.search(r"left out.*data/1\S* can't be read", left.notes[0])


def test_one_field_is_no_dictionary_and_a_name_is_proposed(tmp_path: Path, make_table: Make) -> None:
    layout = FrameLayout(Spec("o", (Field("x", (2,)),)), Spec("a", (Field("move", (), "int8", 0, 4),)))
    table = make_table(layout=layout)
    notes = write_minari(table, tmp_path / "my set")
    assert notes == ["Minari opens a data set by its folder's name; rename my set to my-set-v0 for that"]
    meta = json.loads((tmp_path / "my set" / "data" / "metadata.json").read_text())
    assert json.loads(meta["action_space"]) == {"type": "Discrete", "dtype": "int64", "start": 0, "n": 5}
    assert json.loads(meta["observation_space"])["type"] == "Box"
    check_same(load_minari(tmp_path / "my set"), table)


def test_refused_actions_are_left_out(tmp_path: Path, make_table: Make) -> None:
    notes = write_minari(make_table(refused=True), tmp_path / "x-v0")
    assert notes == ["2 frames whose action was refused, or perhaps not carried out (robot lost), are left out"]
    check_same(load_minari(tmp_path / "x-v0"), make_table())


def test_unknown_rewards_stay_unknown(tmp_path: Path, make_table: Make) -> None:
    table = make_table()
    rows = table.rows.copy()
    rows["reward"][rows["acted"] == 1] = np.nan
    write_minari(replace(table, rows=rows), tmp_path / "x-v0")
    back = load_minari(tmp_path / "x-v0")
    np.testing.assert_array_equal(back.rows["reward"], rows["reward"])
    assert back.notes == (NO_REWARDS,)


def test_damage_is_said(tmp_path: Path, make_table: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table()
    write_minari(table, tmp_path / "x-v0")
    meta, data = (tmp_path / "x-v0" / "data" / name for name in ("metadata.json", "main_data.hdf5"))
    good = json.loads(meta.read_text())
    for change, message in (
        ({"total_episodes": -1}, "total_episodes is -1, expected a whole number"),
        ({"data_format": "zarr"}, "is in zarr, supported are hdf5, arrow, parquet"),
        ({"data_format": "arrow"}, "none of its episodes can be read"),
        ({"observation_space": '{"type": "Dict"}'}, "not a space"),
        ({"observation_space": None}, "observation_space is missing"),
        ({"rlenv_robot": {}}, "rlenv_robot can't be read"),
    ):
        meta.write_text(json.dumps(good | change))
        with pytest.raises(SourceError, match=message):
            load_minari(tmp_path / "x-v0")
    meta.write_text(json.dumps(good | {"total_episodes": 10**8}))  # a header alone costs no time
    assert load_minari(tmp_path / "x-v0").notes == (
        "metadata.json says 100000000 episodes, 3 are there; the others are missing",
    )
    meta.write_text(json.dumps(good))
    with h5py.File(data, "a") as file:
        file["episode_1/terminations"][0] = False
        file["episode_1/truncations"][0] = False
    assert load_minari(tmp_path / "x-v0").notes == ("1 of 3 episodes end without a flag; they count as truncated",)
    with h5py.File(data, "a") as file:
        del file["episode_0/actions"]
    left = load_minari(tmp_path / "x-v0")
    assert len(left.starts) == 2
    assert "1 of 3 episodes are damaged or missing and left out" in left.notes[0]
    assert "/episode_0/actions is missing; /episode_0 has infos" in left.notes[0]
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(SourceError, match="can't be read"):
        load_minari(tmp_path / "x-v0")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(SourceError, match=r"needs h5py: pip install 'rlenv-robot\[hdf5\]'"):
        load_minari(tmp_path / "x-v0")
    with pytest.raises(SourceError, match="not a Minari data set"):
        load_minari(tmp_path)
    with pytest.raises(SourceError, match="needs steps"):
        write_minari(replace(table, starts=table.starts[:0], stops=table.stops[:0], episodes=()), tmp_path / "y")
