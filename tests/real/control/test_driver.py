"""A driver hangs when it has been in one step for too long, and no sooner."""

from real.control.driver import HANGS_S, DriverWatch


def test_only_a_step_that_does_not_end_is_one_that_hangs():
    clock = [10.0]
    watch = DriverWatch(lambda: clock[0])
    clock[0] += 5 * HANGS_S
    assert watch.hangs is None, "it was never called"
    for _ in range(3):
        watch.called_s = watch.now()
        clock[0] += 0.9 * HANGS_S
        assert watch.hangs is None
    watch.called_s = watch.now()
    clock[0] += HANGS_S
    assert "check its cable" in watch.hangs
    watch.called_s = None
    assert watch.hangs is None
