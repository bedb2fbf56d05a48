"""A subject in a process of its own can neither end, nor silence, nor forge its judge."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from plugins.kit.tests import subjects_that_end
from rlenv_kit import check_environment, judge
from rlenv_kit.report import Report
from rlenv_kit.supervisor import Deadlines
from tests.fakes import until

pytestmark = [pytest.mark.requirement("R4.3"), pytest.mark.process, pytest.mark.slow]

MODULE = subjects_that_end.__name__
ROOT = Path(__file__).resolve().parents[3]
CHECK = [
    sys.executable, "-c",
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from rlenv_robot.cli.main import main; "
    "sys.exit(main(sys.argv[1:]))",
    "check",
]  # fmt: skip


def command(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CHECK, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


def judged(name: str) -> Report:
    (report,) = judge.judge(f"{MODULE}:{name}", steps=8)
    return report


def test_a_good_subject_is_not_accused_and_has_the_report_of_a_check_in_this_process() -> None:
    apart, here = judged("go"), check_environment(subjects_that_end.go, steps=8, name=f"{MODULE}:go")
    apart.raise_if_failed()
    assert [(check.number, check.key, check.passed) for check in apart.checks] == [
        (check.number, check.key, check.passed) for check in here.checks
    ]
    assert apart.subject == here.subject


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ExitsInClose", "ended itself with exit code 0, between two calls; no call ends the process (while it was"),
        ("ExitsInALaterClose", "SystemExit(0), which would have ended the process"),
        ("ExitsNatively", "the subject's process ended itself with exit code 0, in step"),
        ("ExitsPolitely", "raised SystemExit(0), which would have ended the process"),
        ("IsKilled", "the subject's process was ended by SIGKILL, in step"),
        ("Crashes", "the subject's process was ended by SIGSEGV, in step"),
    ],
)
def test_a_death_is_a_finding_that_names_the_call(name: str, found: str) -> None:
    report = judged(name)
    (finding,) = report.failures
    assert found in finding.message
    assert not report.passed
    if name != "ExitsInClose":
        assert report.unreached, "what came after the death was not checked"
        assert "call" in finding.how, "what was done before"


def test_a_hang_is_a_finding_even_where_no_thread_of_the_subject_can_act(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge's own limit is short here; the subject's process keeps the long one, and can't report."""
    monkeypatch.setattr(judge, "_GRACE_S", 1.0)
    monkeypatch.setattr(Deadlines, "of_subject", classmethod(lambda cls, is_real, total=0.0: cls(step=7.0)))
    report = judged("HangsWithTheInterpreter")
    (finding,) = report.failures
    assert "step did not return within 8 s, and could not be interrupted; its process was killed" in finding.message
    assert report.unreached


def test_what_a_subject_prints_is_no_verdict() -> None:
    done = command(f"{MODULE}:Forges", "--steps", "8")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "forged: 38 passed" not in done.stdout
    assert "forged: 38 passed" in done.stderr, "a person still sees what it prints"
    assert "1 failed" in done.stdout


def test_the_command_says_what_ended_the_process(tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom {MODULE} import ExitsInClose as exits\n", encoding="utf-8"
    )
    done = command("exits.py:exits", cwd=tmp_path)
    assert done.returncode == 1
    assert "ended itself with exit code 0" in done.stdout
    assert command("exits.py:missing", cwd=tmp_path).returncode == 2, "a slip of the user's is no finding"


def test_a_finding_is_reproduced_in_its_process() -> None:
    done = command("go", "--reproduce", "3")
    assert done.returncode == 0, done.stderr
    assert "1 passed, 0 failed" in done.stdout
    assert command("go", "--reproduce", "999").returncode == 2


def test_no_time_is_a_finding() -> None:
    done = command("go", "--time-limit", "0.001")
    assert done.returncode == 1
    assert "reached its time limit of" in done.stdout
    assert "1 failed" in done.stdout


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_subject_whose_judge_is_killed_is_stopped_and_closed(tmp_path: Path) -> None:
    calls, driver = tmp_path / "calls", tmp_path / "lonely.py"
    calls.touch()
    driver.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import time\nfrom pathlib import Path\n"
        "from plugins.kit.tests.gantry import Gantry\n"
        f"FILE = Path({str(calls)!r})\n"
        "def note(call):\n    with FILE.open('a') as file:\n        file.write(call + '\\n')\n"
        "class Lonely(Gantry):\n    simulated = False\n    number = 0\n"
        "    def step(self, command):\n        Lonely.number += 1\n        note('step')\n"
        "        if Lonely.number == 9:\n            note('waits')\n            time.sleep(2)\n"
        "        return super().step(command)\n"
        "    def stop(self, reason):\n        super().stop(reason)\n        note('stop')\n"
        "    def close(self):\n        super().close()\n        note('close')\n",
        encoding="utf-8",
    )
    process = subprocess.Popen(
        [*CHECK, f"{driver}:Lonely", "--yes"], cwd=tmp_path, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: "waits" in calls.read_text() or process.poll() is not None, 120)
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: calls.read_text().endswith("close\n"), 60)
    finally:
        process.kill()
        process.wait()
    after = calls.read_text().split("waits\n")[1].split()
    assert "stop" in after
    assert "step" not in after
    assert after.index("stop") < after.index("close")


def test_a_subject_is_judged_from_a_thread_too() -> None:
    reports: list[Report] = []
    thread = threading.Thread(target=lambda: reports.append(judged("go")))
    thread.start()
    thread.join(300)
    assert reports[0].passed
