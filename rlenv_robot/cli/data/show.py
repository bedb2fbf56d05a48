"""``rlenv-robot data show``: what recorded data hold: episodes, fields with units and ranges, returns, gaps."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recorder.names import LOG_NAME
from rlenv_robot.cli.data.selection import provenance
from rlenv_robot.cli.output import print_table

__all__ = ["add", "run"]

_MOST = 20
"""How many episodes are listed unless all are asked for."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Describe recorded data: episodes, fields with units and ranges, returns and timing."
    parser.add_argument("path", help="a run, a folder of runs, or a LeRobot data set (3.0 or 2.1)")
    parser.add_argument("--task", help="compute observation and reward anew for this task, such as so101-reach")
    goals = "of the task: as recorded, or what was reached in the end (default: recorded)"
    parser.add_argument("--goal", choices=("recorded", "hindsight"), default="recorded", help=goals)
    parser.add_argument("--all", action="store_true", help=f"list every episode, not the first {_MOST}")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the tables."""
    from rlenv_robot.source import open_source

    source = open_source(args.path, args.task, goal=args.goal)
    summary = source.statistics() or {}
    episodes = (source.statistics({"kind": "episodes"}) or {})["episodes"]
    print("\n".join([*_head(summary), *_about(Path(args.path))]))
    shown = episodes if args.all else episodes[:_MOST]
    print_table("Episodes", ("episode", "steps", "return", "end", "success", "source", "lost"), map(_episode, shown))
    if len(shown) < len(episodes):
        print(f"  ... {len(episodes) - len(shown)} more, --all lists them")
    head = ("field", "element", "unit", "lowest", "mean", "highest")
    rows = (row for name, figures in summary["fields"].items() for row in _field(name, figures))
    print_table("Fields", head, rows)
    for note in summary["notes"]:
        print(f"note: {note}")
    return 0


def _head(summary: Mapping[str, Any]) -> Iterator[str]:
    yield f"{summary['origin']}: {summary['episodes']} episodes, {summary['steps']} steps"
    returns = summary["returns"]
    if returns is None:
        yield "returns: unknown, some rewards are missing; --task computes them where the sensors allow it"
    else:
        yield "returns: " + ", ".join(f"{word} {returns[key]:.4g}" for word, key in _RETURNS)
    timing = summary["timing"]
    if timing is None:
        yield "timing: the data have no clock"
    else:
        yield (
            f"timing: {1 / timing['nominal_s']:.4g} Hz, longest period {timing['largest_s'] * 1e3:.4g} ms, "
            f"{timing['share_late']:.2%} late, {timing['lost']} steps lost in gaps"
        )
    if summary["interventions"]:
        yield f"a person chose {summary['interventions']} of the actions"


def _about(path: Path) -> Iterator[str]:
    """What a single run of ours says of itself."""
    if (path / LOG_NAME).is_file() or path.name == LOG_NAME:
        yield from provenance(path)


_RETURNS = (("lowest", "min"), ("median", "q50"), ("mean", "mean"), ("highest", "max"))


def _episode(line: Mapping[str, Any]) -> list[str]:
    value, success = line["return"], line["success"]
    return [
        str(line["episode"]),
        str(line["length"]),
        "unknown" if value is None else f"{value:.2f}",
        str(line["end"] or "unknown"),
        {True: "yes", False: "no", None: ""}[success],
        str(line["source"] or line["policy"] or ""),
        str(line["lost"] or ""),
    ]


def _field(name: str, figures: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """One row an element of a vector; only the whole range of anything larger."""
    low, mean, high = figures["min"], figures["mean"], figures["max"]
    if not isinstance(low, list):
        yield (name, "", figures["unit"], *_numbers(low, mean, high))
    elif low and isinstance(low[0], list):
        yield (name, "all", figures["unit"], *_numbers(_flat(low, min), float("nan"), _flat(high, max)))
    else:
        labels = figures["elements"] or [str(index) for index in range(len(low))]
        for index, label in enumerate(labels):
            yield (name if index == 0 else "", label, figures["unit"], *_numbers(low[index], mean[index], high[index]))


def _flat(nested: Any, choose: Any) -> float:
    return choose(_flat(each, choose) for each in nested) if isinstance(nested, list) else float(nested)


def _numbers(*values: float) -> list[str]:
    return ["" if value != value else f"{value:.5g}" for value in values]  # NaN: not computed
