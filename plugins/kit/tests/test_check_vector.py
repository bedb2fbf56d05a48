"""Batches keep their contract, whatever follows an episode's end."""

from __future__ import annotations

from typing import Any

import pytest

import rlenv_robot as rr
from plugins.kit.tests.plain import Sleds
from plugins.kit.tests.plain_batch import SledRows, SledRowsNextStep, SledRowsThatStay
from rlenv_kit import check_vector

pytestmark = pytest.mark.requirement("R4.3", "R6.2")


@pytest.mark.parametrize("make", [SledRows, SledRowsNextStep, SledRowsThatStay])
def test_plain_batches_are_not_accused(make: Any) -> None:
    report = check_vector(make, Sleds)
    report.raise_if_failed()
    assert [check.key for check in report.checks if check.passed is None] == [
        "inference",
        "messages",
        "snapshots",
        "orderly end",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("so101-reach", {"steps": 20}),
        ("so101-reach", {"steps": 20, "autoreset": "next_step", "mode": "inference"}),
        ("so101-reach", {"steps": 20, "autoreset": "disabled"}),
        ("so101-pair-lift", {"steps": 20}),
        ("go2-walk", {"steps": 20}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value,
)
def test_our_own_batches_are_not_accused(name: str, options: dict[str, Any]) -> None:
    report = check_vector(
        lambda num_envs: rr.make_vector(name, num_envs, threads=1, **options), lambda: rr.make(name, steps=20), steps=12
    )
    report.raise_if_failed()
    assert [check.key for check in report.checks if check.passed is None] == (
        [*(["inference"] if "mode" not in options else []), "messages", "process"]
    )


def test_seeds_that_share_episodes_are_noted() -> None:
    class SeedsOverlap(SledRows):
        def seed_of(self, seed: int, row: int) -> int:
            return seed + row

    report = check_vector(SeedsOverlap)
    report.raise_if_failed()
    assert any("two seeds share episodes" in str(note) for note in report.notes)


def test_one_row_is_no_batch() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        check_vector(SledRows, num_envs=1)
