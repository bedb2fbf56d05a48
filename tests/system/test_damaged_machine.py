"""Faults of the machine under a served arm and a recorded run: its disk, its clock and its rights. By real means."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.system.damaged_machine import SCENES

pytestmark = [
    pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(1200), pytest.mark.requirement("R6.6"),
    pytest.mark.skipif(sys.platform != "linux", reason="damages the machine by Linux's namespaces"),
]  # fmt: skip

ROOT = Path(__file__).resolve().parents[2]
ORDINARY = "65534"
"""The user id of nobody."""

NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]


def play(scene: str, folder: Path, *before: str, damages: Sequence[str] = NAMESPACES) -> None:
    """Play a scene in namespaces of its own."""
    assert scene in SCENES
    command = [*damages, *before, sys.executable, "-m", "tests.system.damaged_machine", scene, str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr[-4000:]


@pytest.fixture
def may_mount() -> None:
    tried = [*NAMESPACES, "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    if shutil.which("unshare") is None or subprocess.run(tried, capture_output=True).returncode:
        pytest.skip("this process has no right to mount")


@pytest.fixture
def compiler() -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler, which makes the slow disk and the wrong clock")


@pytest.mark.usefixtures("may_mount")
@pytest.mark.parametrize("scene", ["full", "vanished", "read_only"])
def test_a_disk_that_fails_costs_no_stop_and_no_recorded_step(scene: str, tmp_path: Path) -> None:
    play(scene, tmp_path)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("scene", ["slow", "clock"])
def test_a_slow_disk_and_a_wrong_clock_delay_nothing(scene: str, tmp_path: Path) -> None:
    play(scene, tmp_path, damages=[])


@pytest.mark.usefixtures("may_mount")
def test_an_ordinary_user_without_a_home_serves_and_records(tmp_path: Path) -> None:
    if os.geteuid() or shutil.which("setpriv") is None:
        pytest.skip("this process has no right to become an ordinary user")
    home = tmp_path / "theirs"
    home.mkdir()
    os.chown(home, int(ORDINARY), int(ORDINARY))
    user = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups", "--bounding-set=-all"]
    play("without_root", home, "sh", "-c", _open_ways([Path(sys.base_prefix), home]), *user)


def _open_ways(paths: Sequence[Path]) -> str:
    """Return a shell's program that lets everybody reach paths in folders of root's own, in this namespace alone."""
    lines = ["set -e"]
    for path in paths:
        closed = [folder for folder in reversed(path.resolve().parents) if not folder.stat().st_mode & 0o001]
        if closed:
            lines += [f"mount --bind {path} /mnt", f"mount -t tmpfs -o mode=755 tmpfs {closed[0]}", f"mkdir -p {path}"]
            lines += [f"mount --move /mnt {path}"]
    return "; ".join([*lines, 'exec "$0" "$@"'])
