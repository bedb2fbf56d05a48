"""``rlenv-robot data``: inspect and judge recorded data, and make new data sets from them."""

from __future__ import annotations

from rlenv_robot.cli.verbs import Verb, plugin_verbs

__all__ = ["VERBS", "all_verbs"]

VERBS = {
    "ls": Verb("rlenv_robot.cli.data.view:add_ls", "list the runs in a folder", example="runs", heading="look"),
    "show": Verb(
        "rlenv_robot.cli.data.view:add_show",
        "describe episodes, fields, returns and timing",
        example="runs --all",
        heading="look",
    ),
    "replay": Verb("rlenv_robot.cli.replay", "show a recorded episode", heading="look"),
    "export": Verb(
        "rlenv_robot.cli.data.export", "write another project's format", heading="read and write other formats"
    ),
}
"""The core's verbs of ``data``, in the order of the help. Packages declare further verbs."""


def all_verbs() -> dict[str, Verb]:
    """Return the verbs of ``data``, including those of installed packages, in the order of the help."""
    return {**VERBS, **plugin_verbs("rlenv_robot.data_verbs")}
