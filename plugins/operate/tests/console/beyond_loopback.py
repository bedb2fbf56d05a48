"""Serve a console at an address beyond loopback, and look at it from another network namespace.

Run by `test_beyond_loopback` in a network namespace: ``python beyond_loopback.py FOLDER`` makes a pair of interfaces,
serves a robot on loopback and its console at `INSIDE` with TLS, and starts itself once more (``look``) in a second
namespace at the other end of the pair, whose JSON goes to standard output.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

INSIDE, OUTSIDE, NAME = "10.87.0.1", "10.87.0.2", "arm.lab"


def ip(*words: str) -> None:
    """Run ``ip``."""
    subprocess.run(["ip", *words], check=True)


def serve(folder: Path) -> None:
    """Serve robot and console, and print the other namespace's report."""
    from real import Server
    from rlenv_operate.console.server import ConsoleServer, ConsoleSettings
    from rlenv_robot.robot_models import find_robot_model

    ip("link", "set", "lo", "up")
    ip("link", "add", "inside", "type", "veth", "peer", "name", "outside")
    ip("addr", "add", f"{INSIDE}/24", "dev", "inside")
    ip("link", "set", "inside", "up")
    robot = find_robot_model("so101").make_served_simulation("sim")
    with Server(robot, telemetry="tcp://127.0.0.1:*", watchdog_s=1.0) as server:
        settings = ConsoleSettings(
            address=server.address, host=INSIDE, port=0, names=(NAME,), tokens=folder / "tokens",
            certificate=folder / "cert.pem", private_key=folder / "key.pem",
        )  # fmt: skip
        with ConsoleServer(settings) as console:
            command = ["unshare", "-n", sys.executable, __file__, str(folder), "look", str(console.port)]
            looker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert looker.stdout is not None
            looker.stdout.readline()  # it is in its namespace
            ip("link", "set", "outside", "netns", str(looker.pid))
            report, _ = looker.communicate("go\n", timeout=60)
            print(json.dumps({**json.loads(report), "port": console.port, "state": server.lifecycle.state}))


def look(folder: Path, port: int) -> dict[str, Any]:
    """Return what another machine finds."""
    print("ready", flush=True)
    sys.stdin.readline()
    ip("addr", "add", f"{OUTSIDE}/24", "dev", "outside")
    ip("link", "set", "outside", "up")
    known = ssl.create_default_context(cafile=str(folder / "cert.pem"))
    return {
        "open": [number for number in range(1, 65536) if is_open(number)],
        "unknown issuer": page(port, ssl.create_default_context(), NAME),
        "wrong name": page(port, known, "evil.example"),
        "right name": page(port, known, NAME),
        "right address": page(port, known, INSIDE),
        "foreign host": page(port, known, NAME, host="evil.example"),
        "plain": plain(port),
        "stop": stop(port, known, (folder / "token").read_text()),
    }


def is_open(port: int) -> bool:
    """Return whether somebody listens."""
    with socket.socket() as probe:
        probe.settimeout(5.0)
        return probe.connect_ex((INSIDE, port)) == 0


def request(host: str) -> bytes:
    """Return a request for the page."""
    return f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


def page(port: int, context: ssl.SSLContext, name: str, host: str = "") -> str:
    """Return the status line of the page, with the version of TLS, or the error of the handshake."""
    with socket.create_connection((INSIDE, port), 10) as raw:
        try:
            with context.wrap_socket(raw, server_hostname=name) as line:
                line.sendall(request(f"{host or name}:{port}"))
                status = line.recv(100).partition(b"\r")[0].decode()
                return f"{line.version()} {status}"
        except ssl.SSLCertVerificationError as error:
            return f"refused: {error.verify_message}"


def plain(port: int) -> str:
    """Return what HTTP without TLS gets."""
    with socket.create_connection((INSIDE, port), 10) as raw:
        raw.sendall(request(f"{NAME}:{port}"))
        try:
            return raw.recv(1000).decode("latin-1")
        except ConnectionResetError:
            return ""


def stop(port: int, context: ssl.SSLContext, token: str) -> str:
    """Log in over TLS, stop the robot, and return the outcome."""
    from websockets.sync.client import connect

    raw = socket.create_connection((INSIDE, port), 10)
    base = f"{NAME}:{port}"
    with connect(f"wss://{base}/ws", sock=raw, ssl=context, server_hostname=NAME, origin=f"https://{base}") as web:
        web.send(json.dumps({"t": "login", "token": token}))
        web.send(json.dumps({"t": "act", "id": 1, "act": "stop"}))
        while True:
            message = web.recv(timeout=20)
            if isinstance(message, str) and json.loads(message)["t"] == "outcome":
                return str(json.loads(message)["text"])


if __name__ == "__main__":
    where = Path(sys.argv[1])
    if sys.argv[2:3] == ["look"]:
        print(json.dumps(look(where, int(sys.argv[3]))))
    else:
        serve(where)
