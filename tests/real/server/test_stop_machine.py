"""The life of a stop, played with the server's own parts and without threads: a million steps with ``--soak``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis.errors import FlakyFailure

from hal import Guard
from hal.errors import StopReason
from hal.guarding import stop_file
from hal.guarding.stop_file import StopFile
from hal.guarding.stop_latch import LatchState, StopLatch
from real.control.driver import DriverStopper
from real.control.loop import ControlLoop
from tests.real.server.test_life_of_a_stop import PLANTS
from tests.real.stop_machine import LifeOfAStop, play

pytestmark = pytest.mark.requirement("R6.6")


def test_some_thousand_steps_lose_no_stop() -> None:
    counted = play(LifeOfAStop, 20)
    assert counted["steps"] > 1500
    assert counted["stops"] > 80


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_a_million_steps_lose_no_stop() -> None:
    counted: Counter[str] = Counter()
    seed = 0
    while counted["steps"] < 1_000_000:
        counted += play(LifeOfAStop, 100, seed=(seed := seed + 1))
    print(dict(counted))


# -- faults that the machine must see ------------------------------------------------------------------------


def _skip_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    save = StopFile._save

    def unsynced(file: StopFile, record: Any, saved: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(stop_file.os, "fsync", lambda descriptor: None)
            save(file, record, saved)

    monkeypatch.setattr(StopFile, "_save", unsynced)


def _forget_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StopFile, "_sync_folder", lambda file: None)


def _ignore_the_newest_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record that is read is the one in the first slot."""
    newest = stop_file._newest
    monkeypatch.setattr(stop_file, "_newest", lambda slots: newest(slots[:1]))


def _clear_at_the_resets_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    original = StopLatch.resetting

    @contextmanager
    def resetting(latch: StopLatch, options: Any, seen: int | None = None) -> Any:
        with original(latch, options, seen) as clearance:
            latch.state = LatchState(latch.number, None)
            yield clearance

    monkeypatch.setattr(StopLatch, "resetting", resetting)


def _move_in_spite_of_a_stop_on_the_way_home(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Guard.step

    def unstopped(guard: Guard, command: Any) -> Any:
        kept, guard.latch.state = guard.latch.state, LatchState(guard._stops, None)
        try:
            return step(guard, command)
        finally:
            guard.latch.state = kept

    monkeypatch.setattr(Guard, "step", unstopped)


def _do_not_latch_the_drivers_own_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ControlLoop, "_fault", lambda loop, where, error: error)


def _stop_again_by_a_late_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DriverStopper, "once", lambda stopper, number, stop: stop())


def _keep_orderly_reasons_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real stop after an orderly one stays orderly, and is not kept."""
    stop = StopLatch.stop

    def first_stays(latch: StopLatch, reason: str | StopReason) -> int:
        if latch.reason is not None and latch.reason.orderly:
            reason = StopReason(StopReason.of(reason).text, orderly=True)
        return stop(latch, reason)

    monkeypatch.setattr(StopLatch, "stop", first_stays)


NEW = [
    _skip_the_sync, _forget_the_folder, _ignore_the_newest_order, _clear_at_the_resets_begin,
    _move_in_spite_of_a_stop_on_the_way_home, _do_not_latch_the_drivers_own_stop, _stop_again_by_a_late_copy,
    _keep_orderly_reasons_first,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("plant", [*PLANTS, *NEW])
def test_the_machine_sees_a_planted_fault(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, FlakyFailure)):
        play(LifeOfAStop, 150)
