"""Label recorded episodes afterwards. Labels lie beside the data, which are never rewritten.

``labels.jsonl`` has one JSON object on each line: the episode's number in its run, the values, their author and time.
Lines are only added; if two lines set the same value, the later line counts. Tags are added and removed one by one.

The labels of a data set that can't be written, or that lies in a cache from which it may be removed, are kept in the
user's data folder, by the identity of the data set (`recorder.set_files.set_identity`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from hal import VERDICTS, LogError
from recorder.json_data import JsonDict, JsonObject, append_lines, count_lines, parse_lines, read_content, read_lines
from recorder.names import LABELS, cache_folder, data_folder
from recorder.set_files import set_identity

__all__ = [
    "KEYS", "TAG_CHARACTERS", "add_labels", "check_tag", "corrections", "is_success", "label_file", "label_files",
    "label_notes", "labelled", "labels_of", "read_labels", "tags_of", "undo_labels",
]  # fmt: skip

KEYS = ("verdict", "success", "source", "expert", "note", "tag", "untag")
"""The keys of a label; ``tag`` and ``untag`` have lists of tags to add and to remove."""

_VALUES = ("verdict", "success", "source", "expert", "note")
"""The keys that replace a value."""

_ABOUT = ("episode", "who", "wall_ns")
"""The keys of a line that are no values of the label."""

_EARLIER = {"remark": "note"}
"""Keys of old lines -> their names today."""

TAG_CHARACTERS = 64
"""Largest length of a tag."""

_OVERRIDES = {"verdict": "success", "source": "expert"}
"""A label with the first key clears the recorded value of the second key, which would contradict it."""


def add_labels(
    run: Path | str, episodes: Iterable[int], values: JsonObject, who: str, now_ns: int | None = None
) -> Path:
    """Label some episodes of a run or data set; the labels are on the disk when this returns.

    Args:
        run: the run's folder, or another project's data set.
        episodes: numbers of the episodes in it; their existence is not checked.
        values: any of `KEYS`; ``success`` and ``expert`` are true or false, ``verdict`` is one of `VERDICTS`, ``tag``
            and ``untag`` are lists of texts.
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
    with contextlib.suppress(OSError):  # the next line says what is wrong
        path.parent.mkdir(parents=True, exist_ok=True)
    append_lines(path, lines)
    return path


def undo_labels(run: Path | str, episodes: Iterable[int], wall_ns: int, who: str) -> Path:
    """Take back the labels that `add_labels` gave some episodes at a time, so that what they replaced counts again.

    Args:
        run: the run's folder, or another project's data set.
        episodes: numbers of the episodes in it.
        wall_ns: the time of the labels, as `add_labels` wrote it.
        who: name of the person who undoes the labels.

    Returns:
        The file of labels.

    Raises:
        LogError: the file can't be written.
    """
    now_ns = time.time_ns()
    path = label_file(Path(run))
    append_lines(path, [{"episode": int(n), "undo": wall_ns, "who": who, "wall_ns": now_ns} for n in episodes])
    return path


def label_file(run: Path) -> Path:
    """Return the file to which labels of a run or data set are added.

    It lies in the folder, or beside a data set that is a single file; elsewhere if nothing can be written or kept
    there.

    Raises:
        LogError: the data set can't be read.
    """
    beside = _beside(run)
    if not _in_cache(run) and os.access(beside if beside.exists() else beside.parent, os.W_OK):
        return beside
    return _at_home(run)


def label_files(run: Path) -> list[Path]:
    """Return the existing files with labels of a run or data set, the one that counts last at the end."""
    beside, files = _beside(run), []
    home = _labels_home()
    if home is not None and home.is_dir() and (_in_cache(run) or not os.access(beside.parent, os.W_OK)):
        with contextlib.suppress(LogError):
            files.append(_at_home(run))
    return [path for path in (beside, *files) if path.is_file()]


def _beside(run: Path) -> Path:
    return run.with_name(f"{run.name}.{LABELS}") if run.is_file() else run / LABELS


def _labels_home() -> Path | None:
    try:
        return data_folder() / "labels"
    except RuntimeError:  # a user without a home keeps none
        return None


def _at_home(run: Path) -> Path:
    home = _labels_home()
    if home is None:
        raise LogError(
            f"the labels of {run} can't be kept there, and you have no home folder for them; set XDG_DATA_HOME to one"
        )
    try:
        return home / f"{set_identity(run)}.jsonl"
    except OSError as error:
        raise LogError(f"{run} can't be read: {error}") from error


def _in_cache(run: Path) -> bool:
    """Return whether a path lies in our own cache, or in a snapshot that huggingface_hub fetched: both may vanish."""
    whole = Path(os.path.abspath(run))
    hub = "snapshots" in whole.parts and any(part.startswith("datasets--") for part in whole.parts)
    with contextlib.suppress(RuntimeError):  # no home, no cache
        hub = hub or whole.is_relative_to(os.path.abspath(cache_folder()))
    return hub


