"""An arm that ROBOTIS's zenoh-ros2-sdk plays is driven under our contract."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from rlenv_ros2.driver import Ros2Robot

INTERPRETER = os.environ.get("RLENV_ROS2_SDK", "")


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not INTERPRETER, reason="zenoh-ros2-sdk: RLENV_ROS2_SDK names no interpreter that has it")
def test_an_arm_of_the_sdk_is_read_and_moved(router: str, mapping: Callable[..., Path]) -> None:
    script, port = Path(__file__).with_name("sdk_stranger.py"), router.rpartition(":")[2]
    command = [INTERPRETER, str(script), "arm", port]
    arm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        path = mapping(("rate_hz", "connect_s = 30\nrate_hz"), ("max_age_s = 0.2", "max_age_s = 1.0"))
        with closing(Ros2Robot(path)) as robot:
            state = robot.reset({})
            assert state.sensors["joint_position"] == pytest.approx([0.2, 0.3])
            for _ in range(150):
                state = robot.step({"joint_target": np.array([0.7, -0.5], np.float32)})
            assert state.sensors["joint_position"] == pytest.approx([0.7, -0.5], abs=0.02)
        out, _ = arm.communicate(timeout=20)
    finally:
        arm.kill()
        arm.communicate()
    assert json.loads(out.splitlines()[-1]) == pytest.approx({"pan": 0.7, "lift": -0.5}, abs=0.02)
