"""Read what the page shows of an episode: thumbnails, frames and curves."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hal import RobotError, SourceError
from recorder.figures.plot import pick_lines
from recorder.formats.registry import Format, recognised
from recorder.frame_layout import reward_field
from recorder.json_data import JsonDict
from recorder.log.image_codec import opencv
from recorder.set_files import set_stamp
from recorder.table.table import MISSING, ImageSource, Table
from rlenv_data_browser.tile_cache import TileCache, images_stamp
from rlenv_robot.data.folder import read_folder

__all__ = ["THUMBNAILS", "EpisodeReader"]

THUMBNAILS = 12
"""Largest number of thumbnails of a camera."""
_POINTS = 60
"""Largest number of points of a curve in a tile."""
_WIDTH, _TALLEST = 160, 160
"""Width of a thumbnail and largest height, pixels."""
_QUALITY = 72
_OPEN_SETS, _OPEN_BLOCKS = 24, 64
_BLOCK, _LARGER, _LONG_S = 16, 16, 1.0
"""Episodes that are read at once of a data set whose format can read some of them; how many times more after a reading
that took longer than this, in seconds, since then most of the time goes into the description of all episodes."""
_MOST_CAMERAS, _MOST_EPISODES = 16, 1 << 31
_MOST_STORED = 100_000
"""Largest size, bytes, up to which an image is sent as it was recorded, since encoding it again takes longer."""


class _Episode(NamedTuple):
    """An episode's rows, and the set that it lies in."""

    rows: np.ndarray
    table: Table
    position: int
    data_set: _Set


class _Set:
    """One run or data set, opened on first use."""

    def __init__(self, path: Path, options: Mapping[str, object]) -> None:
        self._path, self._options = path, options
        self._lock = threading.Lock()
        self._blocks: OrderedDict[range, Table] = OrderedDict()
        self._block_size = _BLOCK
        self._source: ImageSource | None = None
        self._has_source = False

    @cached_property
    def identity(self) -> str:
        """A text that differs once a file of the set has changed, or the way in which it is read."""
        text = f"1\0{self._path}\0{set_stamp(self._path)}\0{images_stamp(self._path)}\0{sorted(self._options.items())}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @cached_property
    def _format(self) -> Format | None:
        """The set's format; None for a run."""
        return recognised(self._path)

    def episode(self, mark: str) -> _Episode:
        """Return an episode by its number, with ``.`` and the number of its part if it is not the first one.

        Raises:
            SourceError: it can't be read.
            RobotError: another error of reading.
        """
        first, _, part = mark.partition(".")
        number = int(first)
        with self._lock:
            block = next((one for one in self._blocks if number in one), None)
            if block is None:
                block, table = self._read_block(number)
                self._blocks[block] = table
            table = self._blocks[block]
            self._blocks.move_to_end(block)
            while len(self._blocks) > _OPEN_BLOCKS:
                self._blocks.popitem(last=False)
        parts = [at for at, info in enumerate(table.episodes) if int(info.get("episode", at)) == number]
        if len(parts) <= int(part or 0):
            why = f": {table.notes[0]}" if table.notes else ""
            raise SourceError(f"{self._path} has no episode {mark} that can be read{why}")
        index = parts[int(part or 0)]
        return _Episode(table.rows[table.starts[index] : table.stops[index]], table, index, self)

    def _read_block(self, number: int) -> tuple[range, Table]:
        """Return the episodes around one, and their numbers."""
        if self._format is None:
            return range(_MOST_EPISODES), read_folder(self._path)
        options = {name: value for name, value in self._options.items() if name in self._format.options}
        if "episodes" not in self._format.options:
            return range(_MOST_EPISODES), self._format.read(self._path, labels=False, **options)
        begin, begun_s = number - number % self._block_size, time.monotonic()
        block = range(begin, begin + self._block_size)
        try:
            table = self._format.read(self._path, labels=False, episodes=block, **options)
        except RobotError:  # some of these do not exist, or can't be read
            block = range(number, number + 1)
            table = self._format.read(self._path, labels=False, episodes=block, **options)
        if time.monotonic() - begun_s > _LONG_S:
            self._block_size *= _LARGER
        return block, table

    def source(self, table: Table) -> ImageSource | None:
        """Return the images of the set, or None if it has none.

        Raises:
            RobotError: they can't be opened.
        """
        from recorder.images.sources import ImageSources

        with self._lock:
            if not self._has_source:
                sources = ImageSources(table)
                self._source = sources.at(sources.where(0))
                self._has_source = True
        return self._source


