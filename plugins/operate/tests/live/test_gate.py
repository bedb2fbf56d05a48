"""Tests of the gate: it refuses clients without a token, and clients of other machines without TLS."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from plugins.operate.tests.live.client import answer_to
from real.protocol.keys import Role
from rlenv_operate.console.access import Tokens, new_token, revoke_token
from rlenv_operate.live.gate import Gate
from tests.fakes import until

Ask = Callable[..., tuple[bytes, socket.socket]]

GREETING = b"HTTP/1.1 101 Switching Protocols\r\n\r\nhello"


class Behind:
    """A server behind the gate: keeps the requests, greets, then returns each byte."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.place = self._listener.getsockname()
        self.requests: list[bytes] = []
        self.ended = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            self.requests.append(connection.recv(4096))
            connection.sendall(GREETING)
            with suppress(ConnectionError):
                while data := connection.recv(4096):
                    connection.sendall(data)
        self.ended += 1

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def behind() -> Iterator[Behind]:
    server = Behind()
    yield server
    server.close()


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Connect as `answer_to` does; all connections are closed at the end."""
    opened: list[socket.socket] = []

    def asked(port: int, target: str, tls: ssl.SSLContext | None = None) -> tuple[bytes, socket.socket]:
        answer, connection = answer_to(port, target, tls)
        opened.append(connection)
        return answer, connection

    yield asked
    for connection in opened:
        connection.close()


def test_a_token_in_the_url_opens_the_gate_and_goes_no_further(behind: Behind, ask: Ask) -> None:
    tokens = Tokens(None)
    with Gate(tokens, "127.0.0.1", 0, behind.place) as gate:
        assert tokens.own is not None
        assert gate.url == f"ws://127.0.0.1:{gate.port}/?token={tokens.own}"
        answer, connection = ask(gate.port, f"/?token={tokens.own}")
        assert answer == GREETING
        connection.sendall(b"ping" * 50_000)
        received = 0
        while received < 200_000:
            received += len(connection.recv(1 << 16))
        assert b"Sec-WebSocket-Protocol: foxglove.sdk.v1\r\n" in behind.requests[0]
        assert tokens.own.encode() not in behind.requests[0]
    assert connection.recv(1) == b"", "closing the gate cuts clients off"
    gate.close()


@pytest.mark.parametrize("target", ["/", "/?token=", "/?token=wrong", "/?other=1", "//[?token=x", "/?token=%ff"])
def test_without_a_token_nothing_reaches_the_server(behind: Behind, target: str, ask: Ask) -> None:
    with Gate(Tokens(None), "127.0.0.1", 0, behind.place) as gate:
        answer, connection = ask(gate.port, target)
        assert answer.startswith(b"HTTP/1.1 401 "), answer
        assert connection.recv(1) == b""
    assert behind.requests == []


@pytest.mark.parametrize("request_", [b"POST / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\r\n\r\n", b"GET /\r\n\r\n"])
def test_what_is_no_websocket_request_is_refused(behind: Behind, request_: bytes) -> None:
    with (
        Gate(Tokens(None), "127.0.0.1", 0, behind.place) as gate,
        socket.create_connection(("127.0.0.1", gate.port)) as connection,
    ):
        connection.sendall(request_)
        assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")
    assert behind.requests == []


def test_a_request_without_an_end_is_cut_off(behind: Behind) -> None:
    with (
        Gate(Tokens(None), "127.0.0.1", 0, behind.place) as gate,
        socket.create_connection(("127.0.0.1", gate.port), 5.0) as connection,
        suppress(ConnectionError),
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nx: " + b"y" * 2_000_000)
        assert connection.recv(1) == b""
    assert behind.requests == []


def test_a_token_that_may_only_stop_or_was_revoked_shows_nothing(behind: Behind, ask: Ask, tmp_path: Path) -> None:
    stopper = new_token(tmp_path, "guard", Role.STOP)
    watcher = new_token(tmp_path, "guest", Role.WATCH)
    with Gate(Tokens(tmp_path), "127.0.0.1", 0, behind.place) as gate:
        assert "TOKEN" in gate.url
        assert ask(gate.port, f"/?token={stopper}")[0].startswith(b"HTTP/1.1 403 ")
        answer, connection = ask(gate.port, f"/?token={watcher}")
        assert answer == GREETING
        revoke_token(tmp_path, "guest")
        assert connection.recv(1) == b""
        until(lambda: behind.ended == 1)
        assert ask(gate.port, f"/?token={watcher}")[0].startswith(b"HTTP/1.1 401 ")


def test_a_client_that_reads_nothing_holds_up_no_other(behind: Behind, ask: Ask) -> None:
    tokens = Tokens(None)
    with Gate(tokens, "127.0.0.1", 0, behind.place) as gate:
        _, stalled = ask(gate.port, f"/?token={tokens.own}")
        stalled.settimeout(0.2)
        with suppress(TimeoutError):
            stalled.sendall(bytes(1 << 26))
            pytest.fail("it was read")
        answer, other = ask(gate.port, f"/?token={tokens.own}")
        assert answer == GREETING
        other.sendall(b"!")
        assert other.recv(1) == b"!"


def test_other_machines_need_tls_and_a_list_of_tokens(behind: Behind, ask: Ask, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="TLS"):
        Gate(Tokens(None), "0.0.0.0", 0, behind.place)
    certificate, key = self_signed(tmp_path)
    with pytest.raises(ValueError, match="tokens"):
        Gate(Tokens(None), "0.0.0.0", 0, behind.place, certificate, key)
    with pytest.raises(ValueError, match="can't be used"):
        Gate(Tokens(None), "127.0.0.1", 0, behind.place, key, certificate)
    token = new_token(tmp_path / "tokens", "ann", Role.WATCH)
    trusting = ssl.create_default_context(cafile=str(certificate))
    with Gate(Tokens(tmp_path / "tokens"), "0.0.0.0", 0, behind.place, certificate, key) as gate:
        assert gate.url.startswith("wss://")
        assert ask(gate.port, f"/?token={token}", trusting)[0] == GREETING
        with suppress(ConnectionError):
            assert ask(gate.port, f"/?token={token}")[0] == b"", "no word without TLS"
    assert len(behind.requests) == 1


def test_an_address_that_is_taken_is_an_error(behind: Behind) -> None:
    with pytest.raises(OSError, match=str(behind.place[1])):
        Gate(Tokens(None), "127.0.0.1", behind.place[1], behind.place)


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for localhost and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, private = folder / "cert.pem", folder / "key.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return pem, private
