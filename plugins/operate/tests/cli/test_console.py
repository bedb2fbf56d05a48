"""The verbs ``console`` and ``tokens``, and the console beside a server."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

import rlenv_robot as rr
from real.protocol.keys import Role
from rlenv_operate.console.access import Tokens
from rlenv_robot.cli.main import main


def test_a_token_is_made_listed_and_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "tokens")
    assert main(["operate", "tokens", "new", folder, "--name", "ann", "--role", "move", "--days", "7"]) == 0
    token = capsys.readouterr().out.splitlines()[-1]
    visitor = Tokens(folder).admit(token)
    assert visitor is not None
    assert (visitor.name, visitor.role) == ("ann", Role.MOVE)
    assert main(["operate", "tokens", "list", folder]) == 0
    listed = capsys.readouterr().out
    assert "ann" in listed
    assert token not in listed
    assert main(["operate", "tokens", "revoke", folder, "ann"]) == 0
    assert main(["operate", "tokens", "new", folder, "--name", "bob", "--role", "stop"]) == 0
    assert main(["operate", "tokens", "new", folder, "--name", "bob", "--role", "operate"]) == 2
    assert Tokens(folder).admit(token) is None
    assert main(["operate", "tokens", "revoke", folder, "ann"]) == 2
    assert main(["operate", "tokens", "new", folder, "--name", "ann", "--role", "move", "--days", "-1"]) == 2
    assert main(["operate", "tokens", "new", folder, "--name", "a b", "--role", "move"]) == 2


def test_a_server_with_keys_needs_keys_for_its_console(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["serve", "--console", "--keys", str(tmp_path)]) == 2
    assert "--console-keys" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.process
def test_a_console_beside_a_server_begins_and_ends_with_it() -> None:
    pytest.importorskip("rlenv_operate.console.server", reason="the extra 'console' is not installed")
    command = [sys.executable, "-m", "rlenv_robot", "serve", "--address", "tcp://127.0.0.1:*", "--console", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        line = next(line for line in server.stdout if line.startswith("console of"))
        url = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert url is not None
        assert "#token=" in line
        with urlopen(url[0], timeout=20) as page:
            assert b"rlenv-robot operate console" in page.read()
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
        with pytest.raises(OSError, match="refused"):
            urlopen(url[0], timeout=5)
    finally:
        server.kill()
        server.wait(10)
        if server.stdout is not None:
            server.stdout.close()


@pytest.mark.parametrize("arguments", [["--port", "99999"], ["--port", "-1"], ["--tokens", "nowhere"]])
def test_a_console_that_nobody_could_use_is_refused_in_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rlenv_operate.console.server", reason="the extra 'console' is not installed")
    monkeypatch.chdir(tmp_path)
    assert main(["operate", "console", *arguments]) == 2
    told = capsys.readouterr().err.strip()
    assert "\n" not in told
    assert arguments[1] in told


PROFILE = """
[robot]
where = "twin"
[serve]
address = "tcp://127.0.0.1:*"
lower_s = 0.0
[task]
name = "so101-reach"
options = { tolerance_m = 0.02 }
[record]
folder = "demonstrations"
"""


@pytest.mark.slow
@pytest.mark.process
def test_the_console_of_a_profile_has_its_task_and_records_where_it_says(tmp_path: Path) -> None:
    client = pytest.importorskip("websockets.sync.client", reason="the extra 'console' is not installed")
    (tmp_path / "lab.toml").write_text(PROFILE)
    command = [sys.executable, "-m", "rlenv_robot", "serve", "lab.toml", "--console", "0", "--priority", "0"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path, start_new_session=True
    )
    try:
        assert server.stdout is not None
        line = next(line for line in server.stdout if line.startswith("console of"))
        url = re.search(r"http://(127\.0\.0\.1:\d+)/#token=(\S+)", line)
        assert url is not None
        with client.connect(f"ws://{url[1]}/ws", origin=f"http://{url[1]}") as web:
            web.send(json.dumps({"t": "login", "token": url[2]}))
            seen = {"n": 0}

            def receive(wanted: str) -> dict[str, object]:
                while True:
                    message = json.loads(web.recv(timeout=60))
                    if message["t"] == "state":
                        seen["n"] += 1
                        web.send(json.dumps({"t": "seen", **seen}))
                    if message["t"] == wanted:
                        return dict(message)

            def do(act: str) -> None:
                web.send(json.dumps({"t": "act", "id": 1, "act": act}))
                outcome = receive("outcome")
                assert outcome["ok"], outcome

            do("arm")
            mover = receive("state")["mover"]
            while not (isinstance(mover, dict) and mover["goal"]):
                mover = receive("state")["mover"]
            assert (mover["task"], mover["recording"]) == ("so101-reach", True)
            assert mover["goal"]["target_position"]["unit"] == "m"
            assert len(mover["goal"]["target_position"]["values"]) == 3
            for _ in range(20):
                web.send(json.dumps({"t": "drive", "engaged": True, "axes": [0.2]}))
                receive("state")
            do("success")
            while receive("state")["mover"]["phase"] != "idle":  # type: ignore[index]
                pass
    finally:
        server.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(30)
        server.kill()
        server.wait(10)
        if server.stdout is not None:
            server.stdout.close()
    (episode,) = rr.open_source(str(tmp_path / "demonstrations")).sample_trajectories(1, {"expert": True})
    assert episode["extra_info"]["verdict"] == "success"
    assert episode["extra_info"]["task"] == "so101-reach"
    assert (tmp_path / "demonstrations" / "acts.jsonl").exists()
