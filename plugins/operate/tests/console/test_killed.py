"""A console that is killed leaves none of its commands running, and each ends in its own orderly way."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rlenv_operate.console.jobs import Jobs
from tests.fakes import until

client = pytest.importorskip("websockets.sync.client", reason="the extra 'console' is not installed")
pytest.importorskip("rlenv_operate.console.server", reason="the extra 'console' is not installed")
pytestmark = [
    pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(300),
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the test reads /proc"),
]  # fmt: skip
LONG_S = 120.0


def children(pid: int) -> list[int]:
    return [int(one) for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def start_console(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start a console's process, whose folder is ``lab``."""
    processes = list[subprocess.Popen[str]]()

    def start() -> subprocess.Popen[str]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        command = [sys.executable, "-m", "rlenv_robot", "operate", "console", address, "--folder", "lab", "--port", "0"]
        with (tmp_path / "console.log").open("a") as log:
            processes.append(subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True))
        return processes[-1]

    try:
        yield start
    finally:
        left = [pid for process in processes if process.poll() is None for pid in children(process.pid)]
        for process in processes:
            process.kill()
            process.communicate()
        for pid in left:
            until(lambda pid=pid: not runs(pid), 60.0)  # type: ignore[misc]


@contextmanager
def page_of(console: subprocess.Popen[str]) -> Iterator[Any]:
    assert console.stdout is not None
    url = next(
        found for line in console.stdout if (found := re.search(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)", line))
    )
    base = f"127.0.0.1:{url[1]}"
    with client.connect(f"ws://{base}/ws", origin=f"http://{base}") as page:
        page.send(json.dumps({"t": "login", "token": url[2]}))
        yield page


def wait_for(page: Any, kind: str, fits: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    taken = 0
    while True:
        message = page.recv(timeout=LONG_S)
        data = json.loads(message) if isinstance(message, str) else {"t": "bytes"}
        if data["t"] == "state":
            page.send(json.dumps({"t": "seen", "n": (taken := taken + 1)}))
        if data["t"] == kind and fits(data):
            return dict(data)


def test_a_killed_console_ends_its_training_and_its_robot_s_server_and_the_next_one_goes_on(
    start_console: Callable[[], subprocess.Popen[str]], tmp_path: Path
) -> None:
    method, steps = ("ppo", 960 * 6) if find_spec("torch") else ("evolution", 40_000)
    console = start_console()
    with page_of(console) as page:
        page.send(json.dumps({"t": "job", "id": 1, "do": "start", "step": "robot", "robot": "so101", "where": "twin",
                              "task": "so101-reach"}))  # fmt: skip
        assert wait_for(page, "outcome", lambda one: one["id"] == 1)["ok"]
        wait_for(page, "state", lambda one: one["live"])
        page.send(json.dumps({"t": "job", "id": 2, "do": "start", "step": "train", "method": method, "name": "a",
                              "steps": steps}))  # fmt: skip
        assert wait_for(page, "outcome", lambda one: one["id"] == 2)["ok"]
        seen = wait_for(page, "loop", lambda one: any(job["curve"] for job in one["jobs"]))
        commands = children(console.pid)
        assert len(commands) == 2
        os.kill(console.pid, signal.SIGKILL)
    for pid in commands:
        until(lambda pid=pid: not runs(pid), 60.0)  # type: ignore[misc]
    logs = {path.stem.rpartition("-")[2]: path.read_text() for path in (tmp_path / "lab" / "jobs").glob("*.log")}
    assert "closing: the robot goes home" in logs["robot"]
    assert "--resume" in logs["train"]
    assert "Traceback" not in "".join(logs.values())
    assert not (tmp_path / "lab" / "policies" / "a.npz").exists()

    with page_of(start_console()) as page:
        assert wait_for(page, "loop", lambda one: True)["unfinished"] == "a"
        page.send(json.dumps({"t": "job", "id": 1, "do": "start", "step": "train", "resume": True}))
        assert wait_for(page, "outcome", lambda one: one["id"] == 1)["ok"]
        done = wait_for(page, "loop", lambda one: any(job["state"] != "running" for job in one["jobs"]))
    curves = [job["curve"] for message in (seen, done) for job in message["jobs"] if job["step"] == "train"]
    assert curves[1][: len(curves[0])] == curves[0]
    assert [job["state"] for job in done["jobs"]] == ["done"]
    assert (done["unfinished"], done["policies"]) == ("", ["a.npz"])


def test_a_command_that_another_needs_ends_after_it(tmp_path: Path) -> None:
    """The virtual arm's servos outlive the server that takes the arm home."""
    jobs = Jobs(tmp_path)
    words = ["robot", "twin", "so101", "--bus", "--uncalibrated", "--link"]
    arm = jobs.start("virtual", [*words, "a"], "ann", progress=False)
    jobs.start("robot", [*words, "b"], "ann", progress=False, needs="virtual")
    try:
        until(lambda: all((tmp_path / name).is_symlink() for name in "ab"), LONG_S)
        os.close(arm.lifeline)  # as the system does where the console is killed
        arm.lifeline = os.open(os.devnull, os.O_RDONLY)
        with pytest.raises(subprocess.TimeoutExpired):
            arm.process.wait(1.0)
        assert jobs.end("robot")
        assert arm.process.wait(60.0) in (0, 130)
    finally:
        jobs.close()


def test_a_console_that_ends_ends_what_is_needed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, ended = Jobs(tmp_path), list[str]()
    for step, needs in (("virtual", ""), ("train", ""), ("robot", "virtual")):
        monkeypatch.setitem(jobs._jobs, step, Mock(needs=needs))
    monkeypatch.setattr(jobs, "end", ended.append)
    jobs.close()
    assert sorted(ended[:2]) == ["robot", "train"]
    assert ended[2:] == ["virtual"]
