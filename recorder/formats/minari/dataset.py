"""Read Minari data sets (HDF5, Arrow, Parquet), and write them in HDF5. Layout: the sources of Minari 0.5.

An episode has T + 1 observations and infos, and T actions, rewards and flags, as in a table, so only refused actions
are lost. The other columns of a frame row (stamps, sensors, applied commands, ...) are in ``infos``. The layout of the
rows, and what is known of an episode, are in texts called ``rlenv_robot``, which Minari ignores.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from hal import RobotError, SourceError, Spec
from hal.frame_layout import PREFIXES, FrameLayout
from recorder.formats.atomic_write import atomic_write
from recorder.formats.hdf5 import (
    Hdf5Group,
    h5py_for,
    open_hdf5,
    read_json,
    read_numbers,
    write_arrays,
    write_images,
    write_json,
)
from recorder.formats.images import Film, Filming
from recorder.formats.minari.arrow import FORMATS, arrow_episodes
from recorder.formats.minari.space import Leaf, leaves_of, space_of
from recorder.formats.registry import Format
from recorder.formats.runs import Run, rows_of, runs_of, single_reward, table_of
from recorder.json_data import JsonDict, JsonObject, to_json
from recorder.table.image_source import no_images
from recorder.table.table import Table

__all__ = ["MINARI", "is_minari", "load_minari", "write_minari"]

DATA, META = "main_data.hdf5", "metadata.json"
OURS = "rlenv_robot"
VERSION = "0.5.0"
"""The version of Minari's format; every Minari 0.5 reads it."""
IMAGES = "images"
HELD = ("stamp_ns", "wall_ns", "log_probability", "intervention")
"""The columns of a row that go into ``infos`` in any case."""


def is_minari(path: Path | str) -> bool:
    """Return whether a folder looks like a Minari data set, or like the ``data`` in one."""
    return _data_folder(Path(path)) is not None


def _data_folder(root: Path) -> Path | None:
    for folder in (root / "data", root):
        if (folder / META).is_file() and '"total_episodes"' in (folder / META).read_text():
            return folder
    return None


def write_minari(table: Table, path: Path | str, filming: Filming | None = None) -> list[str]:
    """Write a table as a data set that ``minari.load_dataset`` opens by its name.

    A single observation or action field is a space of its own; several are a ``Dict``. In it, images are ``images``, a
    ``Dict`` of cameras: uint8, (height, width, 3), RGB. Minari finds the data set below ``MINARI_DATASETS_PATH`` by its
    folder's name, which should end in ``-v0``.

    Args:
        table: the table to write.
        path: the folder, which must not exist yet.
        filming: the choice of images; None for all.

    Returns:
        What is lost, a sentence each.

    Raises:
        SourceError: there is no step, several agents are rewarded, h5py is missing, or the folder is there; there is
            no such camera, or its images differ in size.
        LogError: there are images, and OpenCV is missing.
    """
    path = Path(path)
    single_reward(table, "Minari")
    runs, notes = runs_of(table)
    if not runs or not len(table.layout.observation) or not len(table.layout.action):
        raise SourceError(f"Minari needs steps with an observation and an action, {table.origin} has none")
    named = path.name if re.fullmatch(r"[-\w]+-v\d+", path.name) else re.sub(r"[^-\w]+", "-", path.name) + "-v0"
    if named != path.name:
        notes.append(f"Minari opens a data set by its folder's name; rename {path.name} to {named} for that")
    h5py = h5py_for(path)
    with atomic_write(path, folder=True) as part, Film(table, filming) as film:
        shapes = {camera: film.shape(runs[0], camera) for camera in film.cameras}
        if shapes and IMAGES in table.layout.observation.names:
            raise SourceError(f"an observation is called {IMAGES}, where images would be; leave the cameras out")
        (part / "data").mkdir()
        with h5py.File(part / "data" / DATA, "w", track_order=True) as file:
            for number, run in enumerate(runs):
                group = file.create_group(f"episode_{number}")
                _write_run(group, number, run, table.layout, bool(shapes))
                for camera, shape in shapes.items():
                    write_images(group, f"observations/{IMAGES}/{camera}", film.of(run, camera), len(run) + 1, shape)
        size = (part / "data" / DATA).stat().st_size / 1e6
        meta = _meta(table.layout, runs, named, round(size, 1)) | {
            "observation_space": space_of(table.layout.observation, {IMAGES: shapes} if shapes else {})
        }
        (part / "data" / META).write_text(json.dumps(meta))
    return notes + film.notes()


