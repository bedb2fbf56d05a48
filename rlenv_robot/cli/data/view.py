"""Verbs of ``rlenv-robot data`` that only read: ``ls``, ``show``, ``plot`` and ``timeline``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlenv_robot.cli.data.selection import add_reading, choice, location, one_run, provenance, reading_options, runs_in
from rlenv_robot.cli.output import counted, one_line, print_table, progress

if TYPE_CHECKING:
    import numpy as np

    from recorder.read.reader import Event
    from rlenv_robot.recording.clocks import Clocks, MatchedFrames

__all__ = ["add_ls", "add_plot", "add_show", "add_timeline", "run_ls", "run_plot", "run_show", "run_timeline"]


def add_ls(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "List the runs and data sets in a folder, one on each line."
    parser.add_argument(
        "path", type=location, nargs="?", default=Path("."), help="a folder or address (default: the working directory)"
    )
    parser.set_defaults(run=run_ls)


def run_ls(args: argparse.Namespace) -> int:
    """Print a table, with a note below it for each run that can't be read."""
    from hal import SourceError
    from recorder.formats.registry import format_names, sets_in

    runs = runs_in(args.path)
    sets = [] if args.path.is_file() else sets_in(args.path)
    if not runs and not sets:
        formats = ", ".join(format_names())
        raise SourceError(f"{args.path} holds no runs (folders with a log.mcap) and no data set of {formats}")
    rows, problems = [], []
    with progress("reading") as report:
        for count, folder in enumerate([*runs, *sets]):
            report(count, len(runs) + len(sets))
            name = str(folder.relative_to(args.path)) if folder.is_relative_to(args.path) else str(folder)
            row, problem = _row(folder, folder.name if name == "." else name)
            rows.append(row)
            problems += [f"{folder}: {problem}"] if problem else []
    print_table("Runs", ("run", "began", "world", "episodes", "steps", "minutes", "size", "state"), rows)
    for problem in problems:
        print(f"note: {problem}")
    return 0


_TORN = ("torn", "damaged", "missing in", "are missing")
"""Words of the notes on data that are not whole."""


def _row(folder: Path, name: str) -> tuple[list[str], str]:
    """Return the cells of a run, and what is wrong with it, if anything is."""
    from hal import RobotError
    from rlenv_robot.data.folder import read_folder

    size = _size(folder)
    try:
        table = read_folder(folder)
    except RobotError as error:
        return [name, "", "", "", "", "", _bytes(size), "unreadable"], one_line(error)
    steps = int((table.stops - table.starts - 1).sum())
    spans = [int(table.rows["stamp_ns"][b - 1]) - int(table.rows["stamp_ns"][a])
             for a, b in zip(table.starts, table.stops, strict=True)]  # fmt: skip
    wall = int(table.rows["wall_ns"][0]) if len(table.rows) else 0
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(wall / 1e9)) if wall else ""
    torn = [
        note for note in table.notes if any(word in note for word in ("torn", "damaged", "missing in", "are missing"))
    ]
    row = [name, began, _world(table.episodes), str(len(table.starts)), str(steps), f"{sum(spans) / 6e10:.1f}"]
    return [*row, _bytes(size), "torn" if torn else "whole"], torn[0] if torn else ""


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder but the cached tables; those that can't be read are 0."""
    size = 0
    for one in path.rglob("*") if path.is_dir() else (path,):
        with suppress(OSError):
            size += one.stat().st_size if one.is_file() and "table" not in one.parts[-2:-1] else 0
    return size


def _world(episodes: Any) -> str:
    info = episodes[0] if episodes else {}
    text = str(info.get("task") or info.get("world") or "")
    return text if len(text) <= 32 else text[:29] + "..."


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


# -- data show -----------------------------------------------------------------------------------------------


_MAX_LISTED = 20
"""Episodes that are listed without ``--all``."""


