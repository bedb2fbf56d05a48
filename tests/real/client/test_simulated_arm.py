"""The simulated SO-101 behind the wire is the simulated SO-101, bit for bit; and in real time it keeps its rate."""

import time

import numpy as np
import pytest

from hal import Guard, Homing
from hal.reset.confirmation import Automatic
from real import RemoteRobot, Server

so101 = pytest.importorskip("sim.robots.so101", reason="the simulated arm is not there")


@pytest.fixture
def make_arm():
    from sim.robot import SimRobot

    return lambda **settings: SimRobot(so101.so101(), **settings)


def wave(n):
    return {"joint_target": np.array([np.sin(n / 9) / 2, -0.5, 0.5, 0.6, 0, 0.1], np.float32)}


@pytest.mark.requirement("R1.1", "R6.6", "5-2", "6.1-1", "6.2.1-2")
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


@pytest.mark.slow
def test_in_real_time_no_period_is_lost_between_a_reading_and_its_answer(make_arm):
    """The arm homes slowly, as a real one. Then a step takes a period; twice that if each answer came too late."""
    homing = Homing(make_arm(real_time=True, teleport=False), Automatic())
    with Server(homing, paced_by_robot=True, watchdog_s=2) as server:
        remote = RemoteRobot(server.address)
        stamps_ns = [remote.reset({"seed": 1}).stamp_ns]
        began = time.monotonic()
        stamps_ns += [remote.step(wave(n)).stamp_ns for n in range(45)]
        took_s = time.monotonic() - began
        assert (stamps_ns[-1] - stamps_ns[0]) / 1e9 == pytest.approx(took_s, abs=0.2)
        between = np.diff(stamps_ns) / 1e9 * homing.spec.rate_hz
        assert np.quantile(between, 0.25) == pytest.approx(1, abs=0.2), "the better quarter, whatever else runs here"
        remote.close()
