"""The main job end to end, small: what it prints and writes is what happened."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from hal import RobotState
from real.client.robot import RemoteRobot
from rlenv_robot.cli.demo.command import (
    DemoSettings,
    deploy,
    fresh_folder,
    retrain,
    serving,
    virtual_arm,
    write_robot_profile,
)
from rlenv_robot.cli.demo.report import HEAD, Row, cells
from rlenv_robot.cli.main import main
from rlenv_robot.config.profile import Profile, load_profile
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.policies.reach import ReachVectors
from rlenv_robot.source import open_source
from rlenv_robot.training.rollout import Outcome

pytest.importorskip("cmaes", reason="the extra 'demo' is not installed")
pytest.importorskip("matplotlib", reason="the extra 'demo' is not installed")

EPISODES = 5
BRIEF = ("--train-steps", "8000", "--retrain-steps", "16000", "--episodes", str(EPISODES))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.requirement("R1.5", "R3.1", "R5", "R6.1", "R6.6", "5-a", "A.1-1", "A.1-2", "A.2-1", "B.1.1-1")
def test_the_main_job_trains_deploys_records_retrains_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out), *BRIEF]) == 0
    printed = capsys.readouterr().out
    assert "the same seed gives the same table, however busy the machine is" in printed
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


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("robot", ["bus", "twin"])
def test_the_same_seed_gives_the_same_episodes_and_retraining_at_any_load(
    robot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = FeedbackPolicy.zeros(ReachVectors(), "so101-reach")
    policy = start.with_parameters(np.random.default_rng(0).normal(0, 0.2, start.parameters.shape))
    step, calls = RemoteRobot.step, itertools.count()

    def stalled(self: RemoteRobot, command: Mapping[str, np.ndarray]) -> RobotState:
        if next(calls) % 60 == 30:
            time.sleep(0.3)  # longer than the watchdog of a robot in real time
        return step(self, command)

    outcomes, parameters = [], []
    for load in ("quiet", "busy"):
        if load == "busy":
            monkeypatch.setattr(RemoteRobot, "step", stalled)
        (tmp_path / load).mkdir()
        settings = DemoSettings(tmp_path / load, retrain_steps=40_000, episodes=EPISODES, robot=robot)
        deployed = deploy(settings, policy, "before", lambda outcome: None)
        outcomes.append(deployed.outcomes)
        retrained = retrain(settings, policy, deployed.run, lambda generation: None)
        parameters.append(retrained.training.policy.parameters)
    assert next(calls) >= 100
    assert outcomes[0] == outcomes[1]
    np.testing.assert_array_equal(*parameters)


def test_with_real_time_the_arm_and_its_server_are_those_of_a_real_one(tmp_path: Path) -> None:
    settings = DemoSettings(tmp_path, real_time=True)
    served = serving(settings, tmp_path / "robot.toml", tmp_path / "log").words
    assert served == ("rlenv_robot", "serve", str(tmp_path / "robot.toml"), "--address", "tcp://127.0.0.1:*")
    assert virtual_arm(settings, "before").words[:5] == ("rlenv_robot", "robot", "twin", "so101", "--bus")
    assert settings.place.endswith("in real time")


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
    bus = load_profile(write_robot_profile(DemoSettings(tmp_path), "tcp://127.0.0.1:1")).robot
    assert (bus.driver, bus.options["port"]) == ("feetech", str(tmp_path / "arm"))
    twin = load_profile(write_robot_profile(DemoSettings(tmp_path, seed=3, robot="twin"), "tcp://127.0.0.1:1")).robot
    assert (twin.where, twin.seed, twin.driver) == ("twin", 3, Profile().robot.driver)


def test_a_second_demonstration_does_not_overwrite_the_first(tmp_path: Path) -> None:
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


def test_the_table_shows_the_limit_cycle_in_degrees() -> None:
    outcomes = [
        Outcome(40.0, {"distance_mm": 3.0}, True, 60, "time", limit_cycle_deg=degrees) for degrees in (0.1, 0.2, 4.0)
    ]
    shown = dict(zip(HEAD, cells(Row("first", "twin", 7, outcomes)), strict=True))
    assert (shown["limit cycle, degrees: median"], shown["largest"]) == ("0.20", "4.00")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--episodes", "2"], "at least 5"),
        (["--train-steps", "0"], "at least 1"),
        (["--train-s", "50"], "use --train-steps, such as 1500000"),
        (["--retrain-s", "12"], "use --retrain-steps, such as 2000000"),
    ],
)
def test_wrong_options_are_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *arguments]) == 2
    assert said in capsys.readouterr().err
