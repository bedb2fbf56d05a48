from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import RobotError, SpecMismatch
from rlenv_robot.adapters.flat import FlattenObservation, flat_for
from rlenv_robot.cli.main import main
from rlenv_robot.policies.policy import load_policy
from rlenv_robot.registry import task
from rlenv_robot.tasks.cube import Push
from rlenv_robot.tasks.task import Task
from rlenv_tabletop.pair_lift import PairLift
from rlenv_tabletop.stack import Stack

torch = pytest.importorskip("torch", reason="torch is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from rlenv_learn.policies.flat import FlatPolicy  # noqa: E402
from rlenv_learn.policies.onnx import METADATA, OnnxPolicy, metadata  # noqa: E402

REACH = task("so101-reach")


def _policy(flat: FlattenObservation) -> FlatPolicy:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(flat.size, 16), torch.nn.Tanh(), torch.nn.Linear(16, flat.action_size), torch.nn.Tanh()
    )
    return FlatPolicy(net, flat)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "reach.onnx"
    _policy(flat_for(REACH)).save_onnx(path, "so101-reach", {"trainer": "none"})
    return path


@pytest.mark.parametrize("plain", [False, True], ids=["around", "range"])
def test_the_file_does_what_the_network_does(plain: bool, saved: Path, tmp_path: Path) -> None:
    flat = FlattenObservation(REACH.observation, REACH.action) if plain else flat_for(REACH)
    policy, path = _policy(flat), saved
    if plain:
        path = tmp_path / "plain.onnx"
        policy.save_onnx(path, "so101-reach")
    loaded = OnnxPolicy(path)
    loaded.check(REACH.observation, REACH.action)
    for leading in ((), (1,), (7,), (2, 3)):
        observation = REACH.observation.sample(np.random.default_rng(1), leading)
        expected, found = policy.act(observation), loaded.act(observation)
        assert found.keys() == expected.keys() == {"joint_target"}
        assert found["joint_target"].dtype == np.float32
        np.testing.assert_allclose(found["joint_target"], expected["joint_target"], atol=2e-6)
    assert len(REACH.action.validate(loaded.act(REACH.observation.sample(np.random.default_rng(2))))) == 1


@pytest.mark.parametrize(
    "chosen",
    [Push(), PairLift(message_size=2), Stack()],
    ids=["the first elements of a longer field", "two fields, and messages around nothing", "a row from all rows"],
)
def test_an_action_may_be_around_parts_of_what_is_seen(chosen: Task, tmp_path: Path) -> None:
    policy = _policy(flat_for(chosen))
    policy.save_onnx(tmp_path / "policy.onnx", chosen.name)
    observation = chosen.observation.sample(np.random.default_rng(1), (3,))
    expected, found = policy.act(observation), OnnxPolicy(tmp_path / "policy.onnx").act(observation)
    assert found.keys() == expected.keys() == set(chosen.action.names)
    for name, value in expected.items():
        assert value.shape == (3, *chosen.action[name].shape)
        np.testing.assert_allclose(found[name], value, atol=2e-6, err_msg=name)


def test_it_runs_on_a_robot(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "so101-reach", "--policy", str(saved), "--episodes", "2"]) == 0
    assert "of 2 reached" in capsys.readouterr().out


def test_another_spec_is_refused_with_the_difference(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load_policy(saved)
    fields = REACH.action.fields[0]
    other = type(REACH.action)("so101_reach_action", (type(fields)("joint_target", (6,), "float32", -1, 1, "rad"),))
    with pytest.raises(SpecMismatch, match="action: joint_target"):
        loaded.check(REACH.observation, other)
    assert main(["run", "go", "--policy", str(saved), "--episodes", "1"]) != 0
    assert "was trained for another so101-reach" in capsys.readouterr().err


def _rewritten(saved: Path, path: Path, entry: str | None) -> Path:
    model = onnx.load(str(saved))
    del model.metadata_props[:]
    if entry is not None:
        model.metadata_props.add(key=METADATA, value=entry)
    path.write_bytes(model.SerializeToString())
    return path


def _other(**changes: Any) -> str:
    plain = json.loads(metadata("so101-reach", REACH.observation, REACH.action, {}))
    return json.dumps({**plain, **changes})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (None, "without the specs of its observations"),
        ("{", "is damaged"),
        ("[]", "is damaged"),
        (_other(action=3), "is damaged"),
        (_other(action=REACH.goal.to_dict()), "its specs say"),
    ],
)
def test_a_foreign_or_damaged_file_is_refused(saved: Path, tmp_path: Path, entry: str | None, message: str) -> None:
    with pytest.raises(RobotError, match=message):
        OnnxPolicy(_rewritten(saved, tmp_path / "other.onnx", entry))


def test_what_is_no_file_is_refused(tmp_path: Path, saved: Path) -> None:
    with pytest.raises(RobotError, match="there is no such policy file"):
        load_policy(tmp_path / "none.onnx")
    (tmp_path / "torn.onnx").write_bytes(saved.read_bytes()[:500])
    with pytest.raises(RobotError, match="not a readable ONNX file"):
        load_policy(tmp_path / "torn.onnx")
    with pytest.raises(RobotError, match=r"a file that ends in \.mjlab, \.npz, \.onnx"):
        load_policy(tmp_path / "policy.pt")


def test_a_missing_file_is_said_before_a_missing_package(
    tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["run", "so101-reach", "--policy", str(tmp_path / "missing.onnx")]) == 2
    assert "there is no such policy file" in capsys.readouterr().err
    assert main(["run", "so101-reach", "--policy", str(saved)]) == 2
    assert "pip install 'rlenv-robot[onnx]'" in capsys.readouterr().err


def test_a_folder_is_no_policy(tmp_path: Path) -> None:
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(RobotError, match=r"folder\.onnx: can't be read"):
        load_policy(tmp_path / "folder.onnx")


def _graph(path: Path, size: int | str, kind: int, value: float = 0.0) -> Path:
    """A graph that gives one target whatever it sees, under the specs of so101-reach."""
    obs = onnx.helper.make_tensor_value_info("joint_position", onnx.TensorProto.FLOAT, ["batch", 6])
    target = onnx.helper.make_tensor_value_info("joint_target", kind, [1, size])
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    told = onnx.numpy_helper.from_array(np.full((1, size if isinstance(size, int) else 6), value, dtype), "told")
    node = onnx.helper.make_node("Identity", ["told"], ["joint_target"])
    graph = onnx.helper.make_graph([node], "still", [obs], [target], [told])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    model.metadata_props.add(key=METADATA, value=metadata("so101-reach", REACH.observation, REACH.action, {}))
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(("size", "kind"), [(5, 1), (6, 11)], ids=["shape", "type"])
def test_a_graph_of_another_shape_or_type_is_refused_when_it_is_loaded(size: int, kind: int, tmp_path: Path) -> None:
    message = r"its graph has 'joint_target' as .* its specs say float32 of shape \(batch, 6\)"
    with pytest.raises(RobotError, match=message):
        load_policy(_graph(tmp_path / "other.onnx", size, kind))


def test_an_illegal_action_ends_the_run_and_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    still, wild = _graph(tmp_path / "still.onnx", 6, 1), _graph(tmp_path / "wild.onnx", 6, 1, 100.0)
    assert main(["run", "so101-reach", "--policy", str(still), "--episodes", "1"]) == 0
    assert main(["run", "so101-reach", "--policy", str(wild), "--episodes", "1"]) == 2
    said = capsys.readouterr().err
    assert "in frame 0 the policy chose an illegal action, which was not executed: action.joint_target[0]" in said
