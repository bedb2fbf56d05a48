"""A driver hangs when it has been in one step for too long, and no sooner."""

from hal.errors import StaleReading
from real.control.driver import HANGS_S, DriverWatch
from real.protocol.errors import stopped_by


def test_only_a_step_that_does_not_end_is_one_that_hangs():
    clock = [10.0]
    watch = DriverWatch(lambda: clock[0])
    clock[0] += 5 * HANGS_S
    assert watch.hangs is None, "it was never called"
    for _ in range(3):
        with watch:
            clock[0] += 0.9 * HANGS_S
            assert watch.hangs is None
    with watch:
        clock[0] += HANGS_S
        assert "has not returned from a step for 1 s; check its cable, power and log" in watch.hangs
    assert watch.hangs is None


def test_who_is_told_of_a_fault_is_told_what_to_do_and_gets_the_same_error():
    told = stopped_by(StaleReading("force", 0.5, 0.1))
    assert (type(told), told.sensor) == (StaleReading, "force")
    assert str(told).startswith(str(StaleReading("force", 0.5, 0.1)))
    assert 'reset({"clear_stop": "<what you found>"})' in str(told)
    assert str(stopped_by(OSError("no bus"))).startswith("OSError: no bus; the robot was stopped")
