"""Read LeRobot data sets, v3.0, v2.1 and v2.0.

LeRobot stores pairs: the observation of frame t and the action chosen there. Our row n holds the action that led to
frame n and the observation there. LeRobot's T pairs therefore become T rows, and the action of pair t is in row t + 1,
with ``next.reward`` and ``next.done``. The observation after the last action of an episode was never recorded. If
``next.done`` says that the task ended there, a row with ``terminated`` is added that repeats the last observation: its
reward must not be lost, and the observation of a terminal row is not bootstrapped from. Otherwise the last action is
not in the rows but in the episode's info as ``last_action``, and the episode is truncated. Data sets that
`rlenv_formats.lerobot.write` wrote keep each episode's last observation; then nothing is repeated or left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hal import SourceError
from hal.robots.so101_units import JointUnits
from recorder.formats.registry import Format
from recorder.formats.runs import EpisodeSpool, left_out
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonDict
from recorder.table.table import Table
from rlenv_formats.foreign import listed
from rlenv_formats.lerobot import so101
from rlenv_formats.lerobot.features import BOOKKEEPING, INTERVENTION, LOG_PROBABILITY, Features, sort_features
from rlenv_formats.lerobot.files import Entry, LeRobotFiles, open_files
from rlenv_formats.lerobot.images import LeRobotImages, LeRobotVideos
from rlenv_formats.lerobot.write import write_lerobot
from rlenv_formats.parquet_columns import column

__all__ = ["LEROBOT", "describe_lerobot", "is_lerobot", "load_lerobot"]

Columns = dict[str, np.ndarray]

_LATEST_S = 9e9
"""Largest time stamp, seconds: about what int64 nanoseconds can hold."""


def is_lerobot(path: Path | str) -> bool:
    """Return whether a folder looks like a LeRobot data set."""
    return (Path(path) / "meta" / "info.json").is_file()


def load_lerobot(
    path: Path | str,
    units: str | None = None,
    calibration: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    episodes: Sequence[int] | None = None,
    keep_last: bool = False,
) -> Table:
    """Read a LeRobot data set.

    Observation and action keep the data set's units. For an SO-101 with known units, the rows also have the sensors and
    commands of `hal.robots.so101` in SI units, from which our tasks compute rewards. LeRobot stores no units, and a
    guess can be wrong by tens of degrees, so the units come from the arguments or from ``meta/rlenv_robot.json``, which
    ``rlenv-robot data units`` writes.

    Args:
        path: the folder with ``meta`` and ``data``.
        units: units of an SO-101's joints, ``degrees`` or ``percent``; None takes the data set's declaration.
        calibration: LeRobot's calibration file of the recording arm.
        columns: LeRobot's name -> this data set's name, such as ``{"observation.state": "state"}``.
        episodes: numbers of the episodes to read, as in the data set; None reads all.
        keep_last: whether an episode's last action also becomes a row, for imitation. That row repeats the last
            observation, since the one after the action was not recorded.

    Raises:
        SourceError: the folder is not a data set, has another version or no readable episode, or pyarrow is not
            installed.
        ValueError: the units are unknown, or the calibration can't be read.
    """
    given = None if units is None else so101.joint_units(units, calibration)
    return _Reader(open_files(Path(path), columns, episodes), given, calibration is not None, keep_last).table()


def describe_lerobot(
    path: Path | str, columns: Mapping[str, str] | None = None, keep_last: bool = False, **_: object
) -> list[JsonDict]:
    """Return the infos of a LeRobot data set's episodes from its description, as `load_lerobot` makes them.

    ``length`` is the number of rows that an episode has in the table. Of the rows only the columns with the ends of
    episodes are read, where the data set has such columns. An episode that can't be read is among them nevertheless.

    Args:
        path: as in `load_lerobot`, like the other options, of which those about units change nothing here.
        columns: as in `load_lerobot`.
        keep_last: as in `load_lerobot`.

    Raises:
        SourceError: the folder is not a data set, has another version or describes no episode.
    """
    files = open_files(Path(path), columns)
    features = sort_features(files.info["features"], str(files.root / "meta" / "info.json"))
    ends = [name for name in _ENDS if name in features.reserved]
    if not ends:
        return [_described(entry, {}, files, keep_last) for entry in files.entries]
    return [
        _described(entry, {} if isinstance(read, SourceError) else _ends(read, ends), files, keep_last)
        for entry, read in files.episodes(["episode_index", "frame_index", *ends])
    ]


def _ends(table: Any, names: Sequence[str]) -> Columns:
    """Return the columns with the end of an episode, in the order of its frames; none if one is damaged."""
    try:
        order = np.argsort(column(table, "frame_index", np.int64, (), ""), kind="stable")
        return {name: column(table, name, np.float64, (), "")[order] for name in names}
    except SourceError:
        return {}


_ENDS = ("next.done", "next.truncated", "next.success")


def _described(entry: Entry, columns: Columns, files: LeRobotFiles, keep_last: bool) -> JsonDict:
    info = _info_of_entry(entry, columns, files)
    rows = entry.length + (_ended(columns) or keep_last or _knows_last(entry))
    if _knows_last(entry):
        info |= _kept_info(entry)
    return info | {"end": info.get("end", _end_of(entry, columns)), "length": rows}


class _Reader:
    """Reads one data set, an episode at a time."""

    def __init__(self, files: LeRobotFiles, units: JointUnits | None, calibrated: bool, keep_last: bool) -> None:
        self._files, self._keep_last = files, keep_last
        self._features = sort_features(files.info["features"], str(files.root / "meta" / "info.json"))
        self._units, self._reason = _joint_units(files, self._features, units, calibrated)
        observation, action = self._features.specs
        layout = FrameLayout(observation, action)
        if self._units is not None:
            layout = FrameLayout(observation, action, applied=so101.COMMANDS, sensors=so101.SENSORS)
        self._layout = layout
        self._blank = _Blank(np.dtype(layout.spec.row_dtype), round(1e9 / files.fps), self._units, keep_last)
        self._damaged: list[str] = []

    @cached_property
    def _images(self) -> LeRobotImages:
        return LeRobotImages(self._files.root)

    def table(self) -> Table:
        infos: list[JsonDict] = []
        spool = EpisodeSpool(self._layout)
        for entry, read in self._files.episodes(self._features.columns):
            try:
                if isinstance(read, SourceError):
                    raise read
                columns = _columns(entry, read, self._features)
                self._check_units(columns)
                rows = _rows(entry, columns, self._features, self._blank)
                for feature in self._features.pictures:
                    self._images.fill(rows, feature)
                info = _info(entry, columns, self._features, self._files, self._keep_last)
                if self._units is not None:
                    info["joints"] = {"robot": "so101", **self._units.to_dict()}
            except _WrongUnits:
                raise
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                what = error if isinstance(error, SourceError) else f"{entry.file}, episode {entry.index}: {error!r}"
                self._damaged.append(str(what))
                continue
            spool.add(rows)
            infos.append(info)
        lost = left_out(self._files.root, self._damaged, len(infos))
        notes = [*lost, *self._files.notes, *_notes(self._files, self._features, infos), *self._reason]
        return spool.table(infos, str(self._files.root), notes, LeRobotImages)

    def _check_units(self, columns: Columns) -> None:
        known = self._units
        if known is not None and not so101.in_range(known, columns["observation.state"], columns["action"]):
            raise _WrongUnits(
                f"{self._files.root}: values lie beyond what {known.unit} can be; the unit must be another"
            )


class _WrongUnits(SourceError):
    """The units can't be true: an error of the whole data set, not of one episode."""


