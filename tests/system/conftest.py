"""Fixtures of tests with whole processes: the served robots of `tests.real`, and the world without physics."""

from tests.real.conftest import *  # noqa: F403
from tests.recorder.conftest import *  # noqa: F403
from tests.rlenv_robot.conftest import *  # noqa: F403
