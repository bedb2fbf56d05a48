"""``rlenv-robot robot power-cut test``: measure how soon the supply is cut after each kind of death of the server."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlenv_power_cut.trial import Outcome

__all__ = ["add", "describe", "histogram", "run"]

_SOAK = 1000


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Start a server of a simulated robot beside a board, let it die, and measure when the supply was off, many "
        "times for each kind of death. The times are taken outside of the server. The exit code is 1 if a cut came too "
        "late."
    )
    parser.epilog = """
Kinds of death: killed (SIGKILL), frozen (SIGSTOP, and SIGCONT afterwards), unplugged (the virtual board's port
disappears), interpreter (a call holds Python's lock), loop (the driver hangs in a step; its set time has the loop's and
a period in addition).

Without a port the firmware runs on a virtual board. On a real one disconnect the arm first. Examples:

  rlenv-robot robot power-cut test --count 20
  rlenv-robot robot power-cut test --soak --out power-cut.json
  rlenv-robot robot power-cut test --port /dev/ttyACM1 --kinds killed frozen interpreter loop
"""
    parser.add_argument("--port", help="serial port of a real board (default: a virtual one)")
    parser.add_argument(
        "--kinds", nargs="+", metavar="KIND", help="kinds of death (default: all that the board allows)"
    )
    parser.add_argument("--count", type=int, default=20, help="deaths of each kind (default: %(default)s)")
    parser.add_argument("--soak", action="store_true", help=f"{_SOAK} deaths of each kind, for hours")
    parser.add_argument("--cut-ms", type=int, default=200, metavar="MS", help="cut time (default: %(default)s)")
    parser.add_argument("--loop-ms", type=int, default=250, metavar="MS",
                        help="longest silence of the control loop (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="draws the moments of death (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all times as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the trials, print a table and histograms, and return 1 if one failed.

    Raises:
        PowerCutError: as for `rlenv_power_cut.trial.measure`.
    """
    import dataclasses

    from rlenv_power_cut.trial import KINDS, measure
    from rlenv_robot.cli.output import say

    count = _SOAK if args.soak else args.count
    kinds = args.kinds or [kind for kind in KINDS if args.port is None or kind != "unplugged"]

    def show(outcome: Outcome) -> None:
        done = len(outcome.delays_ms) + outcome.never
        if done % 50 == 0 and done < count:
            say(f"{outcome.kind}: {done} of {count}")

    outcomes = measure(kinds, count, args.cut_ms, args.loop_ms, args.port, seed=args.seed, on_death=show)
    for outcome in outcomes:
        say(describe(outcome))
        for line in histogram(outcome.delays_ms):
            say(f"  {line}")
    if args.out:
        args.out.write_text(json.dumps([dataclasses.asdict(outcome) for outcome in outcomes]))
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def describe(outcome: Outcome) -> str:
    """Return the result of one kind as one line."""
    count, delays = len(outcome.delays_ms) + outcome.never, sorted(outcome.delays_ms)
    if not delays:
        return f"{outcome.kind}: the supply stayed on in {outcome.never} of {count}"
    middle, late = delays[len(delays) // 2], delays[-max(1, len(delays) // 100)]
    return (
        f"{outcome.kind}: off within {outcome.set_ms} ms in {outcome.within} of {count}, less the trial's own waits "
        f"for a processor in {outcome.within_without_waits}; median {middle:.1f}, 99 % {late:.1f}, longest "
        f"{delays[-1]:.1f}, shortest {delays[0]:.1f} ms; stayed on {outcome.never}, back after a revival "
        f"{outcome.revived}, cut before the death and tried again {outcome.early}"
    )


def histogram(delays_ms: list[float], width_ms: int = 10) -> list[str]:
    """Return a line for each class of delays that occurs, with its count."""
    counts: dict[int, int] = {}
    for delay in delays_ms:
        counts[int(delay // width_ms)] = counts.get(int(delay // width_ms), 0) + 1
    return [f"{at * width_ms:4} to {(at + 1) * width_ms:4} ms {counts[at]:5}" for at in sorted(counts)]
