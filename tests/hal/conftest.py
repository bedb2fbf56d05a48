"""Fixtures for tests of what wraps a robot."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.fakes import Puppet


@pytest.fixture
def puppet(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Puppet]:
    """A robot whose steps take no time; to a guard without a clock of its own, each takes a second."""
    monkeypatch.setattr("hal.guard.time", SimpleNamespace(monotonic=itertools.count(100.0).__next__))
    return Puppet
