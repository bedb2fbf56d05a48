"""The page for a simulator of one's own: its reactor is the textbook's, and passes the kit."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from rlenv_robot.cli import main as cli

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-simulator.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.requirement("R6.5")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "reactor.py").write_text(BLOCKS[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_python_of_the_page_runs_and_its_reactor_passes_the_kit(folder: Path) -> None:
    (folder / "page.py").write_text("\n".join(BLOCKS), encoding="utf-8")
    names: dict[str, Any] = runpy.run_path(str(folder / "page.py"))
    assert len(names["data"]) == 12
    assert sorted(folder.glob("runs/*")), "nothing was recorded"


def test_the_reactor_is_the_textbooks_and_short(folder: Path) -> None:
    """Seborg, Edgar, Mellichamp, example 2.5: the middle steady state, which is unstable."""
    names = runpy.run_path(str(folder / "reactor.py"))
    assert names["slope"](0.5, 350.0, 300.0) == pytest.approx((0.0, 0.0), abs=2e-2)
    assert names["slope"](0.49, 351.0, 300.0)[1] > 0, "warmer goes on to warm"
    reactor = BLOCKS[0].partition("class Reactor")[2]
    assert len([line for line in reactor.splitlines() if line.strip()]) <= 45


def test_the_command_line_checks_the_reactor(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "reactor.py:Reactor", "--steps", "10"]) == 0
    assert "0 failed" in capsys.readouterr().out
