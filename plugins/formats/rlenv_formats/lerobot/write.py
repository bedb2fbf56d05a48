"""Write a table as a LeRobot data set of version 3.0, in the layout of LeRobotDataset 0.4."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hal import Field, SourceError, Spec
from recorder.formats.images import Film, Filming
from recorder.formats.runs import Run, flat, runs_of, single_reward
from recorder.json_data import JsonDict, to_json
from recorder.log.labels import is_success
from recorder.table.table import Table
from rlenv_formats.atomic_write import atomic_write
from rlenv_formats.card import NAME, card_text, feature_table
from rlenv_formats.lerobot.features import INTERVENTION, LOG_PROBABILITY, camera_of
from rlenv_formats.lerobot.film import VIDEO_PATH, LeRobotFilm, column_stats
from rlenv_formats.parquet_columns import IMAGE, Column, pyarrow_for, writer

__all__ = ["Shape", "shape_of", "write_lerobot"]

_NO_FIELDS = Spec("none")

_TOLERANCE_S = 5e-5
"""Half of ``tolerance_s`` of `LeRobotDataset`, in seconds; the other half covers rounding to float32."""

_NUMBERS = {"frame_index": "int64", "episode_index": "int64", "index": "int64", "task_index": "int64"}


@dataclass(frozen=True)
class Shape:
    """The columns of the data set.

    Attributes:
        observation: the spec of ``observation.state``, one vector.
        action: the spec of ``action``, one vector.
        fps: frames per second, a whole number.
        clock: whether time stamps come from the robot's clock; otherwise from the number of frames.
        extras: columns beyond the usual ones, name -> dtype.
        environment: the spec of ``observation.environment_state``, a further part of the observation; often empty.
        images: camera -> observation field of its image, the rest of the observation; often empty.
    """

    observation: Spec
    action: Spec
    fps: int
    clock: bool
    extras: Mapping[str, str]
    environment: Spec = _NO_FIELDS
    images: Mapping[str, Field] = field(default_factory=dict)

    @property
    def observed(self) -> dict[str, Spec]:
        """The columns of the observation."""
        parts = {"observation.state": self.observation, "observation.environment_state": self.environment}
        return {name: spec for name, spec in parts.items() if len(spec)}

    @property
    def features(self) -> dict[str, JsonDict]:
        """The features for ``info.json``. Our additional key ``fields`` names the field of each part of a vector."""
        features: dict[str, JsonDict] = {name: _vector(spec) for name, spec in self.observed.items()}
        features["action"] = _vector(self.action)
        scalars = {**self.extras, "timestamp": "float32", **_NUMBERS}
        return features | {name: {"dtype": dtype, "shape": [1], "names": None} for name, dtype in scalars.items()}

    def columns(self, run: Run, number: int, index: int, task: int) -> dict[str, np.ndarray]:
        """Return the columns of a run's T pairs: each observation, and the action chosen there.

        Args:
            run: the run.
            number: the episode's number.
            index: the index of the episode's first frame in the data set.
            task: the task's index.
        """
        count = len(run)
        frames = np.arange(count)
        last = frames == count - 1
        held = {
            **{name: flat(run.group("observation", spec), count + 1)[:-1] for name, spec in self.observed.items()},
            "action": flat(run.group("action", self.action), count),
            "next.reward": run.came["reward"].astype(np.float32),
            "next.done": last,
            "next.truncated": last & run.truncated,
            "next.success": last & bool(is_success(run.info)),
            INTERVENTION: run.came["intervention"] != 0,
            LOG_PROBABILITY: run.came["log_probability"].astype(np.float32),
            "timestamp": self.seconds(run)[:-1].astype(np.float32),
            "frame_index": frames,
            "episode_index": np.full(count, number),
            "index": index + frames,
            "task_index": np.full(count, task),
        }
        return {name: held[name] for name in self.features}

    def last(self, run: Run) -> JsonDict:
        """Return what LeRobot's pairs can't hold, as additional columns of the episode's description."""
        stamps = run.observed["stamp_ns"]
        clock = {} if self.clock or (np.diff(stamps) <= 0).any() else {"rlenv_robot/stamp_ns": stamps.tolist()}
        return {
            **{
                f"rlenv_robot/last/{name}": flat(run.group("observation", spec), len(run) + 1)[-1].tolist()
                for name, spec in self.observed.items()
            },
            "rlenv_robot/last/timestamp": float(self.seconds(run)[-1]),
            "rlenv_robot/info": to_json(
                {key: value for key, value in run.info.items() if key != "set"}, "what is known of an episode"
            ),
            **clock,
        }

    def jitters(self, runs: list[Run]) -> bool:
        """Return whether a time stamp differs from that of its video frame by more than LeRobot tolerates."""
        return self.clock and any(
            np.abs(run.seconds - np.arange(len(run) + 1) / self.fps).max() > _TOLERANCE_S for run in runs
        )

    def seconds(self, run: Run) -> np.ndarray:
        """Return the increasing time stamps in seconds, (T + 1,)."""
        return run.seconds if self.clock else np.arange(len(run) + 1) / self.fps


