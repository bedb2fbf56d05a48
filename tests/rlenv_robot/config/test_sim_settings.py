"""Timing and randomisation, from a profile or given, reach the simulation, its page and its record."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from rlenv_robot import ProfileError, SpecError
from rlenv_robot.cli.main import main
from rlenv_robot.cli.protocol import run
from rlenv_robot.conformance.protocol_page import protocol_document

PROFILE = """
[task]
name = "so101-reach"
[task.options]
steps = 6
[timing]
command_delay = {uniform = [0.01, 0.09]}
sensor_rate = {joint_position = 50.0}
[randomise]
"actuator.*.kp" = {log_uniform = [0.7, 1.4], scale = true}
"opt.gravity[2]" = {normal = [-9.81, 0.02, -9.9, -9.7], unit = "m/s^2"}
"""


@pytest.fixture
def profile(tmp_path: Path) -> rr.config.profile.Profile:
    (tmp_path / "p.toml").write_text(PROFILE, encoding="utf-8")
    return rr.load_profile(tmp_path / "p.toml")


def _episode(env: Any) -> dict[str, Any]:
    obs = env.reset({"seed": 4})
    while not obs["truncated"]:
        action = {"joint_target": np.full(6, 0.2, np.float32)}
        obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
    return obs


def test_one_environment_draws_what_the_batch_draws(profile: Any) -> None:
    """Although the batch leaves the parts out that are only looked at."""
    one = rr.make("so101-reach", profile=profile)
    many = rr.make_vector("so101-reach", 2, seed=4, profile=profile)
    first, firsts = one.reset({"seed": 4}), many.reset()
    drawn = first["extra_info"]["randomisation"]
    assert len(drawn) == 9
    for name, value in drawn.items():
        assert firsts["extra_info"]["randomisation"][name][0] == value
    for step in range(5):
        target = np.random.default_rng(step).uniform(-0.1, 0.4, (2, 6)).astype(np.float32)
        table = {"env_id": one.env_id, "frame_no": first["frame_no"], "action": {"joint_target": target[0]}}
        first, _ = one.step(table)  # type: ignore[arg-type]
        table = {"env_id": many.env_ids, "frame_no": firsts["frame_no"], "action": {"joint_target": target}}
        firsts, _ = many.step(table)
        assert "randomisation" not in first["extra_info"]
        for name, value in first["observation"].items():
            np.testing.assert_array_equal(value, firsts["observation"][name][0], err_msg=f"{name} at step {step}")
    one.close()
    many.close()


def test_what_was_drawn_is_recorded_with_each_episode_and_hidden_at_inference(profile: Any, tmp_path: Path) -> None:
    from recorder.read.reader import LogReader

    with rr.make("so101-reach", profile=profile, record=tmp_path / "runs", mode="inference", steps=3) as env:
        assert "randomisation" not in env.reset({"seed": 4})["extra_info"]
        _episode(env)
    with rr.make("so101-reach", profile=profile) as same:
        drawn = same.reset({"seed": 4})["extra_info"]["randomisation"]
    (folder,) = (tmp_path / "runs").iterdir()
    episodes = LogReader(folder).episodes()
    told = episodes[0].begin["controller"]
    assert told["randomisation"] == pytest.approx(drawn)
    assert ["command_delay", "uniform from 0.01 to 0.09", "s"] in told["conditions"]["timing"]


def test_the_page_shows_it_with_units(profile: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rr.make("so101-reach", profile=profile) as env, rr.make("so101-reach") as plain:
        page = protocol_document(env)
        assert "Drawn for each episode" not in protocol_document(plain)
    assert "| `timing.command_delay` | uniform from 0.01 to 0.09 | s |" in page
    assert "| `timing.sensor_rate.joint_position` | 50 | Hz |" in page
    assert "| `randomise.actuator.*.kp` | times log-uniform from 0.7 to 1.4 | 1 |" in page
    assert "deviation 0.02, within -9.9 to -9.7 | m/s^2 |" in page
    assert main(["protocol", "so101-reach", "--profile", str(tmp_path / "p.toml")]) == 0
    assert "timing.command_delay" in capsys.readouterr().out
    wrong = argparse.Namespace(name="go", profile=str(tmp_path / "p.toml"), out=None)
    with pytest.raises(ValueError, match=r"task.name is 'so101-reach', and 'go' is to be described"):
        run(wrong)


def test_what_is_given_goes_before_the_profile(profile: Any) -> None:
    with rr.make("so101-reach", profile=profile, timing={"command_delay": 0.05}) as env:
        drawn = env.reset({"seed": 1})["extra_info"]["randomisation"]
        assert drawn["timing.command_delay"] == 0.05
        assert "randomise" in env.description.conditions


def test_it_is_for_simulations() -> None:
    with pytest.raises(ValueError, match="timing can be chosen for robot 'sim' alone"):
        rr.make("so101-reach", "tcp://127.0.0.1:1", timing={"command_delay": 0.05})
    with pytest.raises(SpecError, match=r"randomise.body.cube.mass: no body is called 'cube'"):
        rr.make_vector("so101-reach", 2, randomise={"body.cube.mass": {"uniform": [1, 2], "scale": True}})


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("[timing]\ncommand_lag = 1", "timing.command_lag", "is unknown, allowed are"),
        ("[timing]\ncommand_delay = {uniform = [2, 1]}", "timing.command_delay", "uniform is from 2.0 to 1.0"),
        ("[timing]\ncommand_delay = 3", "timing", "a command may be 3 s late"),
        ("timing = 3", "timing", "it must be a table"),
        ('[randomise]\n"body.x.mass" = 3', "randomise.body.x.mass", "it must be a table"),
        ('[randomise]\n"body.x.mass" = {uniform = [1, 2]}', "randomise.body.x.mass", "unit is missing"),
    ],
)
def test_a_profile_s_mistakes_are_told_with_file_and_key(tmp_path: Path, text: str, key: str, problem: str) -> None:
    (tmp_path / "p.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError, match=problem) as refused:
        rr.load_profile(tmp_path / "p.toml")
    assert str(refused.value).startswith(f"{tmp_path / 'p.toml'}: {key}: ")


def test_a_served_simulation_has_its_profile_s_timing(tmp_path: Path) -> None:
    from rlenv_robot.serving import build_robot

    (tmp_path / "p.toml").write_text('[robot]\nwhere = "sim"\n[timing]\nreading_delay = 0.05', encoding="utf-8")
    robot = build_robot(rr.load_profile(tmp_path / "p.toml"))
    try:
        assert set(robot.reset({}).age_ns.values()) == {50_000_000}
    finally:
        robot.close()
