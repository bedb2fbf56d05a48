"""Describe the log that a server keeps of itself, which a package provides."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hal import ProfileError, Robot
from hal.errors import missing_plugin
from real.control.observer import ServerObserver
from rlenv_robot.config.plugins import PluginTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from real.server.server import Server
    from rlenv_robot.config.profile import Profile

__all__ = ["ServerLog", "open_server_log"]

_PLUGIN = "rlenv_operate"


class ServerLog(ServerObserver):
    """The log of one server, as `rlenv_robot.serving.serve` uses it.

    Attributes:
        failure: why nothing is recorded, or None.
    """

    failure: str | None

    @property
    @abstractmethod
    def run(self) -> Path | None:
        """The folder of the run; None without one."""

    @abstractmethod
    def wrap(self, robot: Robot) -> Robot:
        """Open the log and wrap a robot for it. If the log can't be opened, the robot is wrapped all the same."""

    @abstractmethod
    def report(self, state: str, detail: str) -> None:
        """Log the progress of a reset, as `hal.Homing` reports it."""

    @abstractmethod
    def watch(self, server: Server) -> AbstractContextManager[object]:
        """Return a context in which the log is written; it ends after the server does."""


def open_server_log(profile: Profile, control_hz: float | None) -> ServerLog:
    """Return the log of a profile's server.

    An entry point ``controller`` of the group ``rlenv_robot.server_logs`` names a function with these arguments.

    Args:
        profile: with ``serve.record``.
        control_hz: commands per second of a client; None for one in each period of the robot.

    Raises:
        ProfileError: no installed package keeps such logs.
    """
    logs = PluginTable("server log", "rlenv_robot.server_logs", {})
    if "controller" not in logs:
        problem = f"the controller's log is in {missing_plugin(_PLUGIN)}"
        raise ProfileError(profile.file, "serve.record", problem)
    return cast("Callable[[Profile, float | None], ServerLog]", logs.load("controller"))(profile, control_hz)
