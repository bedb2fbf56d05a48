"""Images of cameras as observation fields, in every consumer of observations."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
import sim.rendering.batch
from hal import IllegalAction, SpecError
from rlenv_robot.tasks.walk import Walk
from rlenv_vision.image_task import with_images
from sim.rendering.camera import available, open_camera
from sim.robots.so101 import so101_cube

WIDTH, HEIGHT = 32, 24
HIDDEN = ("cube_position", "cube_orientation")


def pixels(**settings: Any) -> Any:
    """so101-push as a policy sees it that has a camera in place of a tracker."""
    return with_images(rr.task("so101-push", **settings), {"overhead": (WIDTH, HEIGHT)}, hide=HIDDEN)


def act(envs: Any, table: Any, seed: int = 0) -> Any:
    """Step with goals near those that the servos hold."""
    goal = table["observation"]["joint_goal"][..., :5]
    moved = goal + np.random.default_rng(seed).uniform(-0.1, 0.1, goal.shape[-1]).astype(np.float32)
    low, high = envs.action["arm_target"].bounds
    action = {"arm_target": np.clip(moved, low, high).astype(np.float32)}
    return envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})


def test_an_image_is_a_field_of_the_observation_and_the_motion_stays() -> None:
    task, plain = pixels(), rr.task("so101-push")
    field = task.observation["overhead_image"]
    assert (field.shape, field.dtype, field.low, field.high) == ((HEIGHT, WIDTH, 3), "uint8", 0, 255)
    assert not set(HIDDEN) & set(task.observation.names)
    assert task.state.names == HIDDEN
    with rr.make(task) as env, rr.make(plain) as other, open_camera(so101_cube(), "overhead", WIDTH, HEIGHT) as camera:
        table, same = env.reset({"seed": 3}), other.reset({"seed": 3})
        for number in range(3):
            qpos = np.concatenate([same["observation"][name] for name in ("joint_position", *HIDDEN)])
            seen = table["observation"]["overhead_image"]
            assert np.abs(camera.render(qpos).astype(int) - seen).max() <= 3  # qpos here is in single precision
            np.testing.assert_array_equal(table["extra_info"]["state"]["cube_position"], qpos[6:9])
            (table, reward), (same, equal) = act(env, table, number), act(other, same, number)
            assert reward["reward"] == equal["reward"]
        env.observation.validate(table["observation"])


@pytest.mark.parametrize(("threads", "contexts"), [(1, 1), (3, 3), (8, 4)])
def test_as_many_threads_draw_as_step_the_batch(monkeypatch: pytest.MonkeyPatch, threads: int, contexts: int) -> None:
    """Each has an OpenGL context for each camera; where OpenGL is missing, one thread casts rays."""
    opened: list[str] = []

    def opening(*arguments: Any, **options: Any) -> Any:
        opened.append(arguments[1])
        return open_camera(*arguments, **options)

    monkeypatch.setattr(sim.rendering.batch, "open_camera", opening)
    with rr.make_vector(pixels(), 4, seed=5, threads=threads) as envs:
        envs.reset()
    assert opened == ["overhead"] * (contexts if available() is None else 1)


def test_a_batch_draws_what_a_single_environment_draws() -> None:
    with rr.make(pixels(steps=3)) as env, rr.make_vector(pixels(steps=3), 3, seed=5, threads=2) as envs:
        table, tables = env.reset({"seed": 5}), envs.reset()
        for number in range(3):
            (table, _), (tables, _) = act(env, table, number), act(envs, tables, number)
            if number < 2:
                np.testing.assert_array_equal(
                    tables["observation"]["overhead_image"][0], table["observation"]["overhead_image"]
                )
        last = tables["extra_info"]["final"]["observation"]["overhead_image"]
        assert last.shape == (3, HEIGHT, WIDTH, 3)
        np.testing.assert_array_equal(last[0], table["observation"]["overhead_image"])
        assert (last != tables["observation"]["overhead_image"]).any()


def test_images_come_at_their_own_rate_and_late() -> None:
    """At 10 Hz an image holds for three periods of 30 Hz; the age on a reading grows meanwhile."""
    timing = {"sensor_rate": {"overhead_image": 10.0}, "sensor_delay": {"overhead_image": 0.05}}
    with rr.make(pixels(), timing=timing) as env:
        table, images, ages = env.reset({"seed": 1}), [], []
        for number in range(9):
            table, _ = act(env, table, number)
            images.append(table["observation"]["overhead_image"])
            ages.append(env.world.robot.latest.age_ns["overhead_image"] / 1e6)
    changes = [not np.array_equal(one, other) for one, other in pairwise(images[2:])]
    assert sum(changes) == 2
    assert all(50 - 1e-6 <= age <= 50 + 100 + 1e-6 for age in ages), ages


def test_the_log_and_the_source_hold_the_images(tmp_path: Path) -> None:
    with rr.make(pixels(steps=4), record=tmp_path) as env:
        table, seen = env.reset({"seed": 2}), []
        for number in range(4):
            seen.append(table["observation"]["overhead_image"])
            table, _ = act(env, table, number)
    (run,) = tmp_path.iterdir()
    source = rr.open_source(run)
    source.init({"seed": 0})
    images = source.sample_steps(16)["observation"]["overhead_image"]
    assert images.dtype == np.uint8
    assert images.shape == (16, HEIGHT, WIDTH, 3)
    assert {image.tobytes() for image in images} <= {image.tobytes() for image in seen}
    trajectory = source.sample_trajectories(1)[0]
    np.testing.assert_array_equal(trajectory["steps_set"]["observation"]["overhead_image"], np.stack(seen))


def test_gymnasium_has_a_box_of_bytes_and_flat_a_vector_with_the_pixels() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    with rr.make(pixels()) as env:
        view = rr.to_gymnasium(env)
        box = view.observation_space["overhead_image"]
        assert box == gymnasium.spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        observation, _ = view.reset(seed=4)
        assert view.observation_space.contains(observation)
        flat = rr.flat_for(env.world.task)
        vector = flat.observe(observation)
        assert vector.shape == (flat.size,)
        places = np.cumsum([0, *(field.size for field in flat.observation)])
        begin = places[flat.observation.names.index("overhead_image")]
        part = vector[begin : begin + HEIGHT * WIDTH * 3].reshape(HEIGHT, WIDTH, 3)
        np.testing.assert_allclose(part * 127.5, observation["overhead_image"], atol=1e-3)


def test_onnx_takes_the_image_as_bytes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    task = pixels()
    flat = rr.flat_for(task)
    torch.manual_seed(0)
    policy = rr.FlatPolicy(torch.nn.Sequential(torch.nn.Linear(flat.size, flat.action_size), torch.nn.Tanh()), flat)
    policy.save_onnx(tmp_path / "pixels.onnx", task.name)
    loaded = rr.load_policy(tmp_path / "pixels.onnx")
    observation = task.observation.sample(np.random.default_rng(0), (5,))
    for name, value in loaded.act(observation).items():
        np.testing.assert_allclose(value, policy.act(observation)[name], atol=1e-4)


@pytest.mark.skipif(available() is not None, reason="rays draw the nominal model alone")
def test_looks_that_are_drawn_for_each_environment_show() -> None:
    """Lights, colours and camera poses differ; with the same state, so do the images, and again alike by the seed."""
    looks = {
        "light.key.diffuse": {"uniform": [0.3, 1.6], "scale": True},
        "material.table.rgba": {"uniform": [0.6, 1.0], "scale": True},
        "camera.overhead.pos[2]": {"uniform": [-0.03, 0.03], "add": True, "unit": "m"},
    }
    first = []
    for _ in range(2):
        with rr.make_vector(pixels(), 2, seed=1, streams=np.zeros(2, int), randomise=looks) as envs:
            table = envs.reset()
            first.append(table["observation"]["overhead_image"])
    np.testing.assert_array_equal(*first)
    with rr.make_vector(pixels(), 2, seed=1, randomise=looks) as envs, rr.make_vector(pixels(), 2, seed=1) as plain:
        difference = envs.reset()["observation"]["overhead_image"].astype(int)
        difference -= plain.reset()["observation"]["overhead_image"]
        assert np.abs(difference).mean() > 2


def test_the_wrapped_task_keeps_its_kind_and_goes_to_other_processes() -> None:
    task = pixels(area=0.5)
    assert (task.area, task.name) == (0.5, "so101-push")
    again = pickle.loads(pickle.dumps(task))
    assert again.observation == task.observation
    assert again.robot_model == task.robot_model
    walk = with_images(Walk(), {"view": (8, 8)})
    assert walk.averaged_readings == Walk().averaged_readings


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(SpecError, match="no observation 'cube'"):
        with_images(rr.task("so101-push"), {"overhead": (8, 8)}, hide=("cube",))
    with pytest.raises(rr.RobotError, match="no camera 'nose'"):
        rr.make_vector(with_images(rr.task("so101-push"), {"nose": (8, 8)}), 2)
    with pytest.raises(SpecError, match="pixels"):
        with_images(rr.task("so101-push"), {"overhead": (2000, 2000)})
    image = pixels().observation["overhead_image"]
    with pytest.raises(IllegalAction, match="256"):
        image.validate(np.full(image.shape, 256))
