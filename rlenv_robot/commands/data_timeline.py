"""``rlenv-robot data timeline``: what a client recorded and what the robot's controller did, on one clock."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlenv_robot.commands.table import print_table

__all__ = ["add", "run"]


def add(subparsers: Any) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "timeline", help="put a client's run and its controller's on one clock", description=__doc__
    )
    parser.add_argument("client", type=Path, help="a client's run on a served robot, or a folder with one")
    words = "a run of that controller's own (rlenv-robot serve --record), or a folder with one"
    parser.add_argument("controller", type=Path, help=words)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print how the clocks lie, what of one log is in the other, and what happened, in order."""
    from recorder.reader import LogReader
    from rlenv_robot.data_tools.runs import one_run
    from rlenv_robot.data_tools.timeline import clocks_of, met

    client, controller = one_run(args.client), one_run(args.controller)
    clocks, found = clocks_of(client), met(client, controller)
    ends = np.array([clocks.first_ns, clocks.last_ns])
    offset, error = clocks.offset(ends)
    print(f"the controller's clock minus the client's: {offset[0] / 1e9:.6f} s, within {error[0] / 1e3:.0f} us")
    if ends[1] > ends[0]:
        print(
            f"  {(ends[1] - ends[0]) / 1e9:.1f} s later {(offset[1] - offset[0]) / 1e3:+.0f} us, "
            f"within {error[1] / 1e3:.0f} us"
        )
    if clocks.jumps:
        print(f"  a clock has jumped {clocks.jumps} times in between")
    print(f"{len(found.rows)} of the client's {found.frames} frames answered commands that are in the controller's log")
    if len(found.rows):
        head = ("from", "to", "median", "99 %", "longest")
        rows = (
            ("sent", "came to the controller", *_times(found.command_s)),
            ("came", "reading that answered", *_times(found.reading_s)),
        )
        print_table("How long it took", head, rows)
    theirs = LogReader(controller)
    begin = min((event.detail["stamp_ns"] for event in theirs.events() if "stamp_ns" in event.detail), default=0)
    print_table("The controller's events", ("second", "what", "detail"), _events(theirs.events(), begin))
    return 0


def _times(seconds: np.ndarray) -> list[str]:
    return [f"{value * 1e3:.2f} ms" for value in (*np.quantile(seconds, (0.5, 0.99)), seconds.max())]


def _events(events: Sequence[Any], begin_ns: int) -> Iterator[list[str]]:
    for event in sorted(events, key=lambda event: event.detail.get("stamp_ns", event.time_ns)):
        detail = {name: value for name, value in event.detail.items() if name != "stamp_ns"}
        stamp = event.detail.get("stamp_ns")
        second = "" if stamp is None else f"{(stamp - begin_ns) / 1e9:.3f}"
        if event.kind == "holder":
            text = detail["name"] or "nobody"
        elif event.kind == "life":
            text = f"{detail['before']} -> {detail['after']}: {detail['why']}"
        else:
            text = ", ".join(
                f"{name} {value}" for name, value in detail.items() if isinstance(value, str | int | float)
            )
        yield [second, event.kind, text[:100]]
