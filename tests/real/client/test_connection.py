"""Steps that are sent again: each is executed once, and a copy goes out only where an answer is late."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import ConnectionLost, WireError
from real import RemoteRobot, Server
from real.client.connection import LOSSY_S, RESEND_MS, Connection, ResendTimer
from tests.real.relay import Relay


@pytest.mark.parametrize("lockstep", [False, True], ids=["real time", "lockstep"])
def test_steps_whose_answers_are_late_are_sent_again_and_executed_once(robot, target, lockstep):
    with (
        Server(robot, watchdog_s=20.0, max_command_age_s=None, lockstep=lockstep) as server,
        Relay(server.address, seed=3) as relay,
    ):
        remote = RemoteRobot(relay.address, step_timeout_s=20.0, connect_timeout_s=20.0)
        remote.reset({})
        remote.step(target(0.01, 0))
        relay.loses, relay.stall_s = 0.3, 0.1
        counted = [int(remote.step(target(n / 100, 0)).sensors["steps"]) for n in range(2, 21)]
        relay.loses = 0.0
        about = remote.about()
        remote.close()
    assert counted == sorted(set(counted)), "every answer is a new one"
    assert about["sent_again"] >= about["server"]["repeated"] > 0
    went = [round(float(first), 6) for first, _ in robot.commands]
    went = [value for n, value in enumerate(went) if value != (went[n - 1] if n else 0.0)]
    assert went[:20] == [n / 100 for n in range(1, 21)], "each once, and in order"


def test_a_step_is_sent_again_until_its_deadline(robot, target):
    with Server(robot, watchdog_s=20.0, max_command_age_s=None) as server, Relay(server.address) as relay:
        remote = RemoteRobot(relay.address, step_timeout_s=0.4, connect_timeout_s=20.0)
        remote.reset({})
        remote.step(target(0.1, 0))
        relay.silent = True
        connection = remote._connection
        with pytest.raises(ConnectionLost, match=r"no answer to step .* within 0\.4 s"):
            remote.step(target(0.5, 0))
        assert connection.copies > 5
        relay.silent = False
        remote.close()


@pytest.mark.parametrize("welcome", [{}, None, {"sequence": 3}], ids=str)
def test_a_server_that_does_not_ask_for_copies_gets_none(welcome):
    connection = Connection("tcp://127.0.0.1:9")
    connection.expect_loss(welcome)
    assert connection._timer is None
    connection.close()


@pytest.mark.parametrize("resend_s", [0.0, -1.0, float("nan"), float("inf"), 1, "0.1", [0.1]], ids=str)
def test_a_damaged_time_is_refused(resend_s):
    connection = Connection("tcp://127.0.0.1:9")
    with pytest.raises(WireError, match="resend_s"):
        connection.expect_loss({"resend_s": resend_s})
    connection.close()


# -- When a step is sent again ---------------------------------------------------------------------------------


class Walk:
    """Steps of a client whose answers take as long as a test says."""

    def __init__(self, latest_s=0.06):
        self.timer, self.now_s = ResendTimer(latest_s), 1000.0

    def steps(self, *took_s):
        for each in took_s:
            began_s, self.now_s = self.now_s, self.now_s + each
            self.timer.note(began_s, self.now_s)
        return self.timer.first_ms


def test_where_no_answer_is_late_no_copy_is_sent():
    dice, walk = random.Random(1), Walk()
    walk.steps(*(dice.uniform(0.0325, 0.0341) for _ in range(50)))
    for _ in range(1000):
        took_s = dice.uniform(0.0325, 0.0341)
        assert 1e3 * took_s < walk.timer.first_ms < 45
        walk.steps(took_s)


def test_after_a_late_answer_copies_go_out_early_for_a_while():
    walk = Walk()
    assert walk.steps() == RESEND_MS, "nothing is known yet"
    calm_ms = walk.steps(*[0.0333] * 50)
    assert calm_ms > 33.3
    assert walk.steps(0.070) == RESEND_MS
    assert walk.steps(*[0.0333] * int(LOSSY_S / 0.0333 - 5)) == RESEND_MS
    assert walk.steps(*[0.0333] * 10) == calm_ms, "and calm again"


def test_a_fast_robots_copies_are_no_later_on_a_lossy_network():
    walk = Walk()
    calm_ms = walk.steps(*[0.002] * 50)
    assert calm_ms < RESEND_MS
    assert walk.steps(0.05) <= RESEND_MS


@given(st.lists(st.floats(0.0, 30.0), max_size=60), st.floats(0.001, 1.0))
def test_a_copy_is_never_later_than_the_server_says(took_s, latest_s):
    walk = Walk(latest_s)
    for each in took_s:
        assert 0 < walk.steps(each) <= max(math.ceil(1e3 * latest_s), RESEND_MS)
