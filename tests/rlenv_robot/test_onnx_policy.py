from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import RobotError, SpecMismatch
from rlenv_robot.catalogue import task
from rlenv_robot.cli import main
from rlenv_robot.interop.flat import Flat, flat_for
from rlenv_robot.policy import load_policy

torch = pytest.importorskip("torch", reason="torch is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from rlenv_robot.learning.flat_policy import FlatPolicy  # noqa: E402
from rlenv_robot.onnx_policy import METADATA, OnnxPolicy, metadata  # noqa: E402

REACH = task("so101-reach")


def _policy(flat: Flat) -> FlatPolicy:
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
    flat = Flat(REACH.observation, REACH.action) if plain else flat_for(REACH)
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


def test_an_action_around_a_longer_field_sets_its_first_elements(tmp_path: Path) -> None:
    push = task("so101-push")
    policy = _policy(flat_for(push))
    policy.save_onnx(tmp_path / "push.onnx", push.name)
    observation = push.observation.sample(np.random.default_rng(1), (3,))
    expected = policy.act(observation)["arm_target"]
    assert expected.shape == (3, 5)
    np.testing.assert_allclose(OnnxPolicy(tmp_path / "push.onnx").act(observation)["arm_target"], expected, atol=2e-6)


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
        (None, "says nothing of its specs"),
        ("{", "is damaged"),
        ("[]", "is damaged"),
        (_other(action=3), "is damaged"),
        (_other(action=REACH.goal.to_plain()), "its specs say"),
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
    with pytest.raises(RobotError, match=r"an \.onnx or an \.npz file, not \.pt"):
        load_policy(tmp_path / "policy.pt")
