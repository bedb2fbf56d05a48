"""Declare the verb of the vision plug-in, which is imported on use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["camera"]

camera = Verb("rlenv_vision.cli", "serve images of a simulated robot", group="robot", heading="without a robot")
