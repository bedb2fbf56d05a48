"""Fixtures that the plug-ins' tests share with the core's."""

from tests.rlenv_robot.conftest import *  # noqa: F403
