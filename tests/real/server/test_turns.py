"""Clients take turns, whatever number of messages one of them sends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from real.server.turns import MOST_BYTES, MOST_MESSAGES, PER_S, Turns
from tests.fakes import ManualClock


def drain(turns: Turns[str], clock: ManualClock) -> list[str]:
    """Return all that waits, in order, with all the time that it needs."""
    out: list[str] = []
    while turns:
        message = turns.next()
        if message is None:
            clock.advance(1.0 / PER_S)
        else:
            out.append(message)
    return out


def test_one_client_with_many_messages_waits_behind_one_with_a_single_one() -> None:
    clock = ManualClock()
    turns: Turns[str] = Turns(now=clock)
    for number in range(50):
        assert turns.put("flood", f"flood {number}", 10)
    assert turns.put("other", "other 0", 10)
    assert drain(turns, clock)[:3] == ["flood 0", "other 0", "flood 1"]


def test_a_clients_queue_is_bounded_in_number_and_in_bytes() -> None:
    turns: Turns[int] = Turns(now=ManualClock())
    assert all(turns.put("a", number, 1) for number in range(MOST_MESSAGES))
    assert not turns.put("a", MOST_MESSAGES, 1)
    assert turns.put("b", 0, MOST_BYTES), "another client has its own bound"
    assert not turns.put("b", 1, 1)
    assert turns.dropped == 2


def test_the_rate_is_bounded_for_all_together() -> None:
    clock = ManualClock()
    turns: Turns[int] = Turns(100.0, clock)
    for client in range(40):
        turns.put(client, client, 1)
    burst = 0
    while turns.next() is not None:
        burst += 1
    assert burst == 20
    clock.advance(0.1)
    later = 0
    while turns.next() is not None:
        later += 1
    assert later in (9, 10)  # a token may miss its time by a rounding


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, MOST_BYTES // 20))))
def test_no_message_is_lost_or_overtaken_by_a_later_one_of_its_client(messages: list[tuple[int, int]]) -> None:
    clock = ManualClock()
    turns: Turns[str] = Turns(now=clock)
    taken: dict[int, list[int]] = {}
    for number, (client, size) in enumerate(messages):
        if turns.put(client, f"{client} {number}", size):
            taken.setdefault(client, []).append(number)
    out: dict[int, list[int]] = {}
    for message in drain(turns, clock):
        client, number = map(int, message.split())
        out.setdefault(client, []).append(number)
    assert out == taken
    assert turns.dropped == len(messages) - sum(map(len, taken.values()))
