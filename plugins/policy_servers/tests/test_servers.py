"""Our servers: what they admit, refuse and keep apart, and the verb that starts them."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

import rlenv_robot as rr
from hal import RobotError, SpecMismatch
from plugins.policy_servers.tests.fakes import (
    ACTION,
    CONTEXT,
    DIALECTS,
    OBSERVATION,
    Ramp,
    observation,
    serving,
)
from rlenv_policy_servers.client import ServerPolicy
from rlenv_policy_servers.dialects.codecs import encode_field, pack_groot, unpack_groot
from rlenv_policy_servers.policy_file import PolicyFile
from rlenv_policy_servers.serving.server import make_service, open_server
from rlenv_robot.cli.main import main
from rlenv_robot.policies.feedback import FeedbackPolicy, parameter_count
from rlenv_robot.policies.policy import load_policy
from rlenv_robot.policies.reach import ReachVectors

pytest.importorskip("websockets", reason="policy servers of openpi need websockets")
pytest.importorskip("grpc", reason="policy servers of LeRobot need grpcio")
pytest.importorskip("safetensors", reason="policy servers of LeRobot need safetensors")


def connected(dialect: str, port: int, token: str = "", **settings: Any) -> ServerPolicy:
    policy = ServerPolicy(PolicyFile(f"{dialect}://127.0.0.1:{port}", 4, **settings), token)
    policy.check(OBSERVATION, ACTION)
    return policy


@pytest.mark.parametrize("dialect", DIALECTS)
def test_our_client_and_our_server_need_no_mapping(dialect: str) -> None:
    seen = observation(3, "put it on the tray")
    with serving(dialect) as (server, _):
        policy = connected(dialect, server.port)
        policy.reset()
        first = policy.predict(seen, CONTEXT)["joint_target"]
        second = policy.predict(seen, CONTEXT)["joint_target"]
        policy.reset()
        again = policy.predict(seen, CONTEXT)["joint_target"]
        assert Ramp.made[-1].prompts[-1] == "put it on the tray"
        policy.close()
    assert first.shape == (4, 3)
    np.testing.assert_allclose(first[:, 1:], seen["joint_position"][1:] + 0.01 * np.arange(1, 5)[:, None], atol=1e-6)
    assert [round(float(chunk[0, 0]), 3) for chunk in (first, second, again)] == [0.1, 0.2, 0.1]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_client_has_an_episode_of_its_own_and_places_are_limited(dialect: str) -> None:
    with serving(dialect, most_clients=2, idle_s=60.0) as (server, _):
        clients = [connected(dialect, server.port) for _ in range(2)]
        counts = [[one.predict(observation(), CONTEXT)["joint_target"][0, 0] for one in clients] for _ in range(3)]
        np.testing.assert_allclose(counts, [[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]], rtol=1e-5)
        with pytest.raises(RobotError, match=r"2 clients are connected, which is the limit \(--clients\)"):
            connected(dialect, server.port)
        for one in clients:
            one.close()


@pytest.mark.parametrize("dialect", ["groot", "lerobot"])
def test_an_idle_client_loses_its_place(dialect: str) -> None:
    with serving(dialect, most_clients=1, idle_s=0.2) as (server, service):
        first = connected(dialect, server.port)
        time.sleep(0.3)
        second = connected(dialect, server.port)
        assert second.predict(observation(), CONTEXT)["joint_target"].shape == (4, 3)
        assert len(service._clients) == 1
        first.close()
        second.close()


def test_a_client_that_leaves_frees_its_place_and_closes_its_policy() -> None:
    with serving("openpi", most_clients=1) as (server, service):
        for _ in range(3):
            connected("openpi", server.port).close()
            until = time.monotonic() + 5
            while service._clients and time.monotonic() < until:
                time.sleep(0.01)
        assert not service._clients
        assert Ramp.made[-1].closed


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_token_is_needed_where_there_is_one(dialect: str) -> None:
    with serving(dialect, token="right") as (server, service):
        for wrong in ("", "wrong", "right "[:4], "rightright"):
            with pytest.raises(RobotError, match=r"(?i)token") as caught:
                connected(dialect, server.port, wrong)
            assert "rightright" not in str(caught.value)
        assert not service._clients
        connected(dialect, server.port, "right").close()


def test_health_needs_no_token() -> None:
    with serving("openpi", token="right") as (server, _):
        answer = urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=5)
        assert answer.read() == b"OK\n"
        answer.close()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_wrong_request_and_a_failing_policy_are_refused_without_a_traceback(
    dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Ramp):
        def predict(self, observation: Any, context: Any) -> Any:
            raise KeyError("private")

    caplog.set_level(logging.DEBUG)
    with serving(dialect, Failing) as (server, _):
        policy = connected(dialect, server.port)
        with pytest.raises(RobotError, match="the policy failed; its server's log has the traceback") as caught:
            policy.predict(observation(), CONTEXT)
        assert "private" not in str(caught.value)
        policy.close()
    with serving(dialect) as (server, _):
        policy = connected(dialect, server.port)
        outside = {**observation(), "joint_position": np.array([0, 0, 3], np.float32)}
        with pytest.raises(RobotError, match=r"joint_position\[2\] \(gripper\) is 3 rad, allowed are -2 to 2"):
            policy.predict(outside, CONTEXT)
        policy.predict(observation(), CONTEXT)  # over another session
        policy.close()
    image = observation()["overhead_image"].tobytes()
    assert not any(image[:16].hex() in record.getMessage() or repr(image[:8]) in record.getMessage()
                   for record in caplog.records if record.name.startswith("rlenv"))  # fmt: skip


def raw_groot(port: int, message: bytes) -> Any:
    socket_ = zmq.Context.instance().socket(zmq.REQ)
    socket_.setsockopt(zmq.LINGER, 0)
    socket_.connect(f"tcp://127.0.0.1:{port}")
    socket_.send(message)
    assert socket_.poll(3000)
    answer = unpack_groot(socket_.recv())
    socket_.close()
    return answer


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"\xc1", "no msgpack"),
        (pack_groot([1]), "a request is a map"),
        (pack_groot({"endpoint": "kill"}), "'kill' is not offered"),
        (pack_groot({"endpoint": "get_action", "data": {"observation": 3}}), "needs data with"),
        (pack_groot({"data": {"observation": {"state": {"x": np.zeros((1, 1, 3))}}}}), "unknown key 'state.x'"),
        (pack_groot({"data": {"observation": {"state": {"joint_position": np.zeros((2, 1, 3))}}}}), "one batch"),
    ],
)
def test_a_groot_request_that_is_damaged_gets_an_answer(message: bytes, words: str) -> None:
    with serving("groot") as (server, _):
        assert words in raw_groot(server.port, message)["error"]
        assert raw_groot(server.port, pack_groot({"endpoint": "ping"}))["status"] == "ok"


def test_lerobot_calls_in_another_order_or_with_damage_are_refused() -> None:
    import grpc

    with serving("lerobot") as (server, _), grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        unary = {name: channel.unary_unary(f"/transport.AsyncInference/{name}")
                 for name in ("Ready", "GetActions", "SendPolicyInstructions")}  # fmt: skip
        stream = channel.stream_unary("/transport.AsyncInference/SendObservations")
        for call, message, words in (
            (unary["GetActions"], b"", "call Ready before"),
            (unary["SendPolicyInstructions"], encode_field(1, b"\x80\x05"), "is a pickle"),
            (unary["SendPolicyInstructions"], b"\x12", "protobuf message is damaged"),
            (stream, iter([encode_field(1, 2) + encode_field(2, b"x")]), "ended before its last part"),
            (stream, iter([encode_field(1, 2) + encode_field(2, bytes(3 << 20))] * 6), "more than 16 MiB"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call(message, timeout=5)
            assert words in caught.value.details()


def test_a_policy_without_an_observation_answers_nothing_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    import grpc

    import rlenv_policy_servers.serving.lerobot as served

    monkeypatch.setattr(served, "_QUEUE_S", 0.1)
    with serving("lerobot") as (server, _), grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        channel.unary_unary("/transport.AsyncInference/Ready")(b"", timeout=5)
        assert channel.unary_unary("/transport.AsyncInference/GetActions")(b"", timeout=5) == b""


def test_other_machines_need_a_token() -> None:
    with serving("openpi") as (_, service):
        for address in ("0.0.0.0:0", "192.168.0.1", "[::]:0", "example.org:1"):
            with pytest.raises(ValueError, match="which other machines can reach; give --token-file"):
                open_server(service, "openpi", address, False, 1 << 20, 4)


# -- files and the verb -----------------------------------------------------------------------------------------


@pytest.fixture
def reach(tmp_path: Path) -> Path:
    """A policy of so101-reach with drawn parameters."""
    vectors = ReachVectors()
    parameters = 0.1 * np.random.default_rng(0).standard_normal(parameter_count(vectors))
    path = tmp_path / "reach.npz"
    FeedbackPolicy(parameters, vectors, "so101-reach").save(path, {})
    return path


def test_a_policy_of_one_action_gives_chunks_of_one(reach: Path) -> None:
    task, policy = rr.task("so101-reach"), load_policy(reach)
    policy.check(task.observation, task.action)
    for dialect in DIALECTS:
        service = make_service(reach, "so101-reach", dialect)
        server = open_server(service, dialect, "127.0.0.1:0", False, 1 << 20, 4)
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            client = ServerPolicy(PolicyFile(f"{dialect}://127.0.0.1:{server.port}", 4))
            client.check(task.observation, task.action)
            for seed in range(5):
                seen = task.observation.sample(np.random.default_rng(seed))
                expected = policy.act(seen)
                for name, actions in client.predict(seen, CONTEXT).items():
                    np.testing.assert_allclose(actions, expected[name][None], atol=1e-5)
            push = rr.task("so101-push")
            with pytest.raises(SpecMismatch, match="serves a policy of another task: observation: "):
                ServerPolicy(client.settings).check(push.observation, push.action)
            client.close()
        finally:
            server.close()
            thread.join(5)


def test_a_policy_with_chunks_gives_them_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file such as ONNX executes its chunks itself, one action a call; a client gets all actions of a chunk."""
    import rlenv_policy_servers.serving.server as server

    class File:
        def check(self, observation: Any, action: Any) -> None:
            pass

        def act(self, observation: Any) -> Any:
            raise AssertionError

        def chunk_predictor(self) -> Any:
            return Ramp()

    monkeypatch.setattr(server, "load_policy", lambda path: File())
    service = make_service(tmp_path / "act.onnx", "so101-reach", "openpi")
    assert service.metadata["horizon"] == Ramp.length
    assert isinstance(service.client("key")._policy, Ramp)


