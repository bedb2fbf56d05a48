"""What a robot says of itself beside its readings: its loop, its clock; for the log and for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

__all__ = ["SelfReport", "report_of"]


@runtime_checkable
class SelfReport(Protocol):
    """What a `hal.Robot` is besides, if it knows more about itself than it measures."""

    def about(self) -> Mapping[str, Any]:
        """Plain data, as of now. Takes no longer than a step, and raises nothing."""
        ...


def report_of(robot: object) -> dict[str, Any]:
    """What a robot says of itself; empty if it says nothing."""
    return dict(robot.about()) if isinstance(robot, SelfReport) else {}
