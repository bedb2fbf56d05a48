"""Read and write robomimic data sets. Layout: https://robomimic.github.io/docs/datasets/overview.html.

In the one HDF5 file, ``data/demo_<n>`` has ``obs/<k>``, ``next_obs/<k>``, ``actions``, ``rewards`` and ``dones``, each
of length T. robomimic's policies act in [-1, 1], so ``actions`` are scaled to that range; ``action_dict/<field>`` holds
the actions in their own units.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from hal import Field, RobotError, SourceError, Spec
from recorder.formats.images import Film, Filming
from recorder.formats.registry import Format
from recorder.formats.runs import (
    EpisodeSpool,
    Run,
    field_names,
    flat,
    left_out,
    rows_of,
    runs_of,
    single_reward,
)
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonDict, JsonObject, to_json
from recorder.log.labels import is_success
from recorder.table.table import ImageSource, Table
from rlenv_formats.atomic_write import atomic_write
from rlenv_formats.card import card_text, write_card_beside
from rlenv_formats.foreign import listed
from rlenv_formats.hdf5 import (
    Hdf5Group,
    as_field,
    h5py_for,
    member,
    open_hdf5,
    read_attribute,
    read_json,
    read_numbers,
    read_strings,
    write_arrays,
    write_json,
)
from rlenv_formats.stored_images import Hdf5Images, Part, is_image_shape

__all__ = ["ROBOMIMIC", "is_robomimic", "load_robomimic", "open_robomimic_images", "write_robomimic"]

OURS = "rlenv_robot"
IMAGE = "_image"
SUFFIXES = (".hdf5", ".h5")
GYM = 2
"""robomimic's number for environments with Gym's interface (EnvType)."""
CLOCKS = ("stamp_ns", "wall_ns")
_DEMO = re.compile(r"demo_(\d{1,9})")
HELD = ("log_probability", "intervention")
_SMALLEST = 8
"""Smallest height and width at which an array of bytes with a channel axis counts as an image."""


_LOAD = """
from robomimic.utils.dataset import SequenceDataset

SequenceDataset("FILE.hdf5", obs_keys=(...), dataset_keys=("actions", "rewards", "dones"))

import rlenv_robot

rlenv_robot.open_source("FILE.hdf5")
"""


def is_robomimic(path: Path | str) -> bool:
    """Return whether a file looks like a robomimic data set."""
    path = Path(path)
    if path.suffix not in SUFFIXES or not path.is_file():
        return False
    with open_hdf5(path) as file:
        data = member(file, "data")
        return hasattr(data, "keys") and any(_DEMO.fullmatch(name) for name in data)


def write_robomimic(table: Table, path: Path | str, filming: Filming | None = None) -> list[str]:
    """Write a table as a file that ``robomimic.utils.dataset.SequenceDataset`` reads.

    ``dones`` is 1 where the task terminated and 0 where it was truncated, so that the last value of a truncated episode
    is bootstrapped. ``mask/success`` and ``mask/failure`` list the episodes with a known outcome. Images are
    ``obs/<camera>_image`` and ``next_obs/<camera>_image``, RGB, uint8 (height, width, 3).

    Args:
        table: the table to write.
        path: the file, ending in ``.hdf5``, which must not exist yet.
        filming: the choice of images; None for all.

    Returns:
        A sentence about each thing that is lost.

    Raises:
        SourceError: there is no step, several agents are rewarded, h5py is not installed, the file exists, there is no
            such camera, or a camera's images differ in size.
        LogError: there are images, and OpenCV is not installed.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise SourceError(f"{path}: a robomimic data set is one file, its name ends in {' or '.join(SUFFIXES)}")
    single_reward(table, "robomimic")
    runs, notes = runs_of(table)
    if not runs or not len(table.layout.observation) or not len(table.layout.action):
        raise SourceError(f"robomimic needs steps with an observation and an action, {table.origin} has none")
    scale = _scale(table.layout.action)
    if scale is None:
        notes.append("actions keep their units, since they have no range; robomimic's policies act from -1 to 1")
    h5py = h5py_for(path)
    with atomic_write(path, folder=False) as part, h5py.File(part, "w") as file, Film(table, filming) as film:
        shapes = {camera: film.shape(runs[0], camera) for camera in film.cameras}
        data = file.create_group("data")
        data.attrs["total"] = sum(map(len, runs))
        about = {"env_name": str(runs[0].info.get("task") or "unknown"), "env_type": GYM, "env_kwargs": {}}
        data.attrs["env_args"] = json.dumps(about)
        for number, run in enumerate(runs):
            group = data.create_group(f"demo_{number}")
            _write_run(group, run, table.layout, scale)
            for camera, shape in shapes.items():
                _write_images(group, f"{camera}{IMAGE}", film.of(run, camera), len(run), shape)
        for name, success in (("success", True), ("failure", False)):
            demos = [f"demo_{number}" for number, run in enumerate(runs) if is_success(run.info) is success]
            if demos:
                file.create_dataset(f"mask/{name}", data=np.array(demos, "S"))
        write_json(file, OURS, to_json(table.layout.to_dict(), "the layout"))
        lost = notes + film.notes()
    return lost + write_card_beside(path, card_text(table, "robomimic", _LOAD, lost, ("robomimic",)))


