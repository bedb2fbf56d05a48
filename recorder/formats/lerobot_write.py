"""A table as a LeRobot data set of version 3.0. Layout: the sources of LeRobotDataset, 0.4."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recorder.formats.fresh import atomic_write
from recorder.formats.lerobot_film import VIDEO_PATH, LeRobotFilm
from recorder.formats.lerobot_shape import Shape, shape_of
from recorder.formats.lerobot_stats import column_stats
from recorder.formats.parquet_columns import IMAGE, Column, pyarrow_for, writer
from recorder.formats.pictures import Film, Filming
from recorder.formats.runs import Run, runs_of, single_reward
from recorder.table import Table

__all__ = ["write_lerobot"]

FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}"
CHUNK, MEGABYTES = 1000, 100
NO_TASK = "unknown"


def write_lerobot(table: Table, path: Path | str, filming: Filming | None = None) -> list[str]:
    """Write a table as a data set that LeRobot reads and trains on.

    All observation fields become the vector ``observation.state``, all action fields ``action``, float32 both.
    Frame t is what was seen there and the action chosen there; ``next.reward``, ``next.done`` and
    ``next.truncated`` say what followed. LeRobot has no place for an episode's last observation, without which the
    value of a truncated episode can't be bootstrapped: it is kept in a column of our own beside the episode, which
    LeRobot passes over and `recorder.formats.lerobot.load_lerobot` reads; the picture that belongs to it is in the
    video behind those of the episode, or in such a column.

    Args:
        table: what to write.
        path: the folder, which must not be there yet.
        filming: which pictures, and whether as videos: AV1 where PyAV is installed, else VP9. None: all, as videos.

    Returns:
        What is lost, a sentence each.

    Raises:
        SourceError: there is no step, several agents are rewarded, pyarrow is missing, or the folder is there; there
            is no such camera, or its pictures differ in size.
        LogError: there are pictures, and OpenCV is missing.
    """
    single_reward(table, "LeRobot")
    runs, notes = runs_of(table)
    shape, lost = shape_of(table, runs)
    tasks = list(dict.fromkeys(_task(run) for run in runs))
    arrow = pyarrow_for(path)
    with atomic_write(path, folder=True) as part, Film(table, filming) as film:
        if film.cameras and not film.embedded and shape.jitters(runs):
            shape = replace(shape, clock=False)
            lost.append("timestamp counts frames, as LeRobot's videos want; the robot's clock is in meta/episodes")
        images = LeRobotFilm(film, runs, shape.fps)
        entries, stats = _write_data(part, shape, runs, tasks, images)
        if not images.embedded:
            entries = [entry | more for entry, more in zip(entries, images.videos(part), strict=True)]
        _write_table(arrow, part / f"meta/episodes/{_at(0)}.parquet", arrow.Table.from_pylist(entries))
        _write_table(arrow, part / "meta" / "tasks.parquet", _tasks(arrow, tasks))
        _write_json(part / "meta" / "stats.json", stats | images.stats())
        _write_json(part / "meta" / "info.json", _info(shape, runs, tasks, images))
    lost.append("the last observation of each episode is where only this software reads it (meta/episodes)")
    return notes + lost + film.notes()


def _task(run: Run) -> str:
    return str(run.info.get("task") or NO_TASK)


def _at(number: int) -> str:
    return FILE.format(chunk_index=number // CHUNK, file_index=number % CHUNK)


def _info(shape: Shape, runs: list[Run], tasks: list[str], images: LeRobotFilm) -> dict[str, Any]:
    filmed = images.features()
    return {
        "codebase_version": "v3.0",
        "robot_type": str(runs[0].info.get("robot") or "unknown"),
        "total_episodes": len(runs),
        "total_frames": sum(map(len, runs)),
        "total_tasks": len(tasks),
        "chunks_size": CHUNK,
        "data_files_size_in_mb": MEGABYTES,
        "video_files_size_in_mb": 200,
        "fps": shape.fps,
        "splits": {"train": f"0:{len(runs)}"},
        "data_path": f"data/{FILE}.parquet",
        "video_path": VIDEO_PATH if filmed and not images.embedded else None,
        "features": shape.features | filmed,
    }


def _write_data(
    root: Path, shape: Shape, runs: list[Run], tasks: list[str], pictures: LeRobotFilm
) -> tuple[list[dict[str, Any]], dict[str, dict[str, list[float]]]]:
    """Write the frames; returns what is to be said of the episodes, and the statistics of all."""
    frames = np.cumsum([0, *map(len, runs)])
    held = [shape.columns(run, n, int(frames[n]), tasks.index(_task(run))) for n, run in enumerate(runs)]
    each = pictures.bytes_a_frame()
    sizes = np.cumsum(
        [sum(value.nbytes for value in columns.values()) + each * len(columns["index"]) for columns in held]
    )
    places = ((sizes - sizes[0]) // (MEGABYTES * 2**20)).astype(int)
    places = np.unique(places, return_inverse=True)[1]  # an episode larger than a file leaves no empty one
    kinds = [Column(n, d["dtype"], d["shape"][0] if d["shape"] != [1] else None) for n, d in shape.features.items()]
    kinds += [Column(name, IMAGE) for name in pictures.embedded]
    entries = []
    for place in range(int(places.max()) + 1):
        path = root / "data" / f"{_at(place)}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        with writer(path, kinds) as file:
            for n in np.flatnonzero(places == place).tolist():  # episodes in order
                images, said = pictures.images(runs[n]) if pictures.embedded else ({}, {})
                file.write(held[n] | images)
                entries.append(_entry(n, runs[n], int(frames[n]), place, held[n]) | shape.last(runs[n]) | said)
    return entries, {name: column_stats(np.concatenate([one[name] for one in held])) for name in held[0]}


def _entry(number: int, run: Run, index: int, file_number: int, columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    said: dict[str, Any] = {
        "episode_index": number,
        "tasks": [_task(run)],
        "length": len(run),
        "data/chunk_index": file_number // CHUNK,
        "data/file_index": file_number % CHUNK,
        "dataset_from_index": index,
        "dataset_to_index": index + len(run),
        "meta/episodes/chunk_index": 0,
        "meta/episodes/file_index": 0,
    }
    for name, value in columns.items():
        said |= {f"stats/{name}/{stat}": numbers for stat, numbers in column_stats(value).items()}
    return said


def _tasks(arrow: Any, tasks: list[str]) -> Any:
    """The tasks' texts, as the index of a data frame, which is where LeRobot looks for them."""
    columns = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": dtype, "metadata": None}
        for name, kind, dtype in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
    ]
    about = {"index_columns": ["task"], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"}
    table = arrow.table({"task_index": list(range(len(tasks))), "task": tasks})
    return table.replace_schema_metadata({"pandas": json.dumps(about)})


def _write_table(arrow: Any, path: Path, table: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrow.parquet.write_table(table, path, compression="snappy")


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=4))
