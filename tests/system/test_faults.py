"""Each fault, from the environment of a recorded run down to the motors: what is true after it, in four points.

The robot is held or stopped, its state says so, the message says what happened and what to do, and every step that the
environment has answered is in the log.
"""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import rlenv_robot as rr
from hal import ConnectionLost, RobotError, RobotStopped
from hal.robots.so101 import SO101
from real import RemoteRobot, Server
from real.control.lifecycle import State
from recorder.read.reader import LogReader
from sim.robot import SimRobot
from sim.robots.so101 import so101
from tests.real.relay import Relay

CLEAR = {"seed": 1, "clear_stop": "looked at it"}


class Faulty:
    """A simulated arm that is no simulation to its guard, whose readings and driver can be made bad."""

    def __init__(self):
        self._inner = SimRobot(so101())
        self.spec = self._inner.spec
        self.fault = None
        self.told = []
        self.woken = threading.Event()

    def reset(self, options):
        self.fault = None
        return self._inner.reset(options)

    def step(self, command):
        self.told.append(command["joint_target"].tolist())
        robot_state = self._inner.step(command)
        return robot_state if self.fault is None else self.fault(self, robot_state)

    def stop(self, reason):
        self._inner.stop(reason)

    def close(self):
        self._inner.close()


class Run:
    """A recorded run over a relay; remembers what the environment has answered."""

    def __init__(self, robot, server, relay, folder, step_timeout_s=2.0):
        self.robot, self.server, self.relay, self.folder = robot, server, relay, folder
        self.remote = RemoteRobot(relay.address, expect=SO101, step_timeout_s=step_timeout_s, connect_timeout_s=5)
        self.env = rr.make("so101-reach", robot=self.remote, record=folder, steps=10_000)
        self.seen = []
        self.reset({"seed": 1})

    def reset(self, options):
        self.state = self.env.reset(options)
        self.seen.append(self.state["observation"]["joint_position"])

    def steps(self, count):
        """Step that often, or until the episode ends; return why it was truncated, or nothing."""
        for _ in range(count):
            action = {"joint_target": self.state["observation"]["joint_goal"]}
            now = {name: self.state[name] for name in ("env_id", "frame_no")}
            self.state, _ = self.env.step({**now, "action": action})
            assert "error" not in self.state["extra_info"]
            self.seen.append(self.state["observation"]["joint_position"])
            if self.state["truncated"]:
                return self.state["extra_info"]["truncated_by"]
        return ""

    def recorded(self):
        """Check that all answers are in the log, and that each episode has both its ends."""
        self.env.close()
        (folder,) = [file.parent for file in self.folder.rglob("log.mcap")]
        log = LogReader(folder)
        np.testing.assert_array_equal(log.frames()["observation_joint_position"], np.array(self.seen))
        assert log.complete
        return [each.end["end"] for each in log.episodes()]


@pytest.fixture
def run(tmp_path):
    """The watchdog is patient enough for a busy machine, and no machine's pause is taken for an old command."""
    robot = Faulty()
    with (
        Server(robot, watchdog_s=0.4, max_command_age_s=None) as server,
        Relay(server.address) as relay,
    ):
        run = Run(robot, server, relay, tmp_path)
        yield run
        robot.woken.set()
        run.env.close()


def is_still(run, seconds=0.15):
    """Return whether the motors get no command, or the same command again and again."""
    at = len(run.robot.told)
    time.sleep(seconds)
    return len(np.unique(run.robot.told[at:], axis=0)) <= 1


def raises(robot, robot_state):
    raise OSError("the bus does not answer")


def aged(robot, robot_state):
    return robot_state._replace(age_ns={"joint_position": 10**10})


def unsound(robot, robot_state):
    return robot_state._replace(sensors={**robot_state.sensors, "joint_position": np.full(6, np.nan, np.float32)})


def hangs(robot, robot_state):
    robot.woken.wait(20)
    return robot_state


STOPS = {
    "the driver raises": (raises, "OSError: the bus does not answer"),
    "a sensor stops": (aged, "'joint_position' is 10000.0 ms old.*check its cable and its driver"),
    "not a number": (unsound, "'joint_position' measured a value that is not a finite number; check its cable"),
}


@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize("name", STOPS)
def test_a_robot_that_can_not_be_trusted_is_stopped(run, until, name):
    fault, said = STOPS[name]
    run.steps(5)
    run.robot.fault = fault
    told = run.steps(3)
    with pytest.raises(AssertionError, match=f"fault: .*{said}.*clear_stop"):
        raise AssertionError(told)
    until(lambda: run.server.lifecycle.state is State.STOPPED)
    assert is_still(run)
    with pytest.raises(RobotStopped):  # and not by a mere reset
        run.env.reset({"seed": 1})
    run.reset(CLEAR)
    assert run.steps(5) == ""
    assert run.recorded() == [told, "closed"]


