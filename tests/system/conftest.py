"""Fixtures of tests with whole processes: those of the served robots."""

from tests.real.conftest import identities, network, nothing_is_left, robot, start, start_command, target, until

__all__ = ["identities", "network", "nothing_is_left", "robot", "start", "start_command", "target", "until"]
