"""docs/sim-to-real.md: the commands of the page run in their order, and do what the page says."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

import rlenv_robot as rr
from rlenv_robot.cli.main import main
from rlenv_robot.config.population import BUILTIN, load_population
from rlenv_sim2real.servo_replay import KINDS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sim-to-real.md").read_text(encoding="utf-8")


PATIENT_ARM = """
from sim.robot import SimRobot
from sim.robots.twin import so101_twin

def connect():
    return SimRobot(so101_twin())
"""


def commands() -> list[list[list[str]]]:
    """Return the words of each command of each shell block."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [[shlex.split(line, comments=True)[1:] for line in block.splitlines()] for block in blocks]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_worked_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "patient_arm.py").write_text(PATIENT_ARM)
    said = []
    for words in commands()[0]:
        if "excite" in words:  # on a busy machine the page's twin misses its real time
            words = [*(word if word != "twin" else "patient_arm:connect" for word in words), "--seconds", "10", "--yes"]
        assert main(words) == 0, (words, capsys.readouterr())
        said.append(capsys.readouterr().out)
    assert "beyond their limit" in said[2]
    assert "held back" in said[4]
    assert (tmp_path / "gap-1.png").stat().st_size > 10_000
    before, after = (
        [float(number) for number in re.findall(r"fingertip: ([\d.]+) mm RMS", text)] for text in (said[3], said[5])
    )
    assert after[0] < 0.5 * before[1], "the identified simulation is nearer to the arm"
    envs = rr.make_vector("so101-reach", 4, profile=rr.load_profile("arm.toml"))
    envs.reset()
    envs.close()


def test_every_kind_of_parameter_is_named() -> None:
    for kind, about in KINDS.items():
        assert re.search(rf"\b{kind}\b", PAGE), kind
        assert about.unit in PAGE.replace("kg m²", "kg m^2"), about.unit


def test_the_other_commands_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    for block in commands()[1:]:
        for words in block:
            assert main(words) == 2, "its files are not here"
            message = capsys.readouterr().err
            assert "does not exist" in message or "No such file" in message or "there is no" in message, message


def test_the_python_of_a_population_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text(block)
    named = runpy.run_path(str(script))
    assert len(named["arms"].arms) > 0
    assert named["envs"].num_envs == 8
    assert capsys.readouterr().out.startswith("[")
    named["envs"].close()


def test_the_profile_of_a_population_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    load_population(BUILTIN).save(tmp_path / "arms.json")
    (tmp_path / "p.toml").write_text(block)
    assert rr.load_profile(tmp_path / "p.toml").population.file == "arms.json"
