"""``rlenv-robot data``: look at recorded data, judge them, and make new data sets of them."""

from __future__ import annotations

import argparse

from rlenv_robot.cli.verbs import Verb, add_verbs, plugin_verbs

__all__ = ["VERBS", "add", "all_verbs"]

VERBS = {
    "ls": Verb("rlenv_robot.cli.data.view:add_ls", "list the runs in a folder"),
    "show": Verb("rlenv_robot.cli.data.view:add_show", "describe episodes, fields, returns and timing"),
    "label": Verb("rlenv_robot.cli.data.edit:add_label", "add verdicts and remarks to recorded episodes"),
    "export": Verb("rlenv_robot.cli.data.export", "write another project's format"),
    "recover": Verb("rlenv_robot.cli.data.edit:add_recover", "repair a torn log, and report what was lost"),
    "verify": Verb("rlenv_robot.cli.data.verify", "show that runs are as they were recorded, and sign them"),
}
"""The core's verbs of ``data``, in the order of the help. Packages declare further ones."""

_PLUGINS = {"rlenv_curate": ("check", "cut", "merge", "plot", "timeline"), "rlenv_formats": ("units",)}
"""The plug-ins of this repository, and the verbs that each brings; for the message where one is not installed."""


def all_verbs() -> dict[str, Verb]:
    """Return the verbs of ``data``, those of installed packages included, in the order of the help."""
    return {**VERBS, **plugin_verbs("rlenv_robot.data_verbs")}


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of ``data``."""
    parser.description = "List, describe and check recorded data, and make new data sets of them."
    parser.epilog = "rlenv-robot data PATH is short for rlenv-robot data show PATH."
    verbs = all_verbs()
    absent = {verb: package for package, brought in _PLUGINS.items() for verb in brought if verb not in verbs}
    add_verbs(parser, verbs, "show", absent)
