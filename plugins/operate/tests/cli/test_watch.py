"""``robot watch``: what it prints, and how often it looks."""

from __future__ import annotations

import pytest

from rlenv_operate.cli import watch
from rlenv_robot.cli.main import main

Captured = pytest.CaptureFixture[str]


def test_watch_prints_changes_alone() -> None:
    ready, running = {"state": "ready", "holder": "desk"}, {"state": "running", "holder": "desk"}
    looks = iter([ready, ready, running, "nobody listens there", "nobody listens there", ready])
    assert list(watch.changes(looks)) == [
        "ready; client: desk",
        "running; client: desk",
        "no answer: nobody listens there",
        "ready; client: desk",
    ]


@pytest.mark.parametrize("period", ["nan", "0", "inf"])
def test_watch_refuses_a_period_without_end(period: str, capsys: Captured) -> None:
    assert main(["watch", "--period", period]) == 2
    assert "--period" in capsys.readouterr().err
