"""When an arm rests is judged from its readings; a swing keeps the range and begins at rest."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hal.robot import RobotState
from hal.robots.so101 import HIGH, HOME, LOW, SO101, forward_kinematics
from rlenv_kit.bench.motion import Sample, Swing, rest_after


def samples(*degrees: float) -> list[Sample]:
    """Return a message every 10 ms, with one joint that moves and one that stays."""
    return [Sample(n / 100, "running", "", np.array([value, 5.0])) for n, value in enumerate(degrees)]


def test_an_arm_rests_from_the_message_on_after_which_it_stays() -> None:
    rest = rest_after(samples(0, 1, 2, 4, 6, 7, 6.2, 6.0, 6.1, 6.0), cause_s=0.025)
    assert rest.seconds == pytest.approx(0.06 - 0.025)
    assert rest.travel_deg == pytest.approx(5.0), "the farthest, not the last"
    assert rest.speed_deg_s == pytest.approx(100.0)
    assert (rest.before.at_s, rest.after.at_s) == (0.02, 0.09)


def test_an_arm_that_does_not_move_rests_at_once() -> None:
    rest = rest_after(samples(2, 2, 2.1, 2.0), cause_s=0.005)
    assert (rest.seconds, rest.speed_deg_s) == (0.0, 0.0)
    assert rest.travel_deg == pytest.approx(0.1)


@pytest.mark.parametrize("cause_s", [-1.0, 9.0])
def test_a_cause_outside_of_the_readings_is_refused(cause_s: float) -> None:
    with pytest.raises(ValueError, match="both sides"):
        rest_after(samples(0, 1, 2), cause_s)


def test_a_swing_keeps_the_range_and_the_guards_acceleration_at_its_begin() -> None:
    here = (np.array(HIGH) - 0.05).astype(np.float32)
    swing = Swing(SO101, RobotState({}, {"joint_target": here}, 0), joints=(0, 1, 2))
    targets = np.array([command["joint_target"] for command in swing.commands(6.0)])
    assert len(targets) == 180
    assert (targets >= np.array(LOW, np.float32)).all()
    assert (targets <= np.array(HIGH, np.float32)).all()
    assert np.abs(targets[0] - here).max() < 0.01
    assert (targets[:, 3:] == here[3:]).all()
    speeds = [np.abs(after - before).max() * 30 for before, after in itertools.pairwise(targets)]
    assert max(speeds) < 1.1 * 0.3 * math.pi


def test_no_swing_about_home_brings_the_gripper_to_the_table() -> None:
    swing = Swing(SO101, RobotState({}, {"joint_target": np.array(HOME, np.float32)}, 0), joints=(0, 1, 2))
    tips = np.array([forward_kinematics(command["joint_target"]) for command in swing.commands(6.0)])
    assert tips[:, 2].min() > 0.07
    assert np.abs(tips[:, 2] - forward_kinematics(np.array(HOME))[2]).max() < 0.08
    assert np.abs(tips[:, 1]).max() < 0.12
