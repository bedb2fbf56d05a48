"""Serve a virtual arm in virtual time, which advances with each command, so results don't depend on the machine's load.

    python -m rlenv_robot.cli.demo.virtual_time PROFILE [--robot twin] [--seed 3]

Clients connect over the network as to any robot. The server is in lockstep: the arm waits for each command, so no
command is late. Only simulated robots may be served this way.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hal import Guard, Homing, Robot, RobotState, RobotWrapper
from hal.drivers.bus_arm import BusArm
from hal.drivers.calibration import Calibration, nominal_calibration
from real.server.server import Server
from rlenv_robot.cli.output import say
from rlenv_robot.config.profile import load_profile
from rlenv_robot.robot_models import find_robot_model
from rlenv_robot.serving.robot_server import TerminationSignals, homing_settings, reset_confirmation
from sim.robot import SimRobot
from sim.servo_bus.arm import ServoArm, so101_servos
from sim.servo_bus.line import ServoLine, VirtualPort

__all__ = ["VirtualTime", "main", "virtual_arm"]


class VirtualTime(RobotWrapper):
    """A simulated robot with a clock that shows the time stamp of its newest reading.

    No reading is possible between two steps: on a bus it would advance the time, by an amount that depends on the
    machine.
    """

    def __init__(self, robot: Robot) -> None:
        super().__init__(robot)
        self._stamp_ns = 0

    @property
    def simulated(self) -> bool:
        """Always True, since no hardware moves."""
        return True

    def now(self) -> float:
        """Return the robot's virtual time, in seconds."""
        return self._stamp_ns / 1e9

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Reset the robot, and set the clock."""
        return self._clocked(super().reset(options))

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Step the robot, and set the clock."""
        return self._clocked(super().step(command))

    def read(self) -> None:
        """Return None, since no reading is possible between two steps."""

    def _clocked(self, state: RobotState) -> RobotState:
        self._stamp_ns = state.stamp_ns
        return state


def virtual_arm(seed: int = 0) -> BusArm:
    """Return the driver of a real SO-101 on a bus of virtual servos, in the bus's virtual time.

    Args:
        seed: draws the zero position of each encoder; 0: all at 2048, as for ``rlenv-robot robot twin``.
    """
    zeros = [2048] * 6 if not seed else np.random.default_rng(seed).integers(0, 4096, 6).tolist()
    servos = so101_servos(zeros)
    arm = ServoArm(servos, zeros)
    port = VirtualPort(ServoLine(servos, before_request=arm.advance, seed=seed), on_time=arm.advance)
    joints = {
        name: replace(joint, homing_offset=servo.get("homing_offset"))
        for (name, joint), servo in zip(nominal_calibration().joints.items(), servos, strict=True)
    }
    return BusArm(port, Calibration(joints), volts=7.4, now=lambda: port.now_ns() / 1e9, sleep=port.sleep)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the arm until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", help="a profile, for its section [reset]")
    parser.add_argument(
        "--robot", choices=["bus", "twin"], default="bus", help="behind a serial bus and a driver, or not"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws the arm's faults")
    args = parser.parse_args(arguments)
    profile = load_profile(args.profile)
    reset = profile.reset
    twin = find_robot_model("so101").make_twin
    arm = VirtualTime(virtual_arm(args.seed) if args.robot == "bus" else SimRobot(twin(args.seed), teleport=False))
    robot = Homing(Guard(arm, now=arm.now), reset_confirmation(reset), homing_settings(reset), now=arm.now)
    with TerminationSignals() as signals, Server(robot, lockstep=True) as server:
        say(f"serving {robot.spec.name} in virtual time at {server.address}")
        while not signals.wait(0.5) and not server.network_dead:
            pass
        server.close(lower_s=profile.serve.lower_s, velocity=reset.velocity)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
