"""Fixtures of tests that run the pages."""

from tests.rlenv_robot.adapters.conftest import *  # noqa: F403
from tests.rlenv_robot.conftest import *  # noqa: F403
from tests.sim.conftest import *  # noqa: F403
