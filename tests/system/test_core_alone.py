"""The core without the plug-ins: what remains works, and what is missing names the plug-in that has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from hal.errors import missing_plugin

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hal", "sim", "real", "recorder", "rlenv_robot")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "conftest.py", "docs", "launch", "benchmarks", "tests")

pytestmark = pytest.mark.tier("core")


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Install a copy of the repository without plugins/, and return what runs Python with it, in that copy."""
    copy, site = tmp_path_factory.mktemp("core"), tmp_path_factory.mktemp("site")
    for name in (*PACKAGES, *FILES):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", site]
    subprocess.run([*install, copy], check=True, timeout=300)
    for name in PACKAGES:  # the installed ones are those under test
        shutil.rmtree(copy / name)
    packages = tmp_path_factory.mktemp("packages")  # all that is installed here, but this repository
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("rlenv_robot", "__editable__.rlenv_robot")):
            (packages / path.name).symlink_to(path)
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, symlinks=True)
    (place,) = environment.glob("lib/python*/site-packages")
    (place / "core.pth").write_text(f"{site}\n{packages}\n")

    def run(*arguments: str, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
        command = [str(environment / "bin" / "python"), *arguments]
        return subprocess.run(
            command, cwd=copy, timeout=timeout, check=False, text=True,
            capture_output=True,
        )  # fmt: skip

    return run


def test_the_command_has_the_core_s_verbs_and_names_the_plug_in_of_another(core: Callable) -> None:
    told = core("-m", "rlenv_robot", "--help").stdout
    assert "\n      serve " in told
    assert "\n      check " not in told
    absent = (
        (["check"], "rlenv_kit"), (["console"], "rlenv_operate"), (["sim2real", "gap"], "rlenv_sim2real"),
        (["doctor"], "rlenv_operate"), (["robot", "twin"], "rlenv_arms"), (["data", "label"], "rlenv_curate"),
        (["kaiwu"], "rlenv_kaiwu"), (["protocol"], "rlenv_kit"), (["gap"], "rlenv_sim2real"),
        (["data", "check"], "rlenv_curate"), (["data", "units"], "rlenv_formats"),
    )  # fmt: skip
    for words, plugin in absent:
        verb, done = words[-1], core("-m", "rlenv_robot", *words)
        assert done.returncode == 2
        assert done.stderr.strip() == f"rlenv-robot: the verb {verb!r} is in {missing_plugin(plugin)}"


def test_names_of_plug_ins_are_not_offered(core: Callable) -> None:
    code = """
import rlenv_robot as rr
assert "so101-reach" in rr.environment_names() and "so101-drawer" not in rr.environment_names()
try:
    rr.check_environment
except ModuleNotFoundError as error:
    print(error)
try:
    rr.load_policy(".")
except rr.RobotError as error:
    print(error)
try:
    rr.load_policy("p.onnx")
except rr.RobotError as error:
    print(error)
"""
    done = core("-c", code)
    assert done.stdout.splitlines() == [
        f"rlenv_robot.check_environment is in {missing_plugin('rlenv_kit')}",
        f".: folders that LeRobot saved are loaded by {missing_plugin('rlenv_learn')}",
        f"p.onnx: ONNX files are loaded by {missing_plugin('rlenv_learn')}",
    ], done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_main_job_runs(core: Callable, tmp_path: Path) -> None:
    budget = ("--train-steps", "60000", "--retrain-steps", "60000", "--episodes", "5")
    done = core("-m", "rlenv_robot", "demo", "--out", str(tmp_path / "demo"), *budget, timeout=500.0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "retrain" in done.stdout


def test_files_that_need_a_plug_in_are_left_out_and_counted(core: Callable) -> None:
    done = core(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "tests/contract/test_robots.py", "tests/house"
    )
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout
    assert "1 file of tests left out: plug-in rlenv_kit is not there" in done.stdout
    assert "files of tests left out: they are about all plug-ins, and some are not there" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_core_s_quick_tests_pass(core: Callable) -> None:
    workers = str(2 * (os.cpu_count() or 1))  # quick tests wait as long as they compute, as launch/test says
    words = ("-q", "--tb=short", "-p", "no:cacheprovider", "-m", "quick", "-n", workers)
    done = core("-m", "pytest", *words, timeout=1700.0)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-2000:]
