"""Start the bridge to ROS 2 together with ``rlenv-robot serve``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlenv_robot.config.profile import Profile

__all__ = ["Ros2Companion"]


class Ros2Companion:
    """Start the bridge as a process, with its default settings."""

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Declare the option ``--ros2``."""
        parser.add_argument(
            "--ros2", nargs="?", const="", metavar="ROUTER",
            help="offer the robot to ROS 2 nodes too, over Zenoh (default: the router at tcp/localhost:7447)",
        )  # fmt: skip

    def commands(self, args: argparse.Namespace, profile: Profile) -> Iterator[tuple[str, list[str]]]:
        """Yield the verb and its arguments, if the option was given."""
        if args.ros2 is not None:
            yield "robot ros2", ["--router", args.ros2] if args.ros2 else []
