"""Read Minari data sets (HDF5, Arrow, Parquet), and write them in HDF5, in the layout of Minari 0.5.

An episode has T + 1 observations and infos, and T actions, rewards and flags, like a table, so only refused actions are
lost. The other columns of a frame row (stamps, sensors, applied commands, ...) are in ``infos``. The layout of the
rows, and each episode's info, are in strings named ``rlenv_robot``, which Minari ignores.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from hal import RobotError, SourceError, Spec
from recorder.formats.images import Film, Filming
from recorder.formats.registry import Format
from recorder.formats.runs import EpisodeSpool, Run, left_out, rows_of, runs_of, single_reward
from recorder.frame_layout import PREFIXES, FrameLayout
from recorder.json_data import JsonDict, JsonObject, to_json
from recorder.table.table import ImageSource, Table
from rlenv_formats.atomic_write import atomic_write
from rlenv_formats.card import NAME, card_text
from rlenv_formats.foreign import check_file, read_mapping, whole_number
from rlenv_formats.hdf5 import (
    Hdf5Group,
    h5py_for,
    member,
    open_hdf5,
    read_json,
    read_numbers,
    write_arrays,
    write_images,
    write_json,
)
from rlenv_formats.minari_spaces import IMAGES, Leaf, leaves_of, space_of
from rlenv_formats.parquet_columns import check_parquet, pyarrow_for
from rlenv_formats.stored_images import Hdf5Images, Part, StoredImages

__all__ = [
    "FORMATS", "MINARI", "ArrowEpisode", "arrow_episode", "is_minari", "load_minari", "open_minari_images",
    "write_minari",
]  # fmt: skip

# -- Episodes in Arrow or Parquet files (arrow_storage.py), in the form of Minari's HDF5 files ---------------
#
# ``data/<n>/`` holds episode n: T + 1 rows, where actions,
# rewards and flags have a last row of padding; a ``Dict`` or ``Tuple`` is a struct, an array a list of fixed size.
# pyarrow is imported only on use.


FORMATS = ("arrow", "parquet")

_PADDED = ("actions", "rewards", "terminations", "truncations")


class ArrowEpisode:
    """One episode, with the methods of an HDF5 group that `rlenv_formats.hdf5.read_numbers` uses.

    Args:
        folder: the episode's folder.
        table: all its rows, a ``pyarrow.Table``.
        leaves: the leaves of the observation and action spaces, which have the arrays' shapes.
    """

    def __init__(self, folder: Path, table: Any, leaves: dict[str, list[Leaf]]) -> None:
        self.name, self.file = folder.name, SimpleNamespace(filename=str(folder))
        about = folder / "metadata.json"
        metadata = read_mapping(about) if about.is_file() else {}
        self.attrs = {key: metadata[key] for key in ("seed",) if isinstance(metadata.get(key), int)}
        self._table = table
        self._shapes = {
            "/".join((f"{kind}s", *leaf.path)): leaf.field.shape
            for kind, some in leaves.items()
            for leaf in some
            if leaf.field is not None
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.column_names)

    def get(self, name: str) -> np.ndarray | None:
        """Return an array by its path in HDF5, such as ``observations/goal``; None if there is none."""
        column = self._column(name)
        if column is None:
            return None
        values = _numbers(column, self._shapes.get(name, ()))
        return values[:-1] if name.split("/")[0] in _PADDED else values

    def image(self, name: str, number: int, shape: tuple[int, ...]) -> np.ndarray | bytes:
        """Return one image as an array of this shape, or its encoded bytes.

        Raises:
            SourceError: there is no such image.
        """
        column = self._column(name)
        cell = None if column is None or number >= len(column) else column[number].as_py()
        if isinstance(cell, bytes):
            return cell
        if not isinstance(cell, list) or len(cell) != int(np.prod(shape)):
            raise SourceError(f"{self.file.filename}: {name} has no image {number} of shape {shape}")
        return np.array(cell, np.uint8).reshape(shape)

    def _column(self, name: str) -> Any:
        first, *parts = name.split("/")
        if first not in self._table.column_names:
            return None
        column = self._table.column(first).combine_chunks()
        for part in parts:
            key = part.removeprefix("_index_")
            if key not in {field.name for field in column.type}:
                return None
            column = column.field(key)
        return column


def _numbers(column: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a column of numbers, or of lists of numbers that stand for arrays of a shape."""
    flat = column.flatten() if str(column.type).startswith("fixed_size_list") else column
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), *shape)


