"""One client at a time holds the lease of a robot."""

import pytest

from hal import ConnectionLost, WireError
from real.server.lease import Lease
from tests.fakes import ManualClock


@pytest.fixture
def clock():
    return ManualClock(0.0)


@pytest.fixture
def lease(clock):
    return Lease(5, clock)


def test_the_second_is_refused_and_told_who_and_until_when(lease, clock):
    lease.take("first")
    clock.now = 2
    with pytest.raises(ConnectionLost, match=r"'first', last heard 2\.0 s ago.*silent for 5 s"):
        lease.take("second")
    assert lease.holder == "first"


def test_given_back_it_is_free(lease):
    lease.release(lease.take("first"))
    assert lease.holder is None
    lease.take("second")


def test_silence_loses_it_only_when_somebody_asks(lease, clock):
    first = lease.take("first")
    clock.now = 100
    lease.order(first, 1)
    lease.answered(first)
    clock.now = 105.5
    second = lease.take("second")
    with pytest.raises(ConnectionLost, match="'second' holds the robot now"):
        lease.order(first, 2)
    lease.order(second, 1)


def test_an_order_under_way_is_no_silence(lease, clock):
    first = lease.take("first")
    lease.order(first, 1)
    clock.now = 60
    with pytest.raises(ConnectionLost, match="held by 'first'"):
        lease.take("second")
    lease.answered(first)
    clock.now = 64
    with pytest.raises(ConnectionLost, match=r"heard 4\.0 s ago"):
        lease.take("second")


def test_a_client_takes_over_from_itself(lease):
    old = lease.take("first")
    new = lease.take("first", replaces=old)
    with pytest.raises(ConnectionLost):
        lease.order(old, 1)
    lease.order(new, 1)


def test_no_order_is_executed_twice(lease):
    session = lease.take("first")
    lease.order(session, 3)
    for sequence in (3, 2, 0):
        with pytest.raises(WireError, match=f"order {sequence} came after order 3"):
            lease.order(session, sequence)
    lease.order(session, 4)


def test_session_nought_holds_nothing(lease):
    for call in (lambda: lease.order(0, 1), lambda: lease.release(0)):
        with pytest.raises(ConnectionLost, match="nobody holds the robot now"):
            call()
