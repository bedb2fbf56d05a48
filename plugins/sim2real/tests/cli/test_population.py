"""``population`` grows a file arm by arm, skips what it can't use, and goes on where it was interrupted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hal import SourceError
from plugins.sim2real.tests.cli.test_sim_to_real import recorded, said
from plugins.sim2real.tests.test_population import ARM
from rlenv_robot.cli.main import main
from rlenv_robot.config.population import PopulationArm, ReplayError, ServoRow, load_population
from rlenv_sim2real import population
from rlenv_sim2real.motion import RecordedMotion
from rlenv_sim2real.servo_replay import ServoReplay
from sim.robots.twin import IDENTIFIED, so101_twin


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three folders, each with a short run of an arm, in the working directory."""
    monkeypatch.chdir(tmp_path)
    return [recorded(tmp_path / name, 30).parent for name in ("ann", "bob", "cleo")]


@pytest.fixture
def identified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the fit: arms have nominal values, and names with an ``x`` are refused; returns the identified ones."""
    names: list[str] = []

    def row(
        sim_model: object, motions: list[RecordedMotion], name: str, source: str, settings: object
    ) -> PopulationArm:
        if "x" in name:
            raise SourceError("it is of no use")
        if "stop" in name:
            raise KeyboardInterrupt
        names.append(name)
        nominal = ServoReplay(ARM, 1).nominal()
        values = ServoRow(**{
            kind: value.tolist() for kind, value in nominal.items() if kind in ServoRow.__dataclass_fields__
        })  # fmt: skip
        return PopulationArm(name, source, 1, 30, list(motions[0].names), values, ReplayError(0.01, 0.02))

    monkeypatch.setattr(population, "arm_row", row)
    return names


def test_sets_are_added_and_a_further_call_goes_on(
    tmp_path: Path,
    runs: list[Path],
    identified: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = said(capsys, "sim2real", "population", "ann", "bob", "--output", "arms.json", "--hold-out", "0.5")
    assert "2 arms in arms.json" in text
    assert [(arm.name, arm.held_out) for arm in load_population("arms.json").arms] == [("ann", False), ("bob", True)]
    data = json.loads(said(capsys, "sim2real", "population", "ann", "./bob", "cleo", "--output", "arms.json", "--json"))
    assert (data["arms"], data["skipped"]) == (["ann", "bob", "cleo"], {})
    assert identified == ["ann", "bob", "cleo"], "what is in the file is not identified again"
    said(capsys, "sim2real", "population", "bob", "--output", "arms.json", "--again", "--source", "a friend")
    assert identified[3:] == ["bob"]
    assert [(arm.name, arm.held_out) for arm in load_population("arms.json").arms][1] == ("bob", True)
    assert [arm.source for arm in load_population("arms.json").arms[:2]] == ["so101, 1 episode", "a friend"]


def test_what_can_not_be_used_is_skipped_with_the_reason(
    tmp_path: Path,
    runs: list[Path],
    identified: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "cleo").rename(tmp_path / "xenia")
    (tmp_path / "empty").mkdir()
    sets = ("xenia", "empty", "ann")
    data = json.loads(said(capsys, "sim2real", "population", *sets, "--output", "arms.json", "--json"))
    assert data["arms"] == ["ann"]
    assert data["skipped"]["xenia"] == "it is of no use"
    assert data["skipped"].keys() == {"xenia", "empty"}
    assert main(["sim2real", "population", "ann", "missing", "--output", "arms.json"]) == 2
    assert "missing does not exist" in capsys.readouterr().err
    said(capsys, "sim2real", "population", "xenia", "--output", "none.json", code=1)
    assert not (tmp_path / "none.json").exists()


def test_an_interruption_loses_no_identified_arm(tmp_path: Path, runs: list[Path], identified: list[str]) -> None:
    (tmp_path / "bob").rename(tmp_path / "stop")
    assert main(["sim2real", "population", "ann", "stop", "cleo", "--output", "arms.json"]) == 130
    assert [arm.name for arm in load_population("arms.json").arms] == ["ann"]
    assert main(["sim2real", "population", "ann", "cleo", "--output", "arms.json"]) == 0
    assert identified == ["ann", "cleo"]


@pytest.mark.parametrize(
    "words",
    [
        ["--output", "arms.toml"], ["--output", "arms.json", "--hold-out", "1"],
        ["--output", "arms.json", "--hold-out", "nan"], ["--output", "arms.json", "--kinds", "colour"],
        ["--output", "arms.json", "--kinds", "payload"], ["--output", "arms.json", "--seconds", "2"],
        ["--output", "arms.json", "--source", "x" * 201],
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(tmp_path: Path, words: list[str]) -> None:
    assert main(["sim2real", "population", str(tmp_path), *words]) == 2


def test_a_damaged_file_is_not_replaced(
    tmp_path: Path, runs: list[Path], identified: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "arms.json").write_text("{}")
    assert main(["sim2real", "population", str(runs[0]), "--output", str(tmp_path / "arms.json")]) == 2
    assert "arms.json: format" in capsys.readouterr().err
    assert (tmp_path / "arms.json").read_text() == "{}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_stiffness_of_planted_arms_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three arms whose stiffness differs by a factor of three, each from two motions of eight seconds."""
    monkeypatch.chdir(tmp_path)
    planted = {}
    for name, factor in (("soft", 0.8), ("own", 1.2), ("hard", 2.4)):
        planted[name] = tuple((factor * np.array(IDENTIFIED.stiffness)).tolist())
        arm = so101_twin(servos=replace(IDENTIFIED, stiffness=planted[name]))
        for seed in range(2):
            recorded(tmp_path / name, 240, seed, arm)
    said(capsys, "sim2real", "population", *planted, "--output", "arms.json", "--leave-out", "")
    arms = load_population("arms.json").arms
    assert [arm.name for arm in arms] == list(planted)
    for arm in arms:
        assert arm.error_rad.identified < 0.5 * arm.error_rad.nominal
        ratio = np.array(arm.values.stiffness) / planted[arm.name]
        # The three joints that gravity loads; without load a motion tells damping over stiffness better than either.
        np.testing.assert_allclose(ratio[1:4], 1.0, atol=0.1, err_msg=arm.name)
