"""A position from images: its geometry is the simulation's, it is learned, and the policy's file does the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import Field, SpecError
from rlenv_vision.image_task import with_images
from sim.rendering.camera import available
from sim.rendering.projection import pinhole_camera, project_points
from sim.robots.so101 import so101_cube

torch = pytest.importorskip("torch")

from rlenv_learn.imitation.field_estimator import (  # noqa: E402
    EstimateErrors,
    EstimatingPolicy,
    FieldEstimator,
    learn_position,
)
from rlenv_learn.imitation.views import Landmarks  # noqa: E402
from rlenv_learn.policies.flat import FlatPolicy  # noqa: E402
from rlenv_learn.policies.onnx import OnnxPolicy  # noqa: E402

SIZE = 48, 32
CAMERAS = {"overhead": SIZE, "view": SIZE}
PUSH, MODEL = rr.task("so101-push"), so101_cube()
TASK = with_images(PUSH, CAMERAS, hide=("cube_position", "cube_orientation"))
MARKS = Landmarks(PUSH.observation["cube_position"], (PUSH.observation["gripper_position"],), ((0.04, 0.0, 0.06),))


def estimator() -> FieldEstimator:
    torch.manual_seed(0), torch.set_num_threads(1)
    cameras = [(TASK.observation[f"{name}_image"], pinhole_camera(MODEL, name, *SIZE)) for name in CAMERAS]
    return FieldEstimator(cameras, MARKS, width=8).eval()


def observations(num: int) -> dict[str, np.ndarray]:
    return TASK.observation.sample(np.random.default_rng(3), (num,))


def test_known_points_are_expected_where_the_simulation_projects_them() -> None:
    points = np.random.default_rng(0).uniform((0.1, -0.2, 0.0), (0.4, 0.2, 0.3), (5, 3, 3))
    qpos = np.tile(MODEL.model.key_qpos[0], (5, 1))
    for name in CAMERAS:
        expected = estimator().project(f"{name}_image", torch.from_numpy(points).float())
        np.testing.assert_allclose(expected, project_points(MODEL, name, *SIZE, qpos, points), atol=0.01)


def test_a_position_is_learned_from_what_the_networks_find() -> None:
    """A sum of all features that bends a little."""
    made, rng = estimator(), np.random.default_rng(1)
    size = len(made.centre)
    features = torch.from_numpy(rng.normal(0, 10, (3000, size))).float()
    mixed = torch.from_numpy(rng.normal(size=(size, 3)) * 0.002).float()
    target = features @ mixed + 0.01 * torch.sin(features[:, :3] / 10)
    learn_position(made, features[:2500], target[:2500], updates=60)
    with torch.no_grad():
        error = torch.linalg.vector_norm(made.position(features[2500:]) - target[2500:], dim=1)
    assert float(error.median()) < 0.3 * float(target.std())


@pytest.mark.slow
@pytest.mark.skipif(available() is not None, reason=f"{available()}")
def test_the_file_acts_as_the_policy_does(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    flat = rr.flat_for(with_images(PUSH, {}, hide=("cube_orientation",)))
    made = estimator()
    made.mean.copy_(torch.tensor([0.24, 0.0, 0.0125]))
    made.std.mul_(0.05)
    policy = EstimatingPolicy(made, FlatPolicy(torch.nn.Linear(flat.size, flat.action_size), flat), TASK)
    path = tmp_path / "pixels.onnx"
    with rr.make_vector(TASK, 3, seed=1) as envs:
        policy.save_onnx(path, PUSH.name, {"trainer": "test"}, envs.batch.spec)
        seen = envs.reset()["observation"]
    loaded = OnnxPolicy(path)
    loaded.check(TASK.observation, TASK.action)
    action = loaded.act(seen)["arm_target"]
    np.testing.assert_allclose(action, policy.act(seen)["arm_target"], atol=1e-4)
    believed = {**seen, "cube_position": made.estimate(seen)}
    np.testing.assert_allclose(action, policy.policy.act(believed)["arm_target"], atol=1e-4)
    assert np.ptp(made.estimate(seen)[:, :2], axis=0).max() > 0  # it depends on what is seen


def test_a_policy_that_needs_a_field_that_nobody_has_is_refused() -> None:
    flat = rr.flat_for(PUSH)
    actor = FlatPolicy(torch.nn.Linear(flat.size, flat.action_size), flat)
    with pytest.raises(SpecError, match="cube_orientation"):
        EstimatingPolicy(estimator(), actor, TASK)
    with pytest.raises(SpecError, match="view_image"):
        EstimatingPolicy(estimator(), actor, with_images(PUSH, {"overhead": SIZE}))


def test_a_camera_with_a_lens_that_bends_lines_is_refused() -> None:
    bent = replace(pinhole_camera(MODEL, "overhead", *SIZE), distortion=(0.1, 0.0, 0.0, 0.0, 0.0))
    with pytest.raises(SpecError, match="distortion"):
        FieldEstimator([(TASK.observation["overhead_image"], bent)], MARKS)


def test_landmarks_are_positions_in_metres() -> None:
    for field in (Field("speed", (3,), "float32", -1, 1, "m/s", "speed"), Field("x", (), "float32", -1, 1, "m", "x")):
        with pytest.raises(SpecError, match=field.name):
            Landmarks(MARKS.target, (field,))
    places = MARKS.positions({"cube_position": np.ones((2, 3)), "gripper_position": np.zeros((2, 3))})
    np.testing.assert_array_equal(places, [[[1, 1, 1], [0, 0, 0], [0.04, 0.0, 0.06]]] * 2)


def test_errors_stay_in_an_episode_by_half() -> None:
    errors, begun = EstimateErrors(4000, 0.01, np.random.default_rng(0)), np.ones(4000, bool)
    run = np.array([errors.add_to(np.full((4000, 3), 0.5), begun if step == 0 else ~begun) for step in range(60)]) - 0.5
    assert (run[..., 2] == 0).all()
    np.testing.assert_allclose(run[..., :2].std(axis=1), 0.01, rtol=0.1)
    together = [np.corrcoef(run[0, :, 0], run[later, :, 0])[0, 1] for later in (1, 59)]
    np.testing.assert_allclose(together, [0.5 + 0.5 * EstimateErrors.MEMORY, 0.5], atol=0.05)
    again = errors.add_to(np.full((4000, 3), 0.5), begun) - 0.5
    assert abs(np.corrcoef(run[-1, :, 0], again[:, 0])[0, 1]) < 0.06
