"""Fixtures for tests of what wraps a robot."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakes import Puppet


@pytest.fixture
def puppet() -> Callable[..., Puppet]:
    return Puppet
