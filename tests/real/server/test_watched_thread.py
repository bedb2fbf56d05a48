"""A thread that ends too early, or gives no sign of life, is noticed; one that was ended is not."""

import time

import pytest

from real.server.watched_thread import WatchedThread
from tests.fakes import until


@pytest.fixture
def reader():
    reader = WatchedThread("a test", "the thread has read nothing")
    yield reader
    reader.end()


def test_a_thread_that_ends_by_itself_is_dead(reader):
    assert not reader.dead, "not begun"
    reader.start(lambda: None)
    until(lambda: reader.dead)
    reader.end()
    assert not reader.dead


def test_a_thread_that_was_ended_is_not_dead(reader):
    reader.start(reader.over.wait)
    reader.end()
    reader.end()
    assert not reader.dead


def test_a_thread_without_a_sign_of_life_is_told(reader):
    assert reader.silence(20.0) is None
    reader.alive_s = time.monotonic() - 30.0
    assert reader.silence(20.0) == "the thread has read nothing for 30.0 s"
