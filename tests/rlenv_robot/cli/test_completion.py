"""Completion as the shells themselves carry it out; a shell that is not installed is skipped."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from rlenv_robot.cli.main import SHELLS, VERBS, command_parser, completion_script
from rlenv_robot.cli.verbs import Group

LINES = {
    "rlenv-robot da": ["data"],
    "rlenv-robot data veri": ["verify"],
    "rlenv-robot data verify --sig": ["--sign"],
    "rlenv-robot data check --units ": ["degrees", "percent"],
    "rlenv-robot robot keys allow --role ": ["move", "operate", "stop", "watch"],
    "rlenv-robot data verify recor": ["recorded"],
}


def written(shell: str, folder: Path) -> Path:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = folder / f"completion.{shell}"
    path.write_text(completion_script(command_parser(), shell))
    (folder / "recorded").mkdir()
    return path


def answer(*command: str, folder: Path) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_every_verb_is_in_every_script() -> None:
    for shell in SHELLS:
        text = completion_script(command_parser(), shell)
        assert all(verb in text for verb, entry in VERBS.items() if not isinstance(entry, Group) or entry.verbs)
        assert all(verb in text for entry in VERBS.values() if isinstance(entry, Group) for verb in entry.verbs)


@pytest.mark.process
def test_bash_completes(tmp_path: Path) -> None:
    path = written("bash", tmp_path)
    for line, expected in LINES.items():
        words = line.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        code = f"source {path}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _shtab_rlenv_robot; "
        code += 'printf "%s\\n" "${COMPREPLY[@]}"'
        replies = answer("bash", "-c", code, folder=tmp_path).split()
        assert sorted(set(replies) - {path.name}) == expected or set(expected) <= set(replies), line


@pytest.mark.process
def test_fish_completes(tmp_path: Path) -> None:
    path = written("fish", tmp_path)
    for line, expected in LINES.items():
        replies = answer("fish", "-c", f"source {path}; complete -C '{line}'", folder=tmp_path).splitlines()
        assert sorted({reply.split("\t")[0].rstrip("/") for reply in replies}) == expected, line


@pytest.mark.process
def test_zsh_completes(tmp_path: Path) -> None:
    """In a terminal, since zsh completes nowhere else."""
    path = written("zsh", tmp_path)
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "dumb", "PS1": "ready> "})
    try:
        typed(terminal, f"source {path}; print done\n", "\ndone")
        for line in ("rlenv-robot da", "rlenv-robot data veri", "rlenv-robot data verify --sig"):
            typed(terminal, f"{line}\t", " ".join((*line.split()[:-1], *LINES[line])))
            os.write(terminal, b"\x15")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def typed(terminal: int, text: str, expected: str) -> None:
    """Type a text, and wait until the terminal shows another one."""
    os.write(terminal, text.encode())
    shown, end = "", time.monotonic() + 30
    while expected not in shown.replace("\r", ""):
        assert time.monotonic() < end, f"{expected!r} is not in {shown!r}"
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 65536).decode(errors="replace")
