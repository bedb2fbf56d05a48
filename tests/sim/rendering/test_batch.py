"""Images of a batch are those of its single robots, whatever the threads, the rows and the models drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import rlenv_robot as rr
import sim.rendering.batch
from hal import RobotError
from hal.robots.so101 import HOME
from sim.batch import SimBatch
from sim.randomize.randomise import Randomise
from sim.rendering.batch import BatchRenderer, ImageBatch
from sim.rendering.camera import Camera, available
from sim.robot import SimRobot
from sim.robots.so101 import so101

drawing = pytest.mark.skipif(available() is not None, reason=f"{available()}")
LOOKS = {"camera.overhead.pos[2]": {"uniform": [-0.1, 0.1], "add": True, "unit": "m"}}


def poses(num: int) -> np.ndarray:
    return np.array(HOME) + np.random.default_rng(3).uniform(-0.4, 0.4, (num, 6))


def targets(num: int) -> dict[str, np.ndarray]:
    return {"joint_target": poses(num).astype(np.float32)}


@drawing
@pytest.mark.parametrize("threads", [1, 3])
def test_each_image_equals_that_of_a_single_camera(threads: int) -> None:
    model, states = so101(), poses(7)
    drawer = BatchRenderer(model, ["overhead", "wrist"], 64, 48, threads)
    images = drawer.draw(states)
    drawer.close()
    drawer.close()
    for name in ("overhead", "wrist"):
        with Camera(model, name, 64, 48) as camera:
            np.testing.assert_array_equal(images[name], [camera.render(state) for state in states])
    with pytest.raises(RobotError, match="closed"):
        drawer.draw(states)


@drawing
def test_states_have_the_images_of_their_rows() -> None:
    model = so101()
    batch, plain = ImageBatch(SimBatch(model, 4), ["overhead"], (64, 48)), SimBatch(model, 4)
    first, bare = batch.reset(seeds=range(4)), plain.reset(seeds=range(4))
    moved, bare_moved = batch.step(targets(4)), plain.step(targets(4))
    some = batch.reset([1, 3])
    np.testing.assert_array_equal(moved.sensors["joint_position"], bare_moved.sensors["joint_position"])
    assert not bare.images
    with Camera(model, "overhead", 64, 48) as camera:
        for robot_state in (first, moved, some):
            wanted = [camera.render(angles) for angles in robot_state.sensors["joint_position"].astype(float)]
            # Sensors are single precision, what is drawn is not: a pixel at an edge may differ.
            assert (np.array(wanted) != robot_state.images["overhead"]).mean() < 0.001
    assert (first.images["overhead"] != moved.images["overhead"]).any(axis=(1, 2, 3)).all()
    kept = batch.snapshot([0])
    shown = batch.restore(kept, [2])
    np.testing.assert_array_equal(shown.images["overhead"][0], moved.images["overhead"][0])
    batch.close()
    plain.close()


@drawing
def test_images_show_randomised_models() -> None:
    batch = ImageBatch(SimBatch(so101(), 3, randomise=Randomise.from_dict(LOOKS)), ["overhead"], (64, 48))
    images = batch.reset(seeds=[1, 2, 1]).images["overhead"]
    batch.close()
    assert (images[0] != images[1]).any()  # type: ignore[index]
    np.testing.assert_array_equal(images[0], images[2])  # type: ignore[index]
    robot = SimRobot(so101(), cameras=("overhead",), randomise=Randomise.from_dict(LOOKS))
    one, other = (np.array(robot.reset({"seed": seed}).images["overhead"].data) for seed in (1, 2))
    robot.close()
    assert (one != other).any()


@drawing
@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
def test_the_last_image_of_an_episode_shows_its_end(autoreset: str) -> None:
    """Without resets in between, the images of one long episode; the end lies where `steps` says."""
    made = [
        rr.make_vector("so101-reach", 2, seed=5, cameras=["overhead"], image_size=(64, 48), **options)
        for options in ({"steps": 3, "autoreset": autoreset}, {"steps": 100})
    ]
    ending, lasting = (drive(envs, 3) for envs in made)
    for envs in made:
        envs.close()
    final = ending["final"]
    np.testing.assert_array_equal(final["index"], [0, 1])
    np.testing.assert_array_equal(final["images"]["overhead"], lasting["images"]["overhead"])
    begun = (ending["images"]["overhead"] != final["images"]["overhead"]).any()
    assert begun == (autoreset == "same_step")


def drive(envs: rr.VectorEnvironment, steps: int) -> Mapping[str, np.ndarray]:
    table = envs.reset()
    assert table["extra_info"]["images"]["overhead"].shape == (2, 48, 64, 3)
    for _ in range(steps):
        action = {"joint_target": np.tile(np.float32(HOME), (2, 1))}
        table, _ = envs.step({"env_id": envs.env_ids, "frame_no": table["frame_no"], "action": action})
    extra: Mapping[str, np.ndarray] = table["extra_info"]
    return extra


@drawing
def test_gymnasiums_vector_has_images() -> None:
    pytest.importorskip("gymnasium")
    from rlenv_robot.adapters.gymnasium_vector import to_gymnasium_vector

    made = rr.make_vector("so101-reach", 2, seed=5, cameras=["overhead"], image_size=(64, 48), steps=1)
    envs = to_gymnasium_vector(made)
    _, info = envs.reset()
    assert info["images"]["overhead"].shape == (2, 48, 64, 3)
    *_, info = envs.step(envs.action_space.sample() * 0)
    last = info["final_info"]["images"]["overhead"]
    assert last.shape == (2, 48, 64, 3)
    assert (last != info["images"]["overhead"]).any()
    envs.close()


@drawing
def test_returned_images_do_not_change() -> None:
    with rr.make_vector("so101-reach", 2, seed=5, cameras=["overhead"], image_size=(64, 48)) as envs:
        first = envs.reset()["extra_info"]["images"]["overhead"]
        kept = first.copy()
        again = envs.reset({"ids": [1]})["extra_info"]["images"]["overhead"]
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(again[0], kept[0])
    assert (again[1] != kept[1]).any()


def test_without_opengl_rays_draw_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sim.rendering.batch, sim.rendering.camera):
        monkeypatch.setattr(module, "available", lambda: "no OpenGL in this test")
    batch = ImageBatch(SimBatch(so101(), 2), ["overhead"], (32, 24))
    assert np.shape(batch.reset().images["overhead"]) == (2, 24, 32, 3)
    batch.close()
    batch = ImageBatch(SimBatch(so101(), 2, randomise=Randomise.from_dict(LOOKS)), ["overhead"], (32, 24))
    with pytest.raises(RobotError, match="cam_pos"):
        batch.reset()
    batch.close()


def test_no_camera_and_unknown_cameras_are_refused() -> None:
    with pytest.raises(RobotError, match="no camera is named"):
        BatchRenderer(so101(), [], 32, 24)
    with pytest.raises(RobotError, match=r"'front'.* view, overhead, wrist"):
        rr.make_vector("so101-reach", 2, cameras=["front"])
