"""The page's web server: strangers, floods and stalled pages harm nobody, and a stop passes all of them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from real import Server
from real.protocol.keys import Role
from rlenv_operate.console.access import new_token, revoke_token
from tests.fakes import Integrator, until

server = pytest.importorskip("rlenv_operate.console.server", reason="the extra 'console' is not installed")
client = pytest.importorskip("websockets.sync.client", reason="the extra 'console' is not installed")
exceptions = pytest.importorskip("websockets.exceptions", reason="the extra 'console' is not installed")


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    return {role.value: new_token(tmp_path / "tokens", f"p-{role}", role) for role in Role}


@pytest.fixture
def console(served: Server, tokens: dict[str, str], tmp_path: Path) -> Iterator[Any]:
    settings = server.ConsoleSettings(
        address=served.address, port=0, tokens=tmp_path / "tokens", acts=tmp_path / "acts.jsonl"
    )
    with server.ConsoleServer(settings) as console:
        yield console


class Page:
    """A page's socket, logged in, without a browser."""

    def __init__(self, console: Any, token: str, **options: Any) -> None:
        self.web = open_socket(console, **options).__enter__()
        self.web.send(json.dumps({"t": "login", "token": token}))
        self._taken = 0

    def next(self, kind: str, timeout_s: float = 10.0) -> dict[str, Any]:
        end = time.monotonic() + timeout_s
        while (left_s := end - time.monotonic()) > 0:
            message = self.web.recv(timeout=left_s)
            if isinstance(message, str):
                data: dict[str, Any] = json.loads(message)
                if data["t"] == "state":
                    self._taken += 1
                    self.web.send(json.dumps({"t": "seen", "n": self._taken}))
                if data["t"] == kind:
                    return data
        raise AssertionError(f"no {kind} came within {timeout_s} s")

    def act(self, name: str, **values: Any) -> dict[str, Any]:
        self.web.send(json.dumps({"t": "act", "id": 1, "act": name, **values}))
        return self.next("outcome")

    def closed(self, timeout_s: float = 10.0) -> int:
        end = time.monotonic() + timeout_s
        try:
            while time.monotonic() < end:
                self.web.recv(timeout=timeout_s)
        except exceptions.ConnectionClosed as error:
            return int(error.rcvd.code)
        raise AssertionError("the socket is open")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.web.__exit__(None, None, None)


def open_socket(console: Any, origin: str | None = "own", **options: Any) -> Any:
    base = f"127.0.0.1:{console.port}"
    origin = f"http://{base}" if origin == "own" else origin
    return client.connect(f"ws://{base}/ws", origin=origin, **options)  # type: ignore[arg-type]