def add_show(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Describe recorded data: episodes, fields with units and ranges, returns and timing."
    parser.add_argument("path", type=location, help="a run, a folder of runs, or a data set or its address")
    parser.add_argument("--task", help="compute observations and rewards anew for this task, such as so101-reach")
    parser.add_argument(
        "--goal", choices=("recorded", "hindsight"), default="recorded",
        help="goal of the task: the recorded one, or what the episode reached in the end (default: recorded)",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help=f"list every episode, not the first {_MAX_LISTED}")
    add_reading(parser)
    parser.set_defaults(run=run_show)


def run_show(args: argparse.Namespace) -> int:
    """Print a summary, a table of episodes and a table of fields."""
    from rlenv_robot.source import open_source

    source = open_source(args.path, args.task, goal=args.goal, **reading_options(args))
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
    from recorder.names import LOG_NAME

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
    return ["" if value != value else f"{value:.4g}" for value in values]  # NaN: not computed


# -- data plot -----------------------------------------------------------------------------------------------


def add_plot(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Plot one sheet for each episode: goals and measurements, the reward, and who chose the actions."
    )
    parser.add_argument("path", type=location, help="a run, a folder of runs, or a data set or its address")
    parser.add_argument(
        "--episodes", type=choice, default=choice("0"), help="their numbers, such as 0,2,5-9 (default: 0)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE",
                        help=".png, .svg or .pdf (default: episode.png); several files get numbers")  # fmt: skip
    parser.add_argument("--histograms", action="store_true",
                        help="one image of returns, lengths, timing and actions of all episodes instead")  # fmt: skip
    add_reading(parser)
    parser.set_defaults(run=run_plot)


def run_plot(args: argparse.Namespace) -> int:
    """Write the sheets and print their paths."""
    from recorder.figures.plot import plot_episode
    from rlenv_robot.data.folder import read_folder

    table = read_folder(args.path, **reading_options(args))
    if args.histograms:
        from recorder.figures.histograms import plot_histograms

        print(plot_histograms(table, args.out or Path("histograms.png")))
        return 0
    numbers = args.episodes.among(range(len(table.starts)))
    out = args.out or Path("episode.png")
    paths = []
    with progress("plotting") as report:
        for count, number in enumerate(numbers):
            report(count, len(numbers))
            path = out if len(numbers) == 1 else out.with_name(f"{out.stem}-{number:04d}{out.suffix}")
            paths.append(plot_episode(table, number, path))
    print("\n".join(map(str, paths)))
    return 0


# -- data timeline -------------------------------------------------------------------------------------------


def add_timeline(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Put a client's run and its controller's own run on one clock, with a bound on the error, and list the "
        "controller's events."
    )
    parser.add_argument("client", type=Path, help="a client's run on a served robot, or a folder with one run")
    parser.add_argument(
        "controller", type=Path, help="the controller's own run (rlenv-robot serve --record), or a folder with one run"
    )
    parser.set_defaults(run=run_timeline)


def run_timeline(args: argparse.Namespace) -> int:
    """Print the offset of the clocks, the times that commands and readings took, and the controller's events."""
    from recorder.read.reader import LogReader
    from rlenv_robot.recording.clocks import clocks_of, match_frames

    client, controller = one_run(args.client), one_run(args.controller)
    clocks, matched = clocks_of(client), match_frames(client, controller)
    _print_clocks(clocks)
    _print_times(matched)
    events = LogReader(controller).events()
    begin = min((event.detail["stamp_ns"] for event in events if "stamp_ns" in event.detail), default=0)
    print_table("The controller's events", ("second", "event", "detail"), _event_rows(events, begin))
    return 0


def _print_clocks(clocks: Clocks) -> None:
    import numpy as np

    ends = np.array([clocks.first_ns, clocks.last_ns])
    offset, error = clocks.offset(ends)
    print(f"the controller's clock minus the client's: {offset[0] / 1e9:.6f} s, within {error[0] / 1e3:.0f} us")
    if ends[1] > ends[0]:
        print(
            f"  {(ends[1] - ends[0]) / 1e9:.1f} s later: {(offset[1] - offset[0]) / 1e3:+.0f} us, "
            f"within {error[1] / 1e3:.0f} us"
        )
    if clocks.jumps:
        print(f"  a clock jumped {counted(clocks.jumps, 'time')} in between")


def _print_times(matched: MatchedFrames) -> None:
    print(f"{len(matched.rows)} of the client's {matched.frames} frames answer commands in the controller's log")
    if len(matched.rows):
        rows = (
            ("command sent", "command received", *_quantiles(matched.command_s)),
            ("command received", "reading captured", *_quantiles(matched.reading_s)),
        )
        print_table("Times", ("from", "to", "median", "99 %", "longest"), rows)


def _quantiles(seconds: np.ndarray) -> list[str]:
    import numpy as np

    return [f"{value * 1e3:.2f} ms" for value in (*np.quantile(seconds, (0.5, 0.99)), seconds.max())]


def _event_rows(events: Sequence[Event], begin_ns: int) -> Iterator[list[str]]:
    for event in sorted(events, key=lambda event: event.detail.get("stamp_ns", event.time_ns)):
        stamp = event.detail.get("stamp_ns")
        second = "" if stamp is None else f"{(stamp - begin_ns) / 1e9:.3f}"
        yield [second, event.kind, _detail(event)[:100]]


def _detail(event: Event) -> str:
    """Return the details of an event in a few words."""
    detail = event.detail
    if event.kind == "holder":
        return str(detail["name"] or "nobody")
    if event.kind == "life":
        return f"{detail['before']} -> {detail['after']}: {detail['why']}"
    plain = {
        name: value for name, value in detail.items() if name != "stamp_ns" and isinstance(value, str | int | float)
    }
    return ", ".join(f"{name} {value}" for name, value in plain.items())
