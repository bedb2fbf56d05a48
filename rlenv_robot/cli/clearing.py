"""Declare and read the options of verbs whose first reset can clear a latched stop."""

from __future__ import annotations

import argparse

__all__ = ["add_clearing", "clearing"]


def add_clearing(parser: argparse.ArgumentParser) -> None:
    """Declare the options that let the first reset of a verb clear a stop."""
    parser.add_argument("--clear-stop", metavar="WHY", default="", help="clear a latched stop, saying what you found")
    parser.add_argument(
        "--stop-number", type=int, metavar="N",
        help="the stop that you looked at, as `rlenv-robot robot status` shows it; a later one is not cleared",
    )  # fmt: skip


def clearing(args: argparse.Namespace) -> dict[str, object]:
    """Return the options of the first reset, as given by the arguments of `add_clearing`.

    Raises:
        ValueError: a stop's number was given without a reason.
    """
    if not args.clear_stop:
        if args.stop_number is not None:
            raise ValueError("--stop-number names the stop that --clear-stop WHY clears; say what you found as WHY")
        return {}
    number = {} if args.stop_number is None else {"stop_number": args.stop_number}
    return {"clear_stop": args.clear_stop, **number}