def get(console: Any, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    request = Request(f"http://127.0.0.1:{console.port}{path}", headers=headers)
    try:
        with urlopen(request, timeout=10) as answer:
            return answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read()
    except HTTPError as error:
        return error.code, dict(error.headers), b""


def test_a_page_sees_the_robot_and_its_acts_move_it(served: Server, console: Any, tokens: dict[str, str]) -> None:
    with Page(console, tokens["operate"]) as page:
        welcome = page.next("welcome")
        assert (welcome["name"], welcome["role"]) == ("p-operate", "operate")
        robot = page.next("robot")["robot"]
        assert (robot["name"], robot["commands"][0]["elements"]) == ("integrator", ["a", "b"])
        state = page.next("state")
        assert (state["live"], state["state"]) == (True, "disarmed")
        assert page.act("arm")["ok"]
        assert served.lifecycle.state == "ready"
        page.web.send(json.dumps({"t": "drive", "engaged": True, "axes": [1.0, 0.0]}))
        until(lambda: served.lifecycle.state == "running")
        assert page.act("success")["ok"]
        until(lambda: served.lifecycle.state == "holding")
        assert page.act("stop", text="done")["ok"]
        assert "p-operate at the console: done" in served.lifecycle.why


def test_a_role_without_the_right_moves_nothing(served: Server, console: Any, tokens: dict[str, str]) -> None:
    for role in ("watch", "stop"):
        with Page(console, tokens[role]) as page:
            page.next("welcome")
            assert not page.act("arm")["ok"]
            page.web.send(json.dumps({"t": "drive", "engaged": True, "axes": [1.0]}))
            state = page.next("state")
            assert ("sensors" in state) is (role == "watch")
    assert served.lifecycle.state == "disarmed"


@pytest.mark.parametrize(
    "first", ['{"t": "login", "token": "guess"}', '{"t": "act", "id": 1, "act": "stop"}', "x", "{}"]
)
def test_without_a_token_nothing_is_shown_and_nothing_done(served: Server, console: Any, first: str) -> None:
    with open_socket(console) as web:
        web.send(first)
        with pytest.raises(exceptions.ConnectionClosed) as closed:
            web.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
    assert served.lifecycle.state == "disarmed"


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null", "https://127.0.0.1"])
def test_a_page_of_another_origin_is_refused(console: Any, origin: str | None) -> None:
    with pytest.raises(exceptions.InvalidStatus) as refused, open_socket(console, origin):
        pass
    assert refused.value.response.status_code == 403


def test_a_name_that_is_not_ours_is_refused(console: Any) -> None:
    assert get(console, "/")[0] == 200
    assert get(console, "/", Host="evil.example")[0] == 421
    assert get(console, "/", Host=f"evil.example:{console.port}")[0] == 421
    with socket.create_connection(("127.0.0.1", console.port), 10) as raw:
        raw.sendall(b"GET /ws HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")  # fmt: skip
        assert b" 403 " in raw.recv(200)


def test_the_page_is_small_and_allows_nothing_but_its_own_origin(console: Any) -> None:
    size = 0
    for path in ("/", "/console.js", "/console.css", "/icon.svg"):
        status, headers, body = get(console, path, **{"Accept-Encoding": "gzip"})
        size += len(body)
        policy = headers["content-security-policy"]
        assert status == 200
        assert "default-src 'none'" in policy
        assert "http" not in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        again = get(console, path, **{"If-None-Match": headers["etag"]})
        assert again[0] == 304
        plain = get(console, path)[2].decode()
        assert "https://" not in plain
        assert plain.count("http://") == plain.count("http://www.w3.org/2000/svg")
    assert size <= 100_000
    assert get(console, "/../access.py")[0] == 404
    assert get(console, "/secret")[0] == 404


@pytest.mark.parametrize(
    "message",
    ['{"t": "drive", "engaged": true, "axes": [2]}', '{"t": "act", "id": 1, "act": "x"}', "{", "x" * 5000],
    ids=["a wild axis", "an unknown act", "no JSON", "too long"],
)
def test_a_page_that_sends_what_ours_does_not_is_closed(console: Any, tokens: dict[str, str], message: str) -> None:
    with Page(console, tokens["operate"]) as page:
        page.next("welcome")
        page.web.send(message)
        assert page.closed() in (1008, 1009)


def test_a_flood_is_cut_off_and_the_stop_at_its_end_is_carried_out(
    served: Server, console: Any, tokens: dict[str, str]
) -> None:
    with Page(console, tokens["move"]) as page:
        page.next("welcome")
        for _ in range(239):
            page.web.send('{"t": "see", "cameras": []}')
        page.web.send('{"t": "act", "id": 1, "act": "stop"}')
        page.web.send('{"t": "act", "id": 2, "act": "stop"}')
        for _ in range(400):
            try:
                page.web.send('{"t": "see", "cameras": []}')
            except exceptions.ConnectionClosed:
                break
        assert page.closed() == 1008
    until(lambda: served.lifecycle.state == "stopped")


def test_a_revoked_token_closes_its_open_page(console: Any, tokens: dict[str, str], tmp_path: Path) -> None:
    with Page(console, tokens["watch"]) as page:
        page.next("welcome")
        revoke_token(tmp_path / "tokens", "p-watch")
        assert page.closed() == 4401


def test_a_page_that_reads_nothing_delays_no_other(served: Server, console: Any, tokens: dict[str, str]) -> None:
    stalled = socket.create_connection(("127.0.0.1", console.port), 10)
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stalled.sendall(
        f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nOrigin: http://127.0.0.1:{console.port}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    assert b" 101 " in stalled.recv(300)
    login = json.dumps({"t": "login", "token": tokens["watch"]}).encode()
    stalled.sendall(
        bytes((0x81, 0x80 | len(login), 0, 0, 0, 0)) + login
    )  # a masked text frame; its answers stay unread
    pages = [Page(console, tokens["watch"]) for _ in range(5)]
    try:
        for page in pages:
            page.next("welcome")
        with Page(console, tokens["stop"]) as person:
            person.next("welcome")
            assert person.act("stop")["ok"]
        for page in pages:
            states = [page.next("state").get("state") for _ in range(8)]  # 6 were on their way, the newest follow
            assert states[-1] == "stopped"
    finally:
        for page in pages:
            page.__exit__()
        stalled.close()


@pytest.mark.slow
def test_a_lost_server_is_said_to_every_page(robot: Integrator, tmp_path: Path) -> None:
    with Server(robot, telemetry="tcp://127.0.0.1:*") as lost:
        console = server.ConsoleServer(server.ConsoleSettings(address=lost.address, port=0)).start()
        assert console.tokens.own is not None
        page = Page(console, console.tokens.own)
        until(lambda: page.next("state")["live"])
    until(lambda: not page.next("state")["live"], 20.0)
    assert not page.act("stop")["ok"]
    page.__exit__()
    console.close()


def test_beyond_this_machine_the_console_needs_tls_and_tokens(tmp_path: Path) -> None:
    address = "tcp://127.0.0.1:5555"
    with pytest.raises(ValueError, match="TLS"):
        server.ConsoleSettings(address=address, host="0.0.0.0", tokens=tmp_path)
    with pytest.raises(ValueError, match="tokens"):
        server.ConsoleSettings(address=address, host="0.0.0.0", certificate="c", private_key="k")
    with pytest.raises(ValueError, match="both"):
        server.ConsoleSettings(address=address, certificate="c")
    assert server.ConsoleSettings(address=address, host="arm.lab", tokens="t", certificate="c", private_key="k").tls


def test_a_console_listens_at_its_own_address_alone(console: Any) -> None:
    listening = {
        line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"
    }
    ours = {entry for entry in listening if entry.endswith(f":{console.port:04X}")}
    assert ours == {f"0100007F:{console.port:04X}"}
