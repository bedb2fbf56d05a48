"""Run the examples of docs/log.md as they stand."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "log.md"


@pytest.mark.requirement("R6.6")
def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "page.py"
    script.write_text("\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)))
    reader = runpy.run_path(str(script))["reader"]
    used, frames = reader.used("clock"), reader.frames()
    assert used.valid[1:].all()
    assert (used.values["seconds"][1:] * 1e9 <= frames["stamp_ns"][1:] + 2e6).all()
    numbers = used.sample[1:]
    assert len(numbers) == 5
    assert (np.diff(numbers) >= 0).all()
    assert numbers[-1] > numbers[0], "a frame uses the newest sample"
