"""Declare the verbs of the Kaiwu plug-in, each of which is imported on use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["kaiwu"]

kaiwu = Verb(
    "rlenv_kaiwu.cli.kaiwu",
    "run, evaluate, test and write projects of Tencent's Kaiwu framework",
    example="new my-project",
    heading="other projects",
)
