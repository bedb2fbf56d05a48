from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, IllegalAction, Limits, Robot, RobotSpec, Spec, SpecError, StreamSpec
from hal.robot import DELAYS, GAINS, Actuation, Range, check_reset_options, elements_of
from hal.robots.so101 import SO101

SENSORS = Spec("sensors", (Field("angle", (2,)),))
COMMANDS = Spec("commands", (Field("target", (2,), "float32", -1, 1), Field("gear", (), "int8", 0, 3)))


def robot(**changes: Any) -> RobotSpec:
    return RobotSpec(**{"name": "legs", "sensors": SENSORS, "commands": COMMANDS, "rate_hz": 50} | changes)


def test_plain_data_and_back() -> None:
    restored = RobotSpec.from_dict(json.loads(json.dumps(SO101.to_dict())))
    assert restored == SO101
    assert restored.digest == SO101.digest


def test_arrays_and_lists_describe_the_same_robot_as_tuples() -> None:
    zeros, fastest = np.zeros(6), np.full(6, 5.0)
    given = replace(SO101, home={"joint_target": zeros}, max_rate={"joint_position": fastest.tolist()})
    same = replace(SO101, home={"joint_target": (0.0,) * 6}, max_rate={"joint_position": (5.0,) * 6})
    assert given == same == RobotSpec.from_dict(json.loads(json.dumps(given.to_dict())))


def test_a_whole_rate_is_the_same_rate() -> None:
    assert robot(rate_hz=50).digest == robot(rate_hz=50.0).digest
    assert robot().period_s == 0.02


@pytest.mark.parametrize("change", [{"name": "arms"}, {"rate_hz": 49}, {"sensors": Spec("none")}])
def test_a_change_of_the_contract_changes_digest_and_difference(change: dict[str, Any]) -> None:
    other = robot(**change)
    assert other.digest != robot().digest
    assert len(robot().difference(other)) == 1
    assert next(iter(change)) in robot().difference(other)[0]


def test_limits_and_home_are_not_part_of_the_contract() -> None:
    other = robot(limits=Limits({"target": 1.0}), home={"target": (0, 0)})
    assert other.digest == robot().digest
    assert robot().difference(other) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rate_hz": 0}, "above 0"),
        ({"rate_hz": np.nan}, "above 0"),
        ({"rate_hz": np.inf}, "above 0"),
        ({"measured_by": {"gear": "angle"}}, "differ in shape"),
        ({"measured_by": {"target": "speed"}}, "no field 'speed'"),
        ({"home": {"aim": (0, 0)}}, "no field 'aim'"),
        ({"home": {"target": (0, 2)}}, r"home.target\[1\] is 2"),
        ({"limits": Limits(max_velocity={"aim": 1.0})}, "no field 'aim'"),
        ({"limits": Limits(max_velocity={"target": (1.0, 2.0, 3.0)})}, "has 3 numbers"),
        ({"limits": Limits(max_velocity={"gear": 1.0})}, "'gear' is int8"),
        ({"limits": Limits(max_lead={"target": 1.0})}, "needs measured_by.target"),
        ({"limits": Limits({"target": 1.0}, max_acceleration={"target": (1.0,)})}, "max_acceleration.target has 1 num"),
        ({"limits": Limits(max_effort={"torque": 1.0})}, "no field 'torque'"),
        ({"limits": Limits(max_effort={"angle": (1.0, 2.0, 3.0)})}, "the sensor has shape"),
        ({"max_age_s": {"angel": 0.1}}, "no field 'angel'"),
        ({"max_age_s": {"angle": 0}}, "max_age_s.angle is 0"),
    ],
)
def test_parts_that_contradict_each_other_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        robot(**wrong)


@pytest.mark.parametrize("name", ["os:abort", "notes:arm", "../arm", "/arm", "arm.xml", "", " arm", "arm\n", "a" * 101])
def test_a_name_that_may_be_taken_for_a_path_or_for_code_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="robot name"):
        robot(name=name)
    with pytest.raises(SpecError, match="robot name"):
        RobotSpec.from_dict(robot().to_dict() | {"name": name})
    assert robot(name="unitree go2 v1.1").name == "unitree go2 v1.1"


