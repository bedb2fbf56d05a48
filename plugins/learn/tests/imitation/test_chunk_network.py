"""A network of chunks and its ONNX file choose the same, and a file's manifest says what it remembers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot
from hal import RobotError
from rlenv_learn.policies.chunks import ChunkExecution
from rlenv_learn.policies.onnx import METADATA, OnnxPolicy
from rlenv_robot.policies.chunks import ChunkContext
from rlenv_robot.training.rollout import evaluate
from rlenv_vision.image_task import with_images

torch = pytest.importorskip("torch")
for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

from rlenv_learn.imitation.act import ACT, ActSettings  # noqa: E402
from rlenv_learn.imitation.chunk_network import ChunkFields, ChunkNetworkPolicy  # noqa: E402
from rlenv_learn.imitation.diffusion import DiffusionPolicy, DiffusionSettings  # noqa: E402

TASK = "so101-push"


def _network(kind: str, execution: ChunkExecution) -> ChunkNetworkPolicy:
    torch.manual_seed(0)
    fields = ChunkFields(rlenv_robot.task(TASK), execution)
    size = fields.size, fields.flat.action_size, execution
    if kind == "act":
        model = ACT(*size, ActSettings(width=16, heads=2))
    else:
        model = DiffusionPolicy(*size, DiffusionSettings(width=16, blocks=1, inference_steps=3))
    fields.std.mul_(0.1)
    return ChunkNetworkPolicy(model.eval(), fields)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "execution"),
    [("act", ChunkExecution(length=5)), ("diffusion", ChunkExecution(length=6, history=2, execute=3))],
)
def test_a_file_acts_as_the_network_does(kind: str, execution: ChunkExecution, tmp_path: Path) -> None:
    policy = _network(kind, execution)
    policy.save_onnx(tmp_path / "chunks.onnx", TASK, {"trainer": kind})
    saved = OnnxPolicy(tmp_path / "chunks.onnx")
    assert saved.execution == execution
    with rlenv_robot.make_vector(TASK, 3, seed=0, steps=8, autoreset="disabled") as envs:
        ours, files = evaluate(envs, policy, 5), evaluate(envs, saved, 5)
        np.testing.assert_allclose([one.total for one in ours], [one.total for one in files], rtol=1e-4)
        saved.seed(0)
        assert evaluate(envs, saved, 5) == files  # the second trial begins without the memory of the first
        assert not any(one.illegal for one in files)
    with rlenv_robot.make(TASK) as env:
        saved.check(env.observation, env.action)


@pytest.mark.slow
def test_a_file_is_a_predictor_of_its_chunks(tmp_path: Path) -> None:
    policy = _network("act", ChunkExecution(length=5, execute=5))
    policy.save_onnx(tmp_path / "chunks.onnx", TASK)
    saved = OnnxPolicy(tmp_path / "chunks.onnx")
    predictor = saved.chunk_predictor()
    assert predictor is not None
    with rlenv_robot.make(TASK) as env:
        observation = env.reset({"seed": 0})["observation"]
        predictor.check(env.observation, env.action)
        chunk = predictor.predict(observation, ChunkContext(0, {}, 0))
    assert chunk["arm_target"].shape == (5, 5)
    for action in chunk["arm_target"]:  # which the policy executes one by one
        np.testing.assert_array_equal(saved.act(observation)["arm_target"], action)


def test_a_file_that_says_another_length_than_its_graph_is_refused(tmp_path: Path) -> None:
    import onnx

    path = tmp_path / "chunks.onnx"
    _network("act", ChunkExecution(length=3)).save_onnx(path, TASK)
    model = onnx.load(path)
    entry = next(entry for entry in model.metadata_props if entry.key == METADATA)
    plain = json.loads(entry.value)
    plain["chunk"]["length"] = 4
    entry.value = json.dumps(plain)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(RobotError, match="arm_target"):
        OnnxPolicy(path)


def test_actions_come_back_from_scaled_chunks() -> None:
    execution, rng = ChunkExecution(length=4, history=2), np.random.default_rng(0)
    fields = ChunkFields(rlenv_robot.task(TASK), execution)
    low, high = fields.flat.action_bounds
    goal = rng.uniform(low, high, (7, 2, 5)).astype(np.float32)
    observation = {"joint_goal": torch.from_numpy(np.concatenate([goal, goal[..., :1]], axis=-1))}
    for name in fields.flat.observation.names:
        observation.setdefault(name, torch.zeros(7, 2, *fields.flat.observation[name].shape))
    action = {"arm_target": torch.from_numpy(rng.uniform(low, high, (7, 4, 5)).astype(np.float32))}
    relative = fields.relative(observation, action)
    np.testing.assert_allclose(relative[:, 0], action["arm_target"][:, 0] - goal[:, -1], atol=1e-6)
    fields.measure(relative)
    scaled = fields.scaled(relative)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(fields.actions(scaled, observation)["arm_target"], action["arm_target"], atol=1e-5)


def test_images_stay_apart_from_the_vector() -> None:
    task = with_images(rlenv_robot.task(TASK), {"overhead": (8, 6)}, hide=("cube_position", "cube_orientation"))
    fields = ChunkFields(task, ChunkExecution(length=2, history=3))
    assert [field.name for field in fields.images] == ["overhead_image"]
    assert "overhead_image" not in fields.flat.observation
    image = torch.full((4, 3, 6, 8, 3), 255, dtype=torch.uint8)
    picture = fields.image_tensors({"overhead_image": image})["overhead_image"]
    assert picture.shape == (4, 3, 3, 6, 8)
    assert float(picture.max()) == 1.0
