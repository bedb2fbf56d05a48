"""An arm that leaves its own history is flagged, an arm that does not is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hal import SourceError
from plugins.sim2real.tests.conftest import recorded_on, wandering
from rlenv_sim2real.drift import GAP_FILE, drifts, earlier_gaps, save_gaps
from rlenv_sim2real.gap import EpisodeGap, measure_gap
from rlenv_sim2real.open_loop import ReplayModel, without_contacts
from sim.robots.so101 import so101
from sim.robots.twin import IDENTIFIED, so101_twin


def gap_of(seed: int, shift_deg: float = 0.0, joint: int = 1, seconds: float = 30.0) -> EpisodeGap:
    """The gap of a twin whose one servo stops beside its goal by a shift, against the nominal simulation."""
    offset = np.array(IDENTIFIED.offset)
    offset[joint] -= np.radians(shift_deg)
    twin = so101_twin(servos=replace(IDENTIFIED, offset=tuple(offset.tolist())))
    model = ReplayModel("sim", without_contacts(so101(looks=False)))
    return measure_gap(model, recorded_on(without_contacts(twin), wandering(seconds, seed, 0.25)))[0]


@pytest.fixture(scope="module")
def history() -> list[dict]:
    return [gap_of(seed).to_dict() for seed in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("joint", [0, 1, 2, 3, 4])
def test_three_degrees_are_flagged_within_one_episode(history: list[dict], joint: int) -> None:
    new = gap_of(10, 3.0, joint)
    (drift,) = drifts(new, history)
    assert drift.joint == new.joints[joint].name
    assert np.degrees(drift.offset - drift.usual) == pytest.approx(3.0, abs=0.6)
    assert "calibrate --verify" in drift.line()


@pytest.mark.slow
def test_other_motions_of_the_same_arm_raise_no_alarm(history: list[dict]) -> None:
    for seed in range(20, 23):
        assert drifts(gap_of(seed), history) == []


@pytest.mark.slow
def test_without_a_history_or_against_another_simulation_there_is_no_alarm(history: list[dict]) -> None:
    shifted = gap_of(10, 3.0)
    assert drifts(shifted, []) == []
    assert [drift.joint for drift in drifts(shifted, history[:1])] == ["shoulder_lift"], "3 degrees, after one episode"
    assert drifts(replace(shifted, seconds=4.0), history) == []
    assert drifts(replace(shifted, model="twin"), history) == []


def test_gaps_lie_beside_their_logs_and_damaged_ones_are_named(tmp_path: Path, history: list[dict]) -> None:
    gap = gap_of(1, seconds=4.0)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        save_gaps(tmp_path / name, [gap])
    assert earlier_gaps(tmp_path, tmp_path / "second") == [json.loads(json.dumps(gap.to_dict()))]
    save_gaps(tmp_path / "first", [gap, gap])
    assert len(earlier_gaps(tmp_path, tmp_path / "second")) == 2
    (tmp_path / "first" / GAP_FILE).write_text('{"episodes": [{"model": "sim"}]}')
    with pytest.raises(SourceError, match=r"first.*gap\.json is not a file"):
        earlier_gaps(tmp_path, tmp_path / "second")
