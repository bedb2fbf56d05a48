from __future__ import annotations

import pytest

from hal import Watchdog


def test_it_expires_after_its_timeout_and_not_before() -> None:
    now = [0.0]
    watchdog = Watchdog(0.2, lambda: now[0])
    assert not watchdog.expired  # nobody was expected yet
    watchdog.feed()
    now[0] = 0.2
    assert not watchdog.expired
    now[0] = 0.201
    assert watchdog.expired
    assert watchdog.silence_s == pytest.approx(0.201)
    watchdog.feed()
    assert not watchdog.expired
    now[0] = 9
    watchdog.disarm()
    assert not watchdog.expired


@pytest.mark.parametrize("timeout", [0, -0.2, float("nan")])
def test_its_timeout_is_above_zero(timeout: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Watchdog(timeout)
