"""Give LeRobot's tools the actions of a leader arm, a served robot or a recorded run: ``--teleop.type=rlenv``."""

from lerobot_teleoperator_rlenv.teleoperator import RlenvTeleoperator, RlenvTeleoperatorConfig

__all__ = ["RlenvTeleoperator", "RlenvTeleoperatorConfig"]
