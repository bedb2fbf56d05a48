"""Declare the verb of the plug-in, which is imported on use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["select"]

select = Verb(
    "rlenv_episode_index.cli.select",
    "find episodes of many data sets, and save a selection of them",
    heading="choose, label and copy",
)
