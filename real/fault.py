"""What is done with a robot that raises."""

from __future__ import annotations

import logging

from hal.errors import EpisodeError, RobotStopped
from hal.guard import Guard
from real.failure import stopped_by
from real.life import Lifecycle

__all__ = ["stop_faulty"]

_log = logging.getLogger(__name__)


def stop_faulty(guard: Guard, lifecycle: Lifecycle, where: str, error: Exception) -> Exception:
    """Stop a robot that raised, as it can't be trusted to have moved, and log what it raised. Serving goes on.

    Args:
        guard: the robot's; stopped unless the error only says that it is, or that there is no episode.
        life: told of the stop.
        where: what was under way.
        error: what it raised.

    Returns:
        What its client is told.
    """
    if guard.stopped is not None:
        lifecycle.stop(guard.stopped)
    if isinstance(error, RobotStopped | EpisodeError):
        return error
    _log.error("the robot failed in %s", where, exc_info=error)
    reason = f"fault in {where}: {type(error).__name__}: {error}"
    try:
        guard.stop(reason)
    except Exception:
        _log.exception("and its stop failed too")
    lifecycle.stop(reason)
    return stopped_by(error)
