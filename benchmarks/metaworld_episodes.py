"""Record and drive Meta-World's arm with Meta-World's own software: a part of ``foreign.py``, which starts it.

It imports nothing of this project, and runs in an environment of its own (`foreign.py` names the packages).

    PYTHON benchmarks/metaworld_episodes.py record button-press-topdown-v3 --to zarr --out FOLDER
    PYTHON benchmarks/metaworld_episodes.py drive button-press-topdown-v3 --socket FILE

The expert is Meta-World's own script for the task. In a third of the intervals of eight steps noise is added to the
action that is carried out, and the set has the script's action (as in DART; Laskey et al. 2017). Only episodes that
succeeded are kept, as people keep theirs. The state is the hand's position and the opening of the gripper, so where
the objects are is seen by the camera alone.
"""

from __future__ import annotations

import argparse
import os
import warnings
from multiprocessing.connection import Client
from pathlib import Path

os.environ.setdefault("MUJOCO_GL", "egl")
os.environ.setdefault("EGL_PLATFORM", "surfaceless")
warnings.filterwarnings("ignore")

import metaworld  # noqa: E402
import mujoco  # noqa: E402
import numpy as np  # noqa: E402
from metaworld.policies import ENV_POLICY_MAP  # noqa: E402

CAMERA, SIZE, RATE_HZ, LONGEST, AFTER = "corner2", 96, 80, 200, 4
"""The camera, height and width of its images, rate of the environment, steps of an episode, and after a success."""
INTERVAL, NOISY, NOISE = 8, 1 / 3, 0.5


class Arm:
    """A task of Meta-World with a camera.

    Args:
        name: the task.
        seed: seed of the positions of objects and goals, 50 for each seed.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed, self.expert = name, seed, ENV_POLICY_MAP[name]()
        self.env = metaworld.MT1(name, seed=seed).train_classes[name]()
        model = self.env.model
        model.vis.quality.shadowsize = model.vis.quality.offsamples = 0  # four times as fast without a GPU
        model.vis.global_.offwidth = model.vis.global_.offheight = SIZE
        self.renderer = mujoco.Renderer(model, SIZE, SIZE)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self.renderer.scene.flags[flag] = False
        self.tasks: list = []

    def reset(self, number: int) -> None:
        """Begin the episode of a number: other positions for each."""
        while len(self.tasks) <= number:
            self.tasks += metaworld.MT1(self.name, seed=self.seed + len(self.tasks) // 50).train_tasks
        self.env.set_task(self.tasks[number])
        self.full, _ = self.env.reset()
        self.success = False

    def look(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the image, uint8 (96, 96, 3), and the state, float32 (4,)."""
        self.renderer.update_scene(self.env.data, CAMERA)
        return self.renderer.render().copy(), self.full[:4].astype(np.float32)

    def expected(self) -> np.ndarray:
        """Return the script's action, float32 (4,)."""
        return np.clip(self.expert.get_action(self.full), -1, 1).astype(np.float32)

    def step(self, action: np.ndarray) -> None:
        """Take a step."""
        self.full, _, _, _, info = self.env.step(np.clip(action, -1, 1).astype(np.float32))
        self.success = self.success or bool(info["success"])


def demonstrate(arm: Arm, number: int) -> dict[str, np.ndarray] | None:
    """Return images, states and actions of the expert's episode; None if it failed."""
    rng, noise, left = np.random.default_rng(number), np.zeros(4), AFTER
    arm.reset(number)
    frames: dict[str, list[np.ndarray]] = {"image": [], "state": [], "action": []}
    for step in range(LONGEST):
        if step % INTERVAL == 0:
            noise = (rng.random() < NOISY) * rng.normal(0, NOISE, 4)
        image, state = arm.look()
        action = arm.expected()
        for name, value in zip(frames, (image, state, action), strict=True):
            frames[name].append(value)
        arm.step(action + noise)
        left -= arm.success
        if left <= 0:
            return {name: np.stack(values) for name, values in frames.items()}
    return None


# -- Writers of others -----------------------------------------------------------------------------------------


