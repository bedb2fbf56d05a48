"""Commands that were sent too long ago are counted and not executed."""

import time

import numpy as np
import pytest

from hal.errors import CommandTooOld, ConnectionLost
from real import MessageKind, RemoteRobot, Server
from real.client.connection import Connection
from real.control.limits import MaxAge
from real.protocol import messages as wire
from tests.real.relay import Relay


def test_older_and_from_the_future_are_refused_and_counted():
    limit = MaxAge(0.1, now_ns=lambda: 1_000_000_000)
    for sent_ns in (1_000_000_000, 900_000_000, 1_100_000_000, None):
        assert limit.refusal(sent_ns) is None
    for sent_ns, told in ((899_999_999, "100.0 ms old"), (0, "1000.0 ms old"), (1_100_000_001, "-100.0 ms old")):
        refusal = limit.refusal(sent_ns)
        assert isinstance(refusal, CommandTooOld)
        assert told in str(refusal)
        assert "raise serve.max_command_age_s" in str(refusal)
    assert limit.refused == 3


def test_the_wait_for_the_loops_own_period_is_no_lateness():
    """A robot of 5 Hz lets a command wait for 200 ms, however fast the network was."""
    limit = MaxAge(0.1, 0.2, lambda: 1_000_000_000)
    assert limit.refusal(700_000_000) is None
    assert "allowed are 300 ms" in str(limit.refusal(699_999_999))


def test_the_age_of_the_last_command_is_known_where_it_counts():
    limit = MaxAge(0.1, now_ns=lambda: 1_000_000_000)
    ages = [limit.age_s]
    for sent_ns in (950_000_000, None, 940_000_000, 1_050_000_000, 960_000_000, 0):
        limit.refusal(sent_ns)
        ages.append(limit.age_s)
    assert ages == pytest.approx([0.0, 0.05, 0.0, 0.06, 0.0, 0.04, 0.04]), "one that was refused has none"


def test_a_pause_of_the_loop_is_as_long_as_a_command_may_be_old():
    limit = MaxAge(0.25, 0.5, lambda: 0)
    assert [limit.refusal_after(pause_s) for pause_s in (0.0, 0.3, 0.75)] == [None] * 3
    for count, pause_s in enumerate((0.7500001, 60.0), 1):
        refusal = limit.refusal_after(pause_s)
        assert isinstance(refusal, CommandTooOld)
        assert (refusal.age_s, limit.refused) == (pause_s, count)
        assert "750 ms" in str(refusal)
        assert refusal.begun
    assert MaxAge(None).refusal_after(1e9) is None


def test_a_slow_robot_takes_the_commands_of_a_fast_network(make_robot, robot, target):
    from dataclasses import replace

    slow = make_robot(replace(robot.spec, rate_hz=4.0))
    with Server(slow, watchdog_s=5, max_command_age_s=0.1) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        for n in range(4):
            np.testing.assert_allclose(remote.step(target(n / 10, 0)).applied["target"], [n / 10, 0], rtol=1e-6)
        remote.close()


def test_no_limit_lets_all_through_and_nought_is_no_limit():
    assert MaxAge(None).refusal(0) is None
    with pytest.raises(ValueError, match="must be above 0"):
        MaxAge(0.0)


@pytest.mark.requirement("R6.6")
def test_a_command_that_was_on_its_way_too_long_moves_nothing(robot, target):
    with Server(robot, watchdog_s=10, max_command_age_s=0.1) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.step(target(0.1, 0))
        connection = remote._connection
        shift_ns = connection._shift_ns
        connection._shift_ns, connection._shift_until_ns = shift_ns - 150_000_000, 2**62
        with pytest.raises(CommandTooOld, match=r"was \d+\.\d ms old .* not executed") as caught:
            remote.step(target(0.9, 0))
        assert caught.value.age_s == pytest.approx(0.15, abs=0.049)
        connection._shift_ns = shift_ns
        assert remote.about()["server"]["late_commands"] == 1
        np.testing.assert_allclose(remote.step(target(0.2, 0)).applied["target"], [0.2, 0])
        assert 0.9 not in {round(first, 3) for first, _ in robot.commands}
        remote.close()


def freeze_once(monkeypatch, name):
    """Let the network thread pause for 0.3 s when it next reads what waits."""
    from real.server.request_handler import RequestHandler

    original, pauses = getattr(RequestHandler, name), [0.3]

    def frozen(handler, *flags):
        time.sleep(pauses.pop() if pauses else 0.0)
        original(handler, *flags)

    monkeypatch.setattr(RequestHandler, name, frozen)


