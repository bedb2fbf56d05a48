"""A stop has one owner, a reset clears only the stop that it knew of, and a file keeps it beyond the process."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hal.errors import RobotError, RobotStopped, StopReason
from hal.stop_latch import StopFile, StopLatch


def test_the_first_reason_stays_and_every_stop_counts() -> None:
    latch = StopLatch()
    assert latch.state == (0, None)
    assert latch.stop("smoke") == 1
    assert latch.stop("fire") == 2
    assert latch.state == (2, StopReason("smoke"))


def test_any_stop_replaces_an_orderly_one_and_none_replaces_another() -> None:
    latch = StopLatch()
    latch.stop(StopReason("the server was closed", orderly=True))
    latch.stop("smoke")
    latch.stop(StopReason("the server was closed", orderly=True))
    assert latch.reason == StopReason("smoke")


def test_a_clearing_never_clears_a_later_stop() -> None:
    latch = StopLatch()
    seen = latch.stop("smoke")
    latch.stop("fire")
    assert not latch.clear("it was steam", seen)
    assert latch.reason == StopReason("smoke")
    assert latch.clear("all is out", latch.number)
    assert latch.reason is None


@pytest.mark.parametrize("why", ["", "  ", None, 5])
def test_a_clearing_needs_a_reason(why: Any) -> None:
    latch = StopLatch()
    seen = latch.stop("smoke")
    with pytest.raises(ValueError, match="smoke"):
        latch.clear(why, seen)
    with pytest.raises(RobotStopped), latch.resetting(why):
        pass
    assert latch.reason is not None


def test_a_reset_that_was_asked_for_before_a_stop_does_not_begin() -> None:
    latch = StopLatch()
    asked = latch.stop("smoke")
    latch.stop("fire")
    with pytest.raises(RobotStopped, match="of which this reset did not know"), latch.resetting("steam", asked):
        pass
    with latch.resetting("steam", latch.number) as clearance:
        clearance.use()
    assert latch.reason is None


def test_a_stop_during_a_reset_stays_for_the_wrappers_inside_too() -> None:
    latch = StopLatch()
    latch.stop("smoke")
    with latch.resetting("steam") as outer:
        latch.stop("fire")
        with latch.resetting("steam") as inner, pytest.raises(RobotStopped):
            inner.use()
        with pytest.raises(RobotStopped):
            outer.use()
    assert latch.reason is not None
    with latch.resetting("both are out") as clearance:
        assert clearance.pending
        clearance.use()
        assert not clearance.pending


def test_a_stop_from_another_thread_is_not_kept_waiting_by_a_slow_log() -> None:
    latch = StopLatch()
    release = threading.Event()

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            release.wait(10)

    logger, handler = logging.getLogger("hal.stop_latch"), Slow()
    logger.addHandler(handler)
    try:
        latch.stop("smoke")
        thread = threading.Thread(target=latch.log)
        thread.start()
        assert latch.stop("fire") == 2, "the log must not hold the latch's lock"
        release.set()
        thread.join(10)
    finally:
        release.set()
        logger.removeHandler(handler)


def test_of_many_racing_clearings_none_survives_a_later_stop() -> None:
    """Every interleaving of one clearing and one stop ends stopped, unless the clearing knew of the stop."""
    for _ in range(2000):
        latch = StopLatch()
        seen = latch.stop("smoke")
        barrier = threading.Barrier(2)

        def clear(latch: StopLatch = latch, seen: int = seen, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            latch.clear("steam", seen)

        thread = threading.Thread(target=clear)
        thread.start()
        barrier.wait()
        latch.stop("fire")
        thread.join()
        assert latch.reason is not None


def test_a_stop_that_is_passed_on_counts_once() -> None:
    latch = StopLatch()
    number = latch.stop("a hand")
    with latch.passing_on():
        assert latch.stop("a hand") == number
        assert latch.clear("the hand is gone", seen=number)
        latch.stop("a hand")
    assert latch.reason is None
    assert latch.stop("another hand") == number + 1


# -- the file ------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Iterator[StopFile]:
    file = StopFile(tmp_path / "latch", "an arm/7")
    yield file
    file.close()


def test_a_stop_is_taken_up_by_the_next_process_until_it_is_cleared(file: StopFile) -> None:
    latch = StopLatch()
    latch.keep_in(file)
    latch.stop("a finger in the gripper")
    assert file.wait(10)
    assert file.path.name == "stop-an_arm_7.json"
    file.close()

    restarted, again = StopLatch(), StopFile(file.path.parent, "an arm/7")
    restarted.keep_in(again)
    assert restarted.reason is not None
    assert not restarted.reason.orderly
    assert "a finger in the gripper (since 2" in restarted.reason.text
    with pytest.raises(RobotStopped), restarted.resetting():
        pass
    with restarted.resetting("it is out") as clearance:
        clearance.use()
    assert again.wait(10)
    again.close()
    assert not file.path.exists()
    assert again.read() is None


HOLDER = """
import sys
from hal.stop_latch import StopFile
StopFile(sys.argv[1], "arm").open()
print("kept", flush=True)
sys.stdin.read()
"""


@pytest.mark.process
def test_one_process_at_a_time_keeps_the_stops_of_a_name_and_a_killed_one_gives_way(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        assert process.stdout.readline() == "kept\n"
        latch = StopLatch()
        with pytest.raises(RobotError, match=rf"process {process.pid}\) keeps .*serve\.latch"):
            latch.keep_in(StopFile(tmp_path, "arm"))
        assert latch.file is None
        other = StopFile(tmp_path, "another arm").open()
        other.close()
        process.kill()
        process.wait(10)
    file = StopFile(tmp_path, "arm").open()
    file.close()


def test_a_disk_that_takes_no_lock_is_reported_and_the_robot_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "stop-arm.lock").symlink_to(tmp_path / "elsewhere")
    StopFile(tmp_path, "arm").open().close()
    assert "can't be locked" in caplog.text


def test_an_orderly_end_leaves_nothing_and_hides_nothing(file: StopFile) -> None:
    latch = StopLatch()
    latch.keep_in(file)
    latch.stop(StopReason("the server was closed", orderly=True))
    assert file.wait(10)
    assert not file.path.exists()
    latch.stop("smoke")
    latch.stop(StopReason("the server was closed", orderly=True))
    file.close()
    assert "smoke" in str(file.read())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b"null"])
def test_a_damaged_file_is_a_stop(file: StopFile, content: bytes) -> None:
    file.path.write_bytes(content)
    latch = StopLatch()
    latch.keep_in(file)
    assert "damaged" in str(latch.reason)


def test_a_disk_that_takes_nothing_is_reported_and_stops_anyway(file: StopFile) -> None:
    file.path.with_suffix(".part").mkdir()
    latch = StopLatch()
    latch.keep_in(file)
    latch.stop("smoke")
    assert not file.wait(10)
    assert "stop-an_arm_7" in str(file.failure)
    assert latch.reason is not None


def test_a_stop_from_before_the_file_is_kept_too(file: StopFile) -> None:
    latch = StopLatch()
    latch.stop("smoke")
    latch.keep_in(file)
    file.close()
    assert "smoke" in str(file.read())


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(RobotError, match=r"serve\.latch"):
        StopFile(tmp_path / "taken" / "latch", "arm")
