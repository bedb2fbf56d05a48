"""`Rows` draw whole rows: with one number an episode for `randomise` and `timing`, alone and in a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hal import SpecError
from sim.batch import SimBatch
from sim.latency import DelayModel
from sim.model import SimModel
from sim.randomize.distribution import Rows, check_rows, distribution
from sim.randomize.randomise import Randomise
from sim.robot import SimRobot
from sim.robots.so101 import so101

DAMPING, DELAY, FRICTION = (0.1, 0.2, 0.3, 0.4, 0.5), (0.0, 0.01, 0.02, 0.03, 0.04), (0.01, 0.02, 0.03)
LINES = {
    "joint.b.damping": {"rows": DAMPING, "unit": "N m s/rad"},
    "joint.a.frictionloss": {"rows": FRICTION, "group": "left", "unit": "N m"},
    "joint.c.frictionloss": {"rows": FRICTION, "group": "right", "unit": "N m"},
}
TIMING = {"command_delay": {"rows": DELAY}, "backlash": {"bend": {"rows": FRICTION, "group": "left"}}}


def settings(lines: dict[str, Any] = LINES, timing: dict[str, Any] = TIMING) -> dict[str, Any]:
    return {"randomise": Randomise.from_dict(lines), "timing": DelayModel.from_dict(timing)}


def test_all_rows_of_a_group_are_drawn_together(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 40, 1, **settings())
    batch.reset(seeds=np.arange(40))
    drawn = batch.drawn
    row, left, right = (drawn[name].astype(int) for name in ("row", "row.left", "row.right"))
    np.testing.assert_array_equal(drawn["joint.b.damping"], np.take(DAMPING, row))
    np.testing.assert_array_equal(drawn["timing.command_delay"], np.take(DELAY, row))
    np.testing.assert_array_equal(drawn["joint.a.frictionloss"], np.take(FRICTION, left))
    np.testing.assert_array_equal(drawn["timing.backlash.bend"], np.take(FRICTION, left))
    np.testing.assert_array_equal(drawn["joint.c.frictionloss"], np.take(FRICTION, right))
    assert set(row.tolist()) == {0, 1, 2, 3, 4}
    assert len(set(zip(left.tolist(), right.tolist(), strict=True))) == 9, "groups are drawn apart"


@pytest.mark.requirement("R1.3")
def test_rows_depend_on_seed_and_episode_only(pendulum: SimModel) -> None:
    alone = SimRobot(pendulum, **settings())
    many = SimBatch(pendulum, 5, 2, **settings())
    timed = SimBatch(pendulum, 1, 1, timing=DelayModel.from_dict({"command_delay": {"rows": DELAY}}))
    alone.reset({"seed": 7})
    many.reset(seeds=[1, 2, 4, 7, 9])
    timed.reset(seeds=[7])
    seen = []
    for _ in range(12):
        assert {name: value[3] for name, value in many.drawn.items()} == alone.drawn
        assert timed.drawn["row"][0] == alone.drawn["row"]
        seen.append(alone.drawn["row"])
        alone.reset({})
        many.reset()
        timed.reset()
    assert len(set(seen)) > 2, "each episode draws anew"


def test_a_snapshot_keeps_the_row(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 6, 1, **settings())
    batch.reset(seeds=np.arange(6))
    before, kept = batch.drawn, batch.snapshot()
    batch.reset(seeds=np.arange(10, 16))
    assert not np.array_equal(batch.drawn["row"], before["row"])
    batch.restore(kept)
    for name, value in before.items():
        np.testing.assert_array_equal(batch.drawn[name], value)


def test_a_line_beside_rows_changes_no_draw(pendulum: SimModel) -> None:
    plain = {"joint.c.damping": {"uniform": [0.1, 0.9], "unit": "N m s/rad"}}
    one, other = (SimBatch(pendulum, 3, 1, **settings(lines)) for lines in (plain, {**plain, **LINES}))
    one.reset(seeds=[1, 2, 3])
    other.reset(seeds=[1, 2, 3])
    np.testing.assert_array_equal(one.drawn["joint.c.damping"], other.drawn["joint.c.damping"])


def test_tables_of_different_length_are_refused(pendulum: SimModel) -> None:
    short = {"command_delay": {"rows": DELAY[:2]}}
    for make in (
        lambda: SimRobot(pendulum, **settings(timing=short)),
        lambda: SimBatch(pendulum, 2, **settings(timing=short)),
    ):
        with pytest.raises(
            SpecError, match=r"randomise\.joint\.b\.damping: has 5 rows, and timing\.command_delay has 2"
        ):
            make()
    with pytest.raises(SpecError, match=r"timing\.backlash\.bend: has 3 rows"):
        DelayModel.from_dict({"command_delay": {"rows": DELAY}, "backlash": {"bend": {"rows": FRICTION}}})
    check_rows(timing=DelayModel.from_dict(TIMING), randomise=None)


def test_jitter_can_have_no_rows() -> None:
    with pytest.raises(SpecError, match="drawn for every message"):
        DelayModel.from_dict({"command_jitter": {"rows": [0.0, 0.01]}})


def test_every_row_is_as_likely() -> None:
    made = distribution({"rows": [3, 1, 2], "group": "left"})
    assert made == Rows((3.0, 1.0, 2.0), "left")
    assert isinstance(made, Rows)
    share = (np.arange(30) + 0.5) / 30
    np.testing.assert_array_equal(made.quantile(share), np.repeat([3.0, 1.0, 2.0], 10))
    assert (made.low, made.high, made.name) == (1.0, 3.0, "row.left")
    assert str(made) == "by row of left, one of 3: 1 to 3"


@pytest.mark.parametrize(
    "plain",
    [{"rows": []}, {"rows": [float("nan")]}, {"rows": 3}, {"group": "left"}, {"rows": [1], "group": 2},
     {"rows": [1], "choice": [1]}],
)  # fmt: skip
def test_rows_that_are_none_are_refused(plain: Any) -> None:
    with pytest.raises(ValueError, match=r"rows|group"):
        distribution(plain)


def test_an_arm_draws_a_whole_row_of_gains() -> None:
    gains = {"actuator.*.kp": {"rows": [5.0, 9.0], "unit": "N m/rad"}}
    gains |= {"actuator.elbow_flex.biasprm[0]": {"rows": [-0.5, 0.9], "unit": "N m"}}
    batch = SimBatch(so101(looks=False), 8, 1, randomise=Randomise.from_dict(gains))
    batch.reset(seeds=np.arange(8))
    for number, row in enumerate(batch.drawn["row"].astype(int).tolist()):
        model = batch.open_batch.get_model(number)
        assert model.actuator_gainprm[:6, 0].tolist() == [(5.0, 9.0)[row]] * 6
        assert model.actuator_biasprm[2, :2].tolist() == [(-0.5, 0.9)[row], -(5.0, 9.0)[row]]
