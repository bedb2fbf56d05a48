"""docs/tutorial*.md: the commands and programs of each tutorial run in their order, in one shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script_of(page: str, folder: Path) -> str:
    """Return a shell script of a page's commands; its programs and profiles are written into the folder."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    lines = [
        "set -eE",
        # A program rather than a function, so that a signal to a job in the background reaches it.
        "mkdir bin && PATH=$PWD/bin:$PATH",
        """printf '#!/bin/sh\\nexec "$PYTHON" -m rlenv_robot "$@"\\n' > bin/rlenv-robot && chmod +x bin/rlenv-robot""",
        "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT",
    ]
    imports: list[str] = []
    for number, (file, language, block) in enumerate(
        re.findall(r"(?:^`([\w.]+)`:\n\n)?^```(sh|python|toml)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ):
        if language == "sh":
            lines += [re.sub(r"&$", "& sleep 6", line) for line in block.splitlines()]
        elif language == "toml":
            (folder / file).write_text(block, encoding="utf-8")
        else:
            (folder / f"program_{number}.py").write_text("\n".join([*imports, block]), encoding="utf-8")
            imports += [line for line in block.splitlines() if line.startswith(("import ", "from "))]
            lines.append(f'"$PYTHON" program_{number}.py')
    return "\n".join(lines)


def run(script: str, folder: Path, limit_s: float) -> str:
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.process
@pytest.mark.slow
def test_a_table_of_ones_own_improves_a_policy(tmp_path: Path) -> None:
    script = script_of("tutorial-logs.md", tmp_path)
    shorter = {"--steps 300000": "--steps 30000", "--policy policy.npz --out": "--seconds 2 --policy policy.npz --out"}
    for told, tried in shorter.items():
        assert told in script
        script = script.replace(told, tried)
    said = run(script, tmp_path, 240)
    assert "arm.csv: 8 episodes, 472 steps checked" in said
    assert "model fitted to 6 episodes" in said
    assert (tmp_path / "better.npz").is_file()


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("tutorial.md", r"better|model fitted to \d+ episodes"),
        ("tutorial-arm.md", r"(?s)fingertip: .*held back.*fingertip: "),
    ],
)
def test_the_tutorials_in_real_time(page: str, expected: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--soak"):
        pytest.skip("runs for minutes in real time; --soak runs it")
    script = re.sub(r"^launch/demo.*\n^\. .venv.*$", "", script_of(page, tmp_path), flags=re.MULTILINE)
    assert re.search(expected, run(script, tmp_path, 800))
