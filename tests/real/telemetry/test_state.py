"""Telemetry reaches every listener at its rate, and none of them can slow the loop."""

import signal
import time

import msgpack
import numpy as np
import pytest
import zmq

from hal import DeadlineExceeded, Fault, WireError
from real import RemoteRobot, Server, Watcher

NEVER_READS = """
import sys, time, zmq
socket = zmq.Context.instance().socket(zmq.SUB)
socket.rcvhwm = 1
socket.setsockopt(zmq.RCVBUF, 1024)
socket.subscribe(b"")
socket.connect(sys.argv[1])
socket.recv()
print("listening", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def server(robot):
    with Server(
        robot, telemetry="tcp://127.0.0.1:*", telemetry_hz=100, watchdog_s=20.0, max_command_age_s=None
    ) as server:
        yield server


def test_what_is_told_is_what_is(server, robot, target, until):
    with Watcher(server.telemetry, robot.spec) as watcher:
        first = watcher.next()
        assert (first.state, first.holder, first.sensors, first.stamp_ns) == ("disarmed", None, {}, 0)
        robot.faults = (Fault("servo", "3", "servo 3 is hot"),)
        remote = RemoteRobot(server.address)
        remote.reset({})
        for _ in range(4):
            remote.step(target(0.5, -0.5))
        until(lambda: watcher.next().state == "running")
        seen = watcher.next()
        assert seen.holder.startswith("process ")
        np.testing.assert_array_equal(seen.applied["target"], np.float32([0.5, -0.5]))
        assert [str(fault) for fault in seen.faults] == ["servo 3 is hot"]
        assert 0 < seen.stamp_ns < seen.sent_ns
        assert seen.loop_timing["period_ms"] == 20
        assert seen.loop_timing["periods"] == sum(seen.loop_timing["counts"]) >= 3
        remote.stop("enough")
        until(lambda: watcher.next().why == "enough")
        remote.close()


def test_the_newest_wins_for_who_looks_rarely(server, robot):
    with Watcher(server.telemetry, robot.spec) as watcher:
        watcher.next()
        time.sleep(0.5)
        watcher.next()
        seen = watcher.next()
        assert time.monotonic_ns() - seen.sent_ns < 0.2e9


def test_listeners_that_never_read_slow_nobody(server, robot, target, start, until):
    for _ in range(3):
        stuck = start(NEVER_READS, server.telemetry)
        assert stuck.line() == "listening"
        stuck.send(signal.SIGSTOP)
    remote = RemoteRobot(server.address)
    remote.reset({})
    with Watcher(server.telemetry, robot.spec) as watcher:
        before = watcher.next().sent_ns
        for _ in range(40):  # far more than what waits for a listener that does not read
            remote.step(target(0.1, 0))
            seen = watcher.next()
            assert seen.sent_ns > before
            before = seen.sent_ns
        assert seen.state == "running", "no silence of the client"
        remote.close()


@pytest.mark.parametrize("role", ["move", "watch", "stop", None])
def test_who_may_listen(robot, tmp_path, identities, role):
    keys = identities("client", role)
    with (
        Server(robot, keys=tmp_path / "server", telemetry="tcp://127.0.0.1:*") as server,
        Watcher(server.telemetry, robot.spec, keys) as watcher,
    ):
        if role in ("move", "watch"):
            assert watcher.next().state == "disarmed"
        else:
            with pytest.raises(DeadlineExceeded, match="does not let this key in"):
                watcher.next()


def test_telemetry_too_stays_on_loopback_without_keys(robot):
    with pytest.raises(WireError, match="no keys were given"):
        Server(robot, telemetry="tcp://*:*")
    with pytest.raises(ValueError, match="telemetry_hz is 0"):
        Server(robot, telemetry="tcp://127.0.0.1:*", telemetry_hz=0)


@pytest.mark.parametrize("frame", [b"", b"\xc1", msgpack.packb([1, 2, {}, None]), msgpack.packb([3, 0, {}, None]),
                                   msgpack.packb([3, 0, {"stamp_ns": 0, "faults": []}, b"short"])])  # fmt: skip
def test_what_is_no_telemetry_is_refused(robot, frame):
    liar = zmq.Context.instance().socket(zmq.XPUB)
    port = liar.bind_to_random_port("tcp://127.0.0.1")
    with Watcher(f"tcp://127.0.0.1:{port}", robot.spec) as watcher:
        liar.recv()
        liar.send(frame)
        with pytest.raises(WireError):
            watcher.next()
    liar.close(0)


def test_a_silent_address(robot):
    with Watcher("tcp://127.0.0.1:9", robot.spec) as watcher, pytest.raises(DeadlineExceeded, match="nobody listens"):
        watcher.next(0.3)


def test_telemetry_carries_the_whole_status_and_the_ages_of_samples(make_robot, until):
    class Aged(make_robot):
        def _read(self):
            return super()._read()._replace(age_ns={"position": 7_000_000})

    robot = Aged()
    with Server(robot, telemetry="tcp://127.0.0.1:*", telemetry_hz=100, watchdog_s=20.0) as server:
        remote = RemoteRobot(server.address)
        assert remote.status()["telemetry"] == server.telemetry
        remote.reset({})
        with Watcher(server.telemetry, robot.spec) as watcher:
            until(lambda: watcher.next().age_ns == {"position": 7_000_000})
            assert watcher.next().status["stop_number"] == remote.status()["stop_number"]
        remote.close()
    with Server(make_robot()) as server:
        remote = RemoteRobot(server.address)
        assert remote.status()["telemetry"] is None
        remote.close()
