"""The contracts as test classes: testing a new environment or robot takes three lines."""

from __future__ import annotations

from hal import Robot
from rlenv_kit.environment import check_environment
from rlenv_kit.probe import StandardEnvironment
from rlenv_kit.robot import check_robot

__all__ = ["EnvironmentContract", "RobotContract"]


class EnvironmentContract:
    """Test an environment: subclass this and define `make`, and pytest or unittest finds the test.

    Attributes:
        repeatable: False for a real machine, where equal seeds need not give equal episodes.
    """

    repeatable = True

    def make(self) -> StandardEnvironment:
        """Return a new environment."""
        raise NotImplementedError("define make(self), which returns a new environment")

    def test_it_keeps_the_contract(self) -> None:
        """Assert that every check passes."""
        check_environment(self.make(), repeatable=self.repeatable).raise_if_failed()


class RobotContract:
    """Test a robot: subclass this and define `make`, and pytest or unittest finds the test.

    Attributes:
        repeatable: False for a real machine, where equal seeds need not give equal states.
    """

    repeatable = True

    def make(self) -> Robot:
        """Return a new robot."""
        raise NotImplementedError("define make(self), which returns a new robot")

    def test_it_keeps_the_contract(self) -> None:
        """Assert that every check passes."""
        check_robot(self.make(), repeatable=self.repeatable).raise_if_failed()
