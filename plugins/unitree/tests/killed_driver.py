"""Stand a virtual Go2 up, print a line, and hold it until this process is killed. Usage: killed_driver.py DOMAIN."""

import sys

from hal import Automatic, Guard, Homing, HomingSettings
from rlenv_unitree.driver import UnitreeRobot

robot = Homing(Guard(UnitreeRobot("go2", "lo", domain=int(sys.argv[1]), stale_s=1.0, priority=30)), Automatic(),
               HomingSettings(velocity=1.0, tolerance=0.3))  # fmt: skip
state = robot.reset({})
print("standing", flush=True)
while True:
    robot.step({"joint_target": state.applied["joint_target"]})