def _write_images(
    group: Hdf5Group, name: str, images: Iterator[np.ndarray], count: int, shape: tuple[int, int, int]
) -> None:
    """Write the images of the T frames before each action, and once more those of the T frames after it."""
    for part in ("obs", "next_obs"):
        if name in group[part]:
            raise SourceError(f"an observation is called {name}, as images would be; leave the cameras out")
    written = [group.create_dataset(f"{part}/{name}", (count, *shape), "u1", chunks=(1, *shape))
               for part in ("obs", "next_obs")]  # fmt: skip
    first = 0
    for some in images:
        for offset, target in enumerate(written):
            begin, stop = max(first - offset, 0), min(first - offset + len(some), count)
            target[begin:stop] = some[begin - first + offset : stop - first + offset]
        first += len(some)


def _scale(action: Spec) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the lowest and highest value of all elements; None if an element has no range."""
    bounds = [np.broadcast_to(np.ravel(side), field.size) for field in action for side in (field.low, field.high)]
    low, high = np.concatenate(bounds[::2]), np.concatenate(bounds[1::2])
    return (low, high) if np.isfinite([low, high]).all() and (low < high).all() else None


def _write_run(group: Hdf5Group, run: Run, layout: FrameLayout, scale: tuple[np.ndarray, np.ndarray] | None) -> None:
    observation, action = run.group("observation", layout.observation), run.group("action", layout.action)
    wide = flat(action, len(run), np.float64)
    if scale is not None:
        wide = 2 * (wide - scale[0]) / (scale[1] - scale[0]) - 1
    group.attrs["num_samples"] = len(run)
    last = np.arange(len(run)) == len(run) - 1
    write_arrays(group, {
        **{f"obs/{name}": value[:-1] for name, value in observation.items()},
        **{f"next_obs/{name}": value[1:] for name, value in observation.items()},
        **{f"action_dict/{name}": value for name, value in action.items()},
        "actions": wide,
        "rewards": run.came["reward"],
        "dones": (last & run.terminated).astype(np.int64),
        **{name: run.observed[name] for name in CLOCKS},
        **{name: run.came[name] for name in HELD},
        **{f"applied/{name}": value for name, value in run.group("applied", layout.applied).items()},
        **{f"sensor/{name}": value for name, value in run.group("sensor", layout.sensors).items()},
    })  # fmt: skip
    write_json(group, OURS, to_json(dict(run.info), "what is known of an episode"))


def load_robomimic(path: Path | str, keep_last: bool = False) -> Table:
    """Read a data set written by this or other software.

    ``dones`` at the last step means that the task terminated; other ``dones`` are ignored, since demonstrations
    continue after a success. Without ``next_obs`` the observation after the last action is unknown, and that action is
    left out.

    Args:
        path: the file.
        keep_last: whether that action also becomes a row, for imitation. The row repeats the last observation.

    Raises:
        SourceError: the file is not a robomimic data set, incomplete or damaged, or h5py is not installed.
    """
    path = Path(path)
    with open_hdf5(path) as file:
        groups = _demos(file)
        reader = _Ours(file) if member(file, OURS) is not None else _Theirs(file, groups, keep_last)
        masks = _masks(file)
        spool, infos, damaged = EpisodeSpool(reader.layout), [], []
        for number, (name, group) in enumerate(groups.items()):
            try:
                rows, info = reader.episode(group, number)
            except SourceError as error:
                damaged.append(str(error))
                continue
            spool.add(rows)
            infos.append(info | ({"masks": sorted(mask for mask in masks if name in masks[mask])} if masks else {}))
        notes = [*left_out(path, damaged, len(infos)), *reader.all_notes()]
        return spool.table(infos, str(path), notes, open_robomimic_images)


def _demos(file: Hdf5Group) -> dict[str, Hdf5Group]:
    """Return name -> group of each episode, by rising number.

    Raises:
        SourceError: there is none.
    """
    data = member(file, "data")
    if not hasattr(data, "keys"):
        raise SourceError(f"{file.filename} is not a robomimic data set: it has no group data")
    matches = [match for match in map(_DEMO.fullmatch, data) if match]
    names = [match[0] for match in sorted(matches, key=lambda match: int(match[1]))]
    if not names:
        raise SourceError(f"{file.filename} is not a robomimic data set: data has no demo_0, demo_1, ...")
    return {name: member(data, name) for name in names}


def open_robomimic_images(path: Path) -> ImageSource | None:
    """Open a data set's images, ``obs/<camera>_image`` and the last of ``next_obs``, or return None if there are none.

    Raises:
        SourceError: the file can't be read.
    """
    cameras: dict[str, dict[int, list[Part]]] = {}
    with open_hdf5(path) as file:
        for number, group in enumerate(_demos(file).values()):
            observed = member(group, "obs")
            for name in observed if hasattr(observed, "keys") else ():
                if not _is_images(images := member(observed, name)):
                    continue
                path_in_file = group.name.lstrip("/")
                parts = [Part(f"{path_in_file}/obs/{name}", 0, len(images))]
                after = member(group, f"next_obs/{name}")
                if _is_images(after) and len(after) == len(images):
                    parts.append(Part(f"{path_in_file}/next_obs/{name}", len(after) - 1, 1))
                cameras.setdefault(name.removesuffix(IMAGE), {})[number] = parts
    return Hdf5Images(path, cameras) if cameras else None


def _is_images(data: Hdf5Group) -> bool:
    """Return whether a member of HDF5 holds images: (T, height, width, channels), bytes."""
    if not hasattr(data, "dtype") or data.dtype != np.uint8 or data.ndim != 4:
        return False
    return bool(len(data)) and is_image_shape(data.shape[1:], _SMALLEST)


def _masks(file: Hdf5Group) -> dict[str, set[str]]:
    """Return name -> the episodes in it."""
    masks = member(file, "mask")
    return {name: set(read_strings(masks, name)) for name in masks} if hasattr(masks, "keys") else {}


class _Ours:
    """Reads what `write_robomimic` wrote."""

    def __init__(self, file: Hdf5Group) -> None:
        try:
            self.layout = FrameLayout.from_dict(read_json(file, OURS) or {})
        except (RobotError, KeyError, TypeError) as error:
            raise SourceError(f"{file.filename}: {OURS} can't be read: {error!r}") from error

    def all_notes(self) -> list[str]:
        return []

    def episode(self, group: Hdf5Group, number: int) -> tuple[np.ndarray, JsonDict]:
        layout, count = self.layout, len(read_numbers(group, "rewards"))
        if not count:
            raise SourceError(f"{group.file.filename}: {group.name} has no step")
        observation = {}
        for field in layout.observation:
            first = read_numbers(group, f"obs/{field.name}", (count, *field.shape))
            after = read_numbers(group, f"next_obs/{field.name}", (count, *field.shape))
            observation[field.name] = np.concatenate([first, after[-1:]])
        action = {
            field.name: read_numbers(group, f"action_dict/{field.name}", (count, *field.shape))
            for field in layout.action
        }
        done = bool(read_numbers(group, "dones", (count,))[-1])
        stamps = read_numbers(group, "stamp_ns", (count + 1,))
        reward = read_numbers(group, "rewards", (count,))
        rows = rows_of(layout, number, observation, action, reward, (done, not done), stamps)
        for name in HELD:
            rows[name][1:] = read_numbers(group, name, (count,))
        rows["wall_ns"] = read_numbers(group, "wall_ns", (count + 1,))
        for field in layout.applied:
            rows[f"applied_{field.name}"][1:] = read_numbers(group, f"applied/{field.name}", (count, *field.shape))
        for field in layout.sensors:
            rows[f"sensor_{field.name}"] = read_numbers(group, f"sensor/{field.name}", (count + 1, *field.shape))
        return rows, {"episode": number, "end": "done" if done else "truncated"} | (read_json(group, OURS) or {})


class _Theirs:
    """Reads what other software wrote: the fields are those of the first episode."""

    def __init__(self, file: Hdf5Group, groups: Mapping[str, Hdf5Group], keep_last: bool) -> None:
        notes = ["no time was recorded; the stamps count frames as seconds"]
        self._continued = 0
        first = next((group for group in groups.values() if _has(group, "obs") and _has(group, "actions")), None)
        if first is None:
            raise SourceError(f"{file.filename}: no demo has obs and actions; extract observations first")
        observations = {name: member(first, f"obs/{name}") for name in member(first, "obs")}
        numbers = {
            name: value for name, value in observations.items()
            if hasattr(value, "dtype") and value.dtype.kind in "fiub" and value.ndim
        }  # fmt: skip
        images = [name for name, value in numbers.items() if _is_images(value)]
        self._names = field_names(name for name in numbers if name not in images)
        if not self._names and not images:
            raise SourceError(f"{file.filename}: {first.name}/obs has no numbers, it has {listed(observations, 20)}")
        observed = tuple(
            as_field(name, numbers[key], "as in the robomimic data set") for key, name in self._names.items()
        )
        action = as_field("target", member(first, "actions"), "robomimic's, mostly scaled to -1 to 1")
        self.layout = FrameLayout(Spec("observation", observed), Spec("action", (action,)))
        self._whole = _has(first, "next_obs")
        self._repeated = keep_last and not self._whole
        if self._repeated:
            notes.append("there is no next_obs: the last row of each episode repeats the observation before it")
        elif not self._whole:
            notes.append(
                "there is no next_obs, so what followed the last action is unknown; the action is left out "
                "(keep_last=True makes it a row)"
            )
        self._about = _env_args(file)
        if not self._about:
            notes.append("data has no env_args that can be read, so the task and the robot are unknown")
        self._notes = notes

    def all_notes(self) -> list[str]:
        if not self._continued:
            return self._notes
        return [
            *self._notes,
            f"in {self._continued} episodes dones is set before the last step; these go on after it, as "
            "demonstrations do",
        ]

    def episode(self, group: Hdf5Group, number: int) -> tuple[np.ndarray, JsonDict]:
        target = self.layout.action.fields[0]
        action = read_numbers(group, "actions")
        count = len(action)
        fields: dict[str, Field] = {field.name: field for field in self.layout.observation}
        observation = {}
        for key, name in self._names.items():
            shape = (count, *fields[name].shape)
            observation[name] = read_numbers(group, f"obs/{key}", shape)
            if self._whole:
                observation[name] = np.concatenate(
                    [observation[name], read_numbers(group, f"next_obs/{key}", shape)[-1:]]
                )
            elif self._repeated:
                observation[name] = np.concatenate([observation[name], observation[name][-1:]])
        steps = count if self._whole or self._repeated else count - 1
        if steps < 1 or action.shape[1:] != target.shape:
            raise SourceError(f"{group.file.filename}: {group.name} has {count} actions of shape {action.shape[1:]}")
        reward = read_numbers(group, "rewards", (count,)) if _has(group, "rewards") else np.full(count, np.nan)
        dones = read_numbers(group, "dones", (count,)) if _has(group, "dones") else np.zeros(count)
        self._continued += bool((dones[:-1] != 0).any())
        done = bool(dones[-1]) and self._whole
        stamps = np.arange(steps + 1) * 10**9
        values = {target.name: action[:steps]}
        rows = rows_of(self.layout, number, observation, values, reward[:steps], (done, not done), stamps)
        info: JsonDict = {"episode": number, "end": "done" if done else "end of recording"}
        if self._about.get("env_name"):
            info["task"] = str(self._about["env_name"])
        if self._repeated:
            info["last_observation"] = "repeated"
        elif not self._whole:
            info["last_action"] = {target.name: action[-1].tolist()}
        return rows, info


def _has(group: Hdf5Group, name: str) -> bool:
    return hasattr(group, "keys") and member(group, name) is not None


def _env_args(file: Hdf5Group) -> JsonObject:
    """Return what the file says of its environment; empty if that can't be read."""
    try:
        about = json.loads(read_attribute(member(file, "data"), "env_args") or "{}")
    except (ValueError, TypeError, RecursionError, SourceError):
        return {}
    return about if isinstance(about, dict) else {}


ROBOMIMIC = Format(
    "robomimic", is_robomimic, load_robomimic, write_robomimic, True, open_robomimic_images,
    candidates=lambda folder: (file for suffix in SUFFIXES for file in folder.rglob(f"*{suffix}")),
    options=("keep_last",), looks="robomimic's file, ending in .hdf5",
)  # fmt: skip
