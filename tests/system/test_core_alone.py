"""The core without the plug-ins: what remains works, and what is missing names the plug-in that has it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hal", "sim", "real", "recorder", "rlenv_robot")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "conftest.py", "docs", "launch", "benchmarks", "tests")
ELSEWHERE = ("drawer", "errand", "insert", "lid", "pair", "sort", "stack", "sokoban", "frozen")
"""Words of tests whose example is a task of a plug-in."""

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
    assert "\n    serve " in told
    assert "\n    check " not in told
    absent = (
        (["check"], "rlenv_kit"), (["console"], "rlenv_operate"), (["sim2real", "gap"], "rlenv_sim2real"),
        (["doctor"], "rlenv_operate"), (["robot", "twin"], "rlenv_arms"), (["data", "label"], "rlenv_curate"),
        (["kaiwu"], "rlenv_kaiwu"), (["protocol"], "rlenv_kit"), (["gap"], "rlenv_sim2real"),
        (["data", "check"], "rlenv_curate"), (["data", "units"], "rlenv_formats"),
    )  # fmt: skip
    for words, plugin in absent:
        verb, done = words[-1], core("-m", "rlenv_robot", *words)
        assert done.returncode == 2
        assert done.stderr.strip() == (
            f"rlenv-robot: the verb {verb!r} is in the plug-in {plugin}, which is not installed here"
        )


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
        "rlenv_robot.check_environment is in the plug-in rlenv_kit, which is not installed here",
        ".: folders that LeRobot saved are loaded by the plug-in rlenv_learn, which is not installed here",
        "p.onnx: ONNX files are loaded by the plug-in rlenv_learn, which is not installed here",
    ], done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_main_job_runs(core: Callable, tmp_path: Path) -> None:
    budget = ("--train-steps", "60000", "--retrain-steps", "60000", "--episodes", "5")
    done = core("-m", "rlenv_robot", "demo", "--out", str(tmp_path / "demo"), *budget, timeout=500.0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "retrain" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_core_s_quick_tests_pass(core: Callable) -> None:
    folders = [f"tests/{package}" for package in PACKAGES]
    others = " and ".join(f"not {word}" for word in ELSEWHERE)
    done = core(
        "-m",
        "pytest",
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-m",
        "quick",
        "-k",
        others,
        "-n",
        "2",
        *folders,
        timeout=1700.0,
    )
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-2000:]
