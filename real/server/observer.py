"""What a server tells whoever keeps its log: every order, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from hal.robot import Robot, RobotState
from real.control.loop import Answerer, ControlLoop
from real.server.lease import RequestId

__all__ = ["ObservedLoop", "ServerObserver"]


class ServerObserver(Protocol):
    """Keeps what a server does. Its methods are called between two movements of the robot: they never wait or raise."""

    def ordered(self, request_id: RequestId, command: Mapping[str, np.ndarray] | None, sent_ns: int | None) -> None:
        """A command or a reset came; on the network's thread.

        Args:
            token: of the order; its number, and when it came.
            command: one value a field, of the spec that clients see; None: a reset.
            sent_ns: when its client says that it was sent, on this machine's monotonic clock; None: it does not say.
        """
        ...

    def answered(self, request_id: RequestId, outcome: RobotState | Exception) -> None:
        """What came of a reset or a command; on the loop's thread."""
        ...

    def to_dict(self) -> Mapping[str, Any]:
        """Whether it is kept, and if not, why; for whoever asks the server how it is. From any thread."""
        ...


class ObservedLoop(ControlLoop):
    """A `ControlLoop` that tells a diary of every order and every answer.

    Args:
        robot, answer, settings: as of `ControlLoop`.
        diary: is told.
    """

    def __init__(self, robot: Robot, answer: Answerer, observer: ServerObserver, **settings: Any) -> None:
        def told(request_id: Any, outcome: RobotState | Exception) -> None:
            answer(request_id, outcome)  # first: somebody waits for it
            observer.answered(request_id, outcome)

        super().__init__(robot, told, **settings)
        self._observer = observer

    def reset(self, request_id: Any, options: Mapping[str, Any]) -> None:
        """As `ControlLoop.reset`."""
        self._observer.ordered(request_id, None, None)
        super().reset(request_id, options)

    def step(self, request_id: Any, command: Mapping[str, np.ndarray], sent_ns: int | None = None) -> None:
        """As `ControlLoop.step`."""
        self._observer.ordered(request_id, command, sent_ns)
        super().step(request_id, command, sent_ns)
