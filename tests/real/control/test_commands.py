"""A queue loses nothing, and every put wakes a reader that sleeps in a poll."""

import queue
import select
import threading

import pytest

from real.control.commands import CommandQueue, Finish, Step
from tests.fakes import WaitingQueue


@pytest.fixture
def pollable():
    pollable = CommandQueue(pollable=True)
    yield pollable
    pollable.close()


def test_a_put_wakes_the_poll(pollable):
    assert not select.select([pollable], [], [], 0)[0]
    pollable.put(1)
    pollable.put(2)
    assert select.select([pollable], [], [], 5)[0]
    assert pollable.collect() == [1, 2]
    assert not select.select([pollable], [], [], 0)[0]


def test_an_empty_queue_collects_nothing(pollable):
    assert pollable.collect() == []
    assert pollable.empty()


def test_a_full_socket_keeps_no_writer_waiting(pollable):
    for number in range(50_000):
        pollable.put(number)
    assert pollable.collect() == list(range(50_000))


def test_nothing_is_lost_between_collecting_and_polling(pollable):
    total = 20_000
    writer = threading.Thread(target=lambda: [pollable.put(number) for number in range(total)])
    writer.start()
    items = []
    while len(items) < total:
        assert select.select([pollable], [], [], 10)[0], "an item was put, and the reader was not woken"
        items += pollable.collect()
    writer.join()
    assert items == list(range(total))


def test_a_closed_queue_still_takes_items(pollable):
    pollable.close()
    pollable.close()
    pollable.put(1)
    pollable.wake()
    assert pollable.fileno() == -1


def test_a_queue_that_is_not_pollable_says_so():
    with pytest.raises(ValueError, match="pollable=True"):
        CommandQueue().fileno()


def test_a_wake_brings_a_reader_out_of_its_poll_without_an_item(pollable):
    pollable.wake()
    assert select.select([pollable], [], [], 5)[0]
    assert pollable.collect() == []
    assert not select.select([pollable], [], [], 0)[0]


def test_a_queue_that_nobody_polls_is_woken_and_closed_without_harm():
    commands = CommandQueue()
    commands.wake()
    for number in range(3):
        assert commands.count() == number
        commands.put(number)
    assert commands.collect() == [0, 1, 2]
    commands.close()


def test_a_reader_waits_as_long_as_it_says_and_once_it_has_a_step_no_more(monkeypatch):
    waiting = WaitingQueue()
    monkeypatch.setattr("real.control.commands.SimpleQueue", lambda: waiting)
    commands = CommandQueue()
    for wait_s in (0, 0.5, 1, None):
        with pytest.raises(queue.Empty):
            commands.get(wait_s)
    assert waiting.waits == [0, 0.5, 1, None]
    waiting.waits.clear()
    commands.put(Step(1, {}))
    assert commands.newest(0.5, lambda step: None) == Step(1, {})
    assert commands.newest(0.0, lambda step: None) is None
    assert waiting.waits == [0.5, 0, 0]


def test_get_waits_no_longer_than_it_may():
    commands = CommandQueue()
    for wait_s in (0, 0.01):
        with pytest.raises(queue.Empty):
            commands.get(wait_s)
    commands.put("first")
    assert commands.get() == "first"


def test_the_newest_step_replaces_those_before_it():
    commands, replaced = CommandQueue(), []
    for number in range(3):
        commands.put(Step(number, {}))
    assert commands.newest(0.0, replaced.append) == Step(2, {})
    assert [step.request_id for step in replaced] == [0, 1]
    assert commands.newest(0.0, replaced.append) is None
    assert commands.newest(0.01, replaced.append) is None


def test_a_command_that_is_no_step_is_replaced_by_none():
    commands, replaced = CommandQueue(), []
    for command in (Step(0, {}), Finish(), Step(1, {})):
        commands.put(command)
    assert isinstance(commands.newest(0.0, replaced.append), Finish)
    assert [step.request_id for step in replaced] == [0]
    assert commands.newest(0.0, replaced.append) == Step(1, {})
