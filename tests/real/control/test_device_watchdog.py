"""The device's own watchdog is armed while the loop writes to it, and only then."""

import pytest

from real import RemoteRobot, Server
from real.control.lifecycle import State


@pytest.fixture
def watched(make_robot):
    """A robot whose motors watch their bus; it keeps what they were told between its steps."""

    class Watched(make_robot):
        def __init__(self):
            super().__init__()
            self.told = []

        def arm_watchdog(self, timeout_s):
            self.told.append(timeout_s)
            return True

        def disarm_watchdog(self):
            self.told.append(None)

        def step(self, command):
            assert self.told[-1] is not None, "written to with a sleeping watchdog"
            return super().step(command)

        def reset(self, options):
            assert not self.told or self.told[-1] is None, "a reset may wait for a person for a minute"
            return super().reset(options)

    return Watched()


def test_armed_in_an_episode_and_disarmed_for_a_reset_a_stop_and_a_goodbye(watched, target, until):
    with Server(watched, watchdog_s=0.5, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        assert watched.told == [0.5]
        remote.step(target(0.1, 0))
        remote.reset({})
        assert watched.told == [0.5, None, 0.5]
        remote.step(target(0.1, 0))
        remote.stop("enough")
        until(lambda: watched.told[3:] == [None])
        remote.reset({"clear_stop": "looked"})
        assert watched.told[4:] == [0.5]
        remote.close()
        until(lambda: watched.told[5:] == [None])


def test_it_stays_armed_while_the_loop_holds_for_a_silent_client(watched, target, until):
    """There the loop still writes; the device acts if that ends too."""
    with Server(watched, watchdog_s=0.1, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.step(target(0.1, 0))
        until(lambda: server.lifecycle.state is State.HOLDING)
        assert watched.told == [0.1]
        remote.close()
