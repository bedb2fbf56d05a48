"""A client that was written from the page alone races resets with stops: no stop that was answered is undone."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pytest

from real import Server
from real.control.lifecycle import State
from tests.fakes import LatchingPuppet
from tests.real.page_client import DONE, ERROR, READING, PageClient

_PAUSE_S = 0.045
"""Pause between two trials of two stops each, seconds: more than 50 stops a second end a connection, says the page."""


class Race:
    """A served arm, the client that moves it, and one at the endpoint for stops."""

    def __init__(self) -> None:
        self.arm = LatchingPuppet(step_s=0.0002)
        self.server = Server(self.arm, watchdog_s=60.0, max_command_age_s=None).start()
        self.mover = PageClient(self.server.address)
        self.button = self.mover.stop_endpoint()
        self.mover.hello()

    def close(self) -> None:
        self.mover.close()
        self.button.close()
        self.server.close()


@pytest.fixture
def race() -> Iterator[Race]:
    race = Race()
    yield race
    race.close()


def _seen(race: Race, older: int) -> int | None:
    """The number of the stop that the person saw."""
    return older


def _none(race: Race, older: int) -> int | None:
    """No number: a client of an earlier version, or one that read the page badly."""
    return None


@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize("number", [_seen, _none])
def test_a_stop_that_races_with_a_reset_is_never_undone(
    race: Race, number: Callable[[Race, int], int | None], trials: int
) -> None:
    """RESET{clear_stop}, and 0 to 300 microseconds later STOP at the other endpoint. 10,000 with ``--trials 5000``.

    The reset may come first and begin; then the stop ends it. The stop stays in both cases, and nothing moves after it.
    """
    dice, undone = random.Random(3), []
    cleared = refused = 0
    for trial in range(trials):
        time.sleep(_PAUSE_S)
        kind, detail = race.button.stop("an older stop")
        assert kind == DONE
        sequence = race.mover.reset("looked at the older one", number(race, detail["stop_number"]))
        end = time.perf_counter() + dice.random() * 300e-6
        while time.perf_counter() < end:
            pass
        kind, newer = race.button.stop(f"EMERGENCY {trial}")
        assert kind == DONE
        moved = len(race.arm.told)
        kind, answer = race.mover.receive(sequence)
        cleared += kind == READING
        refused += kind == ERROR
        if number is _none:
            assert kind == ERROR
            assert answer[0] == "WireError"
            assert "stop_number" in answer[2]
        status = race.mover.status()
        if status["state"] != State.STOPPED or race.server.stopped is None or len(race.arm.told) > moved:
            undone.append((trial, status["state"]))
        assert status["stop_number"] == newer["stop_number"]
    print(f"{number.__name__}: {len(undone)} of {trials} stops undone; {cleared} resets were done, {refused} refused")
    assert not undone
