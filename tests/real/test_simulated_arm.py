"""The simulated SO-101 behind the wire is the simulated SO-101, bit for bit; and in real time it keeps its rate."""

import time

import numpy as np
import pytest

from hal import Guard, Homing
from hal.signals import Automatic
from real import RemoteRobot, Server

so101 = pytest.importorskip("sim.so101", reason="the simulated arm is not there")


@pytest.fixture
def make_arm():
    from sim.robot import SimRobot

    return lambda **settings: SimRobot(so101.so101(), **settings)


def wave(n):
    return {"joint_target": np.array([np.sin(n / 9) / 2, -0.5, 0.5, 0.6, 0, 0.1], np.float32)}


@pytest.mark.requirement("R1.1", "R6.6")
def test_the_same_episode_here_and_there(make_arm):
    here = Guard(make_arm())
    with Server(make_arm(), lockstep=True) as server:
        there = RemoteRobot(server.address, expect=here.spec)
        pairs = [(here.reset({"seed": 5}), there.reset({"seed": 5}))]
        pairs += [(here.step(wave(n)), there.step(wave(n))) for n in range(60)]
        for mine, theirs in pairs:
            assert mine.stamp_ns == theirs.stamp_ns
            for group in ("sensors", "applied"):
                assert getattr(mine, group).keys() == getattr(theirs, group).keys()
                for name, value in getattr(mine, group).items():
                    np.testing.assert_array_equal(value, getattr(theirs, group)[name])
        there.close()
    here.close()


def test_in_real_time_no_period_is_lost_between_a_reading_and_its_answer(make_arm):
    """The arm homes slowly, as a real one; then thirty steps take thirty periods, or a few more on a busy machine."""
    homing = Homing(make_arm(real_time=True, teleport=False), Automatic())
    with Server(homing, paced_by_robot=True, watchdog_s=2) as server:
        remote = RemoteRobot(server.address)
        reading = remote.reset({"seed": 1})
        began, first_ns = time.monotonic(), reading.stamp_ns
        for n in range(30):
            reading = remote.step(wave(n))
        took = time.monotonic() - began
        assert took > 28 / 30
        assert (reading.stamp_ns - first_ns) / 1e9 == pytest.approx(took, abs=0.2)
        assert took < 2 * 30 / 30, "every second period went by without a command"
        remote.close()