def _meta(layout: FrameLayout, runs: list[Run], name: str, size: float) -> JsonDict:
    return {
        "dataset_id": name,
        "minari_version": VERSION,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "total_episodes": len(runs),
        "total_steps": sum(map(len, runs)),
        "dataset_size": size,
        "action_space": space_of(layout.action),
        OURS: layout.to_dict(),
    }


def _write_run(group: Hdf5Group, number: int, run: Run, layout: FrameLayout, filmed: bool) -> None:
    group.attrs.update({"id": number, "total_steps": len(run)})
    seed = run.info.get("seed")
    if isinstance(seed, int) and 0 <= seed < 2**63:
        group.attrs["seed"] = seed
    reward = run.came["reward"]
    for name in ("sum", "mean", "std", "max", "min"):
        group.attrs[f"rewards_{name}"] = float(getattr(np, name)(reward))
    for name, prefix, spec in (
        ("observations", "observation", layout.observation),
        ("actions", "action", layout.action),
    ):
        values = run.group(prefix, spec)
        if len(spec) == 1 and not (filmed and prefix == "observation"):
            group.create_dataset(name, data=values[spec.names[0]])
        else:
            write_arrays(group.create_group(name), values)
    last = np.arange(len(run)) == len(run) - 1
    flags = {"terminations": last & run.terminated, "truncations": last & run.truncated}
    write_arrays(group, {"rewards": reward, **flags})
    rows = np.concatenate([run.observed[:1], run.came])
    infos = group.create_group("infos")
    write_arrays(infos, {name: rows[name] for name in HELD} | {"stamp_ns": run.observed["stamp_ns"]})
    write_arrays(infos, {f"applied/{name}": rows[f"applied_{name}"] for name in layout.applied.names})
    write_arrays(infos, {f"sensor/{name}": run.observed[f"sensor_{name}"] for name in layout.sensors.names})
    write_json(group, OURS, to_json(dict(run.info), "what is known of an episode"))


def load_minari(path: Path | str) -> Table:
    """Read a data set, written by this or other software.

    Raises:
        SourceError: the folder is no Minari data set, in an unknown format, incomplete or damaged; or h5py or pyarrow
            is missing.
    """
    root = Path(path)
    folder = _data_folder(root)
    if folder is None:
        raise SourceError(f"{root} is no Minari data set: data/{META} is missing")
    try:
        meta = dict(json.loads((folder / META).read_text()))
    except ValueError as error:
        raise SourceError(f"{folder / META} is not JSON: {error}; fetch it again") from error
    known = ("hdf5", *FORMATS)
    if meta.get("data_format", "hdf5") not in known:
        raise SourceError(
            f"{folder} is in {meta['data_format']}, supported are {', '.join(known)}; convert it with Minari"
        )
    return _Reader(root, folder, meta).table()


