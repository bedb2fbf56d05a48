"""Intact data sets of strangers' files for `mutations.py`, and how each is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

READING: dict[str, dict[str, Any]] = {
    "csv_plain": {"columns": {"observation.state": ["q1", "q2"], "action": "u", "time": "t", "episode": "n"}},
    "csv_semicolon": {"columns": {"observation.state": ["q1", "q2"], "action": "u", "time": "t", "episode": "n"}},
    "csv_unnamed": {"columns": {"observation.state": [2, 3], "time": 1, "episode": 0}},
    "csv_epoch": {"columns": {"observation.state": ["q1", "q2"], "action": "u", "time": "t"}},
    "jsonl": {"columns": {"observation.state": "q", "action": "u", "time": "t"}},
    "npz": {"columns": {"observation.state": "q[0:2]", "action": "u", "episode": "n"}},
    "hdf5_groups": {"columns": {"observation.state": "q", "action": "u", "episode": "*"}},
}
"""Name of a set -> the options with which it is read."""


def write_all(root: Path) -> None:
    """Write every set into a folder of its name."""
    _write_csv(root / "csv_plain", ",")
    _write_csv(root / "csv_semicolon", ";")
    _write_csv(root / "csv_unnamed", ",", named=False)
    _write_csv(root / "csv_epoch", "\t", begin=1_700_000_000_000_000_000, factor=10**9)
    _write_arrays(root)
    _write_aloha(root / "aloha", compress=False)
    _write_aloha(root / "aloha_jpeg", compress=True)
    _write_groups(root / "hdf5_groups")
    _write_bags(root)


def _write_csv(folder: Path, separator: str, named: bool = True, begin: int = 0, factor: float = 1) -> None:
    folder.mkdir()
    rows = [(0 if begin else e, k / 10 + (3 * e if begin else 0), k, -k, 0.5 * k) for e in range(3) for k in range(10)]
    times = [f"{begin + round(row[1] * factor)}" if begin else f"{row[1]:.2f}" for row in rows]
    lines = [separator.join((str(e), t, *map(str, rest))) for (e, _, *rest), t in zip(rows, times, strict=True)]
    if separator == ";":
        lines = [line.replace(".", ",") for line in lines]
    head = ["# an arm", separator.join(("n", "t", "q1", "q2", "u"))] if named else []
    (folder / "all.csv").write_text("\n".join([*head, *lines]) + "\n")


def _write_arrays(root: Path) -> None:
    rng = np.random.default_rng(0)
    q, u = rng.normal(size=(20, 3)), rng.normal(size=20)
    for name in ("jsonl", "npz"):
        (root / name).mkdir()
    lines = [json.dumps({"t": k / 20, "q": list(q[k]), "u": u[k]}) for k in range(20)]
    (root / "jsonl" / "all.jsonl").write_text("\n".join(lines))
    np.savez(root / "npz" / "all.npz", q=q, u=u, n=np.repeat([0, 1], 10))


def _write_aloha(folder: Path, compress: bool) -> None:
    import cv2
    import h5py

    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(2):
        with h5py.File(folder / f"episode_{number}.hdf5", "w") as file:
            file.attrs["sim"] = True
            for name in ("observations/qpos", "observations/qvel", "action"):
                file[name] = rng.normal(size=(8, 14))
            images = rng.integers(0, 255, (8, 16, 16, 3)).astype(np.uint8)
            if not compress:
                file.create_dataset("observations/images/top", data=images, chunks=(1, 16, 16, 3))
                continue
            file.attrs["compress"] = True
            encoded = [cv2.imencode(".jpg", image)[1].reshape(-1) for image in images]
            padded = np.zeros((8, max(map(len, encoded))), np.uint8)
            for row, one in zip(padded, encoded, strict=True):
                row[: len(one)] = one
            file["observations/images/top"] = padded
            file["compress_len"] = np.array([list(map(len, encoded))], np.float32)


def _write_groups(folder: Path) -> None:
    import h5py

    folder.mkdir()
    rng = np.random.default_rng(0)
    with h5py.File(folder / "all.hdf5", "w") as file:
        for number in range(3):
            group = file.create_group(f"take_{number}")
            group["q"], group["u"] = rng.normal(size=(10, 3)), rng.normal(size=(10, 2))
            group["rgb"] = rng.integers(0, 255, (10, 8, 8, 3)).astype(np.uint8)


def _write_bags(root: Path) -> None:
    from rosbags.rosbag1 import Writer as Writer1
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    number, image = "std_msgs/msg/Float64", "sensor_msgs/msg/Image"
    fields = 'rate_hz = 20\n[observation.q]\ntopic = "/q"\npath = "data"\n[action.u]\ntopic = "/u"\npath = "data"\n'
    store1, store2 = get_typestore(Stores.ROS1_NOETIC), get_typestore(Stores.ROS2_HUMBLE)
    for name in ("ros1", "ros1_bz2"):
        (root / name).mkdir()
        (root / name / "fields.toml").write_text(fields + '[images.top]\ntopic = "/image"\n')
        writer1 = Writer1(root / name / "drive.bag")
        if name == "ros1_bz2":
            writer1.set_compression(Writer1.CompressionFormat.BZ2)
        types = store1.types
        head = types["std_msgs/msg/Header"](0, types["builtin_interfaces/msg/Time"](1, 0), "")
        pixels = types[image](head, 4, 4, "rgb8", 0, 12, np.arange(48, dtype=np.uint8))
        with writer1:
            topics = {t: writer1.add_connection(t, k, typestore=store1)
                      for t, k in (("/q", number), ("/u", number), ("/image", image))}  # fmt: skip
            for k in range(20):
                for topic, connection in topics.items():
                    message = pixels if topic == "/image" else types[number](float(k))
                    kind = image if topic == "/image" else number
                    writer1.write(connection, 10**12 + k * 50_000_000, store1.serialize_ros1(message, kind))
    for name, plugin in (("ros2_renamed", StoragePlugin.SQLITE3), ("ros2_split", StoragePlugin.MCAP)):
        (root / name).mkdir()
        (root / name / "fields.toml").write_text(fields)
        for part in range(2 if name == "ros2_split" else 1):
            folder = root / name / f"part{part}"
            with Writer(folder, version=9, storage_plugin=plugin) as writer2:
                both = [writer2.add_connection(topic, number, typestore=store2) for topic in ("/q", "/u")]
                for k in range(20 * part, 20 * part + 20):
                    for connection2 in both:
                        data = store2.serialize_cdr(store2.types[number](float(k)), number)
                        writer2.write(connection2, 10**12 + k * 50_000_000, data)
            (file,) = (one for one in folder.iterdir() if one.suffix in (".db3", ".mcap"))
            if name == "ros2_split":
                file.rename(root / name / f"drive_{part}.mcap")
                (folder / "metadata.yaml").unlink()
                folder.rmdir()
            else:
                file.rename(folder / f"monday{file.suffix}")
