"""Start clients of a robot's server together with ``rlenv-robot serve``: the console and live views."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_operate.cli.view import add_targets

if TYPE_CHECKING:
    from rlenv_robot.config.profile import Profile

__all__ = ["ConsoleCompanion", "LiveViews"]


class ConsoleCompanion:
    """Start the operator's console, with the recording and the task that the profile names."""

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Declare the option ``--console``."""
        parser.add_argument(
            "--console", type=int, nargs="?", const=8400, metavar="PORT",
            help="serve the operator's page too, on this machine alone, in a process of its own (default port: 8400)",
        )  # fmt: skip

    def commands(self, args: argparse.Namespace, profile: Profile) -> Iterator[tuple[str, list[str]]]:
        """Yield the verb and its arguments, if the option was given."""
        if args.console is None:
            return
        arguments = ["--port", str(args.console), *(["--profile", args.profile] if args.profile else [])]
        folder = profile.serve.record or profile.record.folder
        if folder:
            arguments += ["--acts", str(Path(folder) / "acts.jsonl")]
        yield "operate console", arguments


class LiveViews:
    """Start the views in Foxglove and Rerun, each as a process, so that a slow viewer does not delay another."""

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options of the viewers."""
        add_targets(parser)

    def commands(self, args: argparse.Namespace, profile: Profile) -> Iterator[tuple[str, list[str]]]:
        """Yield the verb and its arguments for each requested viewer."""
        for option in ("foxglove", "rerun"):
            value = getattr(args, option)
            if value is not None:
                yield "operate view", [f"--{option}", value]
