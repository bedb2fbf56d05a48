"""OpenEnv's wire: openenv-core's own client, HTTP, errors by their codes, sessions, and hostile bytes."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

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


def ask(client: ClientConnection, message: Any) -> Any:
    client.send(message if isinstance(message, bytes) else json.dumps(message), text=True)
    return json.loads(client.recv(timeout=10))


def connected(server: OpenEnvServer, **more: Any) -> AbstractContextManager[ClientConnection]:
    url = f"{server.url.replace('http', 'ws')}/ws"
    client: AbstractContextManager[ClientConnection] = connect(url, proxy=None, compression=None, **more)
    return client


@pytest.fixture
def client(server: OpenEnvServer) -> Iterator[ClientConnection]:
    with connected(server) as connection:
        yield connection


def http(url: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_an_episode_over_the_websocket(client: ClientConnection) -> None:
    first = ask(client, {"type": "reset", "data": {"seed": 3, "episode_id": "e1"}})
    assert first["type"] == "observation"
    assert first["data"]["observation"]["text"].startswith("P___")
    assert (first["data"]["reward"], first["data"]["done"]) == (None, False)
    for move in ("Right", "Right", "Right", "Down", "Down", "Down"):
        answer = ask(client, {"type": "step", "data": {"text": f"<answer>{move}</answer>", "metadata": {"by": "me"}}})
    data = answer["data"]
    assert (data["reward"], data["done"]) == (1.0, True)
    assert data["observation"]["terminated"] is True
    assert data["observation"]["info"]["metrics"]["success"] is True
    assert ask(client, {"type": "state"})["data"] == {"episode_id": "e1", "step_count": 6}


@pytest.mark.requirement("R1.2")
def test_truncation_and_invalid_texts_are_in_the_observation(client: ClientConnection) -> None:
    ask(client, {"type": "reset"})
    for _ in range(8):
        data = ask(client, {"type": "step", "data": {"text": "no"}})["data"]
    assert (data["reward"], data["done"]) == (-0.1, True)
    assert (data["observation"]["truncated"], data["observation"]["terminated"]) == (True, False)
    assert data["observation"]["info"]["text_error"]["code"] == "format"


@pytest.mark.requirement("R1.2")
def test_an_illegal_action_of_numbers_is_answered_and_not_carried_out() -> None:
    with OpenEnvServer(lambda: rr.make("so101-reach")) as server, connected(server) as client:
        ask(client, {"type": "reset", "data": {"seed": 1}})
        data = ask(client, {"type": "step", "data": {"joint_target": [9, 0, 0, 0, 0, 0]}})["data"]
        assert data["observation"]["info"]["error"]["code"] == "range"
        assert data["observation"]["frame_no"] == 0
        assert ask(client, {"type": "state"})["data"]["step_count"] == 0
        home = ask(client, {"type": "step", "data": {"joint_target": [0, -0.5, 0.5, 0.6, -1.5, 0]}})["data"]
        assert home["observation"]["frame_no"] == 1


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
def test_mistakes_are_answered_by_code_and_the_session_goes_on(
    client: ClientConnection, message: Any, code: str
) -> None:
    assert ask(client, message)["data"]["code"] == code
    assert ask(client, {"type": "reset"})["type"] == "observation"


def test_sessions_are_apart_and_bounded(server: OpenEnvServer) -> None:
    with connected(server) as one, connected(server) as two, connected(server) as three:
        ask(one, {"type": "reset", "data": {"seed": 1}})
        assert ask(two, {"type": "state"})["data"]["step_count"] == 0
        assert json.loads(three.recv())["data"]["code"] == "CAPACITY_REACHED"
        with pytest.raises(ConnectionClosed) as closed:
            three.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        two.send(json.dumps({"type": "close"}))  # has no answer: the client's close frame follows


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        pytest.param(b"\x81\x01x", 1002, id="not masked"),
        pytest.param(b"\xf1\x80abcd", 1002, id="reserved bits"),
        pytest.param(b"\x82\x80abcd", 1002, id="binary"),
        pytest.param(b"\x81\xff" + b"\x7f" * 8, 1009, id="too long"),
        pytest.param(b"\x81\x82\0\0\0\0\xff\xff", 1007, id="not UTF-8"),
        pytest.param(b"\x89\xfe\x01\x00" + bytes(4 + 256), 1002, id="a ping that is too long"),
    ],
)
def test_a_client_that_breaks_the_protocol_is_closed_with_its_code(
    server: OpenEnvServer, client: ClientConnection, raw: bytes, code: int
) -> None:
    client.socket.sendall(raw)
    with pytest.raises(ConnectionClosed) as closed:
        client.recv(timeout=10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code
    assert http(server.url, "/health")[0] == 200


def test_pings_and_pieces_of_messages(client: ClientConnection) -> None:
    assert client.ping("hi").wait(10)
    whole = json.dumps({"type": "state"})
    client.send([whole[:5], whole[5:]])
    assert json.loads(client.recv(timeout=10))["type"] == "state"


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
    with pytest.raises(InvalidStatus) as refused, connected(server, origin="https://evil.example"):
        pass
    assert refused.value.response.status_code == 403
    with connected(server, origin="http://localhost:8080") as client:
        assert ask(client, {"type": "state"})["type"] == "state"
    assert http(server.url, "/health", Host="evil.example")[0] == 403


def test_a_body_that_is_too_long_is_refused(server: OpenEnvServer) -> None:
    assert http(server.url, "/reset", {"episode_id": "x" * (8 << 20)})[0] == 413


def test_a_server_closes_twice_and_leaves_no_environment_open() -> None:
    closed = []

    class Closing(Environment):
        def close(self) -> None:
            closed.append(self)
            super().close()

    server = OpenEnvServer(lambda: Closing(rr.make("frozen-lake").world)).start()
    with connected(server) as client:
        ask(client, {"type": "reset"})
        http(server.url, "/reset", {})
        server.close()
        server.close()
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
