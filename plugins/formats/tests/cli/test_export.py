"""Mistakes with the options of ``rlenv-robot data export`` that a format refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rlenv_robot.cli.test_data import assert_refused

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("export", "{}/a", "{}/new", "--to", "parquet", "--size", "8x6"), "parquet holds none"),
        (("export", "{}/a", "{}/new", "--to", "minari", "--embed"), "--embed is for formats with such a choice"),
        (("export", "{}/a", "{}/new", "--to", "minari", "--size", "8"), "must be width x height in pixels"),
        (("export", "{}/a", "{}/b", "--to", "parquet"), "exists, and nothing is overwritten"),
    ],
)
def test_what_a_user_can_do_wrong(runs: Path, arguments: tuple[str, ...], told: str, capsys: Captured) -> None:
    assert_refused(runs, arguments, told, capsys)
