"""The verbs ``console`` and ``tokens``, and the console beside a server."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from real.protocol.keys import Role
from rlenv_robot.cli.main import main
from rlenv_robot.serving.console.access import Tokens


def test_a_token_is_made_listed_and_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "tokens")
    assert main(["tokens", "new", folder, "--name", "ann", "--role", "move", "--days", "7"]) == 0
    token = capsys.readouterr().out.splitlines()[-1]
    visitor = Tokens(folder).admit(token)
    assert visitor is not None
    assert (visitor.name, visitor.role) == ("ann", Role.MOVE)
    assert main(["tokens", "list", folder]) == 0
    listed = capsys.readouterr().out
    assert "ann" in listed
    assert token not in listed
    assert main(["tokens", "revoke", folder, "ann"]) == 0
    assert Tokens(folder).admit(token) is None
    assert main(["tokens", "revoke", folder, "ann"]) == 2
    assert main(["tokens", "new", folder, "--name", "ann", "--role", "move", "--days", "-1"]) == 2
    assert main(["tokens", "new", folder, "--name", "a b", "--role", "move"]) == 2


def test_a_server_with_keys_needs_keys_for_its_console(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["serve", "--console", "--keys", str(tmp_path)]) == 2
    assert "--console-keys" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.process
def test_a_console_beside_a_server_begins_and_ends_with_it() -> None:
    pytest.importorskip("rlenv_robot.serving.console.server", reason="the extra 'console' is not installed")
    command = [sys.executable, "-m", "rlenv_robot", "serve", "--address", "tcp://127.0.0.1:*", "--console", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        line = next(line for line in server.stdout if line.startswith("console of"))
        url = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert url is not None
        assert "#token=" in line
        with urlopen(url[0], timeout=20) as page:
            assert b"rlenv-robot console" in page.read()
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
        with pytest.raises(OSError, match="refused"):
            urlopen(url[0], timeout=5)
    finally:
        server.kill()
        server.wait(10)
        if server.stdout is not None:
            server.stdout.close()
