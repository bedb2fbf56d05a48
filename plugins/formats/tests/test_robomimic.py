from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hal import SourceError
from recorder.table.table import Table
from rlenv_formats import hdf5
from rlenv_formats.robomimic import is_robomimic, load_robomimic, write_robomimic

h5py = pytest.importorskip("h5py", reason="h5py is not installed")

Make = Callable[..., Table]


@pytest.mark.requirement("R3.1")
def test_the_file_is_as_robomimic_wants_it(tmp_path: Path, make_table: Make) -> None:
    table = make_table()
    assert write_robomimic(table, tmp_path / "demo.hdf5") == []
    assert load_robomimic(tmp_path / "demo.hdf5").episodes[1]["masks"] == ["success"]
    with h5py.File(tmp_path / "demo.hdf5") as file:
        assert file["data"].attrs["total"] == 10
        assert json.loads(file["data"].attrs["env_args"]) == {"env_name": "reach", "env_type": 2, "env_kwargs": {}}
        assert [one.decode() for one in file["mask/success"]] == ["demo_1"]
        assert [one.decode() for one in file["mask/failure"]] == ["demo_0", "demo_2"]
        for number, (start, stop) in enumerate(zip(table.starts, table.stops, strict=True)):
            demo, rows = file[f"data/demo_{number}"], table.rows[start:stop]
            assert demo.attrs["num_samples"] == stop - start - 1
            for name in table.layout.observation.names:
                np.testing.assert_array_equal(demo[f"obs/{name}"], rows[f"observation_{name}"][:-1])
                np.testing.assert_array_equal(demo[f"next_obs/{name}"], rows[f"observation_{name}"][1:])
            np.testing.assert_array_equal(demo["action_dict/joint_target"], rows["action_joint_target"][1:])
            np.testing.assert_allclose(demo["actions"], rows["action_joint_target"][1:].astype(float) / 3, atol=1e-12)
            np.testing.assert_array_equal(demo["rewards"], rows["reward"][1:])
            np.testing.assert_array_equal(demo["dones"], rows["terminated"][1:])  # time being up is no end


@pytest.mark.parametrize("whole", [True, False])
def test_what_others_wrote(tmp_path: Path, whole: bool) -> None:
    rng = np.random.default_rng(0)
    seen, action = rng.normal(size=(2, 5, 3)), rng.uniform(-1, 1, (2, 4, 2)).astype(np.float32)
    with h5py.File(tmp_path / "low_dim.hdf5", "w") as file:
        file.create_group("data").attrs["env_args"] = json.dumps({"env_name": "Lift"})
        for number, name in enumerate(("demo_3", "demo_11")):
            demo = file.create_group(f"data/{name}")
            demo.attrs["num_samples"] = 4
            demo["obs/robot0_eef-Pos"] = seen[number, :4]
            demo["obs/agentview_image"] = np.zeros((4, 8, 8, 3), np.uint8)
            if whole:
                demo["next_obs/robot0_eef-Pos"] = seen[number, 1:]
            demo["actions"] = action[number]
            demo["dones"] = [0, 1, 1, number]  # a success that went on
            if whole:
                demo["rewards"] = np.arange(4.0)
        file["mask/train"] = np.array(["demo_11"], "S")
    table = load_robomimic(tmp_path / "low_dim.hdf5")
    assert table.layout.observation.names == ("robot0_eef_pos",)
    steps = 4 if whole else 3
    assert np.diff(np.append(table.starts, len(table.rows))).tolist() == [steps + 1] * 2
    for number in range(2):
        rows = table.rows[table.starts[number] : table.stops[number]]
        np.testing.assert_array_equal(rows["observation_robot0_eef_pos"], seen[number, : steps + 1])
        np.testing.assert_array_equal(rows["action_target"][1:], action[number, :steps])
        assert bool(rows["terminated"][-1]) is (whole and number == 1)
        if whole:
            assert rows["reward"][1:].tolist() == [0, 1, 2, 3]
        else:
            assert np.isnan(rows["reward"][1:]).all()
            assert table.episodes[number]["last_action"]["target"] == action[number, 3].tolist()
    assert [info["masks"] for info in table.episodes] == [[], ["train"]]
    assert table.episodes[0]["task"] == "Lift"
    assert any("in 2 episodes dones is set before the last step; these go on after it" in n for n in table.notes)
    assert any("no rewards were recorded" in note for note in table.notes) is not whole


