"""Read the replay buffers of Diffusion Policy and UMI: a zarr group in a folder or a zip file.

``data/<name>`` has all frames of all episodes, (sum of T, ...), and ``meta/episode_ends`` the number of frames up to
the end of each episode. Frame t holds the observation and the action chosen there. UMI records no actions: its training
takes the pose and the gripper's width of each frame. Here the action that led to a frame is that frame's pose and
width, so none is left out. Layout: ``diffusion_policy/common/replay_buffer.py`` and
``diffusion_policy/common/sampler.py`` of both projects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from hal import Field, SourceError, Spec
from recorder.formats.registry import Format
from recorder.formats.runs import field_name, field_names
from recorder.frame_layout import FrameLayout
from recorder.table.table import ImageSource, Table
from rlenv_formats.foreign import ONE_COLUMN, checked_columns, chosen_episodes, listed, stamps_of
from rlenv_formats.hdf5 import as_field
from rlenv_formats.paired_steps import PairedSteps
from rlenv_formats.stored_images import Part, StoredImages, is_image_shape
from rlenv_formats.time_stamps import counted_stamps
from rlenv_formats.zarr_arrays import ZARR_JSON, ZARRAY, ZIP, ZarrArray, open_arrays, zip_names

__all__ = ["ZARR", "is_replay_buffer", "load_replay_buffer", "open_replay_buffer_images"]

_ENDS = "meta/episode_ends"
_MARKS = (ZARRAY, ZARR_JSON)
_USUAL = {
    "action": "action", "actions": "action", "reward": "reward", "rewards": "reward", "timestamp": "time",
    "timestamps": "time",
}  # fmt: skip
_IMAGE = re.compile(r"im(g|age)|rgb|cam|colou?r", re.IGNORECASE)
_SMALLEST = 8
"""Smallest height and width at which an array of bytes with a channel axis counts as an image."""
_WIDEST = 1 << 16
"""Most numbers a frame of an array that is read without being named, such as a point cloud."""
_POSE = ("eef_pos", "eef_rot_axis_angle", "gripper_width")
"""The arrays of one of UMI's robots that are its action, in the order of UMI's training."""

Columns = Mapping[str, tuple[ZarrArray, ...]]
"""Our name -> the arrays that form the field."""


@dataclass(frozen=True)
class _Buffer:
    """The arrays of a replay buffer.

    Attributes:
        path: the folder or file.
        ends: number of frames up to the end of each episode, (E,).
        arrays: name below ``data`` -> array.
        notes: a sentence about each array that can't be read.
    """

    path: Path
    ends: np.ndarray
    arrays: Mapping[str, ZarrArray]
    notes: tuple[str, ...]

    def cameras(self) -> dict[str, str]:
        """Return the camera of each array of images, by the array's name."""
        return field_names(name for name, array in self.arrays.items() if _is_images(name, array))

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Yield the number of each episode with its first frame and the one behind its last."""
        begins = np.concatenate([[0], self.ends[:-1]]).tolist()
        yield from zip(range(len(self.ends)), begins, self.ends.tolist(), strict=True)


def is_replay_buffer(path: Path | str) -> bool:
    """Return whether a folder or a zip file looks like a replay buffer."""
    path = Path(path)
    if path.is_dir():
        return any((path / _ENDS / mark).is_file() for mark in _MARKS)
    return path.suffix == ZIP and any(f"{_ENDS}/{mark}" in zip_names(path) for mark in _MARKS)


def _is_images(name: str, array: ZarrArray) -> bool:
    shape = array.shape[1:]
    kind = array.dtype == np.uint8 or (array.dtype.kind == "f" and _IMAGE.search(name) is not None)
    return kind and len(shape) == 3 and is_image_shape(shape, _SMALLEST)


def _open(path: Path) -> _Buffer:
    opened = open_arrays(path)
    ends = opened.get(_ENDS)
    if not isinstance(ends, ZarrArray):
        raise SourceError(f"{path} is not a replay buffer: {ends or f'{_ENDS} is missing'}")
    if len(ends.shape) != 1 or ends.dtype.kind not in "iu":
        raise SourceError(f"{ends.where} is {ends.dtype} of shape {ends.shape}, expected whole numbers, (episodes,)")
    ends.check_size()
    values = ends.read(0, len(ends)).astype(np.int64)
    if not len(values) or ends.absent or (np.diff(values, prepend=0) <= 0).any():
        raise SourceError(f"{ends.where} does not rise from above 0; fetch the data set again")
    data = {name.removeprefix("data/"): one for name, one in opened.items() if name.startswith("data/")}
    return _Buffer(
        path, values, {name: one for name, one in data.items() if isinstance(one, ZarrArray)},
        tuple(f"data/{name} is left out: {one}" for name, one in data.items() if isinstance(one, SourceError)),
    )  # fmt: skip


def load_replay_buffer(
    path: Path | str,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    keep_last: bool = False,
    episodes: Sequence[int] | None = None,
    rate_hz: float | None = None,
) -> Table:
    """Read a replay buffer.

    ``action`` becomes the action ``target``, ``reward`` the reward, ``timestamp`` the time in seconds, arrays of images
    become cameras, and each other array of numbers is an observation of its name.

    Args:
        path: the folder with ``data`` and ``meta``, or its zip file.
        columns: our name -> the names of arrays that form it side by side, such as ``{"action": "actions",
            "observation.state": ["arm", "hand"]}``. Our names are observation.<name>, action, action.<name>, reward,
            terminated, truncated and time.
        keep_last: whether an episode's last action also becomes a row, for imitation; the row repeats the last
            observation.
        episodes: numbers of the episodes to read; None reads all.
        rate_hz: frames a second, if the buffer has no ``timestamp``; None counts frames as seconds, with a note.

    Raises:
        SourceError: the path is not a replay buffer, the rate is out of range, no episode can be read, columns name
            arrays that do not exist, or numcodecs is not installed.
    """
    buffer = _open(Path(path))
    names, notes = _named(buffer, columns or {})
    reader = _Reader(buffer, names, rate_hz)
    episodes_read = PairedSteps(buffer.path, reader.layout, keep_last)
    chosen = chosen_episodes(buffer.path, episodes, len(buffer.ends))
    for number, begin, stop in buffer.spans():
        if number not in chosen:
            continue
        try:
            reader.add(episodes_read, number, begin, stop)
        except SourceError as error:
            episodes_read.damaged(error)
    notes = [*reader.notes(), *notes, *buffer.notes]
    return episodes_read.table(notes, "what followed the last action was not recorded", open_replay_buffer_images)


def _named(buffer: _Buffer, columns: Mapping[str, str | Sequence[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """Return our name -> the names of its arrays, and notes on those that are left out."""
    names = checked_columns(buffer.path, columns, buffer.arrays)
    taken, notes, cameras = {one for some in names.values() for one in some}, [], buffer.cameras()
    for name, array in buffer.arrays.items():
        ours = _USUAL.get(name, f"observation.{name}")
        if name in taken or name in cameras:
            continue
        if ours in names or prod(array.shape[1:]) > _WIDEST:
            wide = f"; with {prod(array.shape[1:])} numbers a frame it is read by its name alone: columns="
            notes.append(f"data/{name} is left out{'' if ours in names else wide}")
            continue
        names[ours] = [name]
    return names, notes


class _Reader:
    """Reads episodes of a buffer into rows."""

    def __init__(self, buffer: _Buffer, names: Mapping[str, Sequence[str]], rate_hz: float | None) -> None:
        counted_stamps(0, rate_hz)
        self._rate_hz = rate_hz
        self._columns: Columns = {ours: tuple(buffer.arrays[one] for one in some) for ours, some in names.items()}
        self._observed, self._acted = (
            field_names(ours for ours in names if ours.startswith(part)) for part in ("observation.", "action")
        )
        self._poses = () if self._acted else tuple(_poses(buffer.arrays))
        self._images = [buffer.arrays[name] for name in buffer.cameras()]
        if not self._acted and not self._poses:
            raise SourceError(
                f"{buffer.path} has no action, it has {listed(buffer.arrays, 30)}; name it: "
                "columns={'action': 'actions'}"
            )
        if not self._observed and not self._images:
            raise SourceError(f"{buffer.path} has no observation, it has {listed(buffer.arrays, 30)}")
        for array in (*(one for some in self._columns.values() for one in some), *self._poses):
            array.check_size()
        self._stated = [one for ours, some in self._columns.items() if ours in ONE_COLUMN for one in some]
        if wrong := [one for one in self._stated if prod(one.shape[1:]) != 1]:
            raise SourceError(f"{wrong[0].where} has the shape {wrong[0].shape}, expected one number a frame")
        self._spare = max(len(one) for one in buffer.arrays.values()) - int(buffer.ends[-1])
        observed = (self._field(ours, ours.partition(".")[2], "as in the zarr data set") for ours in self._observed)
        if self._poses:
            said = f"{', '.join(one.name.removeprefix('data/') for one in self._poses)} of the frame that follows"
            acted: Iterable[Field] = (as_field("target", _joined(self._poses), said),)
        else:
            acted = (
                self._field(ours, ours.partition(".")[2] or "target", "as in the zarr data set") for ours in self._acted
            )
        self.layout = FrameLayout(Spec("observation", tuple(observed)), Spec("action", tuple(acted)))

    def _field(self, ours: str, name: str, meaning: str) -> Field:
        return as_field(field_name(name), _joined(self._columns[ours]), meaning)

    def add(self, episodes: PairedSteps, number: int, begin: int, stop: int) -> None:
        """Add an episode, which has the frames from ``begin`` to before ``stop``.

        Raises:
            SourceError: it can't be read.
        """
        observation = self._values(self._observed, begin, stop)
        if self._poses:
            action = {"target": _read(self._poses, begin, stop)[1:]}
            count = stop - begin - 1
        else:
            action, count = self._values(self._acted, begin, stop), stop - begin
        reward = (
            self._one("reward", begin, stop).astype(np.float64)
            if "reward" in self._columns
            else np.full(stop - begin, np.nan)
        )
        ends = [bool(self._one(name, stop - 1, stop)[0]) if name in self._columns else False
                for name in ("terminated", "truncated")]  # fmt: skip
        timed = "time" in self._columns
        stamps = stamps_of(self._one("time", begin, stop)) if timed else counted_stamps(stop - begin, self._rate_hz)
        episodes.add(number, observation, action, reward[:count], (ends[0], ends[1]), stamps, {})

    def _values(self, names: Mapping[str, str], begin: int, stop: int) -> dict[str, np.ndarray]:
        parts = {ours: field_name(ours.partition(".")[2] or "target") for ours in names}
        return {parts[ours]: _read(self._columns[ours], begin, stop) for ours in names}

    def _one(self, name: str, begin: int, stop: int) -> np.ndarray:
        return _read(self._columns[name], begin, stop).reshape(stop - begin)

    def notes(self) -> list[str]:
        """Return a sentence about each thing that a user must know."""
        notes = []
        if "time" not in self._columns and self._rate_hz is None:
            notes.append("no time was recorded; the stamps count frames as seconds (rate_hz= sets the frames a second)")
        if self._poses:
            notes.append("no actions were recorded; the pose and the gripper's width of the next frame are the action")
        if self._spare > 0:
            notes.append(f"the last {self._spare} frames belong to no episode and are left out")
        used = (one for some in self._columns.values() for one in some)
        for array in dict.fromkeys((*used, *self._poses, *self._images)):
            if absent := array.absent:
                notes.append(f"{absent} chunks of {array.name} are missing; by zarr's rule {array.fill} stands in each")
        return notes


def _poses(arrays: Mapping[str, ZarrArray]) -> Iterator[ZarrArray]:
    robots = sorted(name.partition("_")[0] for name in arrays if re.fullmatch(r"robot\d+_eef_pos", name))
    for robot in robots:
        yield from (arrays[name] for part in _POSE if (name := f"{robot}_{part}") in arrays)


def _joined(arrays: Sequence[ZarrArray]) -> SimpleNamespace | ZarrArray:
    """Return the type and shape of arrays side by side."""
    if len(arrays) == 1:
        return arrays[0]
    width = sum(prod(one.shape[1:]) for one in arrays)
    return SimpleNamespace(dtype=np.result_type(*(one.dtype for one in arrays)), shape=(len(arrays[0]), width))


def _read(arrays: Sequence[ZarrArray], begin: int, stop: int) -> np.ndarray:
    """Return the values of arrays side by side, from one frame to before another."""
    for one in arrays:
        if stop > len(one):
            raise SourceError(f"{one.where} has {len(one)} frames, an episode ends at {stop}; fetch the data set again")
    parts = [one.read(begin, stop) for one in arrays]
    return parts[0] if len(parts) == 1 else np.concatenate([part.reshape(stop - begin, -1) for part in parts], axis=1)


# -- Images --------------------------------------------------------------------------------------------------


def open_replay_buffer_images(path: Path) -> ImageSource | None:
    """Open a replay buffer's images, or return None if it has none.

    Raises:
        SourceError: the buffer can't be read.
    """
    buffer = _open(path)
    cameras = buffer.cameras()
    return _Images(buffer, cameras) if cameras else None


class _Images(StoredImages):
    """The images in arrays, of which one chunk each stays in memory."""

    def __init__(self, buffer: _Buffer, cameras: Mapping[str, str]) -> None:
        self._arrays = {name: buffer.arrays[name] for name in cameras}
        spans = list(buffer.spans())
        super().__init__(buffer.path, {
            camera: {
                number: [Part(name, begin, stop - begin)] for number, begin, stop in spans
                if stop <= len(self._arrays[name])
            }
            for name, camera in cameras.items()
        })  # fmt: skip

    def _stored(self, part: Part, offset: int, where: str) -> np.ndarray:
        image = self._arrays[part.name].read(part.first + offset, part.first + offset + 1)[0]
        if image.dtype == np.uint8:
            return image
        pixels = image.astype(np.uint8)
        if not (pixels == image).all():
            raise SourceError(f"{where} has {image.dtype} numbers, expected whole ones from 0 to 255, as in bytes")
        return pixels


def _advice(path: Path) -> str | None:
    if path.name.endswith(f".zarr{ZIP}") and not zip_names(path):
        return "is no zip file, or damaged; fetch it again"
    if path.suffix == ZIP and any(name.endswith(f"{_ENDS}/{mark}") for name in zip_names(path) for mark in _MARKS):
        return "is packed; unpack it, and open the folder in it that holds data and meta"
    if path.is_dir() and any((path / mark).is_file() for mark in (*_MARKS, ".zgroup")):
        return (
            f"is zarr without {_ENDS}, by which replay buffers of Diffusion Policy are read; write that array: the "
            "number of frames up to the end of each episode, with all frames in arrays below data"
        )
    return None


def _candidates(folder: Path) -> Iterator[Path]:
    yield from (mark.parents[1] for mark in folder.rglob(_ENDS))
    yield from folder.rglob(f"*{ZIP}")


ZARR = Format(
    "zarr", is_replay_buffer, load_replay_buffer, open_images=open_replay_buffer_images, candidates=_candidates,
    options=("columns", "keep_last", "episodes", "rate_hz"), advice=_advice,
    looks=f"data and {_ENDS} (zarr of Diffusion Policy or UMI, or its .zip)",
)  # fmt: skip
