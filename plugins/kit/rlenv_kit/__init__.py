"""Test an environment or a robot against its contract, with tests that its own description generates (R4.3).

The whole test of an environment of your own is::

    class TestMine(EnvironmentContract):
        def make(self):
            return rlenv_robot.make("so101-reach")
"""

from rlenv_kit.contract import EnvironmentContract, RobotContract
from rlenv_kit.environment import check_environment
from rlenv_kit.illegal import IllegalCase, illegal_tables, illegal_values
from rlenv_kit.report import Check, Note, Report
from rlenv_kit.robot import check_robot
from rlenv_kit.source_data import check_source
from rlenv_kit.supervisor import Deadlines
from rlenv_kit.vector import check_vector

__all__ = [
    "Check", "Deadlines", "EnvironmentContract", "IllegalCase", "Note", "Report", "RobotContract",
    "check_environment", "check_robot", "check_source", "check_vector", "illegal_tables", "illegal_values",
]  # fmt: skip