class EpisodeReader:
    """Thumbnails, frames and curves of the episodes of any number of data sets. Any thread may call the methods.

    Args:
        options: options for reading another project's data sets, as `rlenv_robot.open_source` takes them.
        cache: keeps tiles.
    """

    def __init__(self, options: Mapping[str, object], cache: TileCache) -> None:
        self._options = {name: value for name, value in options.items() if value is not None}
        self._cache, self._lock = cache, threading.Lock()
        self._sets: OrderedDict[str, _Set] = OrderedDict()
        self._cv2 = opencv("drawing thumbnails")

    def tile(self, path: str, mark: str) -> bytes:
        """Return what the grid shows of an episode: a line of JSON, and the thumbnails as one JPEG image.

        The JSON has what `curves` returns, ``columns``, the number of thumbnails of each camera, evenly from the first
        frame to the last one, and ``strips``: for each camera its name, the height of its row of thumbnails in the
        image, pixels, and why it has none, or an empty text.

        Raises:
            RobotError: the episode can't be read.
        """
        data_set = self._set(path)
        identity = data_set.identity
        cached = self._cache.get(identity, mark)
        if cached is not None:
            return cached
        episode = data_set.episode(mark)
        frames = np.unique(np.linspace(0, max(len(episode.rows) - 1, 0), THUMBNAILS).round().astype(int))
        strips = [self._strip(camera, episode, frames) for camera in _cameras(episode)]
        head = _curves(episode, _POINTS)
        head |= {"columns": len(frames), "strips": [(name, len(strip), problem) for name, strip, problem in strips]}
        jpeg = self._jpeg(np.concatenate([strip for _, strip, _ in strips]), _QUALITY) if strips else b""
        tile = json.dumps(head, separators=(",", ":")).encode() + b"\n" + jpeg
        if not any(problem for _, _, problem in strips):  # a missing video may come later
            self._cache.put(identity, mark, tile)
        return tile

    def _strip(self, camera: _Camera, episode: _Episode, frames: np.ndarray) -> tuple[str, np.ndarray, str]:
        """Return name, strip of thumbnails and problem of a camera."""
        cells: list[np.ndarray | None] = []
        problem = camera.problem
        try:
            cells = [] if problem else [self._fitted(image) for image in camera.images(episode.rows, frames)]
        except RobotError as error:
            problem = str(error)
        shown = [cell for cell in cells if cell is not None]
        if not problem and not shown:
            problem = "no image belongs to these frames"
        height = shown[0].shape[0] if shown and not problem else _WIDTH * 3 // 4
        strip = np.full((height, _WIDTH * len(frames), 3), 128, np.uint8)
        for at, cell in enumerate(cells if not problem else []):
            if cell is not None:
                cell = cell if cell.shape[0] == height else self._cv2.resize(cell, (cell.shape[1], height))
                left = at * _WIDTH + (_WIDTH - cell.shape[1]) // 2
                strip[:, left : left + cell.shape[1]] = cell
        return camera.name, strip, problem

    def _fitted(self, image: np.ndarray | None) -> np.ndarray | None:
        if image is None:
            return None
        scale = min(_WIDTH / image.shape[1], _TALLEST / image.shape[0])
        size = max(round(image.shape[1] * scale), 1), max(round(image.shape[0] * scale), 1)
        return np.asarray(self._cv2.resize(image, size, interpolation=self._cv2.INTER_AREA))

    def frames(self, path: str, mark: str, camera: str, frames: Sequence[int], width: int) -> list[bytes]:
        """Return images of a camera as JPEG; empty bytes for a frame without an image.

        Args:
            path: the data set.
            mark: the episode's number, as in the index's keys.
            camera: the camera's name.
            frames: numbers of frames, counted from 0 in the episode; those outside are left out.
            width: largest width, pixels.

        Raises:
            RobotError: the episode or an image can't be read, or there is no such camera.
        """
        episode = self._set(path).episode(mark)
        found = next((one for one in _cameras(episode) if one.name == camera), None)
        if found is None or found.problem:
            why = "" if found is None else f": {found.problem}"
            raise SourceError(f"{path} has no images of camera {camera!r} that can be read{why}")
        inside = np.array([frame for frame in frames if 0 <= frame < len(episode.rows)], int)
        stored = found.stored(episode.rows, inside)
        if stored and max(map(len, stored)) <= _MOST_STORED:
            return stored
        return [b"" if image is None else self._scaled(image, width) for image in found.images(episode.rows, inside)]

    def _scaled(self, image: np.ndarray, width: int) -> bytes:
        if image.shape[1] > width:
            size = width, max(round(image.shape[0] * width / image.shape[1]), 1)
            image = self._cv2.resize(image, size, interpolation=self._cv2.INTER_AREA)
        return self._jpeg(image, 82)

    def _jpeg(self, image: np.ndarray, quality: int) -> bytes:
        done, data = self._cv2.imencode(".jpg", image, [self._cv2.IMWRITE_JPEG_QUALITY, quality])
        if not done:
            raise SourceError("an image could not be encoded as JPEG")
        return bytes(data)

    def curves(self, path: str, mark: str, points: int) -> JsonDict:
        """Return measurements, goals and the reward of an episode, each reduced to at most ``points`` values.

        Returns:
            ``frames`` and ``seconds`` of the episode, ``cameras``, ``unit``, ``lines`` (each with ``name``,
            ``measured`` and ``goal``, a list or None), and ``reward`` (a list or None). Values that are not finite are
            None.

        Raises:
            RobotError: the episode can't be read.
        """
        return _curves(self._set(path).episode(mark), points)

    def _set(self, path: str) -> _Set:
        with self._lock:
            data_set = self._sets.pop(path, None) or _Set(Path(path), self._options)
            self._sets[path] = data_set
            while len(self._sets) > _OPEN_SETS:
                self._sets.popitem(last=False)
        return data_set