def test_the_description_names_fields_shapes_units_and_rate(reach: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "serve", str(reach), "--task", "so101-reach", "--as", "openpi", "--describe"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["control_hz"] == 30.0
    assert told["horizon"] == 1
    part = told["answer"]["actions"]["parts"][0]
    assert (part["unit"], part["elements"][0], part["meaning"]) == ("rad", "shoulder_pan", "goal angles of the servos")


def test_a_policy_of_no_data_set_needs_its_task(reach: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "serve", str(reach), "--as", "openpi"]) == 2
    assert "--task" in capsys.readouterr().err


def test_a_policy_of_another_task_is_not_served(reach: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "serve", str(reach), "--task", "so101-push", "--as", "groot"]) == 2
    assert "this policy is for so101-reach" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.slow
def test_the_verb_serves_what_run_moves(reach: Path, tmp_path: Path) -> None:
    """``policy serve`` in one process, ``run --policy NAME.toml`` in another."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "remote.toml").write_text(f'server = "openpi://127.0.0.1:{port}"\nhorizon = 1\n')
    command = [sys.executable, "-m", "rlenv_robot", "policy", "serve", str(reach), "--task", "so101-reach", "--as",
               "openpi", "--address", f"127.0.0.1:{port}"]  # fmt: skip
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert f"serving openpi://127.0.0.1:{port}" in line, line + server.stdout.read()
        run = [sys.executable, "-m", "rlenv_robot", "run", "so101-reach", "--episodes", "2"]
        done = [subprocess.run([*run, "--policy", str(policy)], capture_output=True, text=True, timeout=60)
                for policy in (tmp_path / "remote.toml", reach)]  # fmt: skip
        assert [one.returncode for one in done] == [0, 0], done[0].stderr
        remote, local = (one.stdout.splitlines() for one in done)
        assert remote[:2] == local[:2]  # the same episodes, to the printed digit
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
        assert server.stdout is not None
        server.stdout.close()
    assert server.returncode == 130