def _columns(entry: Entry, table: Any, features: Features) -> Columns:
    """Return the columns of one episode, in the order of its frames.

    Raises:
        SourceError: frames are missing or repeated, or stamps don't rise.
    """
    where = f"{entry.file}, episode {entry.index}"
    frames = column(table, "frame_index", np.int64, (), where)
    order = np.argsort(frames, kind="stable")
    if (frames[order] != np.arange(entry.length)).any():
        raise SourceError(f"{where}: frame_index is not 0 to {entry.length - 1}; fetch the data set again")
    stamps = column(table, "timestamp", np.float64, (), where)[order]
    if not (np.isfinite(stamps).all() and np.abs(stamps).max() < _LATEST_S):
        wrong = stamps[~(np.abs(stamps) < _LATEST_S)][0]
        raise SourceError(f"{where}: a timestamp is {wrong:g} s, expected seconds since its beginning; it is damaged")
    if (np.diff(stamps) <= 0).any():
        raise SourceError(f"{where}: timestamp does not rise from frame to frame; the recording is damaged")
    columns: Columns = {"timestamp": stamps}
    for feature in (*features.observation, *features.action):
        if feature.column not in columns:
            columns[feature.column] = column(table, feature.column, *feature.stored, where)[order]
    for name in features.reserved:
        columns[name] = column(table, name, np.float64, (), where)[order]
    return columns


def _ended(columns: Columns) -> bool:
    """Return whether the task itself ended after the last action."""
    done = columns.get("next.done")
    truncated = columns.get("next.truncated")
    return done is not None and bool(done[-1]) and not (truncated is not None and bool(truncated[-1]))


