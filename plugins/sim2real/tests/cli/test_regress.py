"""``regress``: the test that it writes passes as long as nothing changed, and finds a planted change."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from plugins.sim2real.tests.cli.test_sim_to_real import recorded
from rlenv_robot.cli.main import main
from rlenv_sim2real.regression import Bounds, Replayed, differences, measure
from sim.robots.twin import IDENTIFIED, so101_twin

STEPS = 150
PROFILE = '[robot]\nkind = "so101"\n[timing]\ncommand_delay = {delay}\n'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("regress"), STEPS)


def pytest_of(module: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", module.name]
    return subprocess.run(command, cwd=module.parent, capture_output=True, text=True, check=False)


@pytest.mark.process
@pytest.mark.slow
def test_the_module_passes_and_fails_after_a_change_of_the_model(run: Path, tmp_path: Path) -> None:
    """A profile with 20 ms more delay takes the place of the one that the module was made with."""
    profile, module = tmp_path / "arm.toml", tmp_path / "tests" / "test_arm.py"
    module.parent.mkdir()
    profile.write_text(PROFILE.format(delay=0.01))
    assert main(["sim2real", "regress", str(run), "--model", str(profile), "--out", str(module)]) == 0
    same = pytest_of(module)
    assert same.returncode == 0, same.stdout
    profile.write_text(PROFILE.format(delay=0.03))
    changed = pytest_of(module)
    assert changed.returncode == 1, changed.stdout
    assert "lag_ms is" in changed.stdout
    assert "offset_deg is" not in changed.stdout


def test_each_joint_that_is_shifted_or_late_is_named(run: Path, tmp_path: Path) -> None:
    """The run itself is recorded again, from an arm with one joint 2 degrees beside its zero."""
    replayed = Replayed(str(run), "sim", "so101")
    kept = measure(replayed)
    assert differences(kept, measure(replayed), Bounds()) == []
    for number, joint in ((0, "shoulder_pan"), (3, "wrist_flex")):
        beside = list(IDENTIFIED.offset)
        beside[number] += np.radians(2.0)
        arm = so101_twin(2, servos=replace(IDENTIFIED, offset=tuple(beside)))
        plain = so101_twin(2, servos=IDENTIFIED)
        before = measure(replace(replayed, log=str(recorded(tmp_path / f"before{number}", STEPS, arm=plain))))
        after = measure(replace(replayed, log=str(recorded(tmp_path / f"after{number}", STEPS, arm=arm))))
        named = differences(before, after, Bounds())
        assert any(joint in line and "offset_deg" in line for line in named)
        assert {line.split(", ")[1].split(":")[0] for line in named if "offset_deg" in line} == {joint}


def test_wrong_uses_are_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "test_arm.py"
    assert main(["sim2real", "regress", str(run), "--out", str(tmp_path / "arm.txt")]) == 2
    assert main(["sim2real", "regress", str(run), "--out", str(out), "--episode", "7"]) == 2
    assert not out.exists()
    assert main(["sim2real", "regress", str(run), "--out", str(out)]) == 0
    assert main(["sim2real", "regress", str(run), "--out", str(out)]) == 2
    assert "exists" in capsys.readouterr().err
    moved = tmp_path / "moved"
    shutil.copytree(run, moved / "run")
    assert main(["sim2real", "regress", str(moved / "run"), "--out", str(moved / "test_arm.py")]) == 0
    assert "log='run'" in (moved / "test_arm.py").read_text()