def _vector(spec: Spec) -> JsonDict:
    return {
        "dtype": "float32",
        "shape": [sum(field.size for field in spec)],
        "names": [name for field in spec for name in _names(field, len(spec) == 1)],
        "fields": [field.to_dict() for field in spec],
    }


def _names(field: Field, only: bool) -> list[str]:
    """Return the names of a field's elements; they begin with the field's name unless it is the only field."""
    if not field.shape:
        return [field.name]
    last = field.elements or tuple(str(number) for number in range(field.shape[-1]))
    marks = [[*map(str, index), last_name] for index in np.ndindex(field.shape[:-1]) for last_name in last]
    return [".".join(mark) if only and field.elements else ".".join([field.name, *mark]) for mark in marks]


def shape_of(table: Table, runs: list[Run], environment: Collection[str] = ()) -> tuple[Shape, list[str]]:
    """Choose the columns.

    Args:
        table: the table to write.
        runs: the table's unbroken runs.
        environment: names of the observation fields for ``observation.environment_state``.

    Returns:
        The columns, and a sentence about each thing that will be lost.

    Raises:
        SourceError: there is no step, no observation or no action, or ``environment`` names unknown fields or all
            fields.
    """
    layout = table.layout
    images: dict[str, Field] = {}
    for part in (part for part in layout.observation if part.is_image):
        images[part.name if camera_of(part) in images else camera_of(part)] = part
    numbers = tuple(part for part in layout.observation if part not in images.values())
    names = [part.name for part in numbers]
    if environment and not set(environment) < set(names):
        raise SourceError(
            f"environment is {', '.join(environment)}: allowed are some, and not all, of the observation's fields "
            f"in numbers, {', '.join(names)}"
        )
    if not runs or not len(layout.observation) or not len(layout.action):
        raise SourceError(
            f"LeRobot needs steps with an observation and an action; {table.origin} has {len(runs)} episodes of steps, "
            f"{len(layout.observation)} observation and {len(layout.action)} action fields"
        )
    fps, clock, notes = _rate(runs)
    extras = {"next.reward": "float32", "next.done": "bool", "next.truncated": "bool"}
    if all(np.isnan(run.came["reward"]).all() for run in runs):
        del extras["next.reward"]
    judged = [is_success(run.info) is not None for run in runs]
    if all(judged):
        extras["next.success"] = "bool"
    elif any(judged):
        notes.append(f"next.success is left out: {judged.count(False)} of {len(judged)} episodes have no verdict")
    if any(run.came["intervention"].any() for run in runs):
        extras[INTERVENTION] = "bool"
    if not all(np.isnan(run.came["log_probability"]).all() for run in runs):
        extras[LOG_PROBABILITY] = "float32"
    state, surroundings = (
        Spec(name, tuple(part for part in numbers if (part.name in environment) is chosen))
        for name, chosen in ((layout.observation.name, False), ("environment_state", True))
    )
    return Shape(state, layout.action, fps, clock, extras, surroundings, images), notes + _lost(table, runs, numbers)


