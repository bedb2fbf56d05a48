"""The metadata that a log keeps of the whole run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import rlenv_robot as rr
from hal.robots.so101 import SO101
from recorder.read.reader import LogReader
from rlenv_robot.cli import main as cli
from rlenv_robot.config.profile import load_profile
from rlenv_robot.recording.metadata import run_metadata
from rlenv_robot.tasks.go import Go


def test_a_log_holds_the_description_of_its_robot(tmp_path: Path) -> None:
    with rr.make("so101-reach", record=tmp_path, info={"policy": "p"}) as env:
        env.reset({"seed": 1})
    (run,) = tmp_path.iterdir()
    metadata = LogReader(run).metadata
    assert rr.RobotSpec.from_dict(metadata["robot_spec"]).digest == SO101.digest
    assert (metadata["rlenv_robot"], metadata["world"], metadata["policy"]) == (rr.__version__, "so101-reach", "p")


def test_a_world_without_a_robot_has_none() -> None:
    assert run_metadata(Go()).keys() == {"world", "rlenv_robot", "machine", "clock"}


def test_a_log_says_what_made_it_and_people_can_see_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "arm.toml"
    file.write_text("[task.options]\ntolerance_m = 0.03\n[robot]\nseed = 4\n")
    profile = load_profile(file)
    with rr.make("so101-reach", record=tmp_path / "runs", profile=profile, **profile.task.options) as env:
        env.reset({"seed": 7})
        target = env.action["joint_target"].bounds[0] * 0
        env.step({"env_id": env.env_id, "frame_no": 0, "action": {"joint_target": target.astype(np.float32)}})
    (run,) = (tmp_path / "runs").iterdir()
    known = LogReader(run).metadata
    assert known["task"]["name"] == "so101-reach"
    assert known["task"]["settings"]["tolerance_m"] == 0.03
    assert known["profile"]["robot"].items() >= {"kind": "so101", "where": "sim", "seed": 4}.items()
    assert known["profile"]["file"] == str(file)
    assert known["versions"]["numpy"] == np.__version__
    assert 0 < known["clock"]["monotonic_ns"] < known["clock"]["wall_ns"]
    assert isinstance(known["seed"], int)
    assert cli.main(["data", "show", str(run)]) == 0
    shown = capsys.readouterr().out
    assert f"recorded by rlenv-robot {rr.__version__}, Python 3." in shown
    assert f"numpy {np.__version__}" in shown
    assert "tolerance_m=0.03" in shown
    assert "robot.seed=4" in shown


@dataclass
class _Odd:
    name: str = "odd"
    where: Path = Path("here")
    limits: tuple[float, ...] = (1.0, 2.0)
    offset: np.ndarray = field(default_factory=lambda: np.zeros(2))


class _OddWorld(Go):
    """A world that is a `TaskWorld`, with a task whose settings are no plain data."""

    task, seed, robot = _Odd(), 3, SimpleNamespace(spec=SO101)


def test_settings_that_are_no_plain_data_are_told_by_their_text() -> None:
    settings = run_metadata(_OddWorld())["task"]["settings"]
    assert settings == {"name": "odd", "where": repr(Path("here")), "limits": [1.0, 2.0], "offset": [0.0, 0.0]}
