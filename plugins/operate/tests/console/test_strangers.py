"""Half-sent requests and unfinished handshakes keep nobody from the page; real sockets and TLS."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugins.operate.tests.console.certificates import write_certificate
from real import Server
from real.protocol.keys import Role
from rlenv_operate.console.access import new_token
from tests.fakes import until

server = pytest.importorskip("rlenv_operate.console.server", reason="the extra 'console' is not installed")
client = pytest.importorskip("websockets.sync.client", reason="the extra 'console' is not installed")
strangers = pytest.importorskip("rlenv_operate.console.strangers")

MANY = 300
HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
def console(served: Server, tmp_path: Path) -> Iterator[Any]:
    write_certificate(tmp_path)
    (tmp_path / "token").write_text(new_token(tmp_path / "tokens", "ann", Role.OPERATE))
    settings = server.ConsoleSettings(
        address=served.address, port=0, tokens=tmp_path / "tokens",
        certificate=tmp_path / "cert.pem", private_key=tmp_path / "key.pem",
    )  # fmt: skip
    with server.ConsoleServer(settings) as console:
        yield console


@pytest.fixture
def trusting(console: Any, tmp_path: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))


@pytest.fixture
def held() -> Iterator[contextlib.ExitStack]:
    """Sockets that stay open until the test's end."""
    with contextlib.ExitStack() as sockets:
        yield sockets


def connect(console: Any, trusting: ssl.SSLContext) -> ssl.SSLSocket:
    return trusting.wrap_socket(socket.create_connection(("127.0.0.1", console.port), 20), server_hostname="127.0.0.1")


def get(console: Any, trusting: ssl.SSLContext) -> bytes:
    with connect(console, trusting) as line:
        line.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nConnection: close\r\n\r\n".encode())
        return line.recv(100).partition(b"\r\n")[0]


def page(console: Any, trusting: ssl.SSLContext) -> Any:
    base = f"127.0.0.1:{console.port}"
    return client.connect(f"wss://{base}/ws", ssl=trusting, origin=f"https://{base}")


def log_in(web: Any, tmp_path: Path) -> str:
    web.send(json.dumps({"t": "login", "token": (tmp_path / "token").read_text()}))
    return str(json.loads(web.recv(timeout=20))["t"])


@pytest.mark.slow
def test_half_sent_requests_and_open_handshakes_keep_nobody_from_the_page(
    console: Any, trusting: ssl.SSLContext, held: contextlib.ExitStack, tmp_path: Path
) -> None:
    operator = held.enter_context(page(console, trusting))
    assert log_in(operator, tmp_path) == "welcome"
    for _ in range(MANY):
        held.enter_context(socket.create_connection(("127.0.0.1", console.port), 20))  # no handshake
    for _ in range(MANY):
        held.enter_context(connect(console, trusting)).sendall(HALF)
    for _ in range(3):
        assert get(console, trusting) == b"HTTP/1.1 200 OK"
    with page(console, trusting) as again:  # the page is loaded anew
        assert log_in(again, tmp_path) == "welcome"
        again.send(json.dumps({"t": "act", "id": 1, "act": "stop"}))
        until(lambda: '"outcome"' in str(again.recv(timeout=20)), 20)
    operator.send(json.dumps({"t": "see", "cameras": []}))
    assert operator.recv(timeout=20), "a page that has logged in is no stranger"
    assert len(console._web.strangers) <= strangers.MOST_STRANGERS


def test_a_stranger_is_cut_off_in_time_and_a_page_stays(
    served: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlenv_operate.console.page_server.Strangers", lambda: strangers.Strangers(longest_s=1.0))
    token = new_token(tmp_path / "tokens", "ann", Role.WATCH)
    with server.ConsoleServer(
        server.ConsoleSettings(address=served.address, port=0, tokens=tmp_path / "tokens")
    ) as console:
        base = f"127.0.0.1:{console.port}"
        with (
            client.connect(f"ws://{base}/ws", origin=f"http://{base}") as web,
            socket.create_connection(("127.0.0.1", console.port), 20) as half,
        ):
            web.send(json.dumps({"t": "login", "token": token}))
            half.sendall(HALF)
            with contextlib.suppress(ConnectionResetError):
                assert half.recv(1) == b"", "cut off"
            until(lambda: not console._web.strangers)
            time.sleep(1.5)
            web.send(json.dumps({"t": "act", "id": 1, "act": "stop"}))
            until(lambda: '"outcome"' in str(web.recv(timeout=20)), 20)
