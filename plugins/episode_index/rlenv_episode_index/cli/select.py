"""``rlenv-robot data select``: find episodes, and save, join, part or mend selections of them."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.data.selection import (
    add_author,
    add_filters,
    add_reading,
    author,
    filter_options,
    location,
    set_options,
)
from rlenv_robot.cli.output import counted, print_table, progress

if TYPE_CHECKING:
    from rlenv_episode_index.manifest import Selection
    from rlenv_episode_index.selecting import Found

__all__ = ["add", "run"]

_LISTED = 20


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "List the episodes of runs, data sets and selections that fit, or save a selection of them. Nothing is copied."
    )
    parser.epilog = """
A selection is a small file that is opened like a data set. It fits as long as the episodes are as they were.

Examples:

  rlenv-robot data select SETS --where "steps > 100 and task_text like '%cup%'"
  rlenv-robot data select SETS --success --tag wrist --out good.selection.json
  rlenv-robot data select a.selection.json b.selection.json --out both.selection.json
  rlenv-robot data select good.selection.json --without odd.selection.json --out better.selection.json
  rlenv-robot data select good.selection.json --split 0.2 --seed 0
"""
    parser.add_argument("paths", metavar="SET", type=location, nargs="+", help="runs, data sets, folders, selections")
    parser.add_argument("--out", metavar="FILE", type=Path, help="the new selection, NAME.selection.json")
    parser.add_argument(
        "--without", metavar="SELECTION", type=Path, action="append", default=[],
        help="leave out the episodes of this selection, and copies of them",
    )  # fmt: skip
    parser.add_argument("--unique", action="store_true", help="take one of several equal episodes")
    parser.add_argument("--split", metavar="SHARE", type=float, help="hold out this share: NAME.train and NAME.test")
    parser.add_argument("--seed", type=int, default=0, help="of the split (default: 0)")
    parser.add_argument("--order", metavar="COLUMNS", help="of the list, such as 'success, steps desc'")
    parser.add_argument("--all", action="store_true", help=f"list every episode, not the first {_LISTED}")
    parser.add_argument(
        "--leave-out-changed", action="store_true", help="leave out episodes of a selection that are not as they were"
    )
    parser.add_argument(
        "--moved", metavar="FOLDER", type=Path, action="append", default=[], help="look here for sets that were moved"
    )
    add_author(parser, "selection")
    add_filters(parser, episodes=False)
    add_reading(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List the episodes that fit, or write the selection and print a summary of it."""
    from rlenv_episode_index.manifest import read_selection, write_selection
    from rlenv_episode_index.selecting import find_episodes, select, without
    from rlenv_robot.data.condition import condition_of

    if args.split is not None and args.out is None:
        return _split(args, args.paths)
    if args.split is not None:
        raise ValueError("--split takes one selection and names its parts itself; leave --out away")
    options = filter_options(args)
    top = options.pop("top_fraction", None)
    where = condition_of(options)
    with progress("reading") as report:
        found = find_episodes(
            args.paths, _undiscarded(where), reading=_reading(args), top_fraction=top, digests=args.out is not None,
            leave_out_changed=args.leave_out_changed, moved=args.moved, order=args.order, report=report,
        )  # fmt: skip
    if args.out is None:
        return _list(found, args)
    asked = args.where if options.keys() == {"where"} else " ".join(where.split())
    words = asked + (f" (best {top:g} by return)" if top is not None else "")
    selection = select(found, words.strip(), author(args), args.unique)
    if args.without:
        selection = without(selection, map(read_selection, args.without))
    write_selection(selection, args.out)
    _say(args.out, selection, found.total)
    for note in found.notes:
        print(f"note: {note}")
    return 0


def _undiscarded(where: str) -> str:
    """Return the condition, without the discarded episodes unless it speaks of verdicts."""
    if "verdict" in where:
        return where
    kept = "coalesce(verdict, '') <> 'discard'"
    return f"({where}) and {kept}" if where else kept


def _reading(args: argparse.Namespace) -> dict[str, object]:
    return {name: value for name, value in set_options(args).items() if value is not None}


def _list(found: Found, args: argparse.Namespace) -> int:
    listed = found.records if args.all else found.records[:_LISTED]
    print(f"{counted(len(found.records), 'episode')} of {found.total} fit")
    head = ("episode", "steps", "began", "task", "success", "tags", "note")
    print_table("Episodes", head, ([_cell(record, name) for name in head] for record in listed))
    if len(listed) < len(found.records):
        print(f"  ... {len(found.records) - len(listed)} more, --all lists them, --out saves a selection of them")
    for note in found.notes:
        print(f"note: {note}")
    return 0


def _cell(record: dict[str, object], name: str) -> str:
    if name == "episode":
        return str(record["key"])
    value = record["task_text"] if name == "task" else record[name]
    if name == "success":
        return "" if value is None else "yes" if value else "no"
    text = ", ".join(value) if isinstance(value, list) else str(value if value is not None else "")
    return text if len(text) <= 40 else text[:37] + "..."


def _say(path: Path, selection: Selection, total: int) -> None:
    sets = counted(len(selection.sets), "set")
    print(f"{path}: {counted(len(selection), 'episode')} of {total}, in {sets}, digest {selection.digest}")
    print(f"  look at it: rlenv-robot data browse {shlex.quote(str(path))}")


def _split(args: argparse.Namespace, paths: list[Path]) -> int:
    """Write the two parts of a selection beside it."""
    from rlenv_episode_index.manifest import is_selection, write_selection
    from rlenv_episode_index.selecting import split
    from rlenv_episode_index.sets import SELECTION_SUFFIX

    if len(paths) != 1 or not is_selection(paths[0]):
        raise ValueError("--split takes one selection, NAME.selection.json; save one by --out first")
    stem = paths[0].name.removesuffix(SELECTION_SUFFIX)
    parts = split(paths[0], args.split, args.seed)
    places = [paths[0].with_name(f"{stem}.{word}{SELECTION_SUFFIX}") for word in ("train", "test")]
    for place in places:
        if place.exists():
            raise ValueError(f"{place} exists, and nothing is overwritten; rename it")
    for part, place in zip(parts, places, strict=True):
        write_selection(part, place)
        _say(place, part, len(parts[0]) + len(parts[1]))
    return 0
