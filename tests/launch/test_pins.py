"""The pins install, from wheels alone, on every Python that pyproject.toml promises, as the package index says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.house import PROJECT, ROOT
from tests.house.test_project import PYTHONS, UNPINNED_EXTRAS

pytestmark = pytest.mark.tier("pins")


def resolve(python: str, constraints: Path) -> subprocess.CompletedProcess[str]:
    """Resolve the package with its pinned extras for a version of Python under constraints."""
    extras = [name for name in PROJECT["project"]["optional-dependencies"] if name not in UNPINNED_EXTRAS]
    command = [
        sys.executable, "-m", "uv", "pip", "compile", "--no-config", "--python-version", python,
        "--only-binary", ":all:", "--constraint", str(constraints), *(f"--extra={name}" for name in extras),
        "pyproject.toml",
    ]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_pins_install_on_a_promised_python(python: str) -> None:
    done = resolve(python, ROOT / "launch" / "pins.txt")
    assert done.returncode == 0, done.stderr
    assert "\ntorch==2.13.0\n" in done.stdout
    assert "\nmkdocs==" in done.stdout


def test_a_pin_that_wants_a_newer_python_is_found(tmp_path: Path) -> None:
    constraints = tmp_path / "pins.txt"
    text = (ROOT / "launch" / "pins.txt").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("pymdown-extensions")]
    constraints.write_text("\n".join([*lines, "pymdown-extensions==13.1", ""]))
    done = resolve("3.11.2", constraints)
    assert done.returncode != 0
    assert "pymdown-extensions==13.1 depends on Python>=3.11.5" in " ".join(done.stderr.split())
