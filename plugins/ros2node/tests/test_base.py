"""A mobile base as a ROS 2 node: its battery, its velocities, and names below a namespace."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from plugins.kit.tests.wheels import Base
from plugins.ros2node.tests.conftest import Joined
from plugins.ros2node.tests.test_setpoints import twist
from rlenv_ros2node.bridge import BridgeSettings
from tests.fakes import until

TWIST = "geometry_msgs/msg/Twist"
MAP = "linear.x=twist.forward,angular.z=twist.turn"


class RealTimeBase(Base):
    """The base by this machine's clock."""

    real_time = True


def measured(joined: Joined) -> np.ndarray:
    """The base's applied velocities, forward and turn."""
    look = joined.bridge._feed.look
    assert look.snapshot is not None
    return np.asarray(look.snapshot.applied["twist"])


def test_a_twist_drives_it_and_the_deadline_stops_it(join: Callable[..., Joined]) -> None:
    joined = join(RealTimeBase(), twist=MAP, deadline_s=0.3, namespace="/lab")
    joined.node.listen("/lab/battery_state", "sensor_msgs/msg/BatteryState")
    answer = joined.node.call("/lab/rlenv_robot/reset")
    assert answer.success, answer.message
    until(lambda: "/lab/battery_state" in joined.node.newest)
    battery = joined.node.newest["/lab/battery_state"]
    assert battery.voltage == pytest.approx(24.0, abs=0.5)
    assert np.isnan(battery.percentage), "what is not measured is not said"
    publish: Callable[[Any], None] = joined.node.advertise("/lab/cmd_vel", TWIST)
    time.sleep(0.3)
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        publish(twist(linear_x=0.4, angular_z=-0.5))
        time.sleep(0.05)
    assert measured(joined) == pytest.approx([0.4, -0.5], abs=0.05)
    until(lambda: np.abs(measured(joined)).max() < 0.01, 5.0)
    publish(twist(linear_x=9.0))
    until(lambda: joined.bridge.refused.counts.get("/lab/cmd_vel") == 1)
    time.sleep(0.2)
    assert np.abs(measured(joined)).max() < 0.01
    assert "/lab/joint_trajectory_controller/joint_trajectory" not in str(joined.bridge.refused.counts)


@pytest.mark.parametrize("namespace", ["/left arm", "/9", "/a//b"])
def test_names_that_ros2_does_not_take_are_refused(namespace: str) -> None:
    with pytest.raises(ValueError, match="no name of ROS 2"):
        BridgeSettings(namespace=namespace)


@pytest.mark.parametrize("setting", ["deadline_s", "max_age_s"])
def test_times_are_above_zero(setting: str) -> None:
    for value in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=setting):
            BridgeSettings(**{setting: value})
