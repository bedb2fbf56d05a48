"""Read RLDS data sets in the TFRecord files of TensorFlow Datasets, such as those of Open X-Embodiment.

Step t of an episode holds the observation, the action chosen there, and the reward and discount that followed. The last
step (``is_last``) holds the last observation; RLDS gives its action, reward and discount no meaning
(https://github.com/google-research/rlds). Many converted data sets set them all the same, often the only reward of an
episode: they are in the episode's info, and with ``keep_last`` in a further row.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from hal import Field, SourceError, Spec
from recorder.formats.registry import Format
from recorder.formats.runs import field_names
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonDict
from recorder.table.table import ImageSource, Table
from rlenv_formats.foreign import (
    ONE_COLUMN,
    checked_columns,
    chosen_episodes,
    inside,
    listed,
    read_mapping,
    read_text,
    stamps_of,
    whole_number,
)
from rlenv_formats.hdf5 import as_field
from rlenv_formats.paired_steps import PairedSteps
from rlenv_formats.rlds_features import FEATURES, STEPS, Leaf, leaves_in, read_leaf
from rlenv_formats.stored_images import Part, StoredImages
from rlenv_formats.tfrecord import Example, Record, read_example, records_in

__all__ = ["RLDS", "is_rlds", "load_rlds", "open_rlds_images"]

_INFO = "dataset_info.json"
_PREFIX = f"{STEPS}/"
_METADATA = "episode_metadata/"
_FLAGS = ("is_first", "is_last", "is_terminal")
_INSTRUCTION = re.compile(r"instruction|language|task|command", re.IGNORECASE)
_OPEN_EPISODES = 2
"""Largest number of episodes whose images are in memory."""
_TEXT = 1000
"""Longest text of an episode's metadata that is kept, characters."""


@dataclass(frozen=True)
class _Shard:
    """A file of episodes.

    Attributes:
        file: the file.
        split: the split that it belongs to.
        first: number of its first episode.
        count: number of its episodes, by the description.
    """

    file: Path
    split: str
    first: int
    count: int


def is_rlds(path: Path | str) -> bool:
    """Return whether a folder looks like one version of an RLDS data set."""
    return _described(Path(path)) and f'"{STEPS}"' in read_text(Path(path) / FEATURES)


def _described(path: Path) -> bool:
    return (path / FEATURES).is_file() and (path / _INFO).is_file()


def load_rlds(
    path: Path | str,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    keep_last: bool = False,
    episodes: Sequence[int] | None = None,
) -> Table:
    """Read a data set: all its splits, one after the other.

    ``action`` becomes the action ``target``, an action's entry ``x`` the action ``x``, and ``observation/x`` the
    observation ``x``; images become cameras, and an instruction the episode's task.

    Args:
        path: the folder of one version, with ``dataset_info.json``, ``features.json`` and the TFRecord files.
        columns: our name -> the features of a step that form it side by side, such as
            ``{"observation.arm": ["observation/joints", "observation/gripper"]}``. Our names are observation.<name>,
            action, action.<name>, reward, terminated, truncated and time.
        keep_last: whether the action and reward of an episode's last step also become a row, which repeats the last
            observation.
        episodes: numbers of the episodes to read, counted through the splits; None reads all.

    Raises:
        SourceError: the folder is not such a data set, no episode can be read, columns name features that do not exist,
            or google-crc32c or protobuf is not installed.
    """
    reader = _Reader(Path(path), columns or {})
    shards = _shards(reader.path)
    total = sum(shard.count for shard in shards)
    collected = PairedSteps(reader.path, reader.layout, keep_last)
    chosen, lengths = chosen_episodes(reader.path, episodes, total), dict[int, _Episode]()
    notes: list[str] = []
    for shard in shards:
        for number, record in _records(shard, notes):
            if number not in chosen:
                continue
            try:
                lengths[number] = _Episode(record, reader.add(collected, number, shard.split, read_example(record)))
            except SourceError as error:
                collected.damaged(error)
    unknown = "RLDS gives the action and reward of the last step no meaning"
    opener = partial(open_rlds_images, episodes=lengths)
    return collected.table([*notes, *reader.notes()], unknown, opener)


