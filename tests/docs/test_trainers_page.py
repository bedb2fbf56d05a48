"""The Python of docs/trainers.md runs as it stands, block after block."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "trainers.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
pytest.importorskip("gymnasium", reason="gymnasium is not installed")


def test_every_example_runs(tmp_path: Path) -> None:
    import runpy

    assert len(BLOCKS) == 2
    file = tmp_path / "page.py"
    file.write_text("\n".join(BLOCKS))
    runpy.run_path(str(file))
