"""An external program as a signal: real programs, really ended."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from hal import DeadlineExceeded, ResetFailed, ResetRequest
from hal.reset.command import Command
from hal.reset.confirmation import VerdictRequest

REQUEST = ResetRequest("arm", 3, deadline_s=10.0, verdict=True)


def shell(script: str) -> Command:
    return Command(["/bin/sh", "-c", script])


@pytest.mark.requirement("R6.6")
def test_exit_code_0_confirms_with_note_and_verdict() -> None:
    said = shell("""echo moving; echo '{"note": "cube at A", "verdict": "failure"}'""").ask(REQUEST)
    assert said == ("command", "cube at A", "failure")


def test_the_program_may_print_anything_before_its_answer() -> None:
    assert shell("printf 'x\\0\\377[[['").ask(REQUEST) == ("command", "", None)


def test_the_program_reads_the_request() -> None:
    script = """grep -q '"ask": "reset", "robot": "arm", "episode": 3' && exit 0; echo no such words >&2; exit 1"""
    shell(script).ask(REQUEST)
    with pytest.raises(ResetFailed, match="no such words"):
        shell(script).judge(VerdictRequest("arm", 3, 5.0))


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo first >&2; echo gripper jammed >&2; exit 3", r"gripper jammed \(exit code 3\)"),
        ("exit 1", "scene: exit code 1"),
        ("kill -9 $$", "ended by signal 9"),
        ("""echo '{"verdict": "maybe"}'""", "gave the verdict 'maybe', allowed are success, failure, discard"),
    ],
)
def test_any_other_exit_refuses_with_the_reason(script: str, told: str) -> None:
    with pytest.raises(ResetFailed, match=told):
        shell(script).ask(REQUEST)


def test_a_missing_program_is_named() -> None:
    with pytest.raises(ResetFailed, match=r"'/no/such'.*No such file"):
        Command(["/no/such"]).ask(REQUEST)


@pytest.mark.parametrize("argv", ["reset.sh", [], ["a", 1], [""]])
def test_a_command_must_be_a_list_of_texts(argv: Any) -> None:
    with pytest.raises(ValueError, match="must be a list of texts"):
        Command(argv)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("ignores_sigterm", [False, True], ids=["ends at SIGTERM", "ignores SIGTERM"])
def test_at_the_deadline_the_program_and_its_children_are_ended(tmp_path: Path, ignores_sigterm: bool) -> None:
    pids = shlex.quote(str(tmp_path / "pids"))
    trap = "trap '' TERM; " if ignores_sigterm else ""
    script = f"{trap}sleep 60 & echo $$ $! > {pids}; echo still turning >&2; wait; sleep 60"
    with pytest.raises(DeadlineExceeded, match=r"1\.5 s.*'still turning'"):
        shell(script).ask(ResetRequest("arm", 0, deadline_s=1.5))
    mine = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert len(mine) == 2
    end = time.monotonic() + 5
    while any(alive(pid) for pid in mine) and time.monotonic() < end:  # whoever inherits an orphan collects it
        time.sleep(0.01)
    assert not any(alive(pid) for pid in mine)


def test_a_child_left_behind_does_not_delay_the_answer(tmp_path: Path) -> None:
    before = time.monotonic()
    shell(f"sleep 60 & echo $! > {shlex.quote(str(tmp_path / 'pid'))}").ask(REQUEST)
    duration_s = time.monotonic() - before
    os.kill(int((tmp_path / "pid").read_text()), 9)
    assert duration_s < 30