def test_the_last_pair_is_kept_for_imitation(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        demo = file.create_group("data/demo_0")
        demo["obs/x"], demo["actions"] = np.arange(4.0)[:, None], np.arange(4.0)[:, None]
    table = load_robomimic(tmp_path / "a.hdf5", keep_last=True)
    assert table.rows["observation_x"][:, 0].tolist() == [0, 1, 2, 3, 3]
    assert table.rows["action_target"][1:, 0].tolist() == [0, 1, 2, 3]
    assert table.episodes[0]["last_observation"] == "repeated"
    assert any("repeats the observation before it" in note for note in table.notes)


def test_refusals(tmp_path: Path, make_table: Make) -> None:
    with pytest.raises(SourceError, match=r"its name ends in \.hdf5 or \.h5"):
        write_robomimic(make_table(), tmp_path / "out")
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["x"] = 1
    assert not is_robomimic(tmp_path / "other.hdf5")
    with pytest.raises(SourceError, match="it has no group data"):
        load_robomimic(tmp_path / "other.hdf5")
    with pytest.raises(SourceError, match="is there already and is not overwritten"):
        write_robomimic(make_table(), tmp_path / "other.hdf5")
    write_robomimic(make_table(), tmp_path / "good.hdf5")
    with h5py.File(tmp_path / "good.hdf5", "a") as file:
        del file["data/demo_0/rewards"]
        file["data/demo_0/rewards"] = np.zeros(3)
    table = load_robomimic(tmp_path / "good.hdf5")
    assert len(table.starts) == 2
    assert re.search(r"1 of 3 episodes are damaged .*/data/demo_0/\S+ has shape", table.notes[0])


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("robomimic", "torch")),
    reason="robomimic and torch are not both installed",
)
@pytest.mark.filterwarnings("ignore")
def test_robomimic_itself_reads_every_value(tmp_path: Path, make_table: Make) -> None:
    from robomimic.utils import obs_utils
    from robomimic.utils.dataset import SequenceDataset

    table = make_table()
    write_robomimic(table, tmp_path / "demo.hdf5")
    keys = table.layout.observation.names
    obs_utils.initialize_obs_utils_with_obs_specs({"obs": {"low_dim": list(keys)}})
    seen = SequenceDataset(str(tmp_path / "demo.hdf5"), keys, ("actions", "rewards", "dones"))
    assert len(seen) == 10
    index = 0
    for start, stop in zip(table.starts, table.stops, strict=True):
        for row, after in zip(table.rows[start : stop - 1], table.rows[start + 1 : stop], strict=True):
            item = seen[index]
            for name in keys:
                np.testing.assert_array_equal(item["obs"][name][0], row[f"observation_{name}"])
                np.testing.assert_array_equal(item["next_obs"][name][0], after[f"observation_{name}"])
            np.testing.assert_allclose(item["actions"][0] * 3, after["action_joint_target"], rtol=1e-6)
            assert (item["rewards"][0], item["dones"][0]) == (after["reward"], after["terminated"])
            index += 1


def foreign(path: Path) -> None:
    """Write a file as robomimic does, with texts of variable length."""
    with h5py.File(path, "w") as file:
        for number in range(2):
            demo = file.create_group(f"data/demo_{number}")
            demo["obs/eef"], demo["next_obs/eef"] = np.zeros((2, 8, 3))
            demo["actions"] = np.zeros((8, 2))
            demo.attrs["model_file"] = "<mujoco/>"
        file["data"].attrs["env_args"] = json.dumps({"env_name": "Lift"})
        file.create_dataset("mask/train", data=["demo_1"])


@pytest.mark.process
def test_texts_of_variable_length_are_read_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "demo.hdf5"
    foreign(path)
    table = load_robomimic(path)
    assert [(info["task"], info["masks"]) for info in table.episodes] == [("Lift", []), ("Lift", ["train"])]
    intact = path.read_bytes()
    heap = intact.index(b"GCOL")
    monkeypatch.setattr(hdf5, "_PROCESSOR_S", 2)
    # Sizes of objects in the heap: the library runs for ever, or ends its process.
    for place, size in ((heap + 56, 255), (heap + 57, 8), (heap + 24, 254)):
        path.write_bytes(intact[:place] + bytes([size]) + intact[place + 1 :])
        with pytest.raises(SourceError, match=r"demo\.hdf5: /mask/train can't be read"):
            load_robomimic(path)
