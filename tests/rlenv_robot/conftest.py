"""Fixtures for tests that must hold in any world."""

from __future__ import annotations

import pytest

from tests.fakes import Slider


@pytest.fixture
def slider() -> Slider:
    return Slider()


@pytest.fixture
def slider_class() -> type[Slider]:
    return Slider
