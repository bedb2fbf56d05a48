"""Every line of the table of robots names things that are there and fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlenv_robot.robot_models import find_robot_model, robot_names


@pytest.mark.parametrize("name", robot_names())
def test_a_kind_is_what_its_line_says(name: str) -> None:
    spec = find_robot_model(name).load_spec()
    assert spec.name == name
    for looks in (False, True):
        assert find_robot_model(name).make_sim_model(looks=looks).spec.digest == spec.digest


def test_an_unknown_kind_is_told_its_neighbour() -> None:
    with pytest.raises(ValueError, match="robot 'so101-cub' is unknown, did you mean 'so101-cube'"):
        find_robot_model("so101-cub")


def test_a_kind_without_a_twin_says_so() -> None:
    with pytest.raises(ValueError, match="no twin of 'so101-cube', use 'sim'"):
        replace(find_robot_model("so101-cube"), twin=None).make_served_simulation("twin")


@pytest.mark.parametrize("name", robot_names())
def test_every_shipped_kind_has_a_twin_that_is_served(name: str) -> None:
    model = find_robot_model(name)
    robot = model.make_served_simulation("twin", seed=2)
    try:
        assert robot.spec.digest == model.load_spec().digest
        model.load_spec().sensors.validate(robot.reset({"seed": 1}).sensors)
    finally:
        robot.close()


def test_a_served_simulation_has_only_two_worlds() -> None:
    with pytest.raises(ValueError, match="'sim' or 'twin', this is 'real'"):
        find_robot_model("so101").make_served_simulation("real")


def test_a_served_robot_begins_where_it_lies() -> None:
    robot = find_robot_model("so101").make_served_simulation("twin", seed=3)
    first = robot.reset({"start": {"joint_target": [0.5] * 6}}).sensors["joint_position"]
    robot.close()
    assert abs(first - 0.5).max() > 0.3, "hardware does not jump to a start"
