"""A flood is read at a bounded rate, and nobody else waits for it."""

import statistics
import time

import zmq
from hypothesis import given
from hypothesis import strategies as st

from real import MessageKind, RemoteRobot, Server
from real.control.limits import BURST, RateLimiter
from real.protocol import messages as wire
from real.server import turns
from tests.fakes import ManualClock, until

FLOOD = """
import sys, zmq
from real import MessageKind; from real.protocol import messages as wire
dealer = zmq.Context.instance().socket(zmq.DEALER)
dealer.connect(sys.argv[1])
message = wire.encode(MessageKind.STEP, 7, 1, None, (bytes(8),), 1)[0]
print("flooding", flush=True)
while True:
    dealer.send(message)
    while dealer.poll(0):
        dealer.recv()
"""


def test_a_burst_and_then_one_by_one():
    now = [0.0]
    rate_limiter = RateLimiter(100.0, 3, lambda: now[0])
    read = 0
    while not rate_limiter.spent:
        rate_limiter.take()
        read += 1
    assert read == 3
    now[0] += 0.0101
    assert not rate_limiter.spent
    rate_limiter.take()
    assert rate_limiter.spent
    now[0] += 60.0
    read = 0
    while not rate_limiter.spent:
        rate_limiter.take()
        read += 1
    assert read == 3, "a pause saves up a burst, and no more"


@given(st.integers(1, 5), st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0]), min_size=1, max_size=40))
def test_at_every_time_as_many_are_read_as_have_come(burst: int, pauses: list[float]) -> None:
    """Tokens that are a power of two of a second apart, so that none is lost in rounding; the reader never waits."""
    clock = ManualClock(0.0)
    rate_limiter = RateLimiter(4.0, burst, clock)
    tokens = float(burst)
    for pause_s in pauses:
        clock.advance(pause_s)
        tokens = min(tokens + 4.0 * pause_s, float(burst))
        assert rate_limiter.spent == (tokens < 1.0)
        if tokens >= 1.0:
            tokens -= 1.0
            assert rate_limiter.take() == (tokens < 1.0)


def test_no_more_is_answered_than_is_allowed(robot):
    with Server(robot, max_command_age_s=None) as server:
        dealer = zmq.Context.instance().socket(zmq.DEALER)
        dealer.linger = 0
        dealer.connect(server.address)
        message = wire.encode(MessageKind.STEP, 7, 1, None, (bytes(8),), 1)[0]
        began, answers, sent = time.monotonic(), 0, 0
        while answers < 900:
            while sent < min(900, answers + turns.MOST_MESSAGES):
                dealer.send(message)
                sent += 1
            assert dealer.poll(5000)
            dealer.recv()
            answers += 1
        took = time.monotonic() - began
        dealer.close()
        assert took > (900 - BURST) / turns.PER_S * 0.8, "as fast as it could"
        assert server.about()["dropped"] == 0


def test_what_is_sent_beyond_a_clients_place_in_the_queue_is_dropped_and_the_sender_cut_off(robot):
    with Server(robot, max_command_age_s=None) as server:
        dealer = zmq.Context.instance().socket(zmq.DEALER)
        dealer.linger = 0
        dealer.connect(server.address)
        message = wire.encode(MessageKind.STEP, 7, 1, None, (bytes(8),), 1)[0]
        for _ in range(5000):
            dealer.send(message)
        until(lambda: server.about()["cut_off"].get("a flood of messages"))
        dealer.close()
        assert server.about()["dropped"] > 0


def test_a_client_steps_beside_a_flood_and_a_stop_is_heard(robot, target, start):
    with Server(robot, watchdog_s=5, max_command_age_s=None) as server:
        assert start(FLOOD, server.address).line() == "flooding"
        remote = RemoteRobot(server.address, step_timeout_s=5, connect_timeout_s=5)
        remote.reset({})
        took = []
        for n in range(30):
            began = time.monotonic()
            remote.step(target(n / 100, 0))
            took.append(time.monotonic() - began)
        assert statistics.median(took) < 4 * robot.spec.period_s
        remote.stop("enough")
        assert robot.stops == ["enough"]
        remote.close()
