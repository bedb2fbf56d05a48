"""The verbs of this plug-in: declared here, imported when they are asked for."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["kaiwu"]

kaiwu = Verb(
    "rlenv_kaiwu.cli.kaiwu",
    "run, test and write projects of Tencent's Kaiwu framework",
    example="new my-project",
)