def arrow_episode(place: Path, kind: str, leaves: dict[str, list[Leaf]]) -> ArrowEpisode:
    """Read one episode of a data set.

    Args:
        place: the episode's folder.
        kind: one of `FORMATS`.
        leaves: see `ArrowEpisode`.

    Raises:
        SourceError: the episode is missing or damaged, or pyarrow is not installed.
    """
    arrow = pyarrow_for(place)
    from pyarrow import dataset

    if not place.is_dir():
        raise SourceError(f"{place} is missing; fetch the data set again")
    files = [path for path in sorted(place.rglob("*")) if path.is_file() and path.name != "metadata.json"]
    for path in files:
        check_file(path)
        if kind == "parquet":
            check_parquet(path)
    try:
        hidden = ["_", ".", "metadata.json"]
        table = dataset.dataset(str(place), format=kind, ignore_prefixes=hidden).to_table()
        return ArrowEpisode(place, table, leaves)
    except (arrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{place} can't be read ({error}); fetch the data set again") from error


# -- Data sets -----------------------------------------------------------------------------------------------


DATA, META = "main_data.hdf5", "metadata.json"
OURS = "rlenv_robot"
_EPISODE = re.compile(r"episode_(\d+)")
VERSION = "0.5.0"
"""The version of Minari's format; every Minari 0.5 reads it."""
HELD = ("stamp_ns", "wall_ns", "log_probability", "intervention")
"""The columns of a row that ``infos`` always has."""


_LOAD = """
import minari

minari.load_dataset("FOLDER")  # below MINARI_DATASETS_PATH

import rlenv_robot

rlenv_robot.open_source("FOLDER")
"""


def is_minari(path: Path | str) -> bool:
    """Return whether a folder looks like a Minari data set, or like the ``data`` in one."""
    return _data_folder(Path(path)) is not None


def _data_folder(root: Path) -> Path | None:
    for folder in (root / "data", root):
        if (folder / META).is_file() and b'"total_episodes"' in _head(folder / META):
            return folder
    return None


def _head(path: Path) -> bytes:
    """Return the first bytes of a description."""
    with path.open("rb") as file:
        return file.read(16 << 20)


def write_minari(table: Table, path: Path | str, filming: Filming | None = None) -> list[str]:
    """Write a table as a data set that ``minari.load_dataset`` opens by its name.

    A single observation or action field becomes its own space; several become a ``Dict``. Its entry ``images`` is a
    ``Dict`` of cameras with RGB images, uint8 (height, width, 3). Minari finds the data set under
    ``MINARI_DATASETS_PATH`` by its folder's name, which should end in ``-v0``.

    Args:
        table: the table to write.
        path: the folder, which must not exist yet.
        filming: the choice of images; None for all.

    Returns:
        A sentence about each thing that is lost.

    Raises:
        SourceError: there is no step, several agents are rewarded, h5py is not installed, the folder exists, there is
            no such camera, or a camera's images differ in size.
        LogError: there are images, and OpenCV is not installed.
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
        lost = notes + film.notes()
        (part / NAME).write_text(card_text(table, f"Minari {VERSION}", _LOAD, lost, ("minari",)), encoding="utf-8")
    return lost


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
    """Read a data set written by this or other software.

    Raises:
        SourceError: the folder is not a Minari data set, has an unknown format, is incomplete or damaged, or h5py or
            pyarrow is not installed.
    """
    root = Path(path)
    return _Reader(root, *_described(root)).table()


def _described(root: Path) -> tuple[Path, JsonDict]:
    """Return the folder of the data, and their description.

    Raises:
        SourceError: there is no data set, or it is in an unknown format.
    """
    folder = _data_folder(root)
    if folder is None:
        raise SourceError(f"{root} is not a Minari data set: data/{META} is missing")
    meta = read_mapping(folder / META)
    formats = ("hdf5", *FORMATS)
    if meta.get("data_format", "hdf5") not in formats:
        kind = str(meta["data_format"])[:60]
        raise SourceError(f"{folder} is in {kind}, supported are {', '.join(formats)}; convert it with Minari")
    return folder, meta


def open_minari_images(path: Path) -> ImageSource | None:
    """Open the images among a data set's observations, or return None if there are none.

    Raises:
        SourceError: the data set can't be read.
    """
    folder, meta = _described(path)
    leaves = leaves_of(str(meta.get("observation_space")), "observation", f"{folder / META}: observation_space")
    names = {"/".join(("observations", *leaf.path)): leaf for leaf in leaves if leaf.image}
    if not names:
        return None
    if meta.get("data_format", "hdf5") != "hdf5":
        return _ArrowImages(folder, str(meta["data_format"]), names)
    cameras: dict[str, dict[int, list[Part]]] = {leaf.camera: {} for leaf in names.values()}
    with open_hdf5(folder / DATA) as file:
        for match in filter(None, map(_EPISODE.fullmatch, file)):
            for name, leaf in names.items():
                images = member(file, f"{match[0]}/{name}")
                if hasattr(images, "dtype"):
                    cameras[leaf.camera][int(match[1])] = [Part(f"{match[0]}/{name}", 0, len(images))]
    return Hdf5Images(folder / DATA, cameras)


class _ArrowImages(StoredImages):
    """The images in Arrow or Parquet files; the episode that was read last stays in memory."""

    def __init__(self, folder: Path, kind: str, names: Mapping[str, Leaf]) -> None:
        self._folder, self._kind = folder, kind
        self._shapes = {name: leaf.image for name, leaf in names.items()}
        self._lock = threading.Lock()
        self._last: tuple[int, ArrowEpisode] | None = None
        episodes = {int(path.name): path for path in folder.iterdir() if path.name.isdecimal() and len(path.name) < 10}
        lengths = {number: self._length(number, path) for number, path in episodes.items()}
        super().__init__(folder, {
            leaf.camera: {number: [Part(f"{number}/{name}", 0, length)] for number, length in lengths.items() if length}
            for name, leaf in names.items()
        })  # fmt: skip

    def _length(self, number: int, path: Path) -> int:
        """Return the number of an episode's frames; 0 if its description does not say."""
        about = path / META
        steps = read_mapping(about).get("total_steps") if about.is_file() else None
        return 1 + whole_number(steps, f"{about}: total_steps", 1, 10**9) if steps is not None else 0

    def _stored(self, part: Part, offset: int, where: str) -> np.ndarray | bytes:
        number, _, name = part.name.partition("/")
        with self._lock:
            if self._last is None or self._last[0] != int(number):
                self._last = (int(number), arrow_episode(self._folder / number, self._kind, {}))
            episode = self._last[1]
        return episode.image(name, offset, self._shapes[name])


class _Reader:
    """Reads one data set."""

    def __init__(self, root: Path, folder: Path, meta: JsonObject) -> None:
        self._root, self._folder, self._meta = root, folder, meta
        self._notes: list[str] = []
        self._filmed = False
        self._format = str(meta.get("data_format", "hdf5"))
        self._ours = OURS in meta and self._format == "hdf5"
        self._leaves = {kind: self._parts(kind) for kind in ("observation", "action")}
        self._layout = self._layout_of()

    def table(self) -> Table:
        where = f"{self._folder / META}: total_episodes"
        count = whole_number(self._meta.get("total_episodes"), where, 0, 10**9)
        if self._format == "hdf5":
            with open_hdf5(self._folder / DATA) as file:
                names = [match[1] for match in map(_EPISODE.fullmatch, file) if match]
                return self._table(count, names, partial(_stored, file))
        names = [path.name for path in self._folder.iterdir() if path.name.isdecimal()]
        return self._table(
            count, names, lambda number: arrow_episode(self._folder / str(number), self._format, self._leaves)
        )

    def _table(self, count: int, names: list[str], group_of: Callable[[int], Any]) -> Table:
        """Read the episodes that are there; those that the header promises beyond them cost no time."""
        numbers = sorted(int(name) for name in names if len(name) < 10 and int(name) < count)
        spool, infos, damaged = EpisodeSpool(self._layout), [], []
        for number in numbers:
            try:
                rows, info = self._episode(group_of(number), number)
            except SourceError as error:
                damaged.append(str(error))
                continue
            spool.add(rows)
            infos.append(info)
        if count > len(numbers):
            self._notes.insert(0, f"{META} says {count} episodes, {len(numbers)} are there; the others are missing")
        loose = sum(info["end"] == "unknown" for info in infos)
        if loose:
            self._notes.append(f"{loose} of {len(infos)} episodes end without a flag; they count as truncated")
        notes = [*left_out(self._root, damaged, len(infos)), *self._notes]
        return spool.table(infos, str(self._root), notes, open_minari_images)

    def _parts(self, kind: str) -> list[Leaf]:
        where = f"{self._folder / META}: {kind}_space"
        text = self._meta.get(f"{kind}_space")
        if not isinstance(text, str):
            raise SourceError(f"{where} is missing; open it once with Minari and write it anew")
        leaves = leaves_of(text, kind, where)
        if self._ours:  # the fields are known from our own layout
            leaves = [leaf for leaf in leaves if len(leaf.path) < 2]
        shown = kind == "observation"
        self._filmed = self._filmed or (shown and any(leaf.image for leaf in leaves))
        left = ["/".join(leaf.path) or kind for leaf in leaves if leaf.field is None and not (shown and leaf.image)]
        if left and not self._ours:
            self._notes.append(f"a frame row has no place for {kind} {', '.join(left)}")
        return leaves

    def _layout_of(self) -> FrameLayout:
        if self._ours:
            try:
                return FrameLayout.from_dict(self._meta[OURS])
            except (RobotError, KeyError, TypeError, ValueError, AttributeError) as error:
                raise SourceError(f"{self._folder / META}: {OURS} can't be read: {error!r:.200}") from error
        self._notes.append("no time was recorded; the stamps count frames as seconds")
        specs = [Spec(kind, tuple(x.field for x in leaves if x.field)) for kind, leaves in self._leaves.items()]
        if not len(specs[1]) or not (len(specs[0]) or self._filmed):
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
        end = "terminated" if terminated else "truncated" if truncated else "unknown"
        rows = rows_of(
            self._layout,
            number,
            self._group(group, "observation", self._layout.observation, count + 1),
            self._group(group, "action", self._layout.action, count),
            reward,
            (terminated, truncated or not terminated),
            np.arange(count + 1) * 10**9,
        )
        info: JsonDict = {"episode": number, "end": end}
        if isinstance(seed := group.attrs.get("seed"), int | np.integer):
            info["seed"] = int(seed)
        if self._ours:
            self._fill(rows, member(group, "infos"))
            info |= read_json(group, OURS) or {}
        return rows, info

    def _fill(self, rows: np.ndarray, infos: Hdf5Group) -> None:
        for name in HELD:
            rows[name] = read_numbers(infos, name, (len(rows),))
        for prefix, spec in zip(PREFIXES[2:], (self._layout.applied, self._layout.sensors), strict=True):
            for field in spec:
                name = f"{prefix}_{field.name}"
                rows[name] = read_numbers(infos, f"{prefix}/{field.name}", (len(rows), *field.shape))


def _stored(file: Hdf5Group, number: int) -> Any:
    group = member(file, f"episode_{number}")
    if not hasattr(group, "keys"):
        raise SourceError(f"{file.filename} has no episode_{number}")
    return group


MINARI = Format(
    "minari", is_minari, load_minari, write_minari, True, open_minari_images,
    candidates=lambda folder: (mark.parents[1] for mark in folder.rglob(f"data/{META}")),
    looks="data/metadata.json (Minari)",
)  # fmt: skip
