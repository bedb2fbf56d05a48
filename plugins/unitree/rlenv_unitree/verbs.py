"""Declare the verbs of the Unitree plug-in, each of which is imported on use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["virtual_go2"]

virtual_go2 = Verb(
    "rlenv_unitree.cli",
    "run a virtual Go2 that speaks DDS",
    group="robot",
    example="--mode ''",
    heading="without a robot",
)
