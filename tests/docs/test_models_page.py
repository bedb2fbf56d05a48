"""A stranger who follows docs/models.md with the files that the page contains gets the results on the page."""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

import rlenv_robot as rr
from hal import ProfileError, SourceError, SpecError
from rlenv_robot.cli.main import main
from rlenv_robot.config.profile import load_profile
from rlenv_robot.rendering.show import episode_frames
from rlenv_robot.robot_models import load_robot_model
from rlenv_robot.serving import build_robot
from rlenv_robot.tasks.free import Free

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def _lines(block: str) -> list[list[str]]:
    return [shlex.split(line, comments=True)[1:] for line in block.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files that the page contains."""
    (tmp_path / "pendulum.xml").write_text(_blocks("xml")[0])
    (tmp_path / "pendulum.toml").write_text(_blocks("toml")[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.requirement("R1.1", "R4.1", "R4.2")
def test_the_page_does_what_it_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cv2", reason="neither opencv-python nor opencv-python-headless is installed")
    first, second = _blocks("sh")
    said = []
    for words in _lines(first):
        assert main(words) == 0, words
        said.append(capsys.readouterr().out)
    assert "| `torque` | float32[1] | -1 to 1 | N m | of motors |" in said[0]
    assert re.search(r"environment pendulum\.xml: \d+ passed, 0 failed", said[1])
    assert "3 episodes, median return" in said[2]
    assert "observation.joint_position  hinge" in said[3]
    assert (folder / "pictures" / "000100.png").stat().st_size > 1000
    (block,) = _blocks("python")
    (folder / "page.py").write_text(block)
    named = runpy.run_path("page.py")
    assert named["reward"]["reward"] == named["obs"]["observation"]["tip"][2]
    assert (folder / "pendulum.png").stat().st_size > 1000
    assert len(set(named["envs"].reset()["observation"]["joint_position"].ravel().tolist())) == 64, "starts differ"
    named["envs"].close()
    assert named["data"].statistics()["steps"] == 1500
    run, serve = _lines(second)
    assert main(run) == 0
    assert serve == ["serve", "pendulum.toml"]


@pytest.mark.requirement("R6.6")
def test_the_profile_serves_it(folder: Path) -> None:
    robot = build_robot(load_profile("pendulum.toml"))
    assert robot.spec.digest == load_robot_model("pendulum.xml").load_spec().digest, (
        "what a client that has the file expects"
    )
    robot.close()


def test_the_table_of_settings_is_the_tasks() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\| ", PAGE.split("## As a profile")[0], re.MULTILINE))
    assert told == {each.name: str(each.default) for each in fields(Free) if each.name not in ("path", "model")}
    plain = tomllib.loads(_blocks("toml")[0])
    assert set(plain["task"]["options"]) <= set(told)


def test_a_run_whose_model_is_gone_says_where_to_look(folder: Path) -> None:
    with rr.make("pendulum.xml", record="runs", steps=3) as env:
        obs = env.reset()
        env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": {"torque": [0.5]}})
    (folder / "pendulum.xml").rename("elsewhere.xml")
    with pytest.raises(SourceError, match=r"recorded with the model pendulum\.xml"):
        next(iter(episode_frames("runs", 0)[0]))
    assert rr.open_source("runs").statistics()["episodes"] == 1, "everything else is in the log"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward_from": "height"}, "reward_from is 'height'; expected a sensor, such as .* joint_velocity, tip"),
        ({"reward_from": "tip"}, r"not a single number; expected tip\[0\] to tip\[2\]"),
        ({"reward_from": "tip[3]"}, r"not a single number; expected tip\[0\] to tip\[2\]"),
        ({"steps": 0}, "steps is 0, it must be a whole number of at least 1"),
        ({"start_noise": -1.0}, "start_noise is -1.0, it must be 0 or above"),
        ({"rewardfrom": "tip[2]"}, "did you mean 'reward_from'"),
    ],
)
def test_a_wrong_setting_is_said_with_what_is_allowed(settings: dict, message: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=message):
        rr.make("pendulum.xml", **settings)


def test_what_is_no_model_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SpecError, match="there is no such model file"):
        rr.make("pendulm.xml")
    (folder / "torn.xml").write_text(_blocks("xml")[0][:200])
    with pytest.raises(SpecError, match=r"torn\.xml: not a model that MuJoCo can use"):
        rr.make("torn.xml")
    (folder / "still.xml").write_text("<mujoco><worldbody/></mujoco>")
    with pytest.raises(SpecError, match="still: there is no actuator"):
        rr.make("still.xml")
    with pytest.raises(ValueError, match=r"Known are .*, the path of a MuJoCo model \(\.xml\)"):
        rr.make("pendulum")
    assert main(["run", "pendulum.xml", "--policy", "random", "--robot", "tcp://127.0.0.1:5999"]) == 2
    assert "--policy random ignores" in capsys.readouterr().err
    (folder / "bad.toml").write_text('[robot]\nkind = "nothing"\n')
    with pytest.raises(ProfileError, match=r"bad\.toml: robot\.kind: robot 'nothing' is unknown"):
        build_robot(load_profile("bad.toml"))


def test_random_actions_need_a_range(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "endless.xml").write_text(_blocks("xml")[0].replace(' ctrlrange="-1 1"', ""))
    assert main(["run", "endless.xml", "--policy", "random"]) == 2
    assert "action 'torque' has none; a MuJoCo model gives it as ctrlrange" in capsys.readouterr().err
    assert main(["run", "endless.xml", "--policy", "zero", "--episodes", "1"]) == 0