# -- Files ---------------------------------------------------------------------------------------------------


def _shards(root: Path) -> list[_Shard]:
    """Return the files of all splits.

    Raises:
        SourceError: the description is damaged, or the files are not TFRecord files.
    """
    path = root / _INFO
    info = read_mapping(path)
    kind = info.get("fileFormat", "tfrecord")
    if kind != "tfrecord":
        raise SourceError(
            f"{path}: fileFormat is {kind!r:.60}, tfrecord is read; `tfds convert_format --out_file_format tfrecord` "
            "converts it"
        )
    shards: list[_Shard] = []
    splits = info.get("splits")
    for split in splits if isinstance(splits, list) else []:
        if not isinstance(split, dict) or not isinstance(split.get("shardLengths"), list):
            raise SourceError(f"{path}: a split is {split!r:.60}, expected one with shardLengths; it is damaged")
        for index, text in enumerate(split["shardLengths"]):
            length = int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 10 else text
            count = whole_number(length, f"{path}: a number in shardLengths")
            file = inside(root, _file_name(info, split, index), str(path))
            first = shards[-1].first + shards[-1].count if shards else 0
            shards.append(_Shard(file, str(split.get("name")), first, count))
    if not shards:
        raise SourceError(f"{path} names no split with files; fetch the data set again")
    return shards


def _file_name(info: JsonDict, split: JsonDict, index: int) -> str:
    count = len(split["shardLengths"])
    values = {
        "DATASET": info.get("name"), "SPLIT": split.get("name"), "FILEFORMAT": "tfrecord",
        "SHARD_INDEX": f"{index:05d}", "NUM_SHARDS": f"{count:05d}", "SHARD_X_OF_Y": f"{index:05d}-of-{count:05d}",
    }  # fmt: skip
    name = str(split.get("filepathTemplate") or "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}")
    for key, value in values.items():
        name = name.replace(f"{{{key}}}", str(value))
    return name


def _records(shard: _Shard, notes: list[str]) -> Iterator[tuple[int, Record]]:
    """Yield the number and place of each episode in a file, and note those that are lost."""
    count = 0
    try:
        for count, record in enumerate(records_in(shard.file), 1):
            if count <= shard.count:
                yield shard.first + count - 1, record
    except SourceError as error:
        notes.append(f"{shard.count - count} of {shard.count} episodes are left out: {error}")
        return
    if count != shard.count:
        notes.append(f"{shard.file} holds {count} episodes, {_INFO} says {shard.count}; fetch the data set again")


# -- Rows ----------------------------------------------------------------------------------------------------