def _check(values: JsonObject) -> None:
    if not values:
        raise LogError(f"a label has no value; allowed are {', '.join(KEYS)}")
    for key, value in values.items():
        if key not in KEYS:
            raise LogError(f"{key!r} is no key of a label, allowed are {', '.join(KEYS)}")
        if key in ("tag", "untag"):
            for tag in value if isinstance(value, list | tuple) else [None]:
                check_tag(tag)
            continue
        if key == "verdict" and value not in VERDICTS:
            raise LogError(f"verdict is {value!r}, allowed are {', '.join(VERDICTS)}")
        kind = bool if key in _OVERRIDES.values() else str
        if not isinstance(value, kind):
            raise LogError(f"{key} is {value!r}, expected {'true or false' if kind is bool else 'a text'}")


def check_tag(tag: object) -> None:
    """Refuse what can't be a tag.

    Raises:
        LogError: the tag is no text, empty, too long, or has a comma, a control character or a blank at its ends.
    """
    fits = isinstance(tag, str) and 0 < len(tag) <= TAG_CHARACTERS and tag == tag.strip() and tag.isprintable()
    if not fits or "," in str(tag):
        raise LogError(
            f"tag {tag!r:.80} is not allowed: give a text of 1 to {TAG_CHARACTERS} characters without a comma"
        )


def read_labels(run: Path | str) -> dict[int, JsonDict]:
    """Return the labels by episode: the latest value of each key, with the latest ``who`` and ``wall_ns``.

    ``tags`` has each tag that was added (true) or removed (false). A line that can't be read, such as after a crash, is
    skipped; `label_notes` tells.

    Raises:
        LogError: a file exists and can't be opened.
    """
    return labels_of([line for file in label_files(Path(run)) for line in read_lines(file)])


def label_notes(run: Path | str) -> list[str]:
    """Return a sentence for each file of labels with lines that are not, or not wholly, labels as `add_labels` writes.

    Raises:
        LogError: a file exists and can't be opened.
    """
    notes = []
    for file in label_files(Path(run)):
        content = read_content(file)
        lines, count = parse_lines(content), count_lines(content)
        wrong = count - sum(map(_is_whole, lines))
        if wrong:
            notes.append(f"{file}: {wrong} of {count} lines are damaged, labels are missing; give them again")
    return notes


def _is_whole(line: JsonObject) -> bool:
    """Return whether a line has an episode and nothing but keys and values that are allowed."""
    values = {_EARLIER.get(key, key): value for key, value in line.items() if key not in _ABOUT}
    try:
        int(line["episode"])
        if "undo" not in line:
            _check(values)
    except (KeyError, ValueError, TypeError, OverflowError, LogError):
        return False
    return True


def labels_of(lines: Iterable[JsonDict]) -> dict[int, JsonDict]:
    """Return what `read_labels` does, of all lines that the episodes have, in their order."""
    labels: dict[int, JsonDict] = {}
    lines = list(lines)
    undone = {f"{line.get('episode')} {line['undo']}" for line in lines if "undo" in line}
    for entry in lines:
        try:
            number = int(entry.pop("episode"))
        except (ValueError, KeyError, TypeError, OverflowError):
            continue
        if "undo" in entry or f"{number} {entry.get('wall_ns')}" in undone:
            continue
        _add(labels.setdefault(number, {}), {_EARLIER.get(key, key): value for key, value in entry.items()})
    return labels


def _add(label: JsonDict, entry: JsonObject) -> None:
    """Add the values of a line to the label of its episode."""
    for key, cleared in _OVERRIDES.items():
        if key in entry:
            label[cleared] = None
    if "success" in entry and label.get("verdict") != "discard":
        label["verdict"] = None  # the person's later word counts
    label.update({key: entry[key] for key in (*_VALUES, "who", "wall_ns") if key in entry})
    for key, given in (("untag", False), ("tag", True)):
        tags = entry.get(key)
        for tag in tags if isinstance(tags, list) else ():
            label.setdefault("tags", {})[str(tag)] = given


def labelled(run: Path | str, episodes: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """Return the episodes' infos with the corrections of the labels; ``labelled`` has their author and time.

    Args:
        run: the run's folder.
        episodes: infos with ``episode``, the number in the run; without it, their place counts.

    Raises:
        LogError: as `read_labels`.
    """
    labels = read_labels(run)
    return tuple(_corrected(info, labels.get(int(info.get("episode", n)))) for n, info in enumerate(episodes))


def _corrected(info: JsonObject, label: JsonObject | None) -> JsonObject:
    if not label:
        return info
    author = {"who": label.get("who"), "wall_ns": label.get("wall_ns")}
    return {**info, **corrections(info, label), "labelled": author}


def corrections(info: JsonObject, label: JsonObject) -> JsonDict:
    """Return the entries of an episode's info that a label replaces.

    Args:
        info: the info as it was recorded.
        label: a value of `read_labels`.
    """
    values = {key: label[key] for key in _VALUES if key in label}
    if values.get("verdict", "") is None and info.get("verdict") == "discard":
        del values["verdict"]  # an episode stays discarded until a new verdict
    if "tags" in label:
        given = label["tags"]
        values["tags"] = sorted({tag for tag in tags_of(info) if given.get(tag, True)} | {t for t in given if given[t]})
    return values


def tags_of(info: JsonObject) -> list[str]:
    """Return the tags of an episode's info; empty if it has none."""
    tags = info.get("tags")
    return [str(tag) for tag in tags] if isinstance(tags, list | tuple) else []


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
