"""Fixtures that the tests of this plug-in share with the core's."""

from tests.recorder.conftest import *  # noqa: F403
from tests.rlenv_robot.cli.test_data import made, runs  # noqa: F401
