"""Read CSV, Parquet, JSON Lines, NumPy and HDF5 files of any layout, by a mapping from our names to their columns.

A mapping names the columns, or the data sets of an HDF5 or NumPy file, that stand for::

    observation.<name>   a column, or a list of columns side by side; at least one observation is required
    action, action.<name>   the same for actions; ``action`` alone becomes the action ``target``; optional
    reward, terminated, truncated   one column each; optional
    time                 rising times; optional. Two columns are whole seconds and nanoseconds
    episode              a column with the episode's number or name; in HDF5 also the groups of episodes, such as
                         ``data/*``, or ``*`` for the groups at the root. Without it each file is an episode

Columns of a text table without names are numbered from 0. ``state[2]`` and ``state[0:3]`` are parts of a column of
lists. Arrays of bytes in HDF5 that look like images become cameras.

With a robot, columns named after its fields must have its units, signs and zeros. Values far beyond a field's range are
refused, since they usually have another unit.

Row t holds the observation at t and the action chosen there, as in a LeRobot data set. If an HDF5 file has one more
observation than actions, the last observation follows the last action. Without actions the rows hold observations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hal import Field, SourceError, Spec
from recorder.formats.registry import Format
from recorder.formats.runs import EpisodeSpool, field_name, left_out, rows_of
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonDict
from recorder.table.table import ImageSource, Table, no_images
from rlenv_formats.hdf5 import as_field
from rlenv_formats.hdf5_cameras import CameraFinder, FileImages, FilePart
from rlenv_formats.recorded_robot import RecordedRobot
from rlenv_formats.table_files import SINGLE, SUFFIXES, Episode, FileEpisodes, natural
from rlenv_formats.time_stamps import UNITS, counted_stamps, guessed_unit, scatter_of, stamps_from
from rlenv_formats.unread_files import advice
from rlenv_robot.robot_models import RobotModel

__all__ = ["MAPPED", "TableOptions", "load_mapped", "read_files"]

_MEANING = "as in the mapped columns"
_JUMP = 1.5
"""A note counts the times between two rows that are longer than this many usual ones: rows may be missing there."""
_IRREGULAR = 0.1
"""A note tells of episodes in which the times between rows scatter by more than this share of the usual one."""
_SLOW_NS = 500_000_000
"""Usual time between rows, nanoseconds, above which a note tells of a guess of seconds too: 250 Hz in ms seem 4 s."""
_ONE = ("reward", "terminated", "truncated", "time", "episode")

_Cameras = dict[str, dict[int, list[FilePart]]]


@dataclass(frozen=True)
class TableOptions:
    """Options for reading tables.

    Attributes:
        keep_last: whether an episode's last action also becomes a row if the observation after it is unknown. That row
            repeats the last observation.
        time_unit: the unit of the column ``time``, one of `rlenv_formats.time_stamps.UNITS`; None guesses it.
        header: whether text tables name their columns; None looks at their first row.
        rate_hz: rows a second, if no column holds their time.
        swap_red_blue: whether encoded images hold blue where JPEG has red; None for those that ACT++ compressed.
    """

    keep_last: bool = False
    time_unit: str | None = None
    header: bool | None = None
    rate_hz: float | None = None
    swap_red_blue: bool | None = None

    def __post_init__(self) -> None:
        if self.time_unit is not None and self.time_unit not in UNITS:
            raise SourceError(f"time_unit is {self.time_unit!r}, allowed are {', '.join(UNITS)}")
        counted_stamps(0, self.rate_hz)


def load_mapped(
    path: Path | str,
    columns: Mapping[str, str | int | Sequence[str | int]] | None = None,
    robot: RobotModel | None = None,
    **options: object,
) -> Table:
    """Read a file, or a folder of files, by a mapping of names to columns.

    Args:
        path: a file, or a folder of files that end in one of `rlenv_formats.table_files.SUFFIXES`.
        columns: the mapping; see this module's description. A number is a column's number from 0.
        robot: the model of the robot that the columns describe, or None.
        options: the attributes of `TableOptions`.

    Raises:
        SourceError: the mapping is wrong, a column is missing, no episode can be read, or pyarrow or h5py is not
            installed.
    """
    path = Path(path)
    names = _checked(path, columns or {})
    files = [path]
    if not path.is_file():
        found = sorted((one for one in path.rglob("*") if one.suffix in (*SUFFIXES, *SINGLE)), key=natural)
        files = [one for one in found if one.suffix in SUFFIXES] or found
    if not files:
        raise SourceError(f"{path} holds no file ending in {', '.join(SUFFIXES)}")
    given: Any = options
    return read_files(path, files, names, TableOptions(**given), robot)


def read_files(
    path: Path,
    files: Iterable[Path],
    names: Mapping[str, tuple[str, ...]],
    options: TableOptions,
    robot: RobotModel | None = None,
) -> Table:
    """Read files by a checked mapping; see `load_mapped`.

    Args:
        path: the data set, for messages.
        files: its files, in order.
        names: our name -> the columns that form the field.
        options: how to read them.
        robot: see `load_mapped`.

    Raises:
        SourceError: no episode can be read.
    """
    finder = CameraFinder(options.swap_red_blue)
    found = FileEpisodes(names, options.header, finder)
    reader, damaged = _Reader(names, options, None if robot is None else RecordedRobot.of(robot)), []
    infos: list[JsonDict] = []
    for file in files:
        try:
            for episode in found.of(file):
                try:
                    rows, info = reader.episode(episode, len(infos))
                except SourceError as error:
                    damaged.append(f"{episode.where}: {error}" if episode.where not in str(error) else str(error))
                    continue
                reader.spool.add(rows)
                infos.append(info)
        except SourceError as error:
            damaged.append(f"{file}: {error}" if str(file) not in str(error) else str(error))
    lost = left_out(path, damaged, len(infos))
    opener = partial(_open_images, cameras=reader.cameras) if reader.cameras else no_images
    notes = [*lost, *found.notes(), *reader.notes(), *_without_images(reader.cameras, len(infos))]
    return reader.spool.table(infos, str(path), notes, opener)


def _without_images(cameras: _Cameras, episodes: int) -> list[str]:
    """Return a sentence for each camera that some of the episodes lack."""
    return [
        f"{episodes - len(parts)} of {episodes} episodes have no images of {camera}, as the others have"
        for camera, parts in cameras.items()
        if len(parts) < episodes
    ]


def _open_images(path: Path, cameras: _Cameras) -> ImageSource:
    return FileImages(path, cameras)


def _checked(path: Path, columns: Mapping[str, str | int | Sequence[str | int]]) -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {}
    for ours, theirs in columns.items():
        known = ours in _ONE or ours == "action" or ours.startswith(("observation.", "action."))
        if not known:
            raise SourceError(
                f"{path}: columns has the name {ours!r}, allowed are observation.<name>, action, action.<name>, "
                f"{', '.join(_ONE)}"
            )
        names[ours] = tuple(map(str, [theirs] if isinstance(theirs, str | int) else theirs))
        most = 2 if ours == "time" else 1
        if not names[ours] or (ours in _ONE and len(names[ours]) > most):
            raise SourceError(f"{path}: columns names {len(names[ours])} columns for {ours!r}, expected one")
    if not any(ours.startswith("observation.") for ours in names):
        raise SourceError(
            f"{path}: columns names no observation; expected, for example, "
            "columns={'observation.state': ['q1', 'q2'], 'action': ['u1', 'u2'], 'episode': 'episode'}"
        )
    return names


# -- Rows ----------------------------------------------------------------------------------------------------


class _Reader:
    """Makes rows of episodes; the first one that can be read says what the fields are."""

    def __init__(
        self, names: Mapping[str, tuple[str, ...]], options: TableOptions, robot: RecordedRobot | None
    ) -> None:
        self._names, self._options, self._robot = names, options, robot
        self._parts = {
            part: {ours: _name(ours) for ours in names if ours == part or ours.startswith(f"{part}.")}
            for part in ("observation", "action")
        }
        self._spool: EpisodeSpool | None = None
        self._layout: FrameLayout | None = None
        self._unit = options.time_unit
        self._left, self._repeated, self._continued, self._jumps = 0, 0, 0, 0
        self._irregular: list[tuple[float, float]] = []
        self._guessed: list[str] = []
        self.cameras: _Cameras = {}

    @property
    def spool(self) -> EpisodeSpool:
        assert self._spool is not None  # made with the first episode
        return self._spool

    def notes(self) -> list[str]:
        notes = list(self._guessed)
        if "time" not in self._names and self._options.rate_hz is None:
            notes.append("no time was named; the stamps count frames as seconds (rate_hz= sets the frames a second)")
        if not self._parts["action"]:
            notes.append("no action was named; the rows hold observations alone")
        if self._left:
            notes.append(
                f"in {self._left} episodes what followed the last action is unknown; that action is in the episode's "
                "info, not in the rows (keep_last=True makes it a row)"
            )
        if self._repeated:
            notes.append(f"in {self._repeated} episodes the last row repeats the observation before it")
        if self._continued:
            notes.append(
                f"in {self._continued} episodes terminated or truncated is set before the last row; these go on after "
                "it (name the column that tells episodes apart as episode)"
            )
        if self._irregular:
            share, usual_ms = max(self._irregular)
            notes.append(
                f"time is irregular in {len(self._irregular)} episodes: the times between rows scatter by up to "
                f"{share:.0%} of the usual {usual_ms:.4g} ms; each row keeps its time, and none is resampled, but a "
                "policy takes the rows as evenly spaced: where that is wrong, resample the table before"
            )
        if self._jumps:
            notes.append(f"time jumps in {self._jumps} places by over {_JUMP:g} usual steps; rows may be missing there")
        return notes

    def episode(self, source: Episode, number: int) -> tuple[np.ndarray, JsonDict]:
        """Return the rows of an episode, and what is known of it.

        Raises:
            SourceError: a column is missing, or has another shape than before.
        """
        where = source.where
        if self._layout is None:
            self._parts["observation"] = {
                ours: name for ours, name in self._parts["observation"].items() if ours not in source.images
            }
        observation, action = self._values(source, "observation"), self._values(source, "action")
        seen = len(next(iter(observation.values()))) if observation else self._only_images(source)
        steps = len(next(iter(action.values()))) if action else seen
        if not steps or seen not in (steps, steps + 1) or any(len(v) != seen for v in observation.values()):
            raise SourceError(f"{where} has {seen} observations and {steps} actions")
        cameras = source.cameras(seen)
        flags = {name: self._flag(source, name, steps) for name in ("terminated", "truncated")}
        terminated = bool(flags["terminated"][-1])
        repeat = bool(action) and seen == steps and (terminated or self._options.keep_last)
        if repeat:
            observation = {name: np.concatenate([value, value[-1:]]) for name, value in observation.items()}
        count = seen - 1 + repeat
        if count < 1:
            raise SourceError(f"{where} has a single observation, a step needs two")
        reward = self._one(source, "reward", steps) if "reward" in self._names else np.full(steps, np.nan)
        taken, stamp_ns = (
            {name: value[:count] for name, value in action.items()},
            self._stamps(source, steps, count + 1),
        )
        measured = None if self._robot is None else self._robot.measured(observation, taken, stamp_ns)
        layout = self._layout_for(observation, action, where, measured is not None)
        rows = rows_of(layout, number, observation, taken, reward[:count], (terminated, not terminated), stamp_ns)
        for name, value in (measured or {}).items():
            rows[name] = value
        self._continued += any(bool(flag[:-1].any()) for flag in flags.values())
        for name, images in cameras.items():
            last = replace(images, first=images.count - 1, count=1)
            self.cameras.setdefault(name, {})[number] = [images, last] if repeat and images.count == seen else [images]
        end = "done" if terminated else "truncated" if flags["truncated"][-1] else "end of recording"
        info: JsonDict = {"episode": number, "end": end, "file": where}
        if repeat:
            self._repeated += 1
            info["last_observation"] = "repeated"
        elif action and count < steps:
            self._left += 1
            info["last_action"] = {name: value[-1].tolist() for name, value in action.items()}
        return rows, info

    def _only_images(self, source: Episode) -> int:
        """Return the number of observations, if all of them are images."""
        return len(source.read(next(iter(source.images.values()))))

    def _values(self, source: Episode, part: str) -> dict[str, np.ndarray]:
        values = {}
        for ours, name in self._parts[part].items():
            columns = [source.read(theirs) for theirs in self._names[ours]]
            if len({len(column) if column.ndim else -1 for column in columns} - {-1}) != 1:
                raise SourceError(f"the columns of {ours} have no or different lengths")
            values[name] = (
                columns[0]
                if len(columns) == 1
                else np.concatenate([column.reshape(len(column), -1) for column in columns], axis=1)
            )
            if values[name].dtype.kind not in "fiub":
                raise SourceError(f"{ours} holds {values[name].dtype}, expected numbers; dates may only be the time")
            if self._robot is not None:
                self._robot.check(name, values[name])
        return values

    def _layout_for(
        self, observation: dict[str, np.ndarray], action: dict[str, np.ndarray], where: str, measured: bool
    ) -> FrameLayout:
        fields: list[tuple[Field, ...]] = [
            tuple(self._known(name) or as_field(name, value, _MEANING) for name, value in values.items())
            for values in (observation, action)
        ]
        if self._layout is None:
            named = [
                tuple(self._with_elements(part, field) for field in some)
                for part, some in zip(("observation", "action"), fields, strict=True)
            ]
            self._layout = FrameLayout(Spec("observation", named[0]), Spec("action", named[1]))
            if self._robot is not None and measured:
                robot = self._robot.spec
                self._layout = replace(self._layout, applied=robot.commands, sensors=robot.sensors)
            self._spool = EpisodeSpool(self._layout)
        for spec, values in ((self._layout.observation, observation), (self._layout.action, action)):
            for name, value in values.items():
                if value.shape[1:] != spec[name].shape:
                    raise SourceError(f"{where}: {name} has shape {value.shape[1:]}, it had {spec[name].shape} before")
        return self._layout

    def _known(self, name: str) -> Field | None:
        """Return the robot's field of a name, if it has one."""
        return None if self._robot is None else self._robot.fields.get(name)

    def _with_elements(self, part: str, field: Field) -> Field:
        """Name the elements after the columns that a vector was made of."""
        columns = next(self._names[ours] for ours, name in self._parts[part].items() if name == field.name)
        if self._known(field.name) is not None:
            return field
        if len(columns) < 2 or field.shape != (len(columns),):
            return field
        return Field(field.name, field.shape, field.dtype, meaning=field.meaning, elements=columns)

    def _one(self, source: Episode, name: str, count: int) -> np.ndarray:
        values = source.read(self._names[name][0])
        if values.shape != (count,):
            raise SourceError(f"{name} has shape {values.shape}, expected ({count},)")
        return values.astype(np.float64)

    def _flag(self, source: Episode, name: str, steps: int) -> np.ndarray:
        return self._one(source, name, steps) != 0 if name in self._names else np.zeros(steps, bool)

    def _stamps(self, source: Episode, steps: int, count: int) -> np.ndarray:
        if "time" not in self._names:
            return counted_stamps(count, self._options.rate_hz)
        columns = [source.read(theirs) for theirs in self._names["time"]]
        values = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        if len(values) not in (steps, steps + 1) or values.ndim != len(columns):
            raise SourceError(f"time has shape {values.shape}, expected ({steps},)")
        guess = self._unit is None and values.ndim == 1 and values.dtype.kind != "M"
        if guess:
            self._unit = guessed_unit(values[:count])
        stamps = stamps_from(values[:count], self._unit or "s")
        between = np.diff(stamps)
        if (scatter := scatter_of(stamps)) > _IRREGULAR:
            self._irregular.append((scatter, float(np.median(between)) / 1e6))
        usual = float(np.median(between)) if len(between) else 0.0
        if guess and (self._unit != "s" or usual > _SLOW_NS):
            self._guessed.append(
                f"time seems to be in {self._unit}, with a row every {usual / 1e9:.3g} s; otherwise give time_unit= "
                "(--time-unit)"
            )
        self._jumps += int(np.sum(between > max(_JUMP, 1 + 3 * scatter) * usual))
        if len(stamps) < count:
            period = int(np.median(np.diff(stamps))) if len(stamps) > 1 else 10**9
            stamps = np.append(stamps, stamps[-1] + period)
        return stamps


def _name(ours: str) -> str:
    return field_name(ours.partition(".")[2] or "target")


MAPPED = Format(
    "mapped",
    lambda path: False,
    load_mapped,
    options=("columns", "keep_last", "robot", "time_unit", "header", "rate_hz", "swap_red_blue"),
    open_images=no_images,
    advice=advice,
)
