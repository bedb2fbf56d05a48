"""Run a virtual Go2 whose faults come on standard input: a line of JSON of attributes to set, answered by its state.

Usage: controlled_go2.py DOMAIN
"""

import json
import sys

from real.control.realtime import settle_process
from rlenv_unitree.channel import Channel
from rlenv_unitree.virtual import VirtualGo2

with Channel("lo", int(sys.argv[1])) as channel, VirtualGo2(channel, priority=30) as robot:
    settle_process()
    print("ready", flush=True)
    for line in sys.stdin:
        for name, value in json.loads(line).items():
            if name == "mode":
                robot.sport.name = value
            elif name == "roll":
                robot.body.data.qpos[3:7] = (0.6, 0.8, 0.0, 0.0)  # 1.85 rad
            else:
                setattr(robot, name, value)
        bias = robot.body.model.actuator_biasprm
        report = robot.report() | {"kp": (-bias[:, 1]).tolist(), "kd": (-bias[:, 2]).tolist()}
        print(json.dumps(report), flush=True)
