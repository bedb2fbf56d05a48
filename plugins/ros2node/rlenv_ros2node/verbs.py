"""Declare the verb of this plug-in, which is imported on first use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["ros2"]

ros2 = Verb("rlenv_ros2node.cli", "offer a served robot to ROS 2 nodes", group="robot", heading="connect")
