"""Stand in for the Go2's own motion control: a second program that writes low-level commands until it is released.

It answers the calls of the vendor's motion switcher (CheckMode, SelectMode, ReleaseMode) and the sport service's Damp,
StandUp and StandDown (unitree_sdk2_python 37116c5, `unitree_sdk2py/go2/sport/sport_api.py`).
"""

from __future__ import annotations

import json

import numpy as np

from hal.robots.go2 import JOINTS
from rlenv_unitree.channel import Channel
from rlenv_unitree.crc import sign
from rlenv_unitree.messages import GO_LOW_CMD, TOPIC_LOW_CMD, Record, go_command
from rlenv_unitree.rpc import CHECK_MODE, MOTION_SWITCHER, NOT_IMPLEMENTED, RELEASE_MODE, SELECT_MODE, Service
from rlenv_unitree.virtual_body import LYING, STEPS_HZ

__all__ = ["SportMode"]

_DAMP, _STAND_UP, _STAND_DOWN = 1001, 1004, 1005
_BAD_PARAMETER = 3204  # RPC_ERR_SERVER_API_PARAMETER
_NOT_READY = 4202  # SPORT_ERR_SERVER_NOT_INIT
_STANDING = (0.0, 0.67, -1.3) * 4  # second pose, kp and kd of the vendor's go2_stand_example.py
_KP, _KD = 60.0, 5.0
_STEP = 1.5 / STEPS_HZ  # rad


class SportMode:
    """Command the robot to stand, beside any other program, while a mode is selected.

    Args:
        channel: an open channel.
        name: the selected mode; empty for a robot whose motion control was released.
    """

    def __init__(self, channel: Channel, name: str = "normal") -> None:
        self.name = name
        self._writer = channel.writer(TOPIC_LOW_CMD, GO_LOW_CMD)
        self._services = (
            Service(channel, MOTION_SWITCHER, self._switch),
            Service(channel, "sport", self._sport),
        )
        self._goal: tuple[float, ...] | None = _STANDING
        self._target: np.ndarray | None = None

    def poll(self) -> None:
        """Answer the calls that have arrived."""
        for service in self._services:
            service.poll()

    def step(self, pose: np.ndarray) -> None:
        """Write the command of one step, if a mode is selected. Joints move at 1.5 rad/s at most.

        Args:
            pose: the joint angles, rad, from which a newly selected mode starts.
        """
        if self.name:
            self._target = pose.copy() if self._target is None else self._target
            self._writer.write(self._command(self._target))
        else:
            self._target = None

    def _command(self, target: np.ndarray) -> Record:
        command = go_command()
        motors = command["motor_cmd"][: len(JOINTS)]
        motors["dq"], motors["kd"] = 0.0, _KD
        if self._goal is not None:
            target += np.clip(self._goal - target, -_STEP, _STEP)
            motors["q"], motors["kp"] = target, _KP
        sign(command)
        return command

    def _switch(self, api_id: int, parameter: str) -> tuple[int, str]:
        if api_id == CHECK_MODE:
            return 0, json.dumps({"form": "0", "name": self.name})
        if api_id == RELEASE_MODE:
            self.name = ""
            return 0, ""
        if api_id != SELECT_MODE:
            return NOT_IMPLEMENTED, ""
        try:
            name = json.loads(parameter)["name"]
        except (ValueError, TypeError, KeyError):
            return _BAD_PARAMETER, ""
        self.name, self._goal = str(name), _STANDING
        return 0, ""

    def _sport(self, api_id: int, _: str) -> tuple[int, str]:
        goals = {_DAMP: None, _STAND_UP: _STANDING, _STAND_DOWN: LYING}
        if api_id not in goals:
            return NOT_IMPLEMENTED, ""
        if not self.name:
            return _NOT_READY, ""
        self._goal = goals[api_id]
        return 0, ""
