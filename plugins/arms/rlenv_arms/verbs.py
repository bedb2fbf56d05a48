"""Declare the verbs of the arms plug-in, each of which is imported on use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["calibrate", "ports", "twin"]

calibrate = Verb(
    "rlenv_arms.cli.calibrate",
    "relate an arm's steps to angles, in our and LeRobot's files",
    group="robot",
    heading="connect",
)
ports = Verb(
    "rlenv_arms.cli.ports", "list serial ports, and the servos that answer there", group="robot", heading="connect"
)
twin = Verb("rlenv_arms.cli.twin", "serve a virtual arm on a serial port", group="robot", heading="without a robot")