@pytest.mark.parametrize(
    "change", [{"rate_hz": "fast"}, {"sensors": 1}, {"limits": {"speed": 1}}, {"cameras": [{}]}, {"home": 3}]
)
def test_data_that_is_no_description_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        RobotSpec.from_dict(SO101.to_dict() | change)
    with pytest.raises(SpecError):
        RobotSpec.from_dict({})


def test_a_description_can_be_changed_with_replace() -> None:
    assert replace(SO101, rate_hz=60).period_s == pytest.approx(1 / 60)


def test_anything_with_the_five_members_is_a_robot(puppet: Any) -> None:
    assert isinstance(puppet(), Robot)
    assert not isinstance(object(), Robot)


@pytest.mark.parametrize(
    ("name", "rate_hz", "message"),
    [("IMU", 500, "lower-case"), ("imu", 0, "rate_hz is 0"), ("imu", float("inf"), "above 0")],
)
def test_a_stream_with_an_impossible_name_or_rate_is_refused(name: str, rate_hz: float, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        StreamSpec(name, Spec("imu", (Field("gyro", (3,)),)), rate_hz)


@pytest.mark.parametrize(
    ("options", "code", "field"),
    [
        ({"start": 5}, "dtype", "start"),
        ({"start": None}, "dtype", "start"),
        ({"start": "here"}, "dtype", "start"),
        ({"start": [1]}, "dtype", "start"),
        ({"start": {"aim": (0, 0)}}, "unknown", "start.aim"),
        ({"start": {5: (0, 0)}}, "unknown", "start.5"),
        ({"start": {"target": (0, 2)}}, "range", "start.target"),
        ({"start": {"target": "home"}}, "dtype", "start.target"),
        ({"seed": "x"}, "dtype", "seed"),
        ({"seed": -1}, "dtype", "seed"),
        ({"seed": True}, "dtype", "seed"),
    ],
)
def test_options_of_a_reset_that_break_their_description_are_refused(
    options: dict[str, Any], code: str, field: str
) -> None:
    with pytest.raises(IllegalAction) as error:
        check_reset_options(COMMANDS, options)
    assert (error.value.violation.code, error.value.violation.field) == (code, field)


@pytest.mark.parametrize(
    "options",
    [{}, {"seed": None}, {"seed": 3, "start": {"gear": 1}}, {"start": {}, "other": [1]}, {"start": "present"}],
)
def test_other_options_of_a_reset_are_the_robots_own(options: dict[str, Any]) -> None:
    check_reset_options(COMMANDS, options)


# -- gains and delays ----------------------------------------------------------------------------------------


_ENDS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2).map(sorted)
_TABLE = st.dictionaries(st.sampled_from(sorted(GAINS)), _ENDS)


@given(st.dictionaries(st.text(min_size=1), _TABLE), st.dictionaries(st.sampled_from(sorted(DELAYS)), _ENDS))
def test_an_actuation_survives_its_plain_data(
    gains: dict[str, dict[str, list[float]]], delays: dict[str, list[float]]
) -> None:
    made = Actuation.from_dict({"gains": gains, "delays": delays})
    assert Actuation.from_dict(json.loads(json.dumps(made.to_dict()))) == made


@pytest.mark.parametrize("wrong", [[2, 1], [1, 2, 3], "3", [0, float("inf")], float("nan"), [True, 2], None, True])
def test_a_gain_that_is_no_range_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(SpecError, match=r"gains\.pan\.p"):
        Actuation({"pan": {"p": wrong}})  # type: ignore[dict-item]


def test_unknown_gains_and_delays_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(SpecError, match="stiffness"):
        Actuation({"pan": {"kp": 3.0}})  # type: ignore[dict-item]
    with pytest.raises(SpecError, match="command, reading"):
        Actuation({}, {"image": Range(0.0, 0.1)})
    with pytest.raises(SpecError, match="not an actuation"):
        Actuation.from_dict({"gains": {}})


def test_elements_bear_the_names_of_the_joints() -> None:
    fields = (
        Field("target", (2,), "float32", -1.0, 1.0, "rad", "", ("pan", "lift")),
        Field("grip", (), "float32", 0.0, 1.0, "1", ""),
        Field("other", (2,), "float32", 0.0, 1.0, "1", ""),
    )
    assert elements_of(Spec("commands", fields)) == ("target.pan", "target.lift", "grip", "other.0", "other.1")
