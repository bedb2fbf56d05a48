"""Declare the verbs of the formats plug-in, each of which is imported on use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["fields", "push", "units"]

fields = Verb(
    "rlenv_formats.cli.fields", "propose the mapping of a ROS bag's topics", heading="read and write other formats"
)
push = Verb(
    "rlenv_formats.cli.push", "upload an export to the Hugging Face Hub", heading="read and write other formats"
)
units = Verb(
    "rlenv_formats.cli.units",
    "declare the units of a LeRobot data set's joints",
    heading="read and write other formats",
)
