"""Serve the robot of a profile on the network from a script, as ``rlenv-robot serve`` does."""

from rlenv_robot.serving.robot_server import (
    DRIVER_HANGS,
    TerminationSignals,
    Waiter,
    build_controller_log,
    build_robot,
    build_server,
    homing_settings,
    profile_driver,
    reset_confirmation,
    serve,
)

__all__ = [
    "DRIVER_HANGS", "TerminationSignals", "Waiter", "build_controller_log", "build_robot", "build_server",
    "homing_settings", "profile_driver", "reset_confirmation", "serve",
]  # fmt: skip
