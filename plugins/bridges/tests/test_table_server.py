"""Tables cross a process border: wrong requests are answered, and an agent in Node acts by the schema alone."""

from __future__ import annotations

import io
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zmq
from jsonschema import Draft202012Validator

import rlenv_robot as rr
from hal import Spec
from rlenv_bridges.table_server import LARGEST_REQUEST, TableServer, serve_lines
from rlenv_robot.adapters.json_schema import plain_json, protocol_schema, source_schema
from tests.real.test_other_language import MISSING

pytestmark = pytest.mark.requirement("R4.1", "R4.2", "R2")

CLIENT = Path(__file__).with_name("node_tables.cjs")

Ask = Callable[[bytes], dict[str, Any]]


@contextmanager
def _served(name: str, **options: Any) -> Iterator[str]:
    server = TableServer(rr.make(name, **options), "tcp://127.0.0.1:*")
    over = threading.Event()
    thread = threading.Thread(target=server.serve, args=(over.is_set,))
    thread.start()
    try:
        yield server.endpoint
    finally:
        over.set()
        thread.join()


@contextmanager
def _client(endpoint: str) -> Iterator[Ask]:
    socket = zmq.Context.instance().socket(zmq.REQ)
    socket.setsockopt(zmq.RCVTIMEO, 20_000)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(endpoint)

    def ask(request: bytes) -> dict[str, Any]:
        socket.send(request)
        answer: dict[str, Any] = json.loads(socket.recv())
        return answer

    try:
        yield ask
    finally:
        socket.close()


@pytest.mark.parametrize(
    "request_text",
    [b"", b"{", b"[]", b"7", b"\xff\xfe", b'{"call": "fly"}', b'{"call": ["reset"]}', b'{"call": "reset", "seed": 1}',
     b'{"call": "step"}', b'{"call": "reset", "options": 3}', b'{"call": "step", "action": {}}', b"[" * 5000],
)  # fmt: skip
def test_a_wrong_request_is_answered_and_the_next_one_is_served(request_text: bytes) -> None:
    with _served("go", size=3) as endpoint, _client(endpoint) as ask:
        error = ask(request_text)["error"]
        assert set(error) == {"code", "message"}
        assert error["code"] in ("request", "option", "state")
        assert ask(b'{"call": "reset", "options": {"seed": 1}}')["observation"]["frame_no"] == 0


@pytest.mark.parametrize(("call", "key"), [("step", "action"), ("end", "reason")])
def test_a_request_without_a_key_is_told_which(call: str, key: str) -> None:
    with _served("go", size=3) as endpoint, _client(endpoint) as ask:
        ask(b'{"call": "reset"}')
        error = ask(json.dumps({"call": call}).encode())["error"]
        assert error["code"] == "request"
        assert f"'{key}' is missing" in error["message"]


def test_a_request_of_any_size_takes_no_memory() -> None:
    with _served("go", size=3) as endpoint:
        with _client(endpoint) as ask, pytest.raises(zmq.Again):
            _impatient(ask, LARGEST_REQUEST + 1, endpoint)
        with _client(endpoint) as ask:
            assert "observation" in ask(b'{"call": "reset"}')


def _impatient(ask: Ask, size: int, endpoint: str) -> None:
    socket = zmq.Context.instance().socket(zmq.REQ)
    socket.setsockopt(zmq.RCVTIMEO, 500)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(endpoint)
    try:
        socket.send(b" " * size)
        socket.recv()
    finally:
        socket.close()


def test_an_action_is_refused_as_in_python_and_the_episode_ends_in_good_order() -> None:
    with _served("so101-reach", steps=30) as endpoint, _client(endpoint) as ask:
        table = ask(b'{"call": "reset", "options": {"seed": 5}}')["observation"]
        request = {"env_id": table["env_id"], "frame_no": 0, "action": {"joint_target": [9] * 6}}
        refused = ask(json.dumps({"call": "step", "action": request}).encode())["observation"]
        assert refused["extra_info"]["error"]["code"] == "range"
        ended = ask(b'{"call": "end", "reason": "lunch"}')["observation"]
        assert (ended["truncated"], ended["extra_info"]["truncated_by"]) == (1, "ended: lunch")
        assert ask(b'{"call": "end", "reason": "again"}')["error"]["code"] == "state"


def test_an_answer_repeats_the_id_of_its_request() -> None:
    with _served("go", size=3) as endpoint, _client(endpoint) as ask:
        assert ask(b'{"id": 7, "call": "reset"}')["id"] == 7
        assert ask(b'{"id": 8, "call": "fly"}') == {"id": 8, "error": {"code": "request", "message": mock.ANY}}
        assert "id" not in ask(b'{"id": "a", "call": "reset"}')


def test_a_picture_comes_in_the_answer_and_no_file_is_written(tmp_path: Path) -> None:
    with _served("go", size=3) as endpoint, _client(endpoint) as ask:
        first = ask(b'{"call": "reset"}')["observation"]
        frame = ask(b'{"call": "render", "options": {"width": 64, "height": 48}}')["frame"]
        assert set(frame) == {"env_id", "frame_no", "frame_data"}
        assert (frame["env_id"], frame["frame_no"]) == (first["env_id"], 0)
        image = np.asarray(frame["frame_data"]["image"])
        assert image.ndim == 3
        assert image.shape[2] == 3
        path = tmp_path / "state.png"
        request = {"call": "render", "options": {"mode": "file", "path": str(path)}}
        assert ask(json.dumps(request).encode())["error"]["code"] == "option"
        assert not path.exists()
        assert ask(b'{"call": "sample_steps", "batch_size": 2}')["error"]["code"] == "unavailable"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    with rr.make("go", size=3, record=tmp_path) as env:
        for seed in range(3):
            table, rng = env.reset({"seed": seed}), np.random.default_rng(seed)
            while not (table["terminated"] or table["truncated"]):
                action = env.action.sample(rng)
                table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    return tmp_path


