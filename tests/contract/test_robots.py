"""Every robot keeps the one contract of robots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import pytest

from hal import Automatic, Guard, Homing, Robot
from real import RemoteRobot, Server
from rlenv_kit import check_robot
from rlenv_robot.robot_models import find_robot_model
from sim.robot import SimRobot
from sim.robots.so101 import so101
from sim.robots.twin import so101_twin
from tests.shipped import SHIPPED_ROBOTS

pytestmark = pytest.mark.requirement("R1.1", "R6.6")


def _simulated() -> SimRobot:
    return SimRobot(so101())


@contextmanager
def _remote(robot: Robot) -> Iterator[Robot]:
    with Server(robot, lockstep=True) as server:
        yield RemoteRobot(server.address)


@contextmanager
def _watched(robot: Robot) -> Iterator[Robot]:
    """Serve the robot in real time, with the watchdog."""
    with Server(robot, watchdog_s=5.0, max_command_age_s=None, paced_by_robot=True) as server:
        yield Guard(RemoteRobot(server.address))


ROBOTS: dict[str, Callable[[], AbstractContextManager[Robot]]] = {
    "simulated": lambda: nullcontext(_simulated()),
    "guarded": lambda: nullcontext(Guard(_simulated())),
    "guarded twice": lambda: nullcontext(Guard(Guard(_simulated()))),
    "twin": lambda: nullcontext(Guard(SimRobot(so101_twin()))),
    "twin's sibling": lambda: nullcontext(SimRobot(so101_twin(seed=7))),
    "remote": lambda: _remote(_simulated()),
    "remote, guarded here too": lambda: _remote(Guard(_simulated())),
}


NOT_TRIED = {
    "images are live, and as their cameras describe them",
    "a reset moves no faster than the spec's limits",  # a simulation begins anywhere at once
    "a stopped robot comes to rest, and reading it moves nothing",  # it offers no read
    "applied follows commands that no sensor measures, too",
    "a second instance is a separate robot",
    "streams are taken before the first reset",
    "samples of streams come in order, as described, and states name them",
    "applied is what the actuators received, after a jump of the command too",  # it does not say that it is simulated
    "a reset begins at the start that it is given for each command",
    "a stop during a step ends its motion",  # only a simulation in real time shows it
    "the state of a reset is measured after it, images too",
    "read moves nothing, and shows what the robot measures",
    "its chance is its own: the caller's random numbers change nothing",
    "an effort moves its own element, in its direction",
    "a watchdog that is armed ends the motion of a silent controller",
    "motors that give way drive nothing, until the next reset",
    "over a long motion a place is the sum of its speed",
    "a robot whose stop is cleared where it stands is where the stop found it, at rest",  # some take no start there
    "a start that breaks the spec is refused before anything moves",  # nor is a robot tried that may be real
}

IN_THE_WAY = {
    "go2": "its feet stand on the ground, so a joint that moves takes others along",
    "so101-box": "the box stops the shoulder on the way of the check",
}
"""Registered robot -> why a joint does not go alone, and all of the way, where its start leaves it."""


@pytest.mark.parametrize("name", ROBOTS)
def test_a_robot_keeps_the_contract_in_every_place(name: str) -> None:
    with ROBOTS[name]() as robot:
        report = check_robot(robot)
    report.raise_if_failed()
    assert {check.name for check in report.checks if check.passed is None} <= NOT_TRIED, report


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED_ROBOTS)
def test_every_registered_robot_keeps_the_contract(name: str) -> None:
    """A robot that is registered without a simulation is its maker's to check."""
    model = find_robot_model(name)
    if model.simulated is None:
        pytest.skip(f"the robot {name} has no simulation")
    report = check_robot(Guard(SimRobot(model.make_sim_model())))
    allowed = {"each measured value follows its own command, in sign, order and unit"} if name in IN_THE_WAY else set()
    assert {check.name for check in report.failures} <= allowed, report.lines(verbose=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "remote", [pytest.param(False, id="here", marks=pytest.mark.soak), pytest.param(True, id="over the network")]
)
def test_a_robot_with_homing_keeps_the_contract(remote: bool) -> None:
    """In real time equal seeds need not give equal states; everything else holds."""
    robot = Homing(Guard(SimRobot(so101(), real_time=True, teleport=False)), Automatic())
    with _watched(robot) if remote else nullcontext(robot) as subject:
        report = check_robot(subject, steps=3, repeatable=False)
    report.raise_if_failed()
    assert {check.name for check in report.checks if check.passed is None} <= NOT_TRIED | {
        "writing into a state changes nothing",
        "equal seeds and commands give equal states",
        "illegal commands move nothing",
    }


def test_one_robot_gives_equal_states_behind_a_guard_and_over_the_network() -> None:
    """The arm alone, behind a guard and over the network gives the same states, bit for bit."""
    robot_states = {}
    for name in ("simulated", "guarded", "remote"):
        with ROBOTS[name]() as robot:
            robot_state = robot.reset({"seed": 3})
            target = robot_state.applied["joint_target"]
            for step in range(10):
                robot_state = robot.step({"joint_target": target + np.float32(0.01 * (step % 3))})
            robot_states[name] = {**robot_state.sensors, **robot_state.applied, "stamp": np.array(robot_state.stamp_ns)}
            robot.close()
    for name in ("guarded", "remote"):
        for field, value in robot_states["simulated"].items():
            np.testing.assert_array_equal(robot_states[name][field], value, err_msg=f"{name}: {field}")
