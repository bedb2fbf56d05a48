"""Every line of the table of robots names things that are there and fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hal import Spec
from hal.drivers.bus_arm import BusArm
from hal.drivers.calibration import nominal_calibration
from hal.robots.so101 import SO101
from rlenv_robot.robot_models import RobotModel, find_robot_model
from tests.shipped import SHIPPED_ROBOTS


@pytest.mark.parametrize("name", SHIPPED_ROBOTS)
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


TABLES = ("gimbal", "koch")
"""Robots that are tables of joints and nothing else: nobody has measured the faults of such an arm."""


@pytest.mark.parametrize("name", [name for name in SHIPPED_ROBOTS if name not in TABLES])
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


def test_an_so101_is_one_robot_in_simulation_on_a_bus_and_as_a_twin() -> None:
    model = find_robot_model("so101")
    driver = BusArm("/dev/null", nominal_calibration())
    twin = model.make_served_simulation("twin", seed=1)
    specs = [model.load_spec(), model.make_sim_model().spec, twin.spec, driver.spec]
    assert {spec.digest for spec in specs} == {SO101.digest}
    assert {spec.home["joint_target"] for spec in specs} == {SO101.home["joint_target"]}
    assert {str(spec.limits.to_dict()) for spec in specs} == {str(SO101.limits.to_dict())}
    twin.close()


def test_a_driver_with_another_order_of_joints_is_refused_with_the_differences() -> None:
    field = SO101.commands["joint_target"]
    swapped = replace(field, elements=(field.elements[1], field.elements[0], *field.elements[2:]))
    other = replace(SO101, commands=Spec("so101_commands", (swapped,)))

    class Arm(BusArm):
        spec = other

    model = RobotModel("so101", SO101, driver=Arm)
    with pytest.raises(ValueError, match="joint_target") as refused:
        model.make_driver({"port": "/dev/null", "calibration": nominal_calibration()})
    assert "shoulder_lift" in str(refused.value)