def write_zarr(episodes: list[dict[str, np.ndarray]], out: Path) -> None:
    """Write a replay buffer of Diffusion Policy (``ReplayBuffer.save_to_path``) by zarr."""
    import zarr

    root = zarr.open_group(str(out), mode="w", zarr_format=2)
    data, meta = root.create_group("data"), root.create_group("meta")
    for name, key in (("img", "image"), ("state", "state"), ("action", "action")):
        values = np.concatenate([episode[key] for episode in episodes])
        array = data.create_array(name, shape=values.shape, dtype=values.dtype, chunks=(64, *values.shape[1:]))
        array[:] = values
    ends = np.cumsum([len(episode["state"]) for episode in episodes]).astype(np.int64)
    meta.create_array("episode_ends", shape=ends.shape, dtype=ends.dtype)[:] = ends


def write_hdf5(episodes: list[dict[str, np.ndarray]], out: Path) -> None:
    """Write a file for each episode, in ALOHA's layout (``record_sim_episodes.py``), by h5py."""
    import h5py

    out.mkdir(parents=True)
    for number, episode in enumerate(episodes):
        with h5py.File(out / f"episode_{number}.hdf5", "w") as file:
            file.attrs["sim"] = True
            file["observations/qpos"] = episode["state"]
            file["observations/qvel"] = np.gradient(episode["state"], 1 / RATE_HZ, axis=0).astype(np.float32)
            file.create_dataset(f"observations/images/{CAMERA}", data=episode["image"], chunks=(1, SIZE, SIZE, 3))
            file["action"] = episode["action"]


def write_lerobot(episodes: list[dict[str, np.ndarray]], out: Path) -> None:
    """Write a LeRobot set of version 3.0 with a video by LeRobot's own recorder."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    names = ["x", "y", "z", "gripper"]
    vector = {"dtype": "float32", "shape": (4,), "names": names}
    video = {"dtype": "video", "shape": (SIZE, SIZE, 3), "names": ["height", "width", "channels"]}
    features = {"observation.state": vector, "action": vector, f"observation.images.{CAMERA}": video}
    written = LeRobotDataset.create("local/metaworld", RATE_HZ, features, root=out, robot_type="sawyer")
    for episode in episodes:
        for image, state, action in zip(*(episode[key] for key in ("image", "state", "action")), strict=True):
            frame = {"observation.state": state, "action": action, f"observation.images.{CAMERA}": image}
            written.add_frame({**frame, "task": "Open the drawer."})
        written.save_episode()
    written.finalize()


WRITERS = {"zarr": write_zarr, "hdf5": write_hdf5, "lerobot": write_lerobot}


# -- Commands --------------------------------------------------------------------------------------------------


def record(args: argparse.Namespace) -> None:
    """Record the expert's episodes, and write them."""
    arm, episodes, number = Arm(args.task, args.seed), [], 0
    while len(episodes) < args.episodes:
        episode = demonstrate(arm, number)
        number += 1
        if episode is not None:
            episodes.append(episode)
    WRITERS[args.to](episodes, args.out)
    steps = sum(len(episode["state"]) for episode in episodes)
    print(f"{args.task}: {len(episodes)} of {number} episodes succeeded, {steps} steps, written by {args.to}")


def drive(args: argparse.Namespace) -> None:
    """Ask for actions over a socket, and answer how each episode ended."""
    with Client(str(args.socket), "AF_UNIX") as asked:
        arm = Arm(args.task, args.seed)
        while (order := asked.recv()) is not None:
            number, sees = order
            arm.reset(number)
            steps = 0
            while steps < LONGEST and not arm.success:
                asked.send((*(arm.look() if sees else (None, None)), arm.expected()))
                arm.step(asked.recv())
                steps += 1
            asked.send((arm.success, steps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(required=True)
    for name, run in (("record", record), ("drive", drive)):
        verb = verbs.add_parser(name)
        verb.add_argument("task")
        verb.add_argument("--seed", type=int, default=0)
        verb.set_defaults(run=run)
        if name == "record":
            verb.add_argument("--episodes", type=int, default=60)
            verb.add_argument("--to", choices=WRITERS, default="zarr")
            verb.add_argument("--out", type=Path, required=True)
        else:
            verb.add_argument("--socket", type=Path, required=True)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
