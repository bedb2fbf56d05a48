"""The console beyond this machine, seen from another network namespace: TLS alone, its name alone, one port alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from plugins.operate.tests.console.certificates import write_certificate
from real.protocol.keys import Role
from rlenv_operate.console.access import new_token

PROGRAM = Path(__file__).with_name("beyond_loopback.py")
INSIDE, NAME = "10.87.0.1", "arm.lab"
"""Address and name of the console, as in the program."""

pytest.importorskip("rlenv_operate.console.server", reason="the extra 'console' is not installed")


def namespace() -> list[str]:
    """Return the command that runs another one in a network namespace of its own, or skip the test."""
    command = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("no unshare or no ip here")
    trial = ["ip", "link", "add", "one", "type", "veth", "peer", "name", "other"]
    if subprocess.run([*command, *trial], capture_output=True).returncode:
        pytest.skip("no right to make a network namespace here")
    return command


@pytest.mark.slow
@pytest.mark.process
def test_another_machine_finds_one_port_tls_alone_and_its_own_names_alone(tmp_path: Path) -> None:
    command = namespace()
    write_certificate(tmp_path, NAME, INSIDE)
    (tmp_path / "token").write_text(new_token(tmp_path / "tokens", "ann", Role.STOP))
    program = [sys.executable, str(PROGRAM), str(tmp_path)]
    done = subprocess.run([*command, *program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["open"] == [found["port"]], "the robot's server and its telemetry stay on loopback"
    assert "self-signed" in found["unknown issuer"]
    assert found["wrong name"].startswith("refused: Hostname mismatch")
    assert found["right name"] == "TLSv1.3 HTTP/1.1 200 OK"
    assert found["right address"] == "TLSv1.3 HTTP/1.1 200 OK"
    assert " 421 " in found["foreign host"]
    assert "rlenv-robot" not in found["plain"]
    assert "200" not in found["plain"]
    assert found["stop"].startswith("stopped")
    assert found["state"] == "stopped"
