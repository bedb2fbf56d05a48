"""Read ALOHA's HDF5 files, an episode each. Layout: https://github.com/tonyzhaozh/act and MarkFzp/act-plus-plus.

``observations/qpos``, further observations such as ``qvel`` and ``effort``, ``observations/images/<camera>`` and
``action`` have one row a frame; Mobile ALOHA adds ``base_action``. Files with the attribute ``compress`` hold padded
JPEG.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from hal import SourceError
from recorder.formats.registry import Format
from recorder.formats.runs import field_name
from recorder.table.table import Table, no_images
from rlenv_formats.hdf5 import data_sets, member, open_hdf5
from rlenv_formats.hdf5_cameras import is_image_data
from rlenv_formats.mapped import TableOptions, read_files
from rlenv_formats.table_files import HDF5, natural

__all__ = ["ALOHA", "RATE_HZ", "is_aloha", "load_aloha"]

RATE_HZ = 50.0
"""ALOHA's frames a second (``DT`` in its constants); its files hold no time."""

_TRIED = 5
"""Number of files in a folder that are looked at; some may be damaged."""


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix in HDF5 else []
    return sorted((file for file in path.iterdir() if file.suffix in HDF5), key=natural) if path.is_dir() else []


def is_aloha(path: Path) -> bool:
    """Return whether a path is an episode of ALOHA, or a folder with such files in it."""
    return any(map(_is_episode, _files(path)[:_TRIED]))


def _is_episode(file: Path) -> bool:
    try:
        with open_hdf5(file) as opened:
            return all(hasattr(member(opened, name), "dtype") for name in ("action", "observations/qpos"))
    except SourceError:
        return False


def load_aloha(
    path: Path | str, keep_last: bool = False, rate_hz: float | None = None, swap_red_blue: bool | None = None
) -> Table:
    """Read an episode, or a folder of episodes; each camera becomes one of the table.

    Args:
        path: a file, or a folder whose files are the episodes.
        keep_last: as in `rlenv_formats.mapped.TableOptions`.
        rate_hz: frames a second; None is ALOHA's 50.
        swap_red_blue: as in `rlenv_formats.mapped.TableOptions`.

    Raises:
        SourceError: no episode can be read, or h5py is not installed.
    """
    path = Path(path)
    files = _files(path)
    first = next(filter(_is_episode, files), None)
    if first is None:
        raise SourceError(f"{path} is no episode of ALOHA: it has no HDF5 file with action and observations/qpos")
    names, others = _names(first)
    others_of = [_names(file)[0] for file in files[:_TRIED] if file != first and _is_episode(file)]
    more = {path for some in others_of for path in _columns(some)}
    table = read_files(path, files, names, TableOptions(keep_last, None, None, rate_hz or RATE_HZ, swap_red_blue))
    notes = [] if rate_hz else ["no time is stored; the stamps count frames at ALOHA's 50 Hz (rate_hz= changes it)"]
    if unknown := sorted(more - _columns(names)):
        notes.append(f"left out: {', '.join(unknown)}, which {first.name} has not, as other files have")
    if others:
        notes.append(f"left out: {', '.join(others)}")
    return replace(table, notes=(*table.notes, *notes))


def _names(file: Path) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return our name -> the data sets of an episode, and those that belong to no field."""
    with open_hdf5(file) as opened:
        sets = data_sets(opened)
        count, others = len(sets["action"]), []
        names: dict[str, tuple[str, ...]] = {"action": ("action",)}
        for path, data in sets.items():
            parent, _, name = path.rpartition("/")
            numbers = data.dtype.kind in "fiub" and 1 <= data.ndim <= 2 and len(data) == count
            if path in ("action", "compress_len") or "images" in path.split("/") or is_image_data(data):
                continue
            if parent == "observations" and numbers:
                names[f"observation.{field_name(name)}"] = (path,)
            elif path == "base_action" and numbers:
                names["action.base"] = (path,)
            else:
                others.append(path)
    return names, others


def _columns(names: Mapping[str, tuple[str, ...]]) -> set[str]:
    return {path for some in names.values() for path in some}


def _candidates(folder: Path) -> Iterator[Path]:
    yield from {file.parent for suffix in HDF5 for file in folder.rglob(f"*{suffix}")}


ALOHA = Format(
    "aloha", is_aloha, load_aloha, open_images=no_images, candidates=_candidates,
    options=("keep_last", "rate_hz", "swap_red_blue"), looks="ALOHA's episode_0.hdf5",
)  # fmt: skip
