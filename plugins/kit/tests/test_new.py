"""``rlenv-robot dev new`` writes skeletons that pass their own tests and equal the pages' examples."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlenv_kit.cli.new import SKELETONS, write
from rlenv_robot.cli.main import main

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.process
def test_every_skeleton_passes_its_own_tests_under_another_name(tmp_path: Path) -> None:
    for kind in SKELETONS:
        write(kind, f"lab-{kind}", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^10 passed", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("kind", SKELETONS)
def test_no_word_of_the_example_is_left(kind: str, tmp_path: Path) -> None:
    for path in write(kind, "soft-gripper2", tmp_path):
        assert not re.search(r"\bmy[-_]\w+", path.read_text() + path.name), path


def test_the_project_is_the_example_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    write("project", "my-slide", tmp_path)
    assert (tmp_path / "my_slide.py").read_text() in page
    assert (tmp_path / "my_slide.toml").read_text() in page


def test_the_driver_is_the_example_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "drivers.md").read_text(encoding="utf-8")
    write("driver", "my-arm", tmp_path)
    written = (tmp_path / "my_arm.py").read_text()
    assert written[written.index("UNITS =") : written.index("\n\ndef connect")] in page


@pytest.mark.parametrize("name", ["", "Slide", "2fast", "my slide", "../up", "class", "sim", "numpy", "a__b", "ü"])
def test_a_name_that_names_no_module_writes_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name"):
        write("task", name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_that_are_there_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_cups.py").write_text("mine")
    assert main(["dev", "new", "task", "cups", "--out", str(tmp_path)]) == 2
    assert "was kept" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["test_cups.py"]


def test_the_command_says_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["dev", "new", "driver", "lab-arm"]) == 0
    told = capsys.readouterr().out
    assert "cd lab-arm" in told
    assert "rlenv-robot serve lab_arm.toml" in told
