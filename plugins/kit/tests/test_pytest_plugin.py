"""One option makes pytest run the kit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.requirement("R4.3"), pytest.mark.process, pytest.mark.slow]

FAULTS = Path(__file__).with_name("robot_faults.py")
MINE = """
from rlenv_robot import make

def good():
    return make("go", size=3)
"""


def _pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "rlenv_kit.pytest_plugin"]
    code = {"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run([*command, *arguments], cwd=folder, env=code, capture_output=True, text=True, timeout=100,
                          check=False)  # fmt: skip


def test_subjects_are_tests_beside_the_others(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n", encoding="utf-8")
    program = f"exec:{sys.executable} -S {Path(__file__).with_name('programs') / 'breaks_rules.py'}"
    names = ("mine.py:good", f"{FAULTS}:OneSignIsWrong", f"{FAULTS}:RealArm", program)
    subjects = [argument for name in names for argument in ("--conformance", name)]
    done = _pytest(tmp_path, *subjects, "--conformance-steps", "8", "--junit-xml", "report.xml")
    assert "2 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    assert "the sign is wrong" in done.stdout
    assert "may move a real machine" in done.stdout
    assert "0 failed" in (tmp_path / "report.xml").read_text(encoding="utf-8")
    assert done.returncode == 1


def test_nothing_changes_without_the_option(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n", encoding="utf-8")
    assert "1 passed" in _pytest(tmp_path).stdout
