"""A file keeps a robot's stop beyond its process, whatever ends the process, and whatever the disk does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from hal.errors import RobotError, RobotStopped, StopReason
from hal.guarding import stop_file, stop_latch
from hal.guarding.stop_file import KeptStop, StopFile
from hal.guarding.stop_latch import StopLatch
from tests.fakes import until


@pytest.fixture(autouse=True)
def every_file_is_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave no thread that writes to the tests after this one."""
    opened: list[StopFile] = []
    original = StopFile.open

    def remembered(file: StopFile) -> KeptStop:
        opened.append(file)
        return original(file)

    with monkeypatch.context() as patch:
        patch.setattr(StopFile, "open", remembered)
        yield
    for file in opened:
        file.close(orderly=False)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[StopFile]:
    file = StopFile(tmp_path / "latch", "an arm/7")
    yield file
    file.close()


def begin(folder: Path, robot: str = "arm") -> StopLatch:
    """Return the latch of a process that begins now."""
    latch = StopLatch()
    latch.keep_in(StopFile(folder, robot))
    return latch


def end(latch: StopLatch, *, killed: bool = False) -> None:
    """End a process in good order, or as a kill does: its file stays as it is."""
    assert latch.file is not None
    latch.file.wait(10)
    content = latch.file.path.read_bytes() if killed else b""
    latch.file.close()
    if killed:
        latch.file.path.write_bytes(content)


def reason(folder: Path) -> str | None:
    """Return why the next process begins stopped; look, and leave the file as it is."""
    file = StopFile(folder, "arm")
    kept = file.open().reason
    file.close(orderly=False)
    return None if kept is None else kept.text


def test_a_stop_is_taken_up_by_the_next_process_until_it_is_cleared(file: StopFile) -> None:
    latch = StopLatch()
    latch.keep_in(file)
    latch.stop("a finger in the gripper")
    assert file.wait(10)
    assert file.path.name == "stop-an_arm_7.json"
    file.close()

    for _ in range(2):  # a further restart changes neither the reason nor its time
        restarted = begin(file.path.parent, "an arm/7")
        assert restarted.reason is not None
        assert not restarted.reason.orderly
        assert "a finger in the gripper (since 2" in restarted.reason.text
        assert restarted.reason.text.count("before a restart") == 1
        with pytest.raises(RobotStopped), restarted.resetting({}):
            pass
        end(restarted)
    restarted = begin(file.path.parent, "an arm/7")
    with restarted.resetting({"clear_stop": "it is out"}) as clearance:
        clearance.use()
    end(restarted)
    assert begin_and_end(file.path.parent, "an arm/7") is None


def begin_and_end(folder: Path, robot: str = "arm") -> StopReason | None:
    latch = begin(folder, robot)
    found = latch.reason
    end(latch)
    return found


def test_an_unclean_end_begins_stopped_although_nothing_was_stopped(tmp_path: Path) -> None:
    assert begin_and_end(tmp_path) is None
    assert begin_and_end(tmp_path) is None
    end(begin(tmp_path), killed=True)
    latch = begin(tmp_path)
    assert "did not end in good order" in str(latch.reason)
    assert latch.clear("a power cut", latch.number)
    end(latch, killed=True)
    assert "did not end in good order" in str(begin(tmp_path).reason)


def test_a_robot_that_could_not_be_closed_begins_stopped(file: StopFile) -> None:
    file.open()
    file.put(3, None)
    file.close(orderly=False)
    assert "did not end in good order" in str(StopFile(file.path.parent, "an arm/7").open().reason)


def test_numbers_rise_over_an_end_of_any_kind(tmp_path: Path) -> None:
    numbers = []
    for killed in (False, True, True, False):
        latch = begin(tmp_path)
        numbers += [latch.number, latch.stop("smoke"), latch.stop("fire")]
        latch.clear("out", latch.number)
        numbers.append(latch.stop("smoke again"))
        end(latch, killed=killed)
    assert numbers == sorted(numbers)
    stops = [number for index, number in enumerate(numbers) if index % 4]
    assert len(set(stops)) == len(stops)


