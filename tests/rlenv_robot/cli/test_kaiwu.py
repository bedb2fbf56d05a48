"""The verbs ``kaiwu new``, ``kaiwu test`` and ``kaiwu run``, as users type them."""

from __future__ import annotations

from pathlib import Path

import pytest

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
