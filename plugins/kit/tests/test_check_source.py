"""Source data of every kind keeps its contract, and what the standard leaves open is a note."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError
from plugins.kit.tests.plain_source import Records, RecordsAsLists
from rlenv_kit import Report, check_source
from tests.rlenv_robot.test_source import source

pytestmark = pytest.mark.requirement("R3.1", "R3.2", "R3.3", "R3.4", "R3.5", "R3.6", "R4.3")


def _not_tried(report: Report) -> set[str]:
    return {check.key for check in report.checks if check.passed is None} - {"requests"}  # of programs alone


@pytest.mark.parametrize("make", [Records, RecordsAsLists])
def test_plain_sources_are_not_accused(make: type) -> None:
    report = check_source(make)
    report.raise_if_failed()
    no_states = {
        "inference",
        "states",
        "kinds of statistics",
        "labels",
        "actions of a part",
        "stacks",
        "n steps",
        "pairs",
        "edges of states",
        "windows",
        "pieces",
        "pairs of the data",
        "look-ups",
    }
    no_options = {
        "filters with options", "weights", "errors", "once", "priority", "td errors", "threshold",
        "statistics of a part", "filters", "nothing left", "positions",
        "statistics of parts", "plain statistics",
    }  # fmt: skip
    assert _not_tried(report) == (no_states | no_options if make is RecordsAsLists else no_states)


@pytest.mark.parametrize("mode", ["training", "inference"])
def test_our_own_source_is_not_accused(mode: str) -> None:
    report = check_source(lambda: source(mode=mode))
    report.raise_if_failed()
    assert _not_tried(report) == (set() if mode == "inference" else {"inference"})


def test_a_recorded_run_keeps_the_contract(tmp_path: Path) -> None:
    with rr.make("so101-reach", record=tmp_path, steps=6) as env:
        for seed in range(4):
            table, rng = env.reset({"seed": seed}), np.random.default_rng(seed)
            while not table["truncated"]:
                action = env.action.sample(rng)
                table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    for task in (None, "so101-reach"):
        check_source(lambda task=task: rr.open_source(tmp_path, task=task)).raise_if_failed()


def test_a_source_that_hangs_is_given_up() -> None:
    import threading

    from rlenv_kit import Deadlines

    class Hangs(Records):
        def statistics(self, extra_info: object = {}) -> object:
            return threading.Event().wait(30)

    report = check_source(Hangs, deadlines=Deadlines(step=0.2))
    (finding,) = report.failures
    assert "did not return within 0.2 s" in finding.message


def test_many_trajectories_are_not_compared_one_by_one() -> None:
    class Many(Records):
        def sample_trajectories(self, trajectory_size: int, extra_info: object = {}) -> object:
            tables = super().sample_trajectories(trajectory_size)
            return [{**table, "trajectory_id": int(self.rng.integers(2**31))} for table in tables]

    report = check_source(Many)
    assert "same steps" in _not_tried(report)


def test_a_wrong_option_of_our_source_is_named() -> None:
    with pytest.raises(SourceError, match="no_such_option"):
        source().sample_steps(2, {"no_such_option": 1})
