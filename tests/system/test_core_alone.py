"""The core without the plug-ins: what remains works, and what is missing names the plug-in that has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ("hal", "sim", "real", "recorder", "rlenv_robot", "pyproject.toml", "setup.py", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Install a copy of the repository without plugins/, and return what runs Python with it."""
    copy, site = tmp_path_factory.mktemp("core"), tmp_path_factory.mktemp("site")
    for name in CORE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", site]
    subprocess.run([*install, copy], check=True, timeout=300)
    packages = tmp_path_factory.mktemp("packages")  # all that is installed here, but this repository
    for path in Path(sys.prefix).glob("lib/python*/site-packages/*"):
        if not path.name.startswith(("rlenv_robot", "__editable__.rlenv_robot")):
            (packages / path.name).symlink_to(path)
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{packages}"}

    def run(*arguments: str, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", *arguments]
        return subprocess.run(
            command, cwd=tmp_path_factory.mktemp("elsewhere"), env=environment, timeout=timeout, check=False, text=True,
            capture_output=True,
        )  # fmt: skip

    return run


def test_the_command_has_the_core_s_verbs_and_names_the_plug_in_of_another(core: Callable) -> None:
    told = core("-m", "rlenv_robot", "--help").stdout
    assert "\n    serve " in told
    assert "\n    check " not in told
    for verb, plugin in (("check", "rlenv_kit"), ("console", "rlenv_operate"), ("gap", "rlenv_sim2real")):
        done = core("-m", "rlenv_robot", verb)
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
"""
    done = core("-c", code)
    assert (
        done.stdout.strip() == "rlenv_robot.check_environment is in the plug-in rlenv_kit, which is not installed here"
    ), done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_main_job_runs(core: Callable, tmp_path: Path) -> None:
    budget = ("--train-steps", "60000", "--retrain-steps", "60000", "--episodes", "5")
    done = core("-m", "rlenv_robot", "demo", "--out", str(tmp_path / "demo"), *budget, timeout=500.0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "retrain" in done.stdout
