"""Shorter waits for the tests of the conformance kit."""

from __future__ import annotations

import pytest

from rlenv_kit import robot_stops


@pytest.fixture(autouse=True)
def short_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kit look at a stop that holds after 0.1 s, since no fault here waits longer."""
    monkeypatch.setattr(robot_stops, "_LATCHED_S", 0.1)
