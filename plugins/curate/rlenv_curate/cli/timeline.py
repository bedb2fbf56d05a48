"""``rlenv-robot data timeline``: put a client's run and its controller's run on one clock."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.data.selection import one_run
from rlenv_robot.cli.output import counted, print_table

if TYPE_CHECKING:
    import numpy as np

    from recorder.read.reader import Event
    from rlenv_curate.clocks import Clocks, MatchedFrames

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Put a client's run and its controller's own run on one clock, with a bound on the error, and list the "
        "controller's events."
    )
    parser.add_argument("client", type=Path, help="a client's run on a served robot, or a folder with one run")
    parser.add_argument(
        "controller", type=Path, help="the controller's own run (rlenv-robot serve --record), or a folder with one run"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the clocks' offset, the delays of commands and readings, and the controller's events."""
    from recorder.read.reader import LogReader
    from rlenv_curate.clocks import clocks_of, match_frames

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
