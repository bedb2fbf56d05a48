"""Declare the verb of this plug-in, which is imported on first use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["topics"]

topics = Verb(
    "rlenv_ros2.cli",
    "list the ROS 2 nodes and topics of a network, and what does not match",
    group="robot",
    example="tcp/localhost:7447 --domain 5",
    heading="connect",
)