def test_a_command_that_waited_in_a_frozen_server_is_refused_and_the_robot_holds_instead(robot, target, monkeypatch):
    """The stamp is the sender's: what waited in the server's own socket is as old."""
    with Server(robot, watchdog_s=10, max_command_age_s=0.1) as server:
        remote = RemoteRobot(server.address, step_timeout_s=5)
        remote.reset({})
        remote.step(target(0.1, 0))
        freeze_once(monkeypatch, "receive")
        held = remote.step(target(0.9, 0))
        assert held.applied["target"].tolist() == pytest.approx([0.1, 0.0])
        assert server.about()["late_commands"] == 1
        assert remote.about()["holds"] == 1
        assert 0.9 not in {round(float(first), 3) for first, _ in robot.commands}
        assert remote.step(target(0.2, 0)).applied["target"].tolist() == pytest.approx([0.2, 0.0])
        remote.close()


def test_a_client_that_sends_no_copies_is_told_that_its_command_waited(robot, target, monkeypatch):
    with Server(robot, watchdog_s=10, max_command_age_s=0.1) as server:
        remote = RemoteRobot(server.address, step_timeout_s=5)
        remote.reset({})
        remote._connection.expect_loss(None)
        remote.step(target(0.1, 0))
        freeze_once(monkeypatch, "receive")
        with pytest.raises(CommandTooOld):
            remote.step(target(0.9, 0))
        monkeypatch.undo()
        remote.step(target(0.2, 0))
        assert 0.9 not in {round(first, 3) for first, _ in robot.commands}
        remote.close()


def test_a_network_that_is_always_late_is_reported(robot, target, monkeypatch):
    """After one hold that was late as well: the reason is that of the command."""
    with Server(robot, watchdog_s=10, max_command_age_s=0.01) as server, Relay(server.address) as relay:
        remote = RemoteRobot(relay.address, step_timeout_s=5, connect_timeout_s=20)
        remote.reset({})
        relay.delay_s = 0.2
        with pytest.raises(CommandTooOld):
            remote.step(target(0.9, 0))
        assert server.about()["late_commands"] == 2
        assert 0.9 not in {round(first, 3) for first, _ in robot.commands}
        relay.delay_s = 0.0
        remote.close()


def test_a_command_that_was_long_on_its_way_gives_no_more_time(robot, target):
    """Silence begins when it was sent; when it comes, its client may be gone."""
    with Server(robot, watchdog_s=20, max_command_age_s=10) as server:
        remote = RemoteRobot(server.address, connect_timeout_s=20, step_timeout_s=20)
        remote.reset({})
        remote.step(target(0.25, 0))
        connection = remote._connection
        connection._shift_ns, connection._shift_until_ns = connection._shift_ns - 5_000_000_000, 2**62
        remote.step(target(0.5, 0))
        assert server._loop._watchdog.silence_s > 4.9
        remote.close()


def test_a_client_that_died_while_the_server_was_frozen_moves_nothing(robot, target, monkeypatch, until):
    with Server(robot, watchdog_s=10, max_command_age_s=0.1) as server:
        remote = RemoteRobot(server.address, step_timeout_s=0.1)
        remote.reset({})
        remote.step(target(0.1, 0))
        freeze_once(monkeypatch, "receive")
        with pytest.raises(ConnectionLost):
            remote.step(target(0.9, 0))
        until(lambda: server.about()["late_commands"] == 1)
        assert 0.9 not in {round(first, 3) for first, _ in robot.commands}
        remote.close()


def test_a_step_without_its_time_is_refused(robot):
    with Server(robot) as server:
        connection = Connection(server.address)
        detail = {"digest": "", "name": "x", "move": True, "replaces": 0, "take": "no", "resume": False}
        connection.session = connection.ask(MessageKind.HELLO, detail, (), 5).session
        connection._shift_until_ns = 2**62  # as if no answer had told it the server's clock
        with pytest.raises(wire.WireError, match="a step must say when it was sent"):
            connection.ask(MessageKind.STEP, None, (bytes(8),), 5)
        connection.close()


def test_the_clock_is_known_before_the_first_step(robot):
    """From the greeting on, so that the first command already has its time."""
    with Server(robot) as server:
        remote = RemoteRobot(server.address)
        assert remote.clock is None
        remote.spec  # noqa: B018
        known = remote.clock
        assert abs(known.offset_ns) <= known.error_ns
        remote.close()