def _rate(runs: list[Run]) -> tuple[int, bool, list[str]]:
    """Return frames per second, whether the clock can be used, and what is wrong with it."""
    periods = np.concatenate([np.diff(run.seconds) for run in runs])
    if not (periods > 0).all():
        return 1, False, ["the stamps don't rise from frame to frame; timestamp counts frames, at fps 1"]
    exact = 1 / float(np.median(periods))
    fps = max(1, round(exact))
    if abs(exact - fps) > 0.01 * fps:
        return fps, True, [f"fps must be a whole number: {exact:.4g} frames a second became {fps}"]
    return fps, True, []


def _lost(table: Table, runs: list[Run], observed: Iterable[Field]) -> list[str]:
    layout, notes = table.layout, []
    for what, spec in (("applied", layout.applied), ("sensor", layout.sensors)):
        if len(spec):
            notes.append(f"a LeRobot frame has no place for {what} {', '.join(spec.names)}")
    rounded = [
        f"{group} {field.name}"
        for group, fields in (("observation", observed), ("action", layout.action))
        for field in fields
        if not all(_fits(run.group(group, Spec(group, (replace(field, counted_by=""),)))[field.name]) for run in runs)
    ]
    rounded += [] if all(_fits(run.came["reward"]) for run in runs) else ["reward"]
    if rounded:
        notes.append(f"rounded to float32: {', '.join(rounded)}")
    return notes


def _fits(value: np.ndarray) -> bool:
    """Return whether float32 holds every value exactly."""
    narrow = value.astype(np.float32)
    return bool(np.array_equal(narrow.astype(np.float64), value.astype(np.float64), equal_nan=True))


# ---- files ----


FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}"
CHUNK, MEGABYTES = 1000, 100
NO_TASK = "unknown"


def write_lerobot(
    table: Table, path: Path | str, filming: Filming | None = None, environment: Collection[str] = ()
) -> list[str]:
    """Write a table as a data set that LeRobot reads and trains on.

    Image fields of the observation become ``observation.images.<camera>``, which LeRobot's policies take as images. All
    other observation fields become the vector ``observation.state``, and all action fields ``action``, both float32.
    Frame t has the observation and the action chosen there; ``next.reward``, ``next.done`` and ``next.truncated``
    describe what followed. LeRobot's frames can't hold an episode's last observation, without which the value of a
    truncated episode can't be bootstrapped. It is kept in an additional column of the episode's description, which
    LeRobot ignores and `rlenv_formats.lerobot.read.load_lerobot` reads; its image follows those of the episode in the
    video, or is in such a column.

    Args:
        table: the table to write.
        path: the folder, which must not exist yet.
        filming: the choice of images, and whether they become videos (AV1 if PyAV is installed, otherwise VP9). None
            writes all images as videos. Observed images are always written, in their own size.
        environment: names of observation fields that become ``observation.environment_state`` instead, which LeRobot's
            ACT and diffusion policy require if there are no images.

    Returns:
        A sentence about each thing that is lost.

    Raises:
        SourceError: there is no step, several agents are rewarded, pyarrow is not installed, the folder exists, there
            is no such camera, or a camera's images differ in size.
        LogError: there are images, and OpenCV is not installed.
    """
    single_reward(table, "LeRobot")
    runs, notes = runs_of(table)
    shape, lost = shape_of(table, runs, environment)
    tasks = list(dict.fromkeys(_task(run) for run in runs))
    arrow = pyarrow_for(path)
    with atomic_write(path, folder=True) as part, Film(table, filming, shape.images) as film:
        if film.cameras and not film.embedded and shape.jitters(runs):
            shape = replace(shape, clock=False)
            lost.append("timestamp counts frames, as LeRobot's videos want; the robot's clock is in meta/episodes")
        images = LeRobotFilm(film, runs, shape.fps)
        if names := [part.name for camera, part in shape.images.items() if camera in images.encoded]:
            lost.append(f"videos compress the observed pixels of {', '.join(names)}; embedded images keep them")
        entries, stats = _write_data(part, shape, runs, tasks, images)
        if not images.embedded:
            entries = [entry | more for entry, more in zip(entries, images.videos(part), strict=True)]
        columns = dict.fromkeys(name for entry in entries for name in entry)  # each may lack some
        described = arrow.table({name: [entry.get(name) for entry in entries] for name in columns})
        _write_table(arrow, part / f"meta/episodes/{_at(0)}.parquet", described)
        _write_table(arrow, part / "meta" / "tasks.parquet", _tasks(arrow, tasks))
        _write_json(part / "meta" / "stats.json", stats | images.stats())
        info = _info(shape, runs, tasks, images)
        _write_json(part / "meta" / "info.json", info)
        (part / NAME).write_text(_card(table, info, [*notes, *lost]), encoding="utf-8")
    lost.append("the last observation of each episode is where only this software reads it (meta/episodes)")
    return notes + lost + images.notes() + film.notes()


