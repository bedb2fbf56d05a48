"""OpenEnv's wire: openenv-core's own client, HTTP, errors by their codes, sessions, and hostile bytes."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

import rlenv_robot as rr
from rlenv_language.openenv.server import OpenEnvServer
from rlenv_language.text.view import TextRules, to_text
from rlenv_robot.env import Environment


def lake() -> Environment:
    return to_text(rr.make("frozen-lake", ice=1.0, slippery=False), TextRules(turns=8))


@pytest.fixture
def server() -> Iterator[OpenEnvServer]:
    with OpenEnvServer(lake, sessions=2) as running:
        yield running


class Client:
    """A WebSocket client of the fewest lines, so that the tests need no other package."""

    def __init__(self, url: str, origin: str = "") -> None:
        host, port = url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        key = base64.b64encode(os.urandom(16)).decode()
        head = ["GET /ws HTTP/1.1", f"Host: {host}:{port}", "Upgrade: websocket", "Connection: Upgrade",
                f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13",
                *([f"Origin: {origin}"] if origin else [])]  # fmt: skip
        self.socket.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
        self.file = self.socket.makefile("rb")
        self.status = self.file.readline().decode()
        while self.file.readline() not in (b"\r\n", b""):
            pass

    def send(self, payload: bytes, first: int = 0x81) -> None:
        mask = os.urandom(4)
        size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack(">H", len(payload))
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
        self.socket.sendall(bytes([first]) + size + mask + masked)

    def receive(self) -> tuple[int, bytes]:
        first, second = self.file.read(2)
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(self.file.read(2), "big")
        elif size == 127:
            size = int.from_bytes(self.file.read(8), "big")
        return first & 0x0F, self.file.read(size)

    def ask(self, message: Any) -> Any:
        self.send(message if isinstance(message, bytes) else json.dumps(message).encode())
        return json.loads(self.receive()[1])

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@pytest.fixture
def client(server: OpenEnvServer) -> Iterator[Client]:
    made = Client(server.url)
    yield made
    made.close()


def http(url: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_an_episode_over_the_websocket(client: Client) -> None:
    first = client.ask({"type": "reset", "data": {"seed": 3, "episode_id": "e1"}})
    assert first["type"] == "observation"
    assert first["data"]["observation"]["text"].startswith("P___")
    assert (first["data"]["reward"], first["data"]["done"]) == (None, False)
    for move in ("Right", "Right", "Right", "Down", "Down", "Down"):
        answer = client.ask({"type": "step", "data": {"text": f"<answer>{move}</answer>", "metadata": {"by": "me"}}})
    data = answer["data"]
    assert (data["reward"], data["done"]) == (1.0, True)
    assert data["observation"]["terminated"] is True
    assert data["observation"]["info"]["metrics"]["success"] is True
    assert client.ask({"type": "state"})["data"] == {"episode_id": "e1", "step_count": 6}


@pytest.mark.requirement("R1.2")
def test_truncation_and_invalid_texts_are_in_the_observation(client: Client) -> None:
    client.ask({"type": "reset"})
    for _ in range(8):
        data = client.ask({"type": "step", "data": {"text": "no"}})["data"]
    assert (data["reward"], data["done"]) == (-0.1, True)
    assert (data["observation"]["truncated"], data["observation"]["terminated"]) == (True, False)
    assert data["observation"]["info"]["text_error"]["code"] == "format"


@pytest.mark.requirement("R1.2")
def test_an_illegal_action_of_numbers_is_answered_and_not_carried_out() -> None:
    with OpenEnvServer(lambda: rr.make("so101-reach")) as server:
        client = Client(server.url)
        client.ask({"type": "reset", "data": {"seed": 1}})
        data = client.ask({"type": "step", "data": {"joint_target": [9, 0, 0, 0, 0, 0]}})["data"]
        assert data["observation"]["info"]["error"]["code"] == "range"
        assert data["observation"]["frame_no"] == 0
        assert client.ask({"type": "state"})["data"]["step_count"] == 0
        home = client.ask({"type": "step", "data": {"joint_target": [0, -0.5, 0.5, 0.6, -1.5, 0]}})["data"]
        assert home["observation"]["frame_no"] == 1
        client.close()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"{", "INVALID_JSON"), (b"[]", "UNKNOWN_TYPE"), ({"type": "fly"}, "UNKNOWN_TYPE"),
        ({"type": "step"}, "VALIDATION_ERROR"), ({"type": "step", "data": {"text": "x"}}, "EXECUTION_ERROR"),
        ({"type": "reset", "data": {"seed": "x"}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"colour": 1}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": 3}, "VALIDATION_ERROR"),
    ],
)  # fmt: skip
def test_mistakes_are_answered_by_code_and_the_session_goes_on(client: Client, message: Any, code: str) -> None:
    assert client.ask(message)["data"]["code"] == code
    assert client.ask({"type": "reset"})["type"] == "observation"


def test_sessions_are_apart_and_bounded(server: OpenEnvServer) -> None:
    one, two, three = (Client(server.url) for _ in range(3))
    one.ask({"type": "reset", "data": {"seed": 1}})
    assert two.ask({"type": "state"})["data"]["step_count"] == 0
    assert json.loads(three.receive()[1])["data"]["code"] == "CAPACITY_REACHED"
    one.close()
    two.send(json.dumps({"type": "close"}).encode())
    two.send(b"", 0x88)
    assert two.receive()[0] == 0x8
    for each in (two, three):
        each.close()


@pytest.mark.parametrize(
    ("raw", "code"),
    [(b"\x81\x01x", 1002), (b"\xf1\x80abcd", 1002), (b"\x82\x80abcd", 1002), (b"\x81\xff" + b"\x7f" * 8, 1009),
     (b"\x81\x82\0\0\0\0\xff\xff", 1007), (b"\x89\xfe\x01\x00" + bytes(4 + 256), 1002)],
)  # fmt: skip
def test_a_client_that_breaks_the_protocol_is_closed_with_its_code(
    server: OpenEnvServer, raw: bytes, code: int
) -> None:
    client = Client(server.url)
    client.socket.sendall(raw)
    opcode, payload = client.receive()
    assert (opcode, int.from_bytes(payload[:2], "big")) == (0x8, code)
    client.close()
    assert http(server.url, "/health")[0] == 200


def test_pings_and_pieces_of_messages(client: Client) -> None:
    client.send(b"hi", 0x89)
    assert client.receive() == (0xA, b"hi")
    whole = json.dumps({"type": "state"}).encode()
    client.send(whole[:5], 0x01)
    client.send(b"", 0x89)
    client.send(whole[5:], 0x80)
    assert client.receive()[0] == 0xA
    assert json.loads(client.receive()[1])["type"] == "state"


def test_http_has_the_same_calls_on_one_shared_session(server: OpenEnvServer) -> None:
    assert http(server.url, "/health") == (200, {"status": "healthy"})
    assert http(server.url, "/step", {"action": {"text": "x"}})[0] == 400
    assert http(server.url, "/reset", {"seed": 3})[1]["observation"]["text"].startswith("P___")
    status, answer = http(server.url, "/step", {"action": {"text": "<answer>Right</answer>"}, "timeout_s": 3.0})
    assert (status, answer["reward"], answer["done"]) == (200, 0.0, False)
    assert http(server.url, "/state")[1]["step_count"] == 1
    assert http(server.url, "/step", {})[0] == 422
    schema = http(server.url, "/schema")[1]
    assert schema["action"]["properties"]["text"]["type"] == "string"
    assert "truncated" in schema["observation"]["properties"]
    assert http(server.url, "/metadata")[1]["name"] == "frozen-lake"
    assert http(server.url, "/mcp", {"id": 4})[1]["error"]["code"] == -32601
    assert http(server.url, "/nowhere")[0] == 404
    assert http(server.url, "/reset")[0] == 405


def test_pages_of_other_origins_are_refused(server: OpenEnvServer) -> None:
    for origin, status in (("https://evil.example", " 403 "), ("http://localhost:8080", " 101 ")):
        client = Client(server.url, origin)
        assert status in client.status
        client.close()
    assert http(server.url, "/health", Host="evil.example")[0] == 403


def test_a_server_closes_twice_and_leaves_no_environment_open() -> None:
    closed = []

    class Closing(Environment):
        def close(self) -> None:
            closed.append(self)
            super().close()

    server = OpenEnvServer(lambda: Closing(rr.make("frozen-lake").world)).start()
    client = Client(server.url)
    client.ask({"type": "reset"})
    http(server.url, "/reset", {})
    server.close()
    server.close()
    client.close()
    assert len(closed) == 2
    with pytest.raises(ValueError, match="sessions"):
        OpenEnvServer(lake, sessions=0)


def test_openenv_s_own_client_plays_our_environment(server: OpenEnvServer) -> None:
    generic = pytest.importorskip("openenv.core.generic_client", reason="openenv-core is not installed")
    with generic.GenericEnvClient(base_url=server.url).sync() as env:
        result = env.reset(seed=3)
        assert result.observation["text"].startswith("P___")
        for move in ("Right", "Right", "Right", "Down", "Down", "Down"):
            result = env.step({"text": f"<answer>{move}</answer>"})
        assert (result.reward, result.done) == (1.0, True)
        assert result.observation["info"]["metrics"]["success"] is True
        assert env.state()["step_count"] == 6
        with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
            env.reset(seed=-1)
