"""Both ends of a wire may be of different commits: bytes, rows and digests stay as they were."""

from __future__ import annotations

import pytest

from tests.golden.describe_wire import FILES
from tests.golden.stored import check


@pytest.mark.parametrize("name", FILES)
def test_the_wire_is_as_it_was(name: str) -> None:
    check(name, FILES[name]())
