"""What a robot may offer beside its steps, through whatever wraps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hal import Automatic, Field, Guard, Homing, Spec, SpecError, Streaming, StreamSpec
from hal.wrapper import pass_on, streams_of

IMU = StreamSpec("imu", Spec("imu", (Field("gyro", (3,)),)), 500)


def test_wrappers_pass_on_what_is_offered_and_where_it_goes(puppet: Callable[..., Any]) -> None:
    robot, given = puppet(), []
    robot.streams, robot.stream_to = (IMU,), given.append
    wrapped = Homing(Guard(robot), Automatic())
    assert isinstance(wrapped, Streaming)
    assert streams_of(wrapped) == (IMU,)
    sinks: dict[str, Any] = {"imu": object()}
    pass_on(wrapped, sinks)
    assert given == [sinks]


def test_a_robot_without_streams_offers_none(puppet: Callable[..., Any]) -> None:
    robot = puppet()
    assert not isinstance(robot, Streaming)
    assert streams_of(robot) == ()
    assert streams_of(Guard(robot)) == ()
    pass_on(Guard(robot), {})


@pytest.mark.parametrize(
    ("name", "rate_hz", "message"),
    [("IMU", 500, "a name is lower-case"), ("imu", 0, "rate_hz is 0"), ("imu", float("inf"), "above 0")],
)
def test_a_stream_that_makes_no_sense_is_refused(name: str, rate_hz: float, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        StreamSpec(name, IMU.spec, rate_hz)
