"""MuJoCo's viewer window on an environment: it follows, it changes nothing, and without a display it says so."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys

import pytest

import rlenv_robot as rr
from hal import RobotError

SCRIPT = """
import numpy as np, rlenv_robot as rr
from tests.fakes import until
with rr.make("so101-reach") as env, rr.view(env) as window:
    obs = env.reset({"seed": 7})
    for _ in range(5):
        action = {"joint_target": np.float32(obs["observation"]["joint_position"] + 0.02)}
        obs, _ = env.step({"env_id": obs["env_id"], "frame_no": obs["frame_no"], "action": action})
    measured = env.world.measured()[0]["joint_position"]
    until(lambda: np.allclose(window._data.qpos[:6], measured), 20)
    assert window.is_open
    assert window._window.user_scn.ngeom == 1, "the goal is marked"
assert not window.is_open
window.close()
print("followed")
"""


@pytest.mark.process
@pytest.mark.skipif(
    shutil.which("xvfb-run") is None or importlib.util.find_spec("glfw") is None,
    reason="needs xvfb-run and pip install rlenv-robot[viewer]",
)
def test_the_window_follows_an_environment() -> None:
    command = ["xvfb-run", "-a", "-s", "-screen 0 640x480x24", sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "followed\n", done.stderr


def test_without_a_display_the_error_names_other_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delitem(os.environ, name, raising=False)
    with rr.make("so101-reach") as env, pytest.raises(RobotError, match="display"):
        rr.view(env)


def test_an_environment_without_a_robot_is_refused() -> None:
    with rr.make("go") as env, pytest.raises(RobotError, match="render"):
        rr.view(env)
