"""Test an environment or a robot against its contract, with tests that its own description generates (R4.3).

The complete test of your environment is::

    class TestMine(EnvironmentContract):
        def make(self):
            return rlenv_robot.make("so101-reach")

The import of each module is deferred until one of its names is used, which keeps the command line's help fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlenv_kit.contract import EnvironmentContract, RobotContract
    from rlenv_kit.environment import check_environment
    from rlenv_kit.illegal import IllegalCase, illegal_tables, illegal_values
    from rlenv_kit.json_subject import JsonSubject
    from rlenv_kit.report import Check, Note, Report
    from rlenv_kit.robot import check_robot
    from rlenv_kit.source_data import check_source
    from rlenv_kit.supervisor import Deadlines
    from rlenv_kit.vector import check_vector

__all__ = [
    "Check", "Deadlines", "EnvironmentContract", "IllegalCase", "JsonSubject", "Note", "Report", "RobotContract",
    "check_environment", "check_robot", "check_source", "check_vector", "illegal_tables", "illegal_values",
]  # fmt: skip

_MODULE_OF = {
    "Check": "report", "Deadlines": "supervisor", "EnvironmentContract": "contract", "IllegalCase": "illegal",
    "JsonSubject": "json_subject",
    "Note": "report", "Report": "report", "RobotContract": "contract", "check_environment": "environment",
    "check_robot": "robot", "check_source": "source_data", "check_vector": "vector", "illegal_tables": "illegal",
    "illegal_values": "illegal",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
