"""Every example of docs/simulation.md runs, and the page names every key of a timing."""

from __future__ import annotations

import dataclasses
import re
import runpy
from pathlib import Path

import pytest

from sim.latency import LONGEST_S, DelayModel

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "simulation.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_every_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # it writes a file
    script = tmp_path / "page.py"
    script.write_text("\n".join(BLOCKS))
    named = runpy.run_path(str(script))
    assert named["late"].batch.drawn["timing.command_delay"].min() >= 0.01
    assert len(set(named["drawn"]["body.gripper.mass"].tolist())) == 8
    assert named["model"].spec.commands["force"].unit == "N"
    for each in ("envs", "late", "carts", "cart"):
        named[each].close()


def test_every_key_and_limit_is_told() -> None:
    for key in dataclasses.fields(DelayModel):
        assert f"`{key.name}`" in PAGE, key.name
    assert f"over {LONGEST_S:g} s" in PAGE
