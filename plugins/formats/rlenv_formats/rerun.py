"""Write a table for Rerun's viewer: a folder with one recording (``.rrd``) per episode, which can't be read back."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from hal import SourceError, Spec
from recorder.formats.images import Film, Filming
from recorder.formats.registry import Format
from recorder.formats.runs import Run, runs_of
from recorder.json_data import to_json
from recorder.table.table import Table
from rlenv_formats.atomic_write import atomic_write
from rlenv_formats.card import NAME, card_text

__all__ = ["RERUN", "write_rerun"]

_MOST_NUMBERS = 64
"""Most elements of a field that is drawn as lines."""

_LOAD = """
import rerun as rr

with rr.server.Server(datasets={"episodes": "FOLDER"}) as server:
    print(server.client().get_dataset("episodes").schema())
"""


def write_rerun(table: Table, path: Path | str, filming: Filming | None = None) -> list[str]:
    """Write a folder of recordings, ``episode_000000.rrd`` and so on, which ``rerun FOLDER/*.rrd`` opens.

    Entities: ``observation/<field>``, ``sensor/<field>``, ``action/<field>``, ``applied/<field>`` and ``reward``
    (scalars), ``cameras/<name>`` (encoded images), ``episode`` (its info as JSON). Timelines: ``frame`` and ``time``,
    from the first frame of the episode. An action is logged at the frame that follows it.

    Args:
        table: the table to write.
        path: the folder, which must not exist yet.
        filming: the choice of images; None for all.

    Returns:
        A sentence about each thing that was lost.

    Raises:
        SourceError: rerun-sdk is not installed, there is no step, the folder exists or can't be written, there is no
            such camera, or a camera's images differ in size.
        LogError: there are images, and OpenCV is not installed.
    """
    rr = _rerun_for(path)
    runs, notes = runs_of(table)
    if not runs:
        raise SourceError(f"{table.origin} has no step, so there is nothing to show")
    groups = ("observation", "sensor", "action", "applied")
    specs = (table.layout.observation, table.layout.sensors, table.layout.action, table.layout.applied)
    left_out = [field.name for spec in specs for field in spec if field.is_text or field.size > _MOST_NUMBERS]
    if left_out:
        notes.append(f"fields of texts or of more than {_MOST_NUMBERS} numbers are left out: {', '.join(left_out)}")
    with atomic_write(path, folder=True) as part, Film(table, filming) as film:
        for number, run in enumerate(runs):
            recording = rr.RecordingStream("rlenv-robot", recording_id=f"episode_{number:06d}")
            recording.save(part / f"episode_{number:06d}.rrd")
            recording.log("episode", rr.TextDocument(to_json(dict(run.info), "an episode")), static=True)
            for group, spec in zip(groups, specs, strict=True):
                _send_fields(rr, recording, group, spec, run)
            _send(rr, recording, "reward", run.came["reward"][:, None] if not table.layout.agents else _sum(run), run)
            for camera in film.cameras:
                images = film.encoded(run, camera)
                kinds = ["image/png" if image.startswith(b"\x89PNG") else "image/jpeg" for image in images]
                columns = rr.EncodedImage.columns(blob=images, media_type=kinds)
                recording.send_columns(f"cameras/{camera}", _times(rr, run, len(images)), columns)
            recording.flush()
            recording.disconnect()
        lost = notes + film.notes()
        (part / NAME).write_text(card_text(table, "Rerun", _LOAD, lost, ("rerun",)), encoding="utf-8")
    return lost


def _rerun_for(what: Path | str) -> ModuleType:
    try:
        import rerun
    except ImportError:
        raise SourceError(f"{what} needs rerun-sdk: pip install 'rlenv-robot[rerun]'") from None
    module: ModuleType = rerun
    return module


def _send_fields(rr: ModuleType, recording: Any, group: str, spec: Spec, run: Run) -> None:
    values = run.group(group, spec)
    for field in spec:
        if field.is_text or field.size > _MOST_NUMBERS or not field.size:
            continue
        names = [str(name) for name in field.elements] or [str(index) for index in range(field.size)]
        recording.log(f"{group}/{field.name}", rr.SeriesLines(names=names), static=True)
        _send(rr, recording, f"{group}/{field.name}", values[field.name], run)


def _send(rr: ModuleType, recording: Any, entity: str, values: np.ndarray, run: Run) -> None:
    """Send the values of a field, (n, ...), for the last n frames of a run."""
    flat = np.asarray(values, np.float64).reshape(len(values), -1)
    columns = rr.Scalars.columns(scalars=flat.ravel()).partition([flat.shape[1]] * len(flat))
    recording.send_columns(entity, _times(rr, run, len(flat)), columns)


def _sum(run: Run) -> np.ndarray:
    """Return the sum of the rewards of all agents, (T, 1)."""
    names = [name for name in run.came.dtype.names or () if name.startswith("reward_")]
    total: np.ndarray = np.sum([run.came[name] for name in names], axis=0)
    return total[:, None]


def _times(rr: ModuleType, run: Run, count: int) -> list[object]:
    """Return the time columns of the last ``count`` frames of a run."""
    frames, seconds = np.arange(len(run.observed))[-count:], run.seconds[-count:]
    return [rr.TimeColumn("frame", sequence=frames), rr.TimeColumn("time", duration=seconds)]


def _refuse(path: Path, **_: object) -> NoReturn:
    raise SourceError(f"{path}: Rerun's recordings are only written; read the runs that they were exported from")


RERUN = Format("rerun", lambda path: False, _refuse, write_rerun, holds_images=True)
