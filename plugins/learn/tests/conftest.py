"""The table that tests of adapters share."""

from tests.rlenv_robot.adapters.conftest import *  # noqa: F403