class _Blank(NamedTuple):
    """Properties of the rows: type, control period in nanoseconds, units of SI columns, whether the last pair stays."""

    dtype: np.dtype
    period_ns: int
    units: JointUnits | None
    keep_last: bool


def _rows(entry: Entry, columns: Columns, features: Features, blank: _Blank) -> np.ndarray:
    """Make the rows of one episode: as many as pairs, plus one if the task ended or the last observation is known."""
    ended = _ended(columns)
    count = entry.length + (ended or blank.keep_last or _knows_last(entry))
    observed = {
        feature.column: _seen(entry, columns[feature.column], feature.column, count) for feature in features.observation
    }
    rows = np.zeros(count, blank.dtype)
    rows["stamp_ns"] = _stamps(entry, columns["timestamp"], count, blank.period_ns)
    rows["frame_no"], rows["episode"] = np.arange(count), entry.index
    for feature in features.observation:
        rows[f"observation_{feature.field.name}"] = feature.values(observed[feature.column])
    for feature in features.action:
        rows[f"action_{feature.field.name}"][1:] = feature.values(columns[feature.column])[: count - 1]
    # An unknown reward is not 0: filters by return must refuse it.
    rows["reward"][1:] = columns["next.reward"][: count - 1] if "next.reward" in columns else np.nan
    if INTERVENTION in columns:
        rows["intervention"][1:] = columns[INTERVENTION][: count - 1] != 0
    rows["acted"][1:] = 1
    rows["log_probability"] = np.nan
    if LOG_PROBABILITY in columns:
        rows["log_probability"][1:] = columns[LOG_PROBABILITY][: count - 1]
    rows["terminated"][-1], rows["truncated"][-1] = ended, not ended
    if blank.units is not None:
        so101.fill(rows, observed["observation.state"], columns["action"][: count - 1], blank.units)
    return rows


def _knows_last(entry: Entry) -> bool:
    return "last/timestamp" in entry.ours


def _seen(entry: Entry, stored: np.ndarray, name: str, count: int) -> np.ndarray:
    """Return an observation's column with the last observation: the true one if known, otherwise a repetition."""
    if count == len(stored):
        return stored
    if not _knows_last(entry):
        return np.concatenate([stored, stored[-1:]])
    try:
        last = np.asarray(entry.ours[f"last/{name}"], stored.dtype).reshape(stored.shape[1:])
    except (KeyError, ValueError, TypeError) as error:
        raise SourceError(f"{entry.file}, episode {entry.index}: its last {name} can't be read: {error!r}") from error
    return np.concatenate([stored, last[None]])


def _stamps(entry: Entry, seconds: np.ndarray, count: int, period_ns: int) -> np.ndarray:
    """Return the stamps in nanoseconds, shape (count,): those of the robot's clock if they are known."""
    recorded = entry.ours.get("stamp_ns")
    if recorded is not None and len(recorded) == count:
        return np.array(recorded, np.int64)
    stamps = np.round(seconds * 1e9).astype(np.int64)
    if count == len(stamps):
        return stamps
    last = round(entry.ours["last/timestamp"] * 1e9) if _knows_last(entry) else int(stamps[-1]) + period_ns
    return np.append(stamps, max(last, int(stamps[-1]) + 1))


def _info_of_entry(entry: Entry, columns: Columns, files: LeRobotFiles) -> JsonDict:
    """Return what the description of an episode and the columns with its end say."""
    info: JsonDict = {
        "episode": entry.index,
        "tasks": list(entry.tasks),
        "length": entry.length,
        "robot": files.info.get("robot_type"),
        "fps": files.info["fps"],
    }
    if entry.tasks:
        info["task"] = entry.tasks[0]
    if "next.success" in columns:
        info["verdict"] = "success" if bool(columns["next.success"].any()) else "failure"
    return info


def _end_of(entry: Entry, columns: Columns) -> str:
    """Return why an episode ended, if our writer kept nothing else."""
    return "done" if _ended(columns) else "truncated" if _knows_last(entry) else "end of recording"


def _info(entry: Entry, columns: Columns, features: Features, files: LeRobotFiles, keep_last: bool) -> JsonDict:
    info = _info_of_entry(entry, columns, files) | {"end": _end_of(entry, columns)}
    if _knows_last(entry):
        return info | _kept_info(entry)
    if _ended(columns):
        return info | {"last_observation": "repeated"}
    if keep_last:
        return info | {"last_observation": "repeated"}
    info["last_action"] = {
        feature.field.name: feature.values(columns[feature.column])[-1].tolist() for feature in features.action
    }
    if "next.reward" in columns:
        info["last_reward"] = float(columns["next.reward"][-1])
    return info