class _Reader:
    """Makes rows of the examples of a data set."""

    def __init__(self, path: Path, columns: Mapping[str, str | Sequence[str]]) -> None:
        if not _described(path):
            raise SourceError(f"{path} is not an RLDS data set: {_INFO} or {FEATURES} is missing")
        self.path, leaves = path, leaves_in(path)
        steps = {leaf.path.removeprefix(_PREFIX): leaf for leaf in leaves if leaf.path.startswith(_PREFIX)}
        self._metadata = [leaf for leaf in leaves if not leaf.path.startswith(_PREFIX)]
        self._flags = {name: steps.pop(name) for name in _FLAGS if name in steps}
        numbers = {name: leaf for name, leaf in steps.items() if leaf.kind == "numbers"}
        names = checked_columns(path, columns, numbers)
        taken = {one for some in names.values() for one in some}
        for name in numbers:
            ours = _usual(name)
            if name not in taken and ours is not None and ours not in names:
                names[ours] = [name]
        self._columns = {ours: tuple(numbers[one] for one in some) for ours, some in names.items()}
        self._fields = {
            part: field_names(ours.partition(".")[2] or "target" for ours in names if ours.split(".")[0] == part)
            for part in ("observation", "action")
        }
        texts = sorted(name for name, leaf in steps.items() if leaf.kind == "text" and _INSTRUCTION.search(name))
        self._task = steps[texts[0]] if texts else None
        self._cameras = _cameras(leaves)
        used = {one.path for some in self._columns.values() for one in some} | {_PREFIX + name for name in texts[:1]}
        self._ignored = [
            name for name, leaf in steps.items() if leaf.path not in used and leaf.path not in self._cameras.values()
        ]
        if not self._fields["action"] or not (self._fields["observation"] or self._cameras):
            raise SourceError(
                f"{path / FEATURES}: steps must have action and observation in numbers, got {listed(steps, 30)}; name "
                "those that stand for them: columns={'action': 'command', 'observation.state': 'proprio'}"
            )
        self.layout = FrameLayout(self._spec("observation"), self._spec("action"))
        self._early = 0

    def _spec(self, part: str) -> Spec:
        fields = (self._field(name, self._columns[_ours(part, text)]) for text, name in self._fields[part].items())
        return Spec(part, tuple(fields))

    def _field(self, name: str, leaves: Sequence[Leaf]) -> Field:
        shape = leaves[0].shape if len(leaves) == 1 else (sum(prod(leaf.shape) for leaf in leaves),)
        kind = SimpleNamespace(dtype=np.result_type(*(leaf.dtype for leaf in leaves)), shape=(0, *shape))
        return as_field(name, kind, f"RLDS's {', '.join(leaf.path.removeprefix(_PREFIX) for leaf in leaves)}")

    def add(self, collected: PairedSteps, number: int, split: str, example: Example) -> int:
        """Add an episode, and return the number of its steps.

        Raises:
            SourceError: it can't be read.
        """
        values = {ours: _joined(example, leaves) for ours, leaves in self._columns.items()}
        flags = {name: read_leaf(example, leaf) != 0 for name, leaf in self._flags.items()}
        lengths = {len(value) for value in (*values.values(), *flags.values())}
        lengths |= {len(example.strings(path)) for path in self._cameras.values()}
        if len(lengths) != 1 or not (length := lengths.pop()):
            raise SourceError(f"{example.where}: its features have {listed(sorted(lengths))} steps; it is damaged")
        if flags.get("is_first", np.zeros(1))[1:].any() or flags.get("is_last", np.zeros(1))[:-1].any():
            raise SourceError(f"{example.where}: is_first or is_last is set within the episode; it is damaged")
        groups = [
            {name: values[_ours(part, text)] for text, name in self._fields[part].items()}
            for part in ("observation", "action")
        ]
        one = {name: values[name].reshape(length).astype(np.float64) for name in ONE_COLUMN if name in values}
        terminal = flags.get("is_terminal", one.get("terminated", np.zeros(length))) != 0
        last = flags.get("is_last", one.get("truncated", np.zeros(length))) != 0
        collected.add(
            number, groups[0], groups[1], one.get("reward", np.full(length, np.nan)),
            (bool(terminal[-1]), bool(last[-1])), stamps_of(one.get("time", np.arange(length))),
            {"split": split, **self._info(example)},
        )  # fmt: skip
        self._early += bool(terminal[:-1].any())
        return length

    def _info(self, example: Example) -> JsonDict:
        info: JsonDict = {}
        if self._task is not None:
            tasks = list(dict.fromkeys(_text(one) for one in example.strings(self._task.path)))
            info = {"task": tasks[0], "tasks": tasks}
        about = {leaf.path.removeprefix(_METADATA): _metadata(example, leaf) for leaf in self._metadata}
        known = {name: value for name, value in about.items() if value is not None}
        if isinstance(known.get("success"), bool):
            info["verdict"] = "success" if known["success"] else "failure"
        return info | ({"metadata": known} if known else {})

    def notes(self) -> list[str]:
        """Return a sentence about each thing that a user must know."""
        notes = [] if "time" in self._columns else ["no time was recorded; the stamps count frames as seconds"]
        if self._early:
            notes.append(f"in {self._early} episodes is_terminal is set before the last step; these go on after it")
        if self._ignored:
            notes.append(f"a frame row has no place for {', '.join(self._ignored)}")
        return notes


def _usual(name: str) -> str | None:
    """Return our name of a feature of steps; None if it has none."""
    first, _, rest = name.partition("/")
    if first == "observation":
        return f"observation.{rest or 'state'}"
    if first == "action":
        return f"action.{rest}" if rest else "action"
    return "reward" if name == "reward" else None


