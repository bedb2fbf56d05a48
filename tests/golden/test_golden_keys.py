"""Keys, options, command lines and public names that users have written down go on working."""

from __future__ import annotations

import pytest

from tests.golden.list_keys import FILES
from tests.golden.stored import check


@pytest.mark.parametrize("name", FILES)
def test_the_names_that_users_write_are_as_they_were(name: str) -> None:
    check(name, FILES[name]())
