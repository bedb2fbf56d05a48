"""``rlenv-robot data``: look at recorded data, judge them, and make new data sets of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["VERBS", "add"]

VERBS = ("ls", "show", "plot", "check", "cut", "merge", "label", "export", "recover", "timeline")
"""In the order of the help; each is a module of `rlenv_robot.cli.data`."""


def add(subparsers: Any) -> None:
    """Declare the verb and those below it."""
    parser = subparsers.add_parser(
        "data", help="list, describe, check, cut, label and export recorded data", description=__doc__,
        epilog="rlenv-robot data PATH is short for rlenv-robot data show PATH.",
    )  # fmt: skip
    below = parser.add_subparsers(title="verbs", metavar="VERB", required=True, action=_ShowByDefault)
    for verb in VERBS:
        import_module(f"rlenv_robot.cli.data.{verb}").add(below)


class _ShowByDefault(argparse._SubParsersAction):
    """Takes a path in the place of a verb as ``show`` of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Else the parser itself refuses a path before this is asked.
        self.choices = None  # type: ignore[assignment]

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        words = [str(word) for word in values or ()]
        if words[0] not in VERBS:
            if not (Path(words[0]).exists() or "/" in words[0]):
                parser.error(f"{words[0]!r} is neither a verb nor a path; verbs are {', '.join(VERBS)}")
            words = ["show", *words]
        super().__call__(parser, namespace, words, option_string)
