"""Read a data set by LeRobot's own reader, and write its numbers and first images as NumPy's files.

python read_by_lerobot.py FOLDER OUT.npz       # by an interpreter that has LeRobot
"""

from __future__ import annotations

import sys

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset


def main(folder: str, out: str) -> None:
    """Write state, action, episode and time of each frame, and each episode's first image of each camera."""
    data = LeRobotDataset("me/set", root=folder)
    columns = data.hf_dataset.with_format("numpy")
    arrays = {
        name: np.stack(list(columns[name])) for name in ("observation.state", "action", "episode_index", "timestamp")
    }
    for camera in data.meta.camera_keys:
        first = [int(at) for at in np.flatnonzero(np.diff(arrays["episode_index"], prepend=-1))]
        arrays[camera] = np.stack([data[at][camera].numpy() for at in first])  # (3, height, width), 0 to 1
    arrays["names"] = np.array(data.meta.features["action"]["names"])
    np.savez(out, robot_type=np.array(data.meta.robot_type), **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:3])
