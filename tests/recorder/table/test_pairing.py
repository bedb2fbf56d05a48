from __future__ import annotations

import pytest

from hal import Field
from recorder.table.pairing import UNPAIRED, pair_elements


def field(*names: str, size: int = 0) -> Field:
    return Field("x", (len(names) or size,), elements=names)


@pytest.mark.parametrize(
    ("measured", "command", "pairs"),
    [
        (field("a.pos", "b.pos"), field("b", "a"), [1, 0]),
        (field("base", "a.pos", "a.vel"), field("a.pos"), [UNPAIRED, 0, UNPAIRED]),
        (field("a", "b"), field("c", "d"), [0, 1]),
        (field(size=2), field(size=2), [0, 1]),
        (field(size=3), field(size=2), None),
        (field("a", "b", "c"), field("d", "e"), None),
    ],
)
def test_elements_are_paired_by_name_then_by_order(measured: Field, command: Field, pairs: list[int] | None) -> None:
    assert pair_elements(measured, command) == pairs