HOLDER = """
import sys
import threading
from hal.guarding.stop_file import StopFile
file = StopFile(sys.argv[1], "arm")
file.open()
file.put(1, None)
assert file.wait(10)
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
        assert begin_and_end(tmp_path, "another arm") is None
        process.kill()
        process.wait(10)
    assert "did not end in good order" in str(begin_and_end(tmp_path))


def test_a_kept_stop_gives_way_to_one_of_this_process_and_replaces_an_orderly_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    latch = begin(tmp_path)
    before = latch.stop("smoke")
    end(latch)
    for own, stays in ((StopReason("fire"), "fire"), (StopReason("closed", orderly=True), "smoke"), (None, "smoke")):
        latch = StopLatch()
        if own is not None:
            latch.stop(own)
        latch.keep_in(StopFile(tmp_path, "arm"))
        assert stays in str(latch.reason)
        assert latch.number > before, "whoever knew the number before has not seen this stop"
        before = latch.number
        if stays == "smoke":
            caplog.clear()
            latch.log()
            assert any(message.startswith("stopped: smoke") for message in caplog.messages)
        else:
            latch.clear("out", latch.number)
            latch.stop("smoke")
        end(latch)


def test_a_disk_that_does_not_answer_begins_stopped_and_says_so(
    file: StopFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(file, "_save", lambda *_: answers.wait(30))
    monkeypatch.setattr(stop_latch, "_OPENED_S", 0.02)
    latch = StopLatch()
    latch.keep_in(file)
    assert "the disk has not answered for 0.02 s" in str(latch.reason)
    answers.set()


def test_a_disk_whose_first_sync_hangs_begins_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written is not safe from a loss of power: a server that began before could lose its first stop."""
    answers = threading.Event()
    monkeypatch.setattr(stop_file.os, "fsync", lambda descriptor: answers.wait(30))
    monkeypatch.setattr(stop_latch, "_OPENED_S", 0.1)
    latch = begin(tmp_path)
    assert "the disk has not answered for 0.1 s" in str(latch.reason)
    answers.set()


@pytest.mark.parametrize("damage", [b"\0" * 8192, b"\xff" * 8192])
@pytest.mark.parametrize("slot", [0, 1])
def test_a_damaged_slot_beside_an_orderly_end_is_a_stop(tmp_path: Path, slot: int, damage: bytes) -> None:
    """The lost record may have been a stop that was newer than the end which is left."""
    for _ in range(2):  # so that both slots were written
        end(begin(tmp_path))
    path = tmp_path / "stop-arm.json"
    content = bytearray(path.read_bytes())
    content[8192 * slot : 8192 * (slot + 1)] = damage
    path.write_bytes(content)
    assert reason(tmp_path) is not None


def test_an_orderly_end_leaves_no_stop_and_hides_none(tmp_path: Path) -> None:
    latch = begin(tmp_path)
    latch.stop(StopReason("the server was closed", orderly=True))
    end(latch)
    latch = begin(tmp_path)
    assert latch.reason is None
    latch.stop("smoke")
    latch.stop(StopReason("the server was closed", orderly=True))
    end(latch)
    assert "smoke" in str(reason(tmp_path))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b"null", bytes(16384), b"00000000 {}\n"])
def test_a_damaged_file_is_a_stop(file: StopFile, content: bytes) -> None:
    file.path.write_bytes(content)
    latch = StopLatch()
    latch.keep_in(file)
    assert "damaged" in str(latch.reason)


def test_the_file_of_an_earlier_version_is_taken_up(file: StopFile) -> None:
    file.path.write_text('{"reason": "smoke", "since": "2026-11-22 10:00:00 UTC"}')
    latch = StopLatch()
    latch.keep_in(file)
    assert "smoke (since 2026-11-22" in str(latch.reason)


def test_a_torn_write_never_frees_a_stopped_robot(tmp_path: Path) -> None:
    """Every write of a session is cut after every 97th byte, as a loss of power may leave it."""
    path = tmp_path / "stop-arm.json"
    contents: list[tuple[bytes, bool]] = []

    def keep(latch: StopLatch) -> None:
        assert latch.file is not None
        assert latch.file.wait(10)
        contents.append((path.read_bytes(), latch.reason is not None))

    latch = begin(tmp_path)
    keep(latch)
    for number in range(3):
        latch.stop(f"smoke {number}")
        keep(latch)
        latch.clear("out", latch.number)
        keep(latch)
    end(latch)
    for (before, was_stopped), (after, is_stopped) in pairwise(contents):
        changed = [at for at in range(len(after)) if before[at] != after[at]]
        for cut in range(changed[0], changed[-1], 97):
            path.write_bytes(after[:cut] + before[cut:])
            assert reason(tmp_path) is not None, (cut, was_stopped, is_stopped)


# -- what belongs to others ----------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(RobotError, match=r"serve\.latch"):
        StopFile(tmp_path / "taken" / "latch", "arm")


def _make_symlink(path: Path) -> None:
    path.symlink_to(path.with_name("victim"))


def _make_hard_link(path: Path) -> None:
    path.hardlink_to(path.with_name("victim"))


def _make_pipe(path: Path) -> None:
    os.mkfifo(path)


def _make_writable_by_all(path: Path) -> None:
    path.write_bytes(b"")
    path.chmod(0o666)


@pytest.mark.parametrize("make", [_make_symlink, _make_hard_link, _make_pipe, _make_writable_by_all])
def test_a_file_that_others_could_have_put_there_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    victim, path = tmp_path / "victim", tmp_path / "stop-arm.json"
    victim.write_text("dear data")
    make(path)
    with pytest.raises(RobotError, match=r"stop-arm\.json"):
        StopFile(tmp_path, "arm").open()
    assert victim.read_text() == "dear data"


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o702, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(RobotError, match=rf"mode {mode:04o}.*chmod go-w"):
        StopFile(tmp_path, "arm").open()
    tmp_path.chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("name", ["latch", "latch/stop-arm.json"])