def test_a_driver_that_hangs_is_stopped_and_does_not_go_on_when_it_wakes(run, until):
    run.steps(5)
    run.robot.fault = hangs
    told = run.steps(1)
    assert "no answer to step" in told
    assert "held by its own watchdog" in told
    until(lambda: run.server.lifecycle.state is State.STOPPED)
    assert "driver has not returned from a step for 1 s; check its cable" in run.server.lifecycle.why
    at = len(run.robot.told)
    run.robot.woken.set()
    time.sleep(0.15)
    assert len(run.robot.told) == at, "nothing that was on its way is done"
    with pytest.raises(RobotStopped, match="driver has not returned"):
        run.env.reset({"seed": 1})
    run.reset(CLEAR)
    assert run.steps(5) == ""
    assert run.recorded() == [told, "closed"]


CUTS = {
    "a pulled cable": lambda relay: setattr(relay, "silent", True),
    "a port that nobody listens at any more": lambda relay: (relay.refuse(True), relay.reset()),
}


@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize("name", CUTS)
def test_a_cut_leaves_the_robot_held_and_a_mended_one_gives_it_back(run, until, name):
    run.steps(5)
    CUTS[name](run.relay)
    told = run.steps(2)
    assert "`rlenv-robot serve` running there?" in told
    until(lambda: run.server.lifecycle.state is State.HOLDING)
    assert run.server.lifecycle.why == "held: no valid command for 0.4 s"
    assert is_still(run)
    run.relay.silent = False
    run.relay.refuse(False)
    run.reset({"seed": 2})
    assert run.steps(5) == ""
    assert run.recorded() == [told, "closed"]


def late(relay):
    relay.delay_s, relay.jitter_s = 0.05, 0.04


def lossy(relay):
    relay.loses, relay.stall_s = 0.3, 0.08


def crumbling(relay):
    relay.crumbs = 9


@pytest.mark.parametrize("how", [late, lossy, crumbling, Relay.reset, Relay.half_close])
def test_a_bad_network_costs_time_and_no_step(run, how):
    """Delay with jitter, 30% sent again, messages in pieces, connections that end; each is slower than the watchdog."""
    run.server._loop._watchdog.timeout_s = 20.0
    run.steps(2)
    at = len(run.robot.told)
    how(run.relay)
    assert run.steps(12) == ""
    ways = np.unique(np.array(run.robot.told[at:]), axis=0)
    assert len(ways) <= 12, "each step once"
    assert run.recorded() == ["closed"]


def test_a_late_network_does_not_move_the_robot_by_old_commands(tmp_path, until):
    """The network is later than the largest age, by more than a busy machine is late."""
    robot = Faulty()
    with Server(robot, watchdog_s=2.0, max_command_age_s=0.8) as server, Relay(server.address) as relay:
        run = Run(robot, server, relay, tmp_path, step_timeout_s=10.0)
        run.steps(5)
        relay.delay_s, relay.jitter_s = 1.2, 0.05
        told = run.steps(2)
        assert "it was not executed. The network or the client is slow" in told
        assert "max_command_age_s" in told
        until(lambda: server.lifecycle.state is State.HOLDING)
        assert is_still(run)
        assert server._loop.ages.refused >= 1
        relay.delay_s = relay.jitter_s = 0.0
        run.reset({"seed": 2})
        run.steps(2)
        assert run.recorded() == [told, "closed"]


def test_an_hour_or_a_day_forward_or_back_on_the_wall_is_nothing(run, monkeypatch):
    """`real/` and `hal/` go by monotonic clocks alone; the log has both, and is in order."""
    run.steps(3)
    for hours in (1, -1, 24, -24):
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda real=real, by=hours * 3600 * 10**9: real() + by)
        monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9)
        assert run.steps(4) == ""
        monkeypatch.undo()
    assert run.server.lifecycle.state is State.RUNNING
    assert run.recorded() == ["closed"]


def test_who_may_not_have_the_robot_is_told_why_and_whoever_has_it_goes_on(run):
    """A second client; another robot's program."""
    run.steps(3)
    second = RemoteRobot(run.server.address, expect=SO101)
    with pytest.raises(ConnectionLost, match=r"held by|holds the robot"):
        second.reset({})
    second.close()
    other = RemoteRobot(run.server.address, expect=replace(SO101, rate_hz=31.0))
    with pytest.raises(RobotError, match="31"):
        other.reset({})
    other.close()
    assert run.steps(3) == ""
    assert run.server.lifecycle.state is State.RUNNING
    assert run.recorded() == ["closed"]
