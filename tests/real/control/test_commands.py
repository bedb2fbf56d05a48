"""Nothing posted is lost, and every post wakes a reader that sleeps in a poll."""

import select
import threading

import pytest

from real.control.commands import Mailbox


@pytest.fixture
def mailbox():
    mailbox = Mailbox()
    yield mailbox
    mailbox.close()


def test_a_post_rings(mailbox):
    assert not select.select([mailbox], [], [], 0)[0]
    mailbox.post(1)
    mailbox.post(2)
    assert select.select([mailbox], [], [], 5)[0]
    assert list(mailbox.collect()) == [1, 2]
    assert not select.select([mailbox], [], [], 0)[0]


def test_nobody_comes(mailbox):
    assert list(mailbox.collect()) == []


def test_a_full_bell_keeps_no_poster_waiting(mailbox):
    for number in range(50_000):
        mailbox.post(number)
    assert list(mailbox.collect()) == list(range(50_000))


def test_nothing_is_lost_between_collecting_and_polling(mailbox):
    total = 20_000
    poster = threading.Thread(target=lambda: [mailbox.post(number) for number in range(total)])
    poster.start()
    got = []
    while len(got) < total:
        assert select.select([mailbox], [], [], 10)[0], "posted, and nobody rang"
        got += mailbox.collect()
    poster.join()
    assert got == list(range(total))


def test_a_closed_one_takes_no_harm(mailbox):
    mailbox.close()
    mailbox.close()
    mailbox.post(1)
    mailbox.ring()