class _Camera:
    """A camera without images, and why: the base of cameras that have some."""

    def __init__(self, name: str, problem: str = "") -> None:
        self.name, self.problem = name, problem

    def images(self, rows: np.ndarray, frames: np.ndarray) -> Iterator[np.ndarray | None]:
        """Yield the image of each frame, BGR; None for a frame without one.

        Raises:
            RobotError: an image can't be read.
        """
        yield from ()

    def stored(self, rows: np.ndarray, frames: np.ndarray) -> list[bytes]:
        """Return the images as they were recorded, empty for a frame without one; empty if that is impossible."""
        return []


class _SourceCamera(_Camera):
    """A camera whose images lie beside the rows."""

    def __init__(self, name: str, source: ImageSource) -> None:
        super().__init__(name)
        self._source = source

    def images(self, rows: np.ndarray, frames: np.ndarray) -> Iterator[np.ndarray | None]:
        for number in self._numbers(rows, frames):
            yield None if number == MISSING else self._source.decode(self.name, number, False)

    def stored(self, rows: np.ndarray, frames: np.ndarray) -> list[bytes]:
        found = []
        for number in self._numbers(rows, frames):
            data = b"" if number == MISSING else self._source.stored(self.name, number)
            if data is None:
                return []
            found.append(bytes(data))
        return found

    def _numbers(self, rows: np.ndarray, frames: np.ndarray) -> list[int]:
        numbers: list[int] = self._source.numbers(self.name, np.asarray(rows).take(frames), "latest", np.inf).tolist()
        return numbers


class _RowCamera(_Camera):
    """A camera whose images are a field of the rows."""

    def __init__(self, name: str, field: str) -> None:
        super().__init__(name)
        self._field = field

    def images(self, rows: np.ndarray, frames: np.ndarray) -> Iterator[np.ndarray | None]:
        for frame in frames.tolist():
            yield np.ascontiguousarray(rows[self._field][frame][..., ::-1])


def _cameras(episode: _Episode) -> list[_Camera]:
    """Return the cameras beside the rows, then the images in the rows."""
    cameras: list[_Camera] = []
    try:
        source = episode.data_set.source(episode.table)
        if source is not None:
            cameras += [_SourceCamera(name, source) for name in source.cameras]
    except RobotError as error:
        cameras.append(_Camera("images", str(error)))
    known = {camera.name for camera in cameras}
    for field in episode.table.layout.spec:
        name = field.name.partition("_")[2].removesuffix("_image")
        is_image = field.dtype == "uint8" and len(field.shape) == 3 and field.shape[-1] == 3
        if is_image and field.name.startswith(("observation_", "sensor_")) and name not in known:
            known.add(name)
            cameras.append(_RowCamera(name, field.name))
    return cameras[:_MOST_CAMERAS]


def _line(values: np.ndarray | None, points: int) -> list[float | None] | None:
    """Return the values, or the least and the largest one of each part in their order, so that no spike is lost."""
    if values is None or not np.isfinite(values).any():
        return None
    values = np.asarray(values, np.float64)
    if len(values) > points:
        reduced: list[float] = []
        for part in np.array_split(values, max(points // 2, 1)):
            finite = part[np.isfinite(part)]
            if not len(finite):
                reduced += [np.nan, np.nan]
                continue
            edges = sorted((int(np.nanargmin(part)), int(np.nanargmax(part))))
            reduced += [part[edge] for edge in edges]
        values = np.array(reduced)
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values.tolist()]


def _curves(episode: _Episode, points: int) -> JsonDict:
    rows, layout = episode.rows, episode.table.layout
    lines: list[JsonDict] = []
    unit = ""
    try:
        picked = pick_lines(layout, rows)
        unit = "" if picked.field.unit == "1" else picked.field.unit
        for at, name in enumerate(picked.names):
            goal = None if picked.goal is None else np.append(np.nan, picked.goal[1:, at])  # row 0 has none
            lines.append({"name": name, "measured": _line(picked.measured[:, at], points), "goal": _line(goal, points)})
    except SourceError:  # nothing that can be drawn, as of texts
        pass
    reward = sum((rows[reward_field(agent)] for agent in layout.agents or ("",)), np.zeros(len(rows)))
    stamps = rows["stamp_ns"]
    return {
        "frames": len(rows),
        "seconds": (int(stamps[-1]) - int(stamps[0])) / 1e9 if len(rows) else 0.0,
        "cameras": [camera.name for camera in _cameras(episode)],
        "unit": unit, "lines": lines, "reward": _line(reward, points),
    }  # fmt: skip
