"""Observe a server: every command, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hal.robot import RobotState

__all__ = ["ServerObserver"]


class ServerObserver:
    """Ignore every command and every outcome. A log derives from this class and overrides what it keeps.

    The methods are called between two movements of the robot: they never wait and never raise.
    """

    def ordered(self, request_id: Any, command: Mapping[str, np.ndarray] | None, sent_ns: int | None) -> None:
        """Take a command or a reset that has come; on the network's thread.

        Args:
            request_id: `real.server.lease.RequestId`: the request's number, and when it came.
            command: one value a field, of the spec that clients see; None: a reset.
            sent_ns: when its client says that it was sent, nanoseconds of this machine's monotonic clock; None: the
                client does not say.
        """

    def answered(self, request_id: Any, outcome: RobotState | Exception) -> None:
        """Take the outcome of a reset or a command; on the control thread, before its client is answered."""

    def to_dict(self) -> Mapping[str, Any] | None:
        """Return whether the log is kept, and if not, why, for clients that ask for the status; None: there is no log.

        From any thread.
        """
        return None
