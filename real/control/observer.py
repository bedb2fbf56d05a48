"""Observe every command of a server and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hal.robot import RobotState

__all__ = ["ServerObserver"]


class ServerObserver:
    """Ignore every command and every outcome. A log derives from this class and overrides the methods that it needs.

    The methods are called between two movements of the robot: they must never wait and never raise.
    """

    def ordered(self, request_id: Any, command: Mapping[str, np.ndarray] | None, sent_ns: int | None) -> None:
        """Observe the arrival of a command or a reset, on the network's thread.

        Args:
            request_id: a `real.server.lease.RequestId`, with the request's number and time of arrival.
            command: one value for each field of the spec that clients see; None for a reset.
            sent_ns: time of sending according to the client, nanoseconds of this machine's monotonic clock; None if the
                client does not give it.
        """

    def answered(self, request_id: Any, outcome: RobotState | Exception) -> None:
        """Observe the outcome of a reset or a command, on the control thread before the client gets the answer."""

    def to_dict(self) -> Mapping[str, Any] | None:
        """Return for a status request whether the log is kept, and if not, why; None without a log.

        May be called from any thread.
        """
        return None
