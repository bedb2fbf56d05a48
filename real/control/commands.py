"""What the control loop can be told to do next."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Finish", "Order", "Park", "Quit", "Reset", "Step"]


class Reset(NamedTuple):
    """An episode shall begin."""

    request_id: Any
    options: Mapping[str, Any]
    stops: int  # how many stops there had been when it was asked for


class Step(NamedTuple):
    """One control period of a command."""

    request_id: Any
    command: Mapping[str, np.ndarray]
    sent_ns: int | None = None  # on this machine's monotonic clock, as far as it is known


class Finish:
    """The client said goodbye."""


class Park(NamedTuple):
    """The server is about to end."""

    deadline_s: float
    done: threading.Event
    velocity: float | None = None  # fastest change of a command, units a second; None is `HomingSettings`' own


class Quit:
    """The loop is to end."""


Order = Reset | Step | Finish | Park | Quit
