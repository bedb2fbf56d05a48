"""Label recorded episodes afterwards. Labels lie beside the log, which is never rewritten.

``labels.jsonl`` has one JSON object on each line: the episode's number in its run, the values, their author and time.
Lines are only added; if two lines set the same value, the later line counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from hal import VERDICTS, LogError
from recorder.json_data import JsonDict, JsonObject, append_lines, read_lines
from recorder.names import LABELS

__all__ = ["KEYS", "add_labels", "is_success", "label_file", "labelled", "read_labels"]

KEYS = ("verdict", "success", "source", "expert", "remark")
"""The keys of a label."""

_OVERRIDES = {"verdict": "success", "source": "expert"}
"""A label with the first key clears the recorded value of the second key, which would contradict it."""


def add_labels(
    run: Path | str, episodes: Iterable[int], values: JsonObject, who: str, now_ns: int | None = None
) -> Path:
    """Label some episodes of a run or data set; the labels are on the disk when this returns.

    Args:
        run: the run's folder, or another project's data set.
        episodes: numbers of the episodes in it; their existence is not checked.
        values: any of `KEYS`; ``success`` and ``expert`` are true or false, ``verdict`` is one of `VERDICTS`.
        who: the person who gives the label.
        now_ns: time of the label, nanoseconds since 1970; by default now.

    Returns:
        The file of labels.

    Raises:
        LogError: a key or value is not allowed, there is nothing at the path, or the file can't be written.
    """
    if not Path(run).exists():
        raise LogError(f"{run} does not exist; name the folder of one run, or a data set")
    _check(values)
    wall_ns = time.time_ns() if now_ns is None else now_ns
    lines = [{"episode": int(number), **values, "who": who, "wall_ns": wall_ns} for number in episodes]
    path = label_file(Path(run))
    append_lines(path, lines)
    return path


def label_file(run: Path) -> Path:
    """Return the file of labels of a run or data set: in its folder, or beside a data set that is a single file."""
    return run.with_name(f"{run.name}.{LABELS}") if run.is_file() else run / LABELS


def _check(values: JsonObject) -> None:
    if not values:
        raise LogError(f"a label has no value; allowed are {', '.join(KEYS)}")
    for key, value in values.items():
        if key not in KEYS:
            raise LogError(f"{key!r} is no key of a label, allowed are {', '.join(KEYS)}")
        if key == "verdict" and value not in VERDICTS:
            raise LogError(f"verdict is {value!r}, allowed are {', '.join(VERDICTS)}")
        kind = bool if key in _OVERRIDES.values() else str
        if not isinstance(value, kind):
            raise LogError(f"{key} is {value!r}, expected {'true or false' if kind is bool else 'a text'}")


def read_labels(run: Path | str) -> dict[int, JsonDict]:
    """Return the labels by episode: the latest value of each key, with the latest ``who`` and ``wall_ns``.

    A line that can't be read, such as after a crash, is skipped.

    Raises:
        LogError: the file exists and can't be opened.
    """
    labels: dict[int, JsonDict] = {}
    for entry in read_lines(label_file(Path(run))):
        try:
            number = int(entry.pop("episode"))
        except (ValueError, KeyError, TypeError):
            continue
        label = labels.setdefault(number, {})
        for key, cleared in _OVERRIDES.items():
            if key in entry:
                label[cleared] = None
        if "success" in entry and label.get("verdict") != "discard":
            label["verdict"] = None  # the person's later word counts
        label.update({key: entry[key] for key in (*KEYS, "who", "wall_ns") if key in entry})
    return labels


def labelled(run: Path | str, episodes: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """Return the episodes' infos with the corrections of the labels; ``labelled`` has their author and time.

    Args:
        run: the run's folder.
        episodes: infos with ``episode``, the number in the run.

    Raises:
        LogError: as `read_labels`.
    """
    labels = read_labels(run)
    return tuple(_corrected(info, labels.get(int(info.get("episode", -1)))) for info in episodes)


def _corrected(info: JsonObject, label: JsonObject | None) -> JsonObject:
    if not label:
        return info
    values = {key: label[key] for key in KEYS if key in label}
    if values.get("verdict", "") is None and info.get("verdict") == "discard":
        del values["verdict"]  # an episode stays discarded until a new verdict
    return {**info, **values, "labelled": {"who": label.get("who"), "wall_ns": label.get("wall_ns")}}


def is_success(info: JsonObject) -> bool | None:
    """Return whether an episode succeeded, or None if that is unknown.

    A person's ``verdict`` of success or failure takes precedence over the task's ``success``.

    Args:
        info: the episode's info.
    """
    verdict = info.get("verdict")
    if verdict in ("success", "failure"):
        return bool(verdict == "success")
    success = info.get("success")
    return None if success is None else bool(success)
