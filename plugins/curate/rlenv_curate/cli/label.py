"""Verbs of ``rlenv-robot data`` that write files beside a run: ``label`` and ``recover``."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.data.selection import (
    Choice,
    add_author,
    add_own_format,
    author,
    choice,
    chooses,
    location,
    one_run,
    runs_in,
)
from rlenv_robot.cli.output import counted

if TYPE_CHECKING:
    from recorder.json_data import JsonDict
    from rlenv_robot.data.condition import Condition

__all__ = ["add_label", "add_recover", "run_label", "run_recover"]


_VERDICTS = ("success", "failure", "discard")  # hal.VERDICTS, without the import that would slow the help down


def add_label(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Add to recorded episodes whether they succeeded, where they come from, tags and notes."
    parser.epilog = """
The data themselves are not changed: each label is a line in labels.jsonl beside them, and the latest line counts. The
labels of data that can't be written, or that lie in a cache, are kept in the user's data folder.

Examples:

  rlenv-robot data label RUN 0,2,5-9 --verdict failure --note "gripper slipped"
  rlenv-robot data label SETS --where "steps < 50" --tag short --untag checked
"""
    parser.add_argument(
        "paths", metavar="SET", type=location, nargs="+",
        help="runs, data sets, folders of them or selections; of a single one also the numbers, such as 0,2,5-9",
    )  # fmt: skip
    parser.add_argument("--episodes", type=choice, help="their numbers in the run or set, such as 0,2,5-9")
    parser.add_argument("--where", metavar="CONDITION", help='a condition on the episodes, such as "steps < 50"')
    parser.add_argument("--verdict", choices=_VERDICTS, help="a person's verdict")
    parser.add_argument("--success", action=argparse.BooleanOptionalAction, help="whether the task succeeded")
    parser.add_argument("--source", help="where the episodes come from, such as expert, random or mixed")
    parser.add_argument("--expert", action=argparse.BooleanOptionalAction, help="whether an expert demonstrated them")
    parser.add_argument("--note", "--remark", help="a few words, in place of an earlier note")
    parser.add_argument("--tag", metavar="WORD,...", type=_words, help="tags to add")
    parser.add_argument("--untag", metavar="WORD,...", type=_words, help="tags to remove")
    add_author(parser, "label")
    add_own_format(parser)
    parser.set_defaults(run=run_label)


_OF_ROWS = ("return", "digest")
"""Columns for which the rows are read."""


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def run_label(args: argparse.Namespace) -> int:
    """Add the labels and print them."""
    from recorder.log.labels import KEYS, add_labels

    values = {key: getattr(args, key) for key in KEYS if getattr(args, key) is not None}
    if not values:
        raise ValueError(f"there is nothing to add: give one of {', '.join(f'--{key}' for key in KEYS)}")
    paths, episodes = _numbered(args.paths, args.episodes)
    where = "1" if args.where is None and all(map(chooses, paths)) else args.where  # selections have chosen already
    if episodes is None and where is None:
        raise ValueError("name the episodes: their numbers, such as 0,2,5-9, or --where CONDITION")
    if episodes is not None and len(paths) > 1:
        raise ValueError("numbers are those of one run or set; label several of them by --where CONDITION")
    chosen = _numbers(paths[0], episodes, args.where) if episodes is not None else _fitting(paths, where)
    if not chosen:
        raise ValueError(f"no episode fits: {args.where}")
    labels = ", ".join(
        f"{key} {', '.join(value) if isinstance(value, list) else value}" for key, value in values.items()
    )
    for folder, numbers in chosen.items():
        path = add_labels(folder, numbers, values, author(args))
        print(f"{path}: {counted(len(numbers), 'episode')}: {labels}")
    return 0


def _numbered(paths: Sequence[Path], episodes: Choice | None) -> tuple[Sequence[Path], Choice | None]:
    """Return the paths, and the numbers of episodes, which may stand behind a single path."""
    if episodes is not None or len(paths) != 2 or paths[1].exists():
        return paths, episodes
    try:
        return paths[:1], choice(str(paths[1]))
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"{paths[1]} does not exist, and as numbers of episodes: {error}") from None


def _numbers(path: Path, episodes: Choice, where: str | None) -> dict[Path, list[int]]:
    """Return the run or set at a path with the chosen numbers, of which those that fit."""
    from recorder.formats.registry import recognised

    folder = path if path.exists() and recognised(path) is not None else one_run(path)
    records = _records(folder, _condition(where or "episode is not null"))
    existing = list(dict.fromkeys(int(record["episode"]) for record in records))
    if len({record["path"] for record in records}) > 1:
        raise ValueError(f"{path} holds episodes of several sets; label them by --where CONDITION")
    numbers = set(episodes.among(existing))
    fits = _passing(records, where)
    return _by_set(record for record, fit in zip(records, fits, strict=True) if fit and record["episode"] in numbers)


def _fitting(paths: Sequence[Path], where: str) -> dict[Path, list[int]]:
    """Return the numbers of the episodes that fit, of all runs and sets at some paths."""
    from recorder.formats.registry import recognised, sets_in

    chosen: dict[Path, list[int]] = {}
    for path in paths:
        alone = path.exists() and recognised(path) is not None
        folders = [path] if alone else [*runs_in(path), *(sets_in(path) if path.is_dir() else [])]
        if not folders:
            raise ValueError(f"{path} holds no run and no data set")
        for folder in folders:
            records = _records(folder, _condition(where))
            passing = _passing(records, where)
            fitting = _by_set(record for record, fits in zip(records, passing, strict=True) if fits)
            for place, numbers in fitting.items():  # two selections may choose episodes of one set
                chosen[place] = sorted({*chosen.get(place, ()), *numbers})
    return chosen


def _condition(where: str) -> Condition:
    from rlenv_robot.data.condition import Condition
    from rlenv_robot.data.episode_records import COLUMNS

    return Condition(where, COLUMNS)


def _records(folder: Path, condition: Condition) -> list[JsonDict]:
    """Return the records of a run, set or selection, by its description where that suffices."""
    from recorder.formats.registry import recognised
    from recorder.log.labels import labelled
    from rlenv_robot.data.episode_records import episode_records, info_record
    from rlenv_robot.data.folder import read_folder

    found = recognised(folder)
    if found is None or found.describe is None or not condition.used.isdisjoint(_OF_ROWS):
        return episode_records(read_folder(folder), None if found is None else found.name, condition.used)
    infos = labelled(folder, found.describe(folder))
    return [info_record(info, str(folder.resolve()), found.name, number) for number, info in enumerate(infos)]


def _passing(records: Sequence[JsonDict], where: str | None) -> list[bool]:
    from rlenv_robot.data.episode_records import sql_row

    if where is None:
        return [True] * len(records)
    condition = _condition(where)
    columns = sorted(condition.used)
    return condition.passing((sql_row(record, columns) for record in records), columns)


def _by_set(records: Iterable[JsonDict]) -> dict[Path, list[int]]:
    numbers: defaultdict[Path, dict[int, None]] = defaultdict(dict)
    for record in records:
        numbers[Path(record["path"])][int(record["episode"])] = None
    return {path: list(some) for path, some in numbers.items()}


# -- data recover --------------------------------------------------------------------------------------------


def add_recover(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Repair a torn log as far as it can be read, and report what was lost."
    parser.add_argument("path", metavar="RUN", type=Path, help="the run with the torn log")
    parser.set_defaults(run=run_recover)


def run_recover(args: argparse.Namespace) -> int:
    """Repair the log and print the report."""
    from recorder.read.recover import recover

    print(recover(one_run(args.path)))
    return 0
