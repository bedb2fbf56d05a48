"""A served arm as a ROS 2 node: what it publishes, what moves it, and what does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from hal.robots.so101 import HOME, JOINTS
from plugins.ros2node.tests.conftest import Joined
from plugins.ros2node.tests.test_setpoints import array, point, trajectory
from real import RemoteRobot
from tests.fakes import until

PATH = "/joint_trajectory_controller/joint_trajectory"
PATH_TYPE = "trajectory_msgs/msg/JointTrajectory"
POSITIONS, POSITIONS_TYPE = "/forward_position_controller/commands", "std_msgs/msg/Float64MultiArray"
GOAL = np.add(HOME, [0.3, 0.2, -0.2, 0.1, 0.3, 0.2])
Join = Callable[..., Joined]


def sender(joined: Joined, topic: str, type_name: str) -> Callable[[Any], None]:
    publish = joined.node.advertise(topic, type_name)
    time.sleep(0.3)  # until the subscriber knows of it
    return publish


def values(joined: Joined) -> dict[str, str]:
    return {pair.key: pair.value for pair in joined.node.newest["/diagnostics"].status[0].values}


def test_joint_states_frames_and_diagnostics_come(join: Join) -> None:
    joined = join()
    joined.node.listen("/tf", "tf2_msgs/msg/TFMessage")
    joined.begin()
    until(lambda: {"/joint_states", "/tf"} <= joined.node.newest.keys())
    message = joined.node.newest["/joint_states"]
    assert list(message.name) == list(JOINTS)
    assert message.position == pytest.approx(HOME, abs=0.1)
    assert len(message.velocity) == len(JOINTS)
    assert abs(message.header.stamp.sec - time.time()) < 60, "stamps are of the wall clock"
    frames = {transform.child_frame_id: transform for transform in joined.node.newest["/tf"].transforms}
    assert {"upper_arm", "gripper", "jaw"} <= frames.keys()
    turn = frames["gripper"].transform.rotation
    assert turn.x**2 + turn.y**2 + turn.z**2 + turn.w**2 == pytest.approx(1)
    until(lambda: values(joined).get("commands") == "accepted")
    status = joined.node.newest["/diagnostics"].status[0]
    assert (status.name, int(status.level)) == ("rlenv_robot", 0)


def test_a_trajectory_is_carried_out_and_a_new_one_replaces_it(join: Join) -> None:
    joined = join()
    joined.begin()
    send = sender(joined, PATH, PATH_TYPE)
    send(trajectory([point(np.add(HOME, 0.3), 30.0)]))
    time.sleep(0.3)
    send(trajectory([point((np.array(HOME) + GOAL) / 2, 0.7), point(GOAL, 1.5)]))
    until(lambda: np.abs(joined.positions() - GOAL).max() < 0.05, 20.0)
    time.sleep(0.5)
    assert joined.positions() == pytest.approx(GOAL, abs=0.05), "the last point holds"
    assert joined.bridge.refused.counts == {}


def test_positions_move_the_robot_and_hold_at_their_deadline(join: Join) -> None:
    joined = join(deadline_s=0.3)
    joined.begin()
    send = sender(joined, POSITIONS, POSITIONS_TYPE)
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        send(array(GOAL))
        time.sleep(0.05)
    assert joined.positions() == pytest.approx(GOAL, abs=0.05)
    far = np.add(HOME, [-1.5, 0, 0, 0, 0, 0])
    send(array(far))
    time.sleep(1.5)
    reached = joined.positions()
    assert far[0] + 0.1 < reached[0] < GOAL[0] - 0.1, "it went for the deadline, and held on the way"
    time.sleep(0.5)
    assert joined.positions() == pytest.approx(reached, abs=0.03)


def test_nothing_moves_without_an_episode_nor_after_it(join: Join) -> None:
    joined = join()
    send = sender(joined, PATH, PATH_TYPE)
    send(trajectory([point(GOAL, 1.0)]))
    until(lambda: joined.bridge.refused.counts.get(PATH) == 1)
    assert "~/reset" in joined.bridge.refused.last
    assert joined.server.about()["state"] == "disarmed"
    joined.begin()
    assert joined.node.call("/rlenv_robot/release").success
    before = joined.positions()
    send(trajectory([point(GOAL, 1.0)]))
    until(lambda: joined.bridge.refused.counts.get(PATH) == 2)
    time.sleep(1.0)
    assert joined.positions() == pytest.approx(before, abs=0.02)
    assert joined.server.about()["holder"] is None


def test_anybody_stops_and_no_topic_or_service_clears_it(join: Join) -> None:
    joined = join()
    joined.begin()
    send = sender(joined, PATH, PATH_TYPE)
    send(trajectory([point(GOAL, 3.0)]))
    time.sleep(0.5)
    assert joined.node.call("/rlenv_robot/stop").success
    assert "~/stop" not in str(joined.server.stopped)
    assert "/rlenv_robot/stop" in str(joined.server.stopped)
    time.sleep(0.5)
    reached = joined.positions()
    assert np.abs(reached - GOAL).max() > 0.1, "it stopped on the way"
    answer = joined.node.call("/rlenv_robot/reset")
    assert not answer.success
    assert "stop" in answer.message
    send(trajectory([point(GOAL, 1.0)]))
    until(lambda: PATH in joined.bridge.refused.counts)
    time.sleep(0.5)
    assert joined.positions() == pytest.approx(reached, abs=0.03)
    assert int(joined.node.newest["/diagnostics"].status[0].level) == 2
    assert values(joined)["stop_number"] == str(joined.server.about()["stop_number"])


def stopped(remote: RemoteRobot) -> dict[str, Any]:
    """Stop the robot, and return the settings with which a person clears that stop."""
    remote.stop("a cable is loose")
    return {"clearing": {"clear_stop": "looked", "stop_number": remote.last_stop}}


def test_the_named_stop_is_cleared_and_no_later_one(join: Join) -> None:
    joined = join(before=stopped)
    assert joined.server.stopped is not None
    joined.begin()
    assert joined.node.call("/rlenv_robot/stop").success
    assert not joined.node.call("/rlenv_robot/reset").success
    assert joined.server.stopped is not None


def test_a_later_stop_than_the_named_one_stays(join: Join) -> None:
    joined = join(before=stopped)
    with closing(RemoteRobot(joined.server.address)) as remote:
        remote.stop("again")
    assert not joined.node.call("/rlenv_robot/reset").success
    assert joined.server.stopped is not None


def test_an_episode_may_begin_where_the_arm_stands(join: Join) -> None:
    joined = join(start="here")
    with closing(RemoteRobot(joined.server.address)) as remote:
        remote.reset({"start": {"joint_target": GOAL.astype(np.float32)}})
    time.sleep(0.5)
    joined.begin()
    time.sleep(0.5)
    assert joined.positions()[[0, 4]] == pytest.approx(GOAL[[0, 4]], abs=0.05), "joints that carry no weight"


def test_another_clients_robot_is_not_taken(join: Join) -> None:
    joined = join()
    with closing(RemoteRobot(joined.server.address)) as remote:
        remote.reset({})
        answer = joined.node.call("/rlenv_robot/reset")
        assert not answer.success
        assert "is held by" in answer.message
        assert joined.node.call("/rlenv_robot/stop").success, "stop is for anybody"
