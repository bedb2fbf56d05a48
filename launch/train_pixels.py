"""Train a policy that pushes the cube from two cameras' images: `python launch/train_pixels.py --out pixels.onnx`.

Networks find the cube, the gripper and points of the base in images of 128 x 128 pixels under drawn looks (lights,
colours, textures, camera poses), and from these the cube's position. Another network imitates the script on such
estimates (`train_clone.py`). The policy observes images and joints, and is tried under unseen looks. Extras:
train/onnx.
"""

import argparse
from dataclasses import replace

import numpy as np
from train_clone import train as train_clone

from rlenv_learn.imitation import field_estimator as estimation
from rlenv_learn.imitation.views import Landmarks, collect_views
from rlenv_robot import flat_for, load_policy, make_vector
from rlenv_robot.robot_models import find_robot_model
from rlenv_robot.tasks.cube import Push
from rlenv_robot.training.rollout import evaluate
from rlenv_robot.training.trials import conditions
from rlenv_tabletop.scripted import ScriptedPush
from rlenv_vision.image_task import with_images
from rlenv_vision.so101_looks import so101_cube_textured, so101_looks
from sim.rendering.projection import pinhole_camera

CAMERAS, HIDDEN = {"overhead": (128, 128), "view": (128, 128)}, ("cube_position", "cube_orientation")
BASE = (0.0388, 0.0, 0.0624), (0.064, -0.030, 0.0), (-0.031, 0.0, 0.03)  # points of the arm's base, metres
EVERY, NUM, TRIALS = 12, 64, 100  # control periods from one view to the next; environments


class TexturedPush(Push):
    """The task `so101-push` on a table with textures."""

    robot_model = replace(find_robot_model("so101-cube"), simulated=so101_cube_textured)


def environments(num, seed, rate_hz, steps=240, nominal=True, **options):
    """Return environments with drawn looks, with drawn robots unless ``nominal``, at ``rate_hz`` images a second."""
    robots, _ = conditions(Push.name, nominal, {})
    rates = {f"{name}_image": rate_hz for name in CAMERAS}
    timing = {**(drawn := robots.get("timing", {})), "sensor_rate": {**drawn.get("sensor_rate", {}), **rates}}
    looks = {**robots.get("randomise", {}), **so101_looks(tuple(CAMERAS))}
    task = with_images(TexturedPush(steps=steps), CAMERAS, HIDDEN)
    return make_vector(task, num, seed=seed, randomise=looks, timing=timing, **options)


def train_actor(std_m, steps=128_000, seed=0, nominal=True):
    """Clone the script for estimates with errors of ``std_m``, without the cube's orientation."""
    errors = estimation.EstimateErrors(NUM, std_m, np.random.default_rng(seed))

    def observe(table):
        position = errors.add_to(table["observation"][HIDDEN[0]], table["frame_no"] == 0)
        return {**table["observation"], HIDDEN[0]: position}

    flat = flat_for(with_images(Push(), {}, HIDDEN[1:]))
    return train_clone(Push.name, steps, seed, NUM, nominal=nominal, flat=flat, observe=observe)[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"views": 12_000, "updates": 2000, "steps": 128_000, "seed": 0, "out": "pixels.onnx"}.items():
        parser.add_argument(f"--{name}", default=value, type=type(value))
    parser.add_argument("--drawn", action="store_true", help="draw robots too, not looks alone")
    args, push = parser.parse_args(), Push()
    marks = Landmarks(push.observation[HIDDEN[0]], (push.observation["gripper_position"],), BASE)
    with environments(NUM, args.seed, 30 / EVERY, 120, not args.drawn) as envs:
        views = collect_views(envs, ScriptedPush(), flat_for(push), marks, args.views, EVERY, args.seed)
        cameras = {name: pinhole_camera(envs.batch.sim_model, name, *size) for name, size in CAMERAS.items()}
    estimator, std_m = estimation.learn_estimator(views, cameras, args.updates, args.seed)
    actor = train_actor(std_m, args.steps, args.seed, not args.drawn)
    with environments(TRIALS, 1_000_000, 10, nominal=not args.drawn, autoreset="disabled") as envs:
        policy = estimation.EstimatingPolicy(estimator, actor, envs.task)
        policy.save_onnx(args.out, push.name, {"trainer": "pixels", **vars(args)}, envs.batch.spec)
        success = [outcome.success for outcome in evaluate(envs, load_policy(args.out), 1_000_000)]
    print(f"the cube's place to {std_m * 1e3:.1f} mm, success under unseen looks {np.mean(success):.0%}")
