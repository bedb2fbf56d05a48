"""A package of some twenty lines, outside the repository, adds a robot, a task and a format to everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "acme-pendulum"
version = "1.0"
[project.entry-points."rlenv_robot.robots"]
acme-pendulum = "acme_pendulum:MODEL"
[project.entry-points."rlenv_robot.tasks"]
acme-swing = "acme_pendulum:Swing"
[project.entry-points."rlenv_robot.formats"]
acme = "acme_pendulum:ACME"
torn = "acme_pendulum:no_such_name"
[tool.setuptools]
py-modules = ["acme_pendulum"]
"""

MODULE = '''
from dataclasses import dataclass

import rlenv_robot as rr
from recorder.table.load import load_runs
from rlenv_robot.tasks.free import Free
from sim import SimRobot, from_mjcf

MJCF = """<mujoco model="acme-pendulum"><compiler angle="radian"/><worldbody><body>
  <joint name="hinge" axis="0 1 0" range="-3 3" limited="true" damping="0.3"/>
  <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.3" mass="0.2"/></body></worldbody><actuator>
  <position name="motor" joint="hinge" kp="4" ctrlrange="-3 3" ctrllimited="true"/></actuator></mujoco>"""


def simulated(looks=True):
    return from_mjcf(MJCF, name="acme-pendulum")


class Driver(SimRobot):
    def __init__(self, port):
        print("driving the pendulum at", port, flush=True)
        super().__init__(simulated(), real_time=True, teleport=False)


MODEL = rr.RobotModel("acme-pendulum", simulated().spec, simulated, driver=Driver)
ACME = rr.Format("acme", lambda path: path.suffix == ".acme", lambda path: load_runs(path.with_suffix("")))


@dataclass(frozen=True)
class Swing(Free):
    path: str = ""
    steps: int = 20
    name, robot, robot_model = "acme-swing", "acme-pendulum", MODEL
'''


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip installed the package."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "acme_pendulum.py").write_text(MODULE)
    flags = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *flags, "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(installed: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)])}


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    """Runs Python with the package installed, in an empty folder."""

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, *arguments]
        return subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    return command


def _verb(run: Run, *arguments: str) -> str:
    done = run("-m", "rlenv_robot", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_python_makes_one_and_many(run: Run) -> None:
    done = run(
        "-c",
        "import rlenv_robot as rr\n"
        "assert 'acme-swing' in rr.environment_names() and 'acme-pendulum' in rr.robot_names()\n"
        "with rr.make('acme-swing', steps=5) as env: print(env.reset({'seed': 0})['observation'].keys())\n"
        "envs = rr.make_vector('acme-swing', 3, seed=0); print(envs.reset()['frame_no']); envs.close()\n",
    )
    assert done.stdout == "dict_keys(['joint_position', 'joint_velocity'])\n[0 0 0]\n", done.stdout + done.stderr


def test_the_verbs_run_describe_and_check_it(run: Run) -> None:
    out = _verb(run, "run", "acme-swing", "--policy", "random", "--episodes", "2", "--record", "runs")
    assert out.count("episode ") == 2
    assert _verb(run, "protocol", "acme-swing").startswith("# acme-swing\n")
    assert ", 0 failed" in _verb(run, "check", "acme-swing")


def test_its_format_opens_what_was_recorded(run: Run, tmp_path: Path) -> None:
    _verb(run, "run", "acme-swing", "--policy", "random", "--episodes", "1", "--record", "swings")
    (tmp_path / "swings.acme").touch()
    done = run("-c", "import rlenv_robot as rr; print(len(rr.open_source('swings.acme').table.starts))")
    assert done.stdout == "1\n", done.stderr


STEP = """
import sys
import numpy as np
import rlenv_robot as rr

with rr.make("acme-swing", sys.argv[1], steps=3) as env:
    obs = env.reset({"seed": 0})
    action = {field.name: np.zeros(field.shape, field.dtype) for field in env.action}
    for _ in range(3):
        obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
    print(obs["frame_no"], obs["truncated"])
"""


def test_a_profile_serves_its_driver(run: Run, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(
        '[task]\nname = "acme-swing"\n'
        '[robot]\nkind = "acme-pendulum"\nwhere = "driver"\noptions = {port = "/dev/ttyACM0"}\n'
        '[serve]\naddress = "tcp://127.0.0.1:*"\nwatchdog_s = 5.0\nlower_s = 0.2\n'
    )
    command = [sys.executable, "-m", "rlenv_robot", "serve", "lab.toml"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == "driving the pendulum at /dev/ttyACM0\n"
            address = server.stdout.readline().removeprefix("serving acme-pendulum (driver) at ").strip()
            done = run("-c", STEP, address)
        finally:
            server.send_signal(signal.SIGTERM)
    assert (done.stdout, done.stderr) == ("3 1\n", "")
    assert server.returncode == 0


def test_a_broken_entry_point_is_reported_when_it_is_asked_for(run: Run) -> None:
    done = run("-c", "import rlenv_robot as rr; from recorder.formats.registry import format_of; format_of('torn')")
    assert "torn" in done.stderr
    assert "no_such_name" in done.stderr