def _ours(part: str, text: str) -> str:
    return part if part == "action" and text == "target" else f"{part}.{text}"


def _cameras(leaves: Sequence[Leaf]) -> dict[str, str]:
    """Return camera -> the path of its images."""
    paths = [leaf.path for leaf in leaves if leaf.kind == "image" and leaf.path.startswith(_PREFIX)]
    short = {path: path.removeprefix(_PREFIX).removeprefix("observation/") for path in paths}
    names = field_names(short.values())
    return {names[text]: path for path, text in short.items()}


def _joined(example: Example, leaves: Sequence[Leaf]) -> np.ndarray:
    parts = [read_leaf(example, leaf) for leaf in leaves]
    if len({len(part) for part in parts}) > 1:
        raise SourceError(f"{example.where}: {listed(leaf.path for leaf in leaves)} have different numbers of steps")
    return parts[0] if len(parts) == 1 else np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _metadata(example: Example, leaf: Leaf) -> Any:
    """Return a number or text that is known of an episode; None for anything else."""
    if leaf.path not in example or leaf.kind not in ("numbers", "text"):
        return None
    if leaf.kind == "text":
        texts = example.strings(leaf.path)
        return _text(texts[0])[:_TEXT] if len(texts) == 1 else None
    values = read_leaf(example, leaf)
    return values[0].item() if values.shape == (1,) else None


# -- Images --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Episode:
    """The place of an episode, and the number of its steps."""

    record: Record
    length: int


def open_rlds_images(path: Path, episodes: Mapping[int, _Episode] | None = None) -> ImageSource | None:
    """Open a data set's images, or return None if it has none.

    Args:
        path: the data set's folder.
        episodes: the episodes by their numbers; None reads all to count their steps.

    Raises:
        SourceError: the data set can't be read.
    """
    cameras = _cameras(leaves_in(path))
    if not cameras:
        return None
    counted = episodes if episodes is not None else dict(_counted(path, next(iter(cameras.values()))))
    return _Images(path, cameras, counted)


def _counted(path: Path, images: str) -> Iterator[tuple[int, _Episode]]:
    for shard in _shards(path):
        for number, record in _records(shard, []):
            try:
                yield number, _Episode(record, len(read_example(record).strings(images)))
            except SourceError:  # as in the table, which has the note
                continue


class _Images(StoredImages):
    """The encoded images in examples, of which the last few stay in memory."""

    def __init__(self, path: Path, cameras: Mapping[str, str], episodes: Mapping[int, _Episode]) -> None:
        super().__init__(path, {
            camera: {number: [Part(f"{number}:{name}", 0, one.length)] for number, one in episodes.items()}
            for camera, name in cameras.items()
        })  # fmt: skip
        self._read = episodes
        self._examples: OrderedDict[int, Example] = OrderedDict()
        self._lock = threading.Lock()

    def _stored(self, part: Part, offset: int, where: str) -> bytes:
        number, _, name = part.name.partition(":")
        with self._lock:
            example = self._examples.pop(int(number), None) or read_example(self._read[int(number)].record)
            self._examples[int(number)] = example
            if len(self._examples) > _OPEN_EPISODES:
                self._examples.popitem(last=False)
        return bytes(example.strings(name)[offset])


def _advice(path: Path) -> str | None:
    if path.is_dir() and _described(path):
        return f"is of TensorFlow Datasets, but {FEATURES} has no {STEPS}: RLDS data sets, with episodes, are read"
    versions = [one.parent.name for one in sorted(path.glob(f"*/{FEATURES}"))] if path.is_dir() else []
    return f"has versions of a data set; open one of them: {listed(versions)}" if versions else None


RLDS = Format(
    "rlds", is_rlds, load_rlds, open_images=open_rlds_images,
    candidates=lambda folder: (mark.parent for mark in folder.rglob(FEATURES)),
    options=("columns", "keep_last", "episodes"), looks=f"{FEATURES} and {_INFO} (RLDS of TensorFlow Datasets)",
    advice=_advice,
)  # fmt: skip