class _Reader:
    """Reads one data set."""

    def __init__(self, root: Path, folder: Path, meta: JsonObject) -> None:
        self._root, self._folder, self._meta = root, folder, meta
        self._notes: list[str] = []
        self._format = str(meta.get("data_format", "hdf5"))
        self._ours = OURS in meta and self._format == "hdf5"
        self._leaves = {kind: self._parts(kind) for kind in ("observation", "action")}
        self._layout = self._layout_of()

    def table(self) -> Table:
        count = int(self._meta["total_episodes"])
        if self._format == "hdf5":
            read = self._from_hdf5(count)
        else:
            found = arrow_episodes(self._folder, self._format, count, self._leaves)
            read = [self._episode(group, number) for number, group in enumerate(found)]
        loose = sum(info["end"] == "unknown" for _, info in read)
        if loose:
            self._notes.append(f"{loose} of {count} episodes end without a flag; they count as truncated")
        episodes, infos = [rows for rows, _ in read], [info for _, info in read]
        return table_of(self._layout, episodes, infos, str(self._root), self._notes, no_images)

    def _from_hdf5(self, count: int) -> list[tuple[np.ndarray, JsonDict]]:
        with open_hdf5(self._folder / DATA) as file:
            names = [f"episode_{number}" for number in range(count)]
            missing = [name for name in names if name not in file]
            if missing:
                raise SourceError(f"{file.filename} has no {', '.join(missing[:3])}, {META} says {count} episodes")
            return [self._episode(file[name], number) for number, name in enumerate(names)]

    def _parts(self, kind: str) -> list[Leaf]:
        where = f"{self._folder / META}: {kind}_space"
        text = self._meta.get(f"{kind}_space")
        if text is None:
            raise SourceError(f"{where} is missing; open it once with Minari and write it anew")
        leaves = leaves_of(text, kind, where)
        if self._ours:  # the fields are known from our own layout
            leaves = [leaf for leaf in leaves if len(leaf.path) < 2]
        left = ["/".join(leaf.path) or kind for leaf in leaves if leaf.field is None]
        if left and not self._ours:
            self._notes.append(f"a frame row has no place for {kind} {', '.join(left)} (an image or text)")
        return leaves

    def _layout_of(self) -> FrameLayout:
        if self._ours:
            try:
                return FrameLayout.from_dict(self._meta[OURS])
            except (RobotError, KeyError, TypeError) as error:
                raise SourceError(f"{self._folder / META}: {OURS} can't be read: {error!r}") from error
        self._notes.append("no time was recorded; the stamps count frames as seconds")
        specs = [Spec(kind, tuple(x.field for x in leaves if x.field)) for kind, leaves in self._leaves.items()]
        if not all(len(spec) for spec in specs):
            raise SourceError(f"{self._root}: observation and action must have numbers; {'; '.join(self._notes)}")
        return FrameLayout(specs[0], specs[1])

    def _group(self, group: Hdf5Group, kind: str, spec: Spec, count: int) -> dict[str, np.ndarray]:
        """Return the fields of ``observations`` or ``actions``."""
        leaves = self._leaves[kind]
        paths = [leaf.path for leaf in leaves if self._ours or leaf.field]
        names = ["/".join((f"{kind}s", *path)) for path in paths]
        return {
            field.name: read_numbers(group, name, (count, *field.shape))
            for field, name in zip(spec, names, strict=True)
        }

    def _episode(self, group: Hdf5Group, number: int) -> tuple[np.ndarray, JsonDict]:
        reward = read_numbers(group, "rewards")
        count = len(reward)
        ends = [read_numbers(group, name, (count,)) for name in ("terminations", "truncations")]
        if not count or any(flags[:-1].any() for flags in ends):
            raise SourceError(f"{group.file.filename}: {group.name} has no steps, or ends before its last step")
        terminated, truncated = bool(ends[0][-1]), bool(ends[1][-1])
        said = "terminated" if terminated else "truncated" if truncated else "unknown"
        rows = rows_of(
            self._layout,
            number,
            self._group(group, "observation", self._layout.observation, count + 1),
            self._group(group, "action", self._layout.action, count),
            reward,
            (terminated, truncated or not terminated),
            np.arange(count + 1) * 10**9,
        )
        info: JsonDict = {"episode": number, "end": said}
        if "seed" in group.attrs:
            info["seed"] = int(group.attrs["seed"])
        if self._ours:
            self._fill(rows, group["infos"])
            info |= read_json(group, OURS) or {}
        return rows, info

    def _fill(self, rows: np.ndarray, infos: Hdf5Group) -> None:
        for name in HELD:
            rows[name] = read_numbers(infos, name, (len(rows),))
        for prefix, spec in zip(PREFIXES[2:], (self._layout.applied, self._layout.sensors), strict=True):
            for field in spec:
                name = f"{prefix}_{field.name}"
                rows[name] = read_numbers(infos, f"{prefix}/{field.name}", (len(rows), *field.shape))


MINARI = Format(
    "minari", is_minari, load_minari, write_minari, True, no_images,
    candidates=lambda folder: (mark.parents[1] for mark in folder.rglob(f"data/{META}")),
)  # fmt: skip
