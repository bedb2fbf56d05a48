"""What a log says of the whole run."""

from __future__ import annotations

from pathlib import Path

import rlenv_robot as rr
from hal.robots.so101 import SO101
from recorder.reader import LogReader
from rlenv_robot.examples.go import Go
from rlenv_robot.recording import about


def test_a_log_holds_the_description_of_its_robot(tmp_path: Path) -> None:
    with rr.make("so101-reach", record=tmp_path, info={"policy": "p"}) as env:
        env.reset({"seed": 1})
    (run,) = tmp_path.iterdir()
    metadata = LogReader(run).metadata
    assert rr.RobotSpec.from_plain(metadata["robot_spec"]).digest == SO101.digest
    assert (metadata["rlenv_robot"], metadata["world"], metadata["policy"]) == (rr.__version__, "so101-reach", "p")


def test_a_world_without_a_robot_has_none() -> None:
    assert about(Go()) == {"world": "go", "rlenv_robot": rr.__version__}
