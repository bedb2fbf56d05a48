"""The verbs of this plug-in: declared here, imported when they are asked for."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["units"]

units = Verb("rlenv_formats.cli.units", "declare the units of a LeRobot data set's joints")
