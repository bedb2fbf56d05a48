"""Our packages win over others of the same name, wherever those lie; an earlier import is refused with advice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rlenv_robot
from rlenv_robot.config.import_check import PACKAGES

HOME = Path(rlenv_robot.__file__).parents[1]
MAKE = """
import rlenv_robot
rlenv_robot.make('so101-reach').reset()
import hal, real, recorder, sim
print(hal.__file__)
"""
SCRIPT = "from rlenv_robot.cli.main import main; raise SystemExit(main(['protocol', 'so101-reach']))"
WAYS = {
    "-c": [sys.executable, "-c", MAKE],
    "-m": [sys.executable, "-m", "rlenv_robot", "protocol", "so101-reach"],
    "console script": [sys.executable, "-c", SCRIPT],
}
"""Ways to start Python; all but a script put the working directory first on the path."""


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(HOME)])}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def _shadow(folder: Path, kind: str) -> None:
    """Put a foreign package under each of our names."""
    for name in PACKAGES:
        if kind == "module":
            (folder / f"{name}.py").write_text("raise RuntimeError('foreign')")
        else:
            (folder / name).mkdir()
        if kind == "package":
            (folder / name / "__init__.py").write_text("raise RuntimeError('foreign')")


@pytest.mark.process
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["package", "module", "folder"])
def test_ours_win_over_those_in_the_working_directory(tmp_path: Path, kind: str, way: str) -> None:
    _shadow(tmp_path, kind)
    done = _run(WAYS[way], tmp_path)
    assert done.returncode == 0, done.stderr
    if way == "-c":
        assert done.stdout.strip() == str(HOME / "hal" / "__init__.py")


@pytest.mark.process
def test_one_that_was_imported_first_stays_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "hal.py").write_text("")
    done = _run([sys.executable, "-c", "import hal, rlenv_robot"], tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: rlenv_robot: {tmp_path / 'hal.py'} was imported first")
    assert f"shadows our package {HOME / 'hal'}" in last
    assert "Import rlenv_robot before it" in last


def test_a_finder_is_added_once() -> None:
    from rlenv_robot.config import import_check

    before = list(sys.meta_path)
    import_check.claim_packages()
    assert sys.meta_path == before