_LOAD = """
from lerobot.datasets.lerobot_dataset import LeRobotDataset

LeRobotDataset("local/set", root="FOLDER")  # or LeRobotDataset("USER/NAME") once it is on the Hub

import rlenv_robot

rlenv_robot.open_source("FOLDER")
"""


def _card(table: Table, info: JsonDict, lost: list[str]) -> str:
    kind = f"LeRobot {info['codebase_version']}"
    return card_text(table, kind, _LOAD, lost, ("LeRobot",), "data/*/*.parquet", feature_table(info["features"]))


def _task(run: Run) -> str:
    return str(run.info.get("task") or NO_TASK)


def _at(number: int) -> str:
    return FILE.format(chunk_index=number // CHUNK, file_index=number % CHUNK)


def _info(shape: Shape, runs: list[Run], tasks: list[str], images: LeRobotFilm) -> JsonDict:
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
    root: Path, shape: Shape, runs: list[Run], tasks: list[str], film: LeRobotFilm
) -> tuple[list[JsonDict], dict[str, dict[str, list[float]]]]:
    """Write the frames; return the description of the episodes, and the statistics of all."""
    frames = np.cumsum([0, *map(len, runs)])
    held = [shape.columns(run, n, int(frames[n]), tasks.index(_task(run))) for n, run in enumerate(runs)]
    embedded_bytes = film.bytes_a_frame()
    sizes = np.cumsum(
        [sum(value.nbytes for value in columns.values()) + embedded_bytes * len(columns["index"]) for columns in held]
    )
    places = ((sizes - sizes[0]) // (MEGABYTES * 2**20)).astype(int)
    places = np.unique(places, return_inverse=True)[1]  # an episode larger than a file leaves no empty one
    kinds = [Column(n, d["dtype"], d["shape"][0] if d["shape"] != [1] else None) for n, d in shape.features.items()]
    kinds += [Column(name, IMAGE) for name in film.embedded]
    entries = []
    for place in range(int(places.max()) + 1):
        path = root / "data" / f"{_at(place)}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        with writer(path, kinds) as file:
            for n in np.flatnonzero(places == place).tolist():  # episodes in order
                images, last_images = film.images(runs[n]) if film.embedded else ({}, {})
                file.write(held[n] | images)
                entries.append(_entry(n, runs[n], int(frames[n]), place, held[n]) | shape.last(runs[n]) | last_images)
    return entries, {name: column_stats(np.concatenate([one[name] for one in held])) for name in held[0]}


def _entry(number: int, run: Run, index: int, file_number: int, columns: Mapping[str, np.ndarray]) -> JsonDict:
    description: JsonDict = {
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
        description |= {f"stats/{name}/{stat}": numbers for stat, numbers in column_stats(value).items()}
    return description


def _tasks(arrow: ModuleType, tasks: list[str]) -> Any:
    """Return the tasks' texts as the index of a data frame, where LeRobot looks for them."""
    columns = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": dtype, "metadata": None}
        for name, kind, dtype in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
    ]
    about = {"index_columns": ["task"], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"}
    table = arrow.table({"task_index": list(range(len(tasks))), "task": tasks})
    return table.replace_schema_metadata({"pandas": json.dumps(about)})


def _write_table(arrow: ModuleType, path: Path, table: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrow.parquet.write_table(table, path, compression="snappy")


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=4))
