"""The verb of this plug-in: declared here, imported when it is asked for."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["camera"]

camera = Verb("rlenv_vision.cli", "serve images of a simulated robot", group="robot")