@pytest.mark.requirement("R3.2", "R3.3", "R3.4", "R3.5", "R3.6")
def test_the_five_functions_of_recorded_data_cross_the_border(runs: Path) -> None:
    source = rr.open_source(runs)
    validator = {name: Draft202012Validator({**source_schema(source), "$ref": f"#/$defs/{name}"})
                 for name in ("request", "answer")}  # fmt: skip
    requests: list[dict[str, Any]] = [
        {"call": "describe"}, {"id": 3, "call": "init", "options": {"seed": 5}},
        {"call": "sample_steps", "batch_size": 4},
        {"call": "sample_trajectories", "trajectory_size": 2}, {"call": "get_all_actions"},
        {"call": "statistics", "extra_info": {"kind": "returns"}}, {"call": "sample_steps", "batch_size": 0},
        {"call": "reset"}, {"call": "close"},
    ]  # fmt: skip
    out = io.BytesIO()
    serve_lines(source, io.BytesIO(b"".join(json.dumps(one).encode() + b"\n" for one in requests)), out)
    answers = [json.loads(line) for line in out.getvalue().splitlines()]
    for request, answer in zip(requests, answers, strict=True):
        if request["call"] != "reset" and request.get("batch_size") != 0:
            validator["request"].validate(request)
        validator["answer"].validate(answer)
    source.init({"seed": 5})
    assert answers[2]["steps"] == plain_json(source.sample_steps(4))
    assert answers[3]["trajectories"] == plain_json(source.sample_trajectories(2))
    assert Spec.from_dict(answers[0]["action"]) == source.table.layout.action
    assert [answer["error"]["code"] for answer in answers[6:8]] == ["option", "unavailable"]


@pytest.mark.requirement("6.4-a")
def test_messages_of_an_environment_are_those_of_its_schema() -> None:
    env = rr.make("go", size=3)
    schema = protocol_schema(env)
    requests: list[dict[str, Any]] = [
        {"id": 1, "call": "describe"}, {"id": 2, "call": "reset", "options": {"seed": 1}},
        {"id": 3, "call": "step", "action": {"env_id": env.env_id, "frame_no": 0, "action": {"move": 4}}},
        {"id": 4, "call": "render"}, {"id": 5, "call": "end", "reason": "enough"}, {"id": 6, "call": "close"},
    ]  # fmt: skip
    out = io.BytesIO()
    serve_lines(env, io.BytesIO(b"".join(json.dumps(one).encode() + b"\n" for one in requests)), out)
    for request, line in zip(requests, out.getvalue().splitlines(), strict=True):
        Draft202012Validator({**schema, "$ref": "#/$defs/request"}).validate(request)
        answer = json.loads(line)
        Draft202012Validator({**schema, "$ref": "#/$defs/answer"}).validate(answer)
        assert answer["id"] == request["id"]
        assert "error" not in answer


@pytest.mark.parametrize("endpoint", ["tcp://0.0.0.0:5650", "tcp://*:5650", "tcp://10.0.0.7:5650", "inproc://x", "x"])
def test_tables_are_served_on_this_machine_alone(endpoint: str) -> None:
    with rr.make("go", size=3) as env, pytest.raises(ValueError, match=r"tcp://127\.0\.0\.1"):
        TableServer(env, endpoint)


def test_numbers_that_json_lacks_become_none() -> None:
    table = {"a": np.array([1.0, np.nan]), "b": float("inf"), "image": object(), "c": (np.int8(3), "x"), "d": None}
    assert plain_json(table) == {"a": [1.0, None], "c": [3, "x"], "d": None}


@pytest.mark.process
@pytest.mark.skipif(bool(MISSING), reason=MISSING or "it is here")
@pytest.mark.parametrize(
    ("name", "options"), [("so101-reach", {"steps": 20}), ("so101-pair-lift", {"steps": 20}), ("go", {"size": 5})]
)
def test_an_agent_in_node_sees_and_does_what_one_in_python_would(name: str, options: dict[str, Any]) -> None:
    with _served(name, **options) as endpoint:
        done = subprocess.run(
            ["node", CLIENT, endpoint, "7", "8"], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    early, first, *frames, ended, closed = [json.loads(line) for line in done.stdout.splitlines()]
    assert early == {"early": "state"}
    assert closed == {"closed": True}
    with rr.make(name, **options) as env:
        table: Any = env.reset({"seed": 7})
        _same(first, table)
        legal = 0
        for frame in frames:
            assert frame["stale"] == "frame_no"
            request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": frame["action"]}
            table, reward = env.step(request)
            _same(frame, table)
            assert frame["reward"] == pytest.approx(plain_json(reward["reward"]))
            legal += frame.get("error") is None
        assert legal, "no action of the agent was legal"
        assert ended == {"ended": 1, "by": "ended: the agent has seen enough"}


def _same(line: dict[str, Any], table: Any) -> None:
    assert line["wrong"] == ""
    assert line["frame_no"] == table["frame_no"]
    for name, value in table["observation"].items():
        np.testing.assert_array_equal(np.asarray(line["seen"][name], value.dtype), value)
