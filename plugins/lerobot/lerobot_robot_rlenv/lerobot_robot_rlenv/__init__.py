"""Drive any robot that rlenv-robot serves with LeRobot's own tools: ``--robot.type=rlenv``."""

from lerobot_robot_rlenv.robot import RlenvRobot, RlenvRobotConfig

__all__ = ["RlenvRobot", "RlenvRobotConfig"]