def test_a_folder_or_a_file_of_another_user_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "latch").mkdir()
    (tmp_path / "latch" / "stop-arm.json").write_bytes(b"")
    os.chown(tmp_path / name, 12345, -1)
    with pytest.raises(RobotError, match="another user"):
        StopFile(tmp_path / "latch", "arm").open()


def test_a_folder_of_its_own_is_made_for_its_user_alone(file: StopFile) -> None:
    file.open()
    assert file.path.parent.stat().st_mode & 0o777 == 0o700
    assert file.path.stat().st_mode & 0o777 == 0o600


# -- disks that fail -----------------------------------------------------------------------------------------


def test_a_disk_that_takes_nothing_begins_stopped_and_says_why(file: StopFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stop_file.os, "posix_fallocate", full)
    monkeypatch.setattr(stop_file.os, "pwrite", full)
    latch = StopLatch()
    latch.keep_in(file)
    assert "No space left" in str(latch.reason)
    assert not file.wait(10)
    assert "stop-an_arm_7" in str(file.failure)
    monkeypatch.undo()
    until(lambda: file.failure is None)  # it is tried again
    file.close()
    assert "No space left" in str(StopFile(file.path.parent, "an arm/7").open().reason)


def test_a_write_that_fails_leaves_the_next_process_stopped(file: StopFile, monkeypatch: pytest.MonkeyPatch) -> None:
    latch = StopLatch()
    latch.keep_in(file)
    assert file.wait(10)

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(stop_file.os, "pwrite", fail)
    latch.stop("smoke")
    assert not file.wait(10)
    assert "Input/output error" in str(file.failure)
    end(latch, killed=True)
    monkeypatch.undo()
    assert StopFile(file.path.parent, "an arm/7").open().reason is not None


def test_a_folder_that_is_deleted_is_made_anew_with_the_stop(tmp_path: Path) -> None:
    folder = tmp_path / "latch"
    latch = begin(folder)
    assert latch.file is not None
    latch.stop("smoke")
    assert latch.file.wait(10)
    latch.file.path.unlink()
    folder.rmdir()
    until(lambda: latch.file is not None and latch.file.path.exists() and "smoke" in latch.file.path.read_text())
    latch.file.path.unlink()
    folder.rmdir()
    latch.stop("fire")
    assert latch.file.wait(10), "a stop does not wait for the next look"
    end(latch, killed=True)
    assert "smoke" in str(reason(folder))


def test_a_slow_disk_loses_a_stop_only_where_the_file_is_gone(file: StopFile, monkeypatch: pytest.MonkeyPatch) -> None:
    latch = StopLatch()
    latch.keep_in(file)
    answers = threading.Event()
    monkeypatch.setattr(file, "_save", lambda *_: answers.wait(10))
    latch.stop("smoke")
    assert not file.wait(0.01)
    assert file.lost_if(0.01) is None, "the record before it says that the server was serving"
    file.path.unlink()
    assert "not in its place" in str(file.lost_if(0.01))
    answers.set()


def test_a_new_file_that_is_never_synced_is_lost_with_the_power(
    file: StopFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: answers.wait(10) and sync(descriptor))
    monkeypatch.setattr(stop_latch, "_OPENED_S", 0.05)
    latch = StopLatch()
    latch.keep_in(file)
    assert latch.reason is not None, "a server whose disk does not answer begins stopped"
    latch.stop("smoke")
    assert "the machine lost power" in str(file.lost_if(0.01))
    answers.set()
    assert file.lost_if(10) is None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir(mode=0o700)
    command = ("mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(folder))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk can't be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(("umount", "--lazy", str(folder)), check=True)


def fill(folder: Path) -> None:
    """Write until the disk is full."""
    with suppress(OSError), (folder / "filler").open("ab", buffering=0) as filler:
        while filler.write(bytes(512)):
            pass


def test_a_stop_on_a_full_disk_is_kept(small_disk: Path) -> None:
    latch = begin(small_disk)
    fill(small_disk)
    latch.stop("a finger in the gripper")
    assert latch.file is not None
    assert latch.file.wait(10), latch.file.failure
    end(latch, killed=False)
    assert "a finger in the gripper" in str(reason(small_disk))


def test_a_disk_that_is_full_from_the_beginning_begins_stopped(small_disk: Path) -> None:
    fill(small_disk)
    latch = begin(small_disk)
    assert "No space left" in str(latch.reason)
    assert latch.file is not None
    assert "No space left" in str(latch.file.failure)
    (small_disk / "filler").unlink()
    until(lambda: latch.file is not None and latch.file.failure is None)
    end(latch)
    assert "No space left" in str(reason(small_disk))
