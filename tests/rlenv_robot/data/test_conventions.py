"""Data and policies of an arm with other zeros and signs are refused, with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import Spec
from recorder.table.table import Table


def _without_convention(spec: Spec) -> Spec:
    return Spec(spec.name, tuple(replace(field, convention="") for field in spec))


def _as_recorded_before(table: Table) -> Table:
    layout = table.layout
    specs = ("observation", "action", "applied", "sensors")
    return replace(
        table, layout=replace(layout, **{name: _without_convention(getattr(layout, name)) for name in specs})
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with rr.make("so101-reach", record=tmp_path, steps=5) as env:
        table = env.reset({"seed": 1})
        while not table["truncated"]:
            action = {"joint_target": np.asarray(table["observation"]["joint_goal"])}
            table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    return tmp_path


def test_a_log_of_the_mirrored_arm_is_not_rewarded(run: Path) -> None:
    from rlenv_robot.data.relabel import relabelled
    from rlenv_robot.registry import task

    table = rr.open_source(run).table
    assert len(relabelled(table, task("so101-reach")).rows) == len(table.rows)
    with pytest.raises(rr.SourceError, match="joint_position: convention: so101_new_calib here, none there"):
        relabelled(_as_recorded_before(table), task("so101-reach"))


def test_a_log_of_the_mirrored_arm_is_not_drawn(run: Path) -> None:
    from rlenv_robot.rendering.show import twin_images

    with pytest.raises(rr.SourceError, match="convention"):
        twin_images(_as_recorded_before(rr.open_source(run).table), 0, {})


def test_a_policy_for_the_mirrored_arm_is_not_run() -> None:
    from rlenv_robot.registry import task

    reach = task("so101-reach")
    before = _without_convention(reach.observation)
    assert reach.observation.digest != before.digest
    assert any("convention" in line for line in reach.observation.difference(before))
