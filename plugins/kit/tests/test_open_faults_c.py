"""The kit sees faults of the third set that were opened after it had been measured with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugins.kit.faults import environment_c
from rlenv_kit import check_environment

pytestmark = pytest.mark.requirement("R4.3")

OPEN = json.loads((Path(environment_c.__file__).parent / "open_c.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", OPEN)
def test_an_opened_fault_is_accused(name: str) -> None:
    made: Any = getattr(environment_c, name)
    assert check_environment(made).failures
