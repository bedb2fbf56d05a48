"""``rlenv-robot data``: look at recorded data, judge them, and make new data sets of them."""

from __future__ import annotations

from rlenv_robot.cli.verbs import Verb

__all__ = ["VERBS"]

VERBS = {
    "ls": Verb("rlenv_robot.cli.data.view:add_ls", "list the runs in a folder", example="runs"),
    "show": Verb(
        "rlenv_robot.cli.data.view:add_show", "describe episodes, fields, returns and timing", example="runs --all"
    ),
    "plot": Verb("rlenv_robot.cli.data.view:add_plot", "plot episodes", example="runs --out returns.png"),
    "replay": Verb("rlenv_robot.cli.replay", "show a recorded episode"),
    "check": Verb("rlenv_robot.cli.data.check", "find gaps, frozen sensors, clipped actions, ...", example="runs"),
    "cut": Verb("rlenv_robot.cli.data.edit:add_cut", "copy some episodes, or a span of time, into a new run"),
    "merge": Verb(
        "rlenv_robot.cli.data.edit:add_merge",
        "copy several runs into one new run",
        example="morning afternoon --to merged",
    ),
    "label": Verb("rlenv_robot.cli.data.edit:add_label", "add verdicts and remarks to recorded episodes"),
    "units": Verb("rlenv_robot.cli.data.edit:add_units", "declare the units of a LeRobot data set's joints"),
    "export": Verb("rlenv_robot.cli.data.export", "write another project's format"),
    "recover": Verb(
        "rlenv_robot.cli.data.edit:add_recover", "repair a torn log, and report what was lost", example="runs"
    ),
    "verify": Verb("rlenv_robot.cli.data.verify", "show that runs are as they were recorded, and sign them"),
    "timeline": Verb(
        "rlenv_robot.cli.data.view:add_timeline",
        "put a client's run and its controller's on one clock",
        example="runs controller-runs",
    ),
}
"""Every verb of ``data``, in the order of the help."""
