"""A person at a real terminal takes over the robot, hands it back, and judges the episode."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest

from recorder.table.load import load_runs
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.policies.reach import ReachVectors


class Person:
    """Reads what the terminal shows, and types."""

    def __init__(self, terminal: int) -> None:
        self._terminal, self.obs = terminal, ""

    def sees(self, words: str, within_s: float = 40.0) -> None:
        end = time.monotonic() + within_s
        while words not in self.obs:
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{words!r} is not in {self.obs!r}"
            self.obs += os.read(self._terminal, 4096).decode(errors="replace")
        self.obs = self.obs.split(words, 1)[1]

    def types(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())


@pytest.mark.slow
@pytest.mark.requirement("R6.6")
def test_a_person_takes_over_hands_back_and_judges(tmp_path: Path) -> None:
    FeedbackPolicy.zeros(ReachVectors(), "so101-reach").save(tmp_path / "policy.npz", {})
    (tmp_path / "lab.toml").write_text("[task]\noptions = { steps = 120 }\n")  # 4 s
    person_end, screen = pty.openpty()
    before = termios.tcgetattr(screen)
    words = ["run", "so101-reach", "--policy", str(tmp_path / "policy.npz"), "--robot", "twin", "--episodes", "1"]
    words += ["--record", str(tmp_path / "runs"), "--intervene", "--verdicts", "--profile", str(tmp_path / "lab.toml")]
    process = subprocess.Popen(
        [sys.executable, "-m", "rlenv_robot", *words],
        stdin=screen,
        stdout=screen,
        stderr=screen,
        start_new_session=True,
    )
    try:
        person = Person(person_end)
        person.sees("q/a shoulder_pan")
        person.sees("an episode begins: the policy has the robot")
        person.types("i")
        person.sees("you have the robot")
        person.types("q")
        time.sleep(0.15)
        person.types("q")
        time.sleep(0.15)
        person.types(" ")
        person.sees("the policy has the robot")
        person.sees("how did it go?")
        person.types("f\n")
        person.sees("0 of 1 reached")
        assert process.wait(20) == 0
        assert termios.tcgetattr(screen) == before
    finally:
        process.kill()
        process.wait()
        os.close(person_end)
        os.close(screen)
    table = load_runs(tmp_path / "runs")
    info = table.episodes[0]
    assert (info["verdict"], info["judged_by"], info["success"]) == ("failure", "terminal", False)
    assert info["interventions"]["times"] == 1
    rows = table.rows[table.rows["intervention"] == 1]
    pan = rows["action_joint_target"][:, 0]
    assert 0.029 <= pan[-1] - pan[0] <= 0.061  # presses that fall into one period add up to no more than the bound
    assert np.abs(np.diff(rows["action_joint_target"], axis=0)).max() <= 1.0 / 30 + 1e-6
