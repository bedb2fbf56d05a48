"""The verbs ``kaiwu new``, ``kaiwu test`` and ``kaiwu run``, as users type them."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.kaiwu.tests.conftest import write
from rlenv_robot.cli.main import main


def test_a_new_project_is_tested_run_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert main(["kaiwu", "new", "reach", "--env", "so101-reach"]) == 0
    assert "rlenv-robot kaiwu run reach" in capsys.readouterr().out
    assert main(["kaiwu", "test", "reach", "--out", "test"]) == 0
    assert "succeeded" in capsys.readouterr().out
    for more in ([], ["--resume"]):
        assert main(["kaiwu", "run", "reach", "--steps", "1000", "--seed", "0", *more]) == 0
        assert "1000 of 1000 steps: 1000 steps" in capsys.readouterr().out
    assert (tmp_path / "kaiwu-runs" / "reach" / "ckpt" / "model.ckpt-2.pkl").is_file()


CORRIDOR = "plugins.kaiwu.tests.conftest:Corridor"


@pytest.mark.parametrize(
    ("turns", "more", "code"),
    [("True", (), 1), ("self.turn % 4 == 0", (), 0), ("self.turn % 4 == 0", ("--most-refused", "0.1"), 1)],
)
def test_a_project_whose_actions_are_refused_has_not_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], turns: str, more: tuple[str, ...], code: int
) -> None:
    pytest.importorskip("torch")
    folder = write(tmp_path / "corridor", "2025")
    agent = folder / "agent_q" / "agent.py"
    text = agent.read_text(encoding="utf-8").replace("int(sample.act)]", "int(sample.act) % 2]")
    illegal = f"self.turn += 1\n        if {turns}:\n            return [ActData(act=7) for data in list_obs_data]"
    agent.write_text(text.replace("self.turn += 1", illegal, 1), encoding="utf-8")
    out = str(tmp_path / "out")
    assert main(["kaiwu", "test", str(folder), "--env", CORRIDOR, "--out", out, *more]) == code
    shown = capsys.readouterr().out
    if turns == "True":
        assert "100 steps in 1 episodes, 100 of them refused (100%)" in shown
        assert "train test failed: 100% of the actions were refused, allowed are 50%" in shown
    assert ("the agent has learned" in shown) == (code == 0)
    assert main(["kaiwu", "run", str(folder), "--env", CORRIDOR, "--steps", "40", "--out", out + "-run"]) == 0
    assert "of them refused (" in capsys.readouterr().out
    assert main(["kaiwu", "test", str(folder), "--env", CORRIDOR, "--out", out, "--most-refused", "2"]) == 2


def test_mistakes_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["kaiwu", "run", "empty", "--env", "so101-reach"]) == 2
    assert "kaiwu new" in capsys.readouterr().err
    assert main(["kaiwu", "run", "missing", "--env", "so101-reach"]) == 2
    assert "missing" in capsys.readouterr().err
    assert main(["kaiwu", "new", "go", "--env", "go", "--algorithm", "ppo"]) == 2
    assert main(["kaiwu", "new", "walk", "--env", "go2-walk", "--algorithm", "dqn"]) == 2
    assert "dqn" in capsys.readouterr().err
    assert not (tmp_path / "walk").exists()
    main(["kaiwu", "new", "reach"])
    (tmp_path / "reach" / "kaiwu.json").write_text("{}")
    assert main(["kaiwu", "run", "reach"]) == 2
    assert "--env" in capsys.readouterr().err
    settings = tmp_path / "reach" / "conf" / "configure_app.toml"
    settings.write_text(settings.read_text() + "reverb_replay = 1\n")
    assert main(["kaiwu", "run", "reach"]) == 2
    assert "app.reverb_replay is unknown" in capsys.readouterr().err
