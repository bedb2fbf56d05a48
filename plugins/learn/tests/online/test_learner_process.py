"""A learner in a process of its own is started again after a kill, and ends without its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hal import RobotError
from rlenv_learn.online.learner_process import LearnerProcess
from tests.fakes import until

pytestmark = pytest.mark.process
BODY = """
import pathlib, sys, time
from rlenv_learn.online.learner_process import over_with_parent
over = over_with_parent()
place = pathlib.Path(sys.argv[1])
(place / "begun").touch()
while not over():
    time.sleep(0.01)
(place / "saved").touch()
"""


def _command(folder: Path) -> list[str]:
    return [sys.executable, "-c", BODY, str(folder)]


def test_a_killed_learner_is_started_again_and_a_running_one_is_not(tmp_path: Path) -> None:
    with LearnerProcess(_command(tmp_path)) as learner:
        learner.ensure(), learner.ensure()
        assert learner.starts == 1
        first = learner.pid
        os.kill(first, signal.SIGKILL)

        def again() -> bool:
            learner.ensure()
            return learner.starts == 2

        until(again)
        assert learner.pid != first
        (tmp_path / "begun").unlink(missing_ok=True)
        until((tmp_path / "begun").exists, 30)
    assert (tmp_path / "saved").exists()  # the context let it end in order


def test_a_learner_that_fails_again_and_again_is_given_up() -> None:
    def ensure() -> bool:
        learner.ensure()
        return False

    with LearnerProcess([sys.executable, "-c", "raise SystemExit(4)"]) as learner:
        with pytest.raises(RobotError, match="3 times"):
            until(ensure, 60)
        assert learner.starts == 3


def test_a_learner_ends_when_its_parent_was_killed(tmp_path: Path) -> None:
    body = f"import subprocess, time; subprocess.Popen({_command(tmp_path)!r}); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", body]) as parent:
        until((tmp_path / "begun").exists, 30)
        parent.kill()
    until((tmp_path / "saved").exists, 30)
