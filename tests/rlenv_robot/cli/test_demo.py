"""The main job end to end, small: what it prints and writes is what happened."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rlenv_robot.cli.demo.report import Row, cells
from rlenv_robot.cli.main import main
from rlenv_robot.config.profile import Profile, load_profile
from rlenv_robot.source import open_source
from rlenv_robot.training.rollout import Outcome

pytest.importorskip("cmaes", reason="the extra 'demo' is not installed")
pytest.importorskip("matplotlib", reason="the extra 'demo' is not installed")

EPISODES = 5


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.requirement("R1.5", "R3.1", "R5", "R6.1", "R6.6")
def test_the_main_job_trains_deploys_records_retrains_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    code = main(["demo", "--out", str(out), "--train-s", "3", "--retrain-s", "2", "--episodes", str(EPISODES)])
    assert code == 0
    printed = capsys.readouterr().out
    figures = json.loads((out / "figures.json").read_text())
    rows = figures["rows"]
    assert [row["where"] for row in rows] == [
        "simulation",
        "virtual arm, over the network",
        "virtual arm, over the network",
        "simulation",
    ]
    assert [row["episodes"] for row in rows] == [200, EPISODES, EPISODES, 200]
    for row, name in ((rows[1], "before"), (rows[2], "after")):
        check_against_the_record(row, out / name)
        assert f"{row['success']:.0%}" in printed
    for name in ("report.html", "distances.png", "episode-before.png", "policy-1.npz", "policy-2.npz", "robot.toml"):
        assert (out / name).stat().st_size > 0
    asked = re.search(r"asked for (\d+) resets", printed)
    assert asked is not None
    assert int(asked[1]) >= 2 * EPISODES, "a busy machine may need a reset twice"


def check_against_the_record(row: dict[str, object], run: Path) -> None:
    """Compare the printed figures with the recorded episodes.

    Where a busy machine held the robot, the episode ended without metrics; others must have them.
    """
    data = open_source(run, task="so101-reach")
    trajectories = data.sample_trajectories(EPISODES, {"replace": False, "episodes": list(range(EPISODES))})
    by_id = {trajectory["trajectory_id"]: trajectory for trajectory in trajectories}
    outcomes = row["outcomes"]
    assert isinstance(outcomes, list)
    finished = [number for number, outcome in enumerate(outcomes) if outcome["metrics"]]
    assert finished, "a busy machine may lose an episode, but not all of them"
    for number in finished:
        outcome, recorded = outcomes[number], by_id[number]
        last = recorded["steps_set"]["next_observation"]
        gap = np.linalg.norm(last["gripper_position"][-1] - last["target_position"][-1]) * 1e3
        if outcome["end"] in ("terminated", "time") or outcome["metrics"]:
            assert gap == pytest.approx(outcome["metrics"]["distance_mm"], abs=1e-2)
        assert recorded["extra_info"]["return"] == pytest.approx(outcome["total"], rel=1e-5)
        assert recorded["extra_info"]["success"] == outcome["success"]


def test_the_robot_is_a_virtual_arm_or_a_twin(tmp_path: Path) -> None:
    from rlenv_robot.cli.demo.command import DemoSettings, write_robot_profile

    bus = load_profile(write_robot_profile(DemoSettings(tmp_path), "tcp://127.0.0.1:1")).robot
    assert (bus.driver, bus.options["port"]) == ("feetech", str(tmp_path / "arm"))
    twin = load_profile(write_robot_profile(DemoSettings(tmp_path, seed=3, robot="twin"), "tcp://127.0.0.1:1")).robot
    assert (twin.where, twin.seed, twin.driver) == ("twin", 3, Profile().robot.driver)


def test_a_second_demonstration_does_not_overwrite_the_first(tmp_path: Path) -> None:
    from rlenv_robot.cli.demo.command import fresh_folder

    first = fresh_folder(tmp_path / "demo")
    (first / "figures.json").write_text("{}")
    assert fresh_folder(tmp_path / "demo") == tmp_path / "demo-2"
    assert first == tmp_path / "demo"


def test_the_table_shows_that_a_second_run_is_worse() -> None:
    good = [
        Outcome(40.0, {"distance_mm": 3.0}, True, 60, "time"),
        Outcome(38.0, {"distance_mm": 5.0}, True, 60, "time"),
    ]
    bad = [
        Outcome(9.0, {"distance_mm": 90.0}, False, 60, "time"),
        Outcome(8.0, {"distance_mm": 110.0}, False, 60, "time"),
    ]
    rows = [Row("first", "twin", 7, good), Row("second", "twin", 7, bad)]
    first, second = map(cells, rows)
    assert (first[4], second[4]) == ("100%", "0%")
    assert (first[5], second[5]) == ("4.0", "100.0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--episodes", "2"], "at least 5"), (["--train-s", "0"], "above 0")],
)
def test_wrong_options_are_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *arguments]) == 2
    assert said in capsys.readouterr().err