def _kept_info(entry: Entry) -> JsonDict:
    """Return what was known of the episode when our writer wrote it."""
    try:
        return dict(json.loads(entry.ours.get("info", "{}"))) | {"episode": entry.index}
    except (ValueError, TypeError) as error:
        raise SourceError(f"episode {entry.index} of {entry.file}: its stored info is not JSON: {error}") from error


def _joint_units(
    files: LeRobotFiles, features: Features, given: JointUnits | None, calibrated: bool
) -> tuple[JointUnits | None, list[str]]:
    """Return the units from which an SO-101's SI columns are made, or None, and notes on them.

    Raises:
        SourceError: units were given for data of which they can't be true.
    """
    robot = files.info.get("robot_type")
    reason = so101.why_not(str(robot), features)
    if reason is not None:
        if given is not None or calibrated:
            raise SourceError(f"{files.root}: units and calibration are for an SO-101's joints: {reason or robot}")
        return None, [f"no SI columns for this {robot}: {reason}"] if reason else []
    if calibrated and given is None:
        raise SourceError(
            f"{files.root}: a calibration alone does not tell the unit; give units='degrees' or 'percent'"
        )
    known = so101.declared_units(files.root) if given is None else given
    if known is None:
        return None, [
            f"no SI columns for this {robot}: the data set does not say whether its joints are in degrees (LeRobot's "
            "default since 0.4.4) or in percent; give units=, or write them into it with `rlenv-robot data units`"
        ]
    source = "as given" if given is not None else f"as {so101.DECLARATION.name} declares"
    return known, [f"the joints are in {known.unit}, {source}", *known.assumed]


def _notes(files: LeRobotFiles, features: Features, infos: list[JsonDict]) -> list[str]:
    notes = []
    left_out = sum("last_action" in info for info in infos)
    repeated = [info["end"] for info in infos if info.get("last_observation") == "repeated"]
    ended = repeated.count("done")
    if left_out:
        notes.append(
            f"in {left_out} of {len(infos)} episodes what followed the last action was not recorded; "
            "that action is in the episode's info, not in the rows (keep_last=True makes it a row)"
        )
    if ended:
        notes.append(
            f"in {ended} of {len(infos)} episodes next.done ended the task: "
            "the last row repeats the observation before it"
        )
    if len(repeated) > ended:
        notes.append(
            f"in {len(repeated) - ended} of {len(infos)} episodes what followed the last action was not recorded: "
            "the last row repeats the observation before it, for imitation only"
        )
    videos = [name for name in features.videos if files.info["features"][name]["dtype"] == "video"]
    if videos and not (files.root / "videos").is_dir():
        notes.append(f"images are not read, and the folder videos is missing: {', '.join(videos)}")
    elif videos:
        notes += _missing_videos(files, videos)
    if features.ignored:
        notes.append(f"a frame row has no place for {', '.join(features.ignored)}")
    if undescribed := sorted(files.undescribed - set(BOOKKEEPING)):
        notes.append(f"meta/info.json does not describe {listed(undescribed)}, which the files have; it is left out")
    return notes


def _missing_videos(files: LeRobotFiles, videos: list[str]) -> list[str]:
    try:
        places = LeRobotVideos(files.root)
        lost = {name: int((~places.exist(name)).sum()) for name in videos if name in places.cameras}
    except SourceError as error:
        return [f"images are not read: {error}"]
    return [
        f"{count} of {len(files.entries)} episodes have no video of {name}; their images are missing (masked)"
        for name, count in lost.items()
        if count
    ]


def _advice(path: Path) -> str | None:
    if not (path / "meta_data" / "info.json").is_file():
        return None
    return (
        "is of LeRobot 1; convert it by LeRobot's lerobot/common/datasets/v2/convert_dataset_v1_to_v2.py, or read "
        "the numbers in its Parquet files: open_source(.../data, columns={'observation.state': 'observation.state', "
        "'action': 'action', 'episode': 'episode_index'})"
    )


LEROBOT = Format(
    "lerobot", is_lerobot, load_lerobot, write_lerobot, True, LeRobotImages,
    candidates=lambda folder: (mark.parents[1] for mark in folder.rglob("meta/info.json")),
    options=("units", "calibration", "columns", "episodes", "keep_last"), write_options=("embedded", "environment"),
    looks="meta/info.json (LeRobot 2.0, 2.1 or 3.0)", advice=_advice, describe=describe_lerobot,
)  # fmt: skip
