"""The contract as test classes, so that testing a new environment or robot takes three lines."""

from __future__ import annotations

from hal import Robot
from rlenv_robot.conformance.environment import check_environment
from rlenv_robot.conformance.probe import StandardEnvironment
from rlenv_robot.conformance.robot import check_robot

__all__ = ["EnvironmentContract", "RobotContract"]


class EnvironmentContract:
    """Derive, give `make`, and pytest or unittest's loader finds the rest.

    Attributes:
        repeatable: False for a real machine (see `check_environment`).
    """

    repeatable = True

    def make(self) -> StandardEnvironment:
        """A new environment."""
        raise NotImplementedError("give a make(self) that returns a new environment")

    def test_it_keeps_the_contract(self) -> None:
        """Every check passes."""
        check_environment(self.make(), repeatable=self.repeatable).raise_if_failed()


class RobotContract:
    """Derive, give `make`, and pytest or unittest's loader finds the rest.

    Attributes:
        repeatable: False for a real machine (see `check_robot`).
    """

    repeatable = True

    def make(self) -> Robot:
        """A new robot."""
        raise NotImplementedError("give a make(self) that returns a new robot")

    def test_it_keeps_the_contract(self) -> None:
        """Every check passes."""
        check_robot(self.make(), repeatable=self.repeatable).raise_if_failed()
