"""``rlenv-robot data show``: describe recorded data: episodes, fields with units and ranges, returns, timing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recorder.names import LOG_NAME
from rlenv_robot.cli.data.selection import provenance
from rlenv_robot.cli.output import print_table

__all__ = ["add", "run"]

_MAX_LISTED = 20
"""Episodes that are listed without ``--all``."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Describe recorded data: episodes, fields with units and ranges, returns and timing."
    parser.add_argument("path", help="a run, a folder of runs, or a LeRobot data set (3.0 or 2.1)")
    parser.add_argument("--task", help="compute observations and rewards anew for this task, such as so101-reach")
    parser.add_argument(
        "--goal", choices=("recorded", "hindsight"), default="recorded",
        help="goal of the task: the recorded one, or what the episode reached in the end (default: recorded)",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help=f"list every episode, not the first {_MAX_LISTED}")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a summary, a table of episodes and a table of fields."""
    from rlenv_robot.source import open_source

    source = open_source(args.path, args.task, goal=args.goal)
    summary = source.statistics() or {}
    episodes = (source.statistics({"kind": "episodes"}) or {})["episodes"]
    print("\n".join([*_head(summary), *_provenance(Path(args.path))]))
    listed = episodes if args.all else episodes[:_MAX_LISTED]
    print_table("Episodes", ("episode", "steps", "return", "end", "success", "source", "lost"), map(_episode, listed))
    if len(listed) < len(episodes):
        print(f"  ... {len(episodes) - len(listed)} more, --all lists them")
    head = ("field", "element", "unit", "lowest", "mean", "highest")
    rows = (row for name, statistics in summary["fields"].items() for row in _field(name, statistics))
    print_table("Fields", head, rows)
    for note in summary["notes"]:
        print(f"note: {note}")
    return 0


def _head(summary: Mapping[str, Any]) -> Iterator[str]:
    yield f"{summary['origin']}: {summary['episodes']} episodes, {summary['steps']} steps"
    returns = summary["returns"]
    if returns is None:
        yield "returns: unknown, some rewards are missing; --task NAME computes them if the sensors suffice"
    else:
        yield "returns: " + ", ".join(f"{word} {returns[key]:.4g}" for word, key in _RETURNS)
    timing = summary["timing"]
    if timing is None:
        yield "timing: unknown, the data have no clock"
    else:
        yield (
            f"timing: {1 / timing['nominal_s']:.4g} Hz, longest period {timing['largest_s'] * 1e3:.4g} ms, "
            f"{timing['share_late']:.2%} late, {timing['lost']} steps lost in gaps"
        )
    if summary["interventions"]:
        yield f"a person chose {summary['interventions']} of the actions"


def _provenance(path: Path) -> Iterator[str]:
    """Describe the origin of a single run of ours; yield nothing for anything else."""
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


def _field(name: str, statistics: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Yield a row for each element of a vector, or one row for anything larger."""
    unit, low, mean, high = statistics["unit"], statistics["min"], statistics["mean"], statistics["max"]
    if not isinstance(low, list):
        yield (name, "", unit, *_numbers(low, mean, high))
    elif low and isinstance(low[0], list):
        yield (name, "all", unit, *_numbers(_extreme(low, min), float("nan"), _extreme(high, max)))
    else:
        labels = statistics["elements"] or [str(index) for index in range(len(low))]
        for index, label in enumerate(labels):
            yield (
                name if index == 0 else "",
                label,
                unit,
                *_numbers(low[index], mean[index], high[index]),
            )


def _extreme(nested: Any, choose: Callable[[Iterator[float]], float]) -> float:
    """Return the minimum or maximum of nested lists."""
    return choose(_extreme(item, choose) for item in nested) if isinstance(nested, list) else float(nested)


def _numbers(*values: float) -> list[str]:
    return ["" if value != value else f"{value:.5g}" for value in values]  # NaN: not computed
