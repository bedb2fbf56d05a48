"""The driver's G1 speaks the G1's messages: a stand-in of independent joints obeys it, without a body or gravity."""

from __future__ import annotations

import threading
from collections import Counter

import numpy as np
import pytest

from hal import RobotStopped
from rlenv_unitree.channel import Channel, wait_until
from rlenv_unitree.crc import is_valid, sign
from rlenv_unitree.driver import UnitreeRobot
from rlenv_unitree.messages import HG_LOW_CMD, HG_LOW_STATE, TOPIC_LOW_CMD, TOPIC_LOW_STATE
from rlenv_unitree.motors import G1_JOINTS
from rlenv_unitree.rpc import CHECK_MODE, MOTION_SWITCHER, NOT_IMPLEMENTED, Service

MODE_MACHINE = 5
JOINTS = len(G1_JOINTS)


class StandInG1:
    """Joints that turn at the speed of the law's torque, 0.5 rad/s for 1 N m; it obeys one ``mode_machine`` alone."""

    def __init__(self, channel: Channel) -> None:
        self.counts: Counter[str] = Counter()
        self.position = np.zeros(JOINTS)
        self.motors = HG_LOW_CMD.new()["motor_cmd"]
        self.mode_machine = MODE_MACHINE
        self._commands = channel.reader(TOPIC_LOW_CMD, HG_LOW_CMD)
        self._states = channel.writer(TOPIC_LOW_STATE, HG_LOW_STATE)
        self._switcher = Service(channel, MOTION_SWITCHER, self._answer)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> StandInG1:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _answer(self, api_id: int, _: str) -> tuple[int, str]:
        return (0, '{"form": "0", "name": ""}') if api_id == CHECK_MODE else (NOT_IMPLEMENTED, "")

    def _run(self) -> None:
        state = HG_LOW_STATE.new()
        state["imu_state"]["quaternion"][0] = 1.0
        while not self._over.wait(0.002):
            self._switcher.poll()
            for sample in self._commands.take():
                right = is_valid(sample.record) and sample.record["mode_machine"] == self.mode_machine
                self.counts["right" if right else "wrong"] += 1
                if right:
                    self.motors = sample.record["motor_cmd"]
            mine = self.motors[:JOINTS]
            self.position += 0.002 * 0.5 * np.clip(mine["kp"] * (mine["q"] - self.position), -20, 20)
            state["mode_machine"] = self.mode_machine
            state["tick"] += np.uint32(2)
            state["motor_state"]["q"][:JOINTS] = self.position
            sign(state)
            self._states.write(state)


def test_the_drivers_g1_moves_the_joints_that_it_names(channel: Channel) -> None:
    with StandInG1(channel) as g1:
        driver = UnitreeRobot("g1", "lo", domain=channel.domain, stale_s=1.0)
        try:
            before = driver.reset({}).sensors["joint_position"]
            goal = before.copy()
            goal[G1_JOINTS.index("left_elbow")] += 0.2
            for _ in range(100):
                state = driver.step({"joint_target": goal})
            moved = state.sensors["joint_position"] - before
            assert G1_JOINTS[int(np.argmax(np.abs(moved)))] == "left_elbow"
            assert moved[G1_JOINTS.index("left_elbow")] == pytest.approx(0.2, abs=0.02)
            assert g1.counts["right"] > 100
            assert g1.counts["wrong"] == 0
            assert not g1.motors["kp"][JOINTS:].any()  # the message has more motors than the robot
            driver.stop("a test")
            assert wait_until(lambda: not g1.motors["kp"].any(), 3.0)
            with pytest.raises(RobotStopped, match="a test"):
                driver.step({"joint_target": goal})
        finally:
            driver.close()


def test_a_changed_machine_mode_is_echoed(channel: Channel) -> None:
    with StandInG1(channel) as g1:
        driver = UnitreeRobot("g1", "lo", domain=channel.domain, stale_s=1.0)
        try:
            goal = driver.reset({}).sensors["joint_position"]
            driver.step({"joint_target": goal})
            g1.mode_machine = 6
            driver.step({"joint_target": goal})
            before = g1.counts["right"]
            assert wait_until(lambda: g1.counts["right"] > before + 20, 3.0)
        finally:
            driver.close()
