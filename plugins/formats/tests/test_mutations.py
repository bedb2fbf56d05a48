"""Damaged data sets of every format give a clear error or well-formed rows, in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hal import Field, Spec
from recorder.formats.images import Filming
from recorder.frame_layout import FrameLayout
from recorder.log.labels import add_labels
from recorder.log.writer import LogWriter
from recorder.table.combine import subset
from recorder.table.table import Table
from rlenv_episode_index.manifest import write_selection
from rlenv_episode_index.selecting import find_episodes, select
from rlenv_formats.lerobot.write import write_lerobot
from rlenv_formats.minari import write_minari
from rlenv_formats.parquet import write_parquet
from rlenv_formats.robomimic import write_robomimic

from .conftest import rich_table
from .mutation_sets import write_all as write_strangers

pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
h5py = pytest.importorskip("h5py", reason="the extra 'hdf5' is not installed")

ROOT = Path(__file__).resolve().parents[3]


def write_log(table: Table, folder: Path) -> None:
    with LogWriter(folder, table.layout) as log:
        for start, stop in zip(table.starts, table.stops, strict=True):
            log.begin({})
            for row in table.rows[start:stop]:
                log.frame(row)
            log.end({"end": "time"})


def write_csv(folder: Path) -> None:
    folder.mkdir()
    (folder / "columns.json").write_text("{}")
    lines = [f"{e},{k / 10},{k},{-k},{0.5 * k}" for e in range(3) for k in range(10)]
    (folder / "all.csv").write_text("\n".join(["n,t,q1,q2,u", *lines]))


def write_others_robomimic(path: Path) -> None:
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for number in range(3):
            demo = file.create_group(f"data/demo_{number}")
            demo["obs/eef"], demo["next_obs/eef"] = rng.normal(size=(2, 8, 3))
            demo["actions"], demo["rewards"] = rng.normal(size=(8, 2)), np.zeros(8)
            demo.attrs["model_file"] = "<mujoco/>"  # texts of variable length, as robomimic has them
        file["data"].attrs["env_args"] = json.dumps({"env_name": "Lift", "env_kwargs": {"robots": ["Panda"]}})
        file.create_dataset("mask/train", data=["demo_0", "demo_1"])


def write_hdf5(folder: Path) -> None:
    """A file for each episode, compressed in chunks, as ALOHA has them."""
    folder.mkdir()
    (folder / "columns.json").write_text("{}")
    rng = np.random.default_rng(0)
    for number in range(2):
        with h5py.File(folder / f"episode_{number}.hdf5", "w") as file:
            file.attrs["sim"] = True
            for name in ("observations/qpos", "action"):
                file.create_dataset(
                    name, data=rng.normal(size=(40, 7)), chunks=(8, 7), compression="gzip", shuffle=True
                )


def write_lerobot_v2(root: Path, version: str = "v2.1") -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    vector = {"dtype": "float32", "shape": [2], "names": ["a", "b"]}
    info = {
        "codebase_version": version, "fps": 10, "total_episodes": 2, "total_frames": 10, "chunks_size": 1000,
        "features": {"observation.state": vector, "action": vector},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
    }  # fmt: skip
    (root / "meta").mkdir(parents=True)
    (root / "data" / "chunk-000").mkdir(parents=True)
    (root / "meta" / "info.json").write_text(json.dumps(info))
    (root / "meta" / "tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": "pick"}))
    lines = [json.dumps({"episode_index": number, "length": 5, "tasks": ["pick"]}) for number in range(2)]
    (root / "meta" / "episodes.jsonl").write_text("\n".join(lines))
    frame, values = np.arange(5), np.arange(10.0, dtype=np.float32).reshape(5, 2)
    for number in range(2):
        table = pa.table({
            "observation.state": list(values), "action": list(values), "timestamp": (frame / 10).astype(np.float32),
            "frame_index": frame, "episode_index": frame * 0 + number, "index": frame + 5 * number,
            "task_index": frame * 0,
        })  # fmt: skip
        pq.write_table(table, root / "data" / "chunk-000" / f"episode_{number:06d}.parquet")


def write_lerobot_images(root: Path, embedded: bool) -> None:
    """A set of LeRobot 3.0 with the images of a camera, in its tables or as a video."""
    joints, picture = Field("joint_position", (2,), "float32", -3, 3), Field("top_image", (32, 48, 3), "uint8", 0, 255)
    table = rich_table((5, 4), "td", FrameLayout(Spec("o", (joints, picture)), Spec("a", (Field("target", (2,)),))))
    write_lerobot(table, root, Filming(cameras=(), embedded=embedded))


def write_selected(table: Table, folder: Path) -> None:
    """A selection of the episodes of two sets below it."""
    sets = [folder / "sets" / name for name in ("a", "b")]
    folder.mkdir()
    sets[0].parent.mkdir()
    write_parquet(table, sets[0])
    write_parquet(subset(table, [1, 2]), sets[1])
    write_selection(select(find_episodes(sets, None), "", "ana"), folder / "some.selection.json")


def write_labelled(table: Table, folder: Path) -> None:
    write_parquet(table, folder)
    add_labels(folder, [0, 2], {"verdict": "discard"}, "ana")
    add_labels(folder, [1], {"tag": ["slow", "odd"], "note": "a cup fell"}, "ben")


def write_minari_arrow(root: Path) -> None:
    import pyarrow as pa

    box = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-1, -1], "high": [1, 1]}
    about = {
        "total_episodes": 2, "total_steps": 6, "data_format": "arrow", "minari_version": "0.5.0",
        "dataset_id": "made-v0", "observation_space": json.dumps(box), "action_space": json.dumps(box),
    }  # fmt: skip
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8.0, dtype=np.float32)), 2)
    for number in range(2):
        place = root / "data" / str(number)
        place.mkdir(parents=True)
        (place / "metadata.json").write_text(json.dumps({"seed": number, "total_steps": 3}))
        table = pa.table({
            "observations": values, "actions": values, "rewards": np.zeros(4),
            "terminations": np.zeros(4, bool), "truncations": [False, False, True, False],
        })  # fmt: skip
        with pa.ipc.new_file(place / "data.arrow", table.schema) as file:
            file.write_table(table)
    (root / "data" / "metadata.json").write_text(json.dumps(about))


def write_bags(root: Path) -> None:
    """A bag of either storage, each with the mapping of its topics."""
    rosbag2 = pytest.importorskip("rosbags.rosbag2", reason="rosbags is not installed")
    from rosbags.typesys import Stores, get_typestore

    store, kind = get_typestore(Stores.ROS2_HUMBLE), "std_msgs/msg/Float64"
    fields = 'rate_hz = 20\n[observation.q]\ntopic = "/q"\npath = "data"\n[action.u]\ntopic = "/u"\npath = "data"\n'
    for plugin in (rosbag2.StoragePlugin.SQLITE3, rosbag2.StoragePlugin.MCAP):
        folder = root / f"bag_{plugin.name.lower()}"
        folder.mkdir()
        (folder / "fields.toml").write_text(fields)
        with rosbag2.Writer(folder / "bag", version=9, storage_plugin=plugin) as writer:
            topics = [writer.add_connection(name, kind, typestore=store) for name in ("/q", "/u")]
            for k in range(20):
                for topic in topics:
                    message = store.types[kind](float(k))
                    writer.write(topic, 10**12 + k * 50_000_000, store.serialize_cdr(message, kind))


def write_zarr(root: Path) -> None:
    """A buffer in a folder without checksums, one in a zip file, and one whose chunks end with a CRC-32C."""
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    from plugins.formats.tests.test_replay_buffer import arrays, write_buffer

    (root / "zarr_zip").mkdir()
    write_buffer(root / "zarr", arrays())
    write_buffer(root / "zarr_zip" / "buffer.zip", arrays())
    codecs = [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]
    write_buffer(root / "zarr_crc", arrays(), 3, compressors=codecs, chunk_key_encoding={"name": "v2"})


def write_rlds_set(root: Path) -> None:
    from plugins.formats.tests.rlds_files import write_rlds
    from plugins.formats.tests.test_rlds import EPISODES

    write_rlds(root, EPISODES, ["observation/image"], shards=[2, 1])


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory, make_table: Callable[..., Table]) -> Path:
    """A folder of small intact data sets, one of each format."""
    root, table = tmp_path_factory.mktemp("sets"), make_table((6, 5, 7), "tdt")
    write_lerobot(table, root / "lerobot")
    write_parquet(table, root / "parquet")
    write_minari(table, root / "minari-v0")
    for name in ("robomimic", "theirs"):
        (root / name).mkdir()
    write_robomimic(table, root / "robomimic" / "demo.hdf5")
    write_others_robomimic(root / "theirs" / "demo.hdf5")
    write_log(table, root / "log")
    write_csv(root / "csv")
    write_hdf5(root / "hdf5")
    write_lerobot_v2(root / "lerobot_v2")
    write_lerobot_v2(root / "lerobot_v20", "v2.0")
    write_lerobot_images(root / "lerobot_images", embedded=True)
    write_lerobot_images(root / "lerobot_video", embedded=False)
    write_selected(table, root / "selection")
    write_labelled(table, root / "labelled")
    write_minari_arrow(root / "arrow-v0")
    write_bags(root)
    write_zarr(root)
    write_rlds_set(root / "rlds")
    write_strangers(root)
    return root


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(36_000)
def test_damaged_sets_give_errors_or_rows(sets: Path, request: pytest.FixtureRequest) -> None:
    count = request.config.getoption("--mutations")
    command = [sys.executable, str(Path(__file__).with_name("mutations.py")), str(sets), str(count), "7"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["faults"] == []
    assert report["bytes"] <= 500 << 20
    assert min(report["results"].get("error", 0), report["results"].get("rows", 0)) > count // 20
