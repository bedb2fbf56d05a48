"""The makers' own clients against our servers, and our client against the makers' own servers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import DeadlineExceeded, IllegalAction, RobotError, SpecMismatch
from plugins.policy_servers.tests import fakes
from rlenv_policy_servers.client import ServerPolicy
from rlenv_policy_servers.part import ActionPart, ObservationPart
from rlenv_policy_servers.policy_file import PolicyFile
from rlenv_robot.policies.chunks import ChunkContext

pytestmark = [pytest.mark.process, pytest.mark.slow]

VARIABLE = "RLENV_ROBOT_POLICY_STRANGERS"
ROOT = Path(os.environ.get(VARIABLE, "/nowhere"))
TREE = Path(__file__).resolve().parents[3]
JUDGES = Path(__file__).parent / "judges"
CONTEXT = ChunkContext(0, {}, 0)
OPENPI = "websocket_policy_server.py"


def interpreter(venv: str, needed: str) -> str:
    path = ROOT / venv / "bin" / "python"
    if not path.exists() or not (ROOT / "tree" / needed).exists():
        pytest.skip(f"{VARIABLE} names no folder made by plugins/policy_servers/tests/strangers.py with {needed}")
    return str(path)


def ask(venv: str, needed: str, judge: str, *arguments: object) -> Any:
    """Run a judge's client, and return what it prints as JSON."""
    command = [interpreter(venv, needed), str(JUDGES / judge), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "tree"), str(TREE)))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def judge_server(venv: str, needed: str, judge: str, *arguments: object) -> Iterator[int]:
    """Run a judge's server on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [interpreter(venv, needed), str(JUDGES / judge), str(port), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "tree"), str(TREE)))}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, "the judge's server has ended"
            time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait()


def saved(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def expected(observation: dict[str, np.ndarray], asked: int) -> np.ndarray:
    policy = fakes.Ramp()
    for _ in range(asked):
        chunk = policy.predict(observation, CONTEXT)
    return chunk["joint_target"]


# -- their clients, our servers ---------------------------------------------------------------------------------


def test_openpi_client_gets_chunks_and_metadata(tmp_path: Path) -> None:
    observation = fakes.observation()
    arrays = {name: observation[name] for name in ("joint_position", "overhead_image")}
    path = saved(tmp_path / "o.npz", **arrays)
    with fakes.serving("openpi", token="secret") as (server, _):
        told = ask("openpi", OPENPI, "ask_openpi.py", server.port, path, "lift", 3, 0, "secret")
    for number, answer in enumerate(told["answers"], 1):
        np.testing.assert_allclose(answer, expected(observation, number), atol=1e-6)
    own = told["metadata"]["rlenv_robot"]
    assert own["control_hz"] == 30.0
    assert own["answer"]["actions"]["parts"][0]["unit"] == "rad"
    assert own["request"]["joint_position"]["parts"][0]["elements"] == ["pan", "lift", "gripper"]
    assert fakes.Ramp.made[-1].resets >= 0


def test_openpi_chunk_broker_uses_up_each_chunk(tmp_path: Path) -> None:
    observation = fakes.observation()
    path = saved(tmp_path / "o.npz", joint_position=observation["joint_position"],
                 overhead_image=observation["overhead_image"])  # fmt: skip
    with fakes.serving("openpi") as (server, _):
        told = ask("openpi", "websocket_policy_server.py", "ask_openpi.py", server.port, path, "lift", 12, 4)
    for number, answer in enumerate(told["answers"]):
        np.testing.assert_allclose(answer, expected(observation, 1 + number // 4)[number % 4], atol=1e-6)


def test_groot_client_gets_chunks_and_no_kill(tmp_path: Path) -> None:
    observation = fakes.observation()
    names = {"state.joint_position": "joint_position", "video.overhead_image": "overhead_image"}
    path = saved(tmp_path / "o.npz", **{key: observation[name] for key, name in names.items()})
    with fakes.serving("groot", token="secret") as (server, _):
        told = ask("openpi", "gr00t", "ask_groot.py", server.port, path, "lift", 3, "secret")
    assert told["modalities"] == {
        "state": [[0], ["joint_position"]],
        "video": [[0], ["overhead_image"]],
        "action": [list(range(fakes.LENGTH)), ["joint_target"]],
        "language": [[0], ["task"]],
    }
    for number, answer in enumerate(told["answers"], 1):
        np.testing.assert_allclose(answer["joint_target"][0], expected(observation, number), atol=1e-6)
    assert "'kill' is not offered" in told["kill"]


def test_lerobot_stubs_get_chunks_and_a_refusal_of_pickle(tmp_path: Path) -> None:
    interpreter("lerobot", "lerobot")  # before a server that needs grpcio
    observation = fakes.observation()
    path = saved(tmp_path / "o.npz", joint_position=observation["joint_position"],
                 overhead_image=observation["overhead_image"])  # fmt: skip
    with fakes.serving("lerobot") as (server, _):
        told = ask("lerobot", "lerobot", "ask_lerobot.py", server.port, path, "lift", 3)
    for number, answer in enumerate(told["answers"], 1):
        np.testing.assert_allclose(answer, expected(observation, number)[:4], atol=1e-6)
    assert "is a pickle, which is refused" in told["pickle"]


# -- our client, their servers ----------------------------------------------------------------------------------


def client(server: str, observation: list[ObservationPart], action: list[ActionPart], **settings: Any) -> ServerPolicy:
    return ServerPolicy(PolicyFile(server, 8, observation=observation, action=action, connect_s=20.0, **settings))


def openpi_client(port: int, **settings: Any) -> ServerPolicy:
    image = ObservationPart(key="observation/image", field="overhead_image", size=(224, 224))
    state = ObservationPart(key="observation/state", field="joint_position", unit="deg")
    action = ActionPart(key="actions", field="joint_target", unit="deg")
    return client(f"openpi://127.0.0.1:{port}", [image, state], [action], prompt="lift the cube", **settings)


def openpi_server(mode: str) -> Any:
    return judge_server("openpi", "websocket_policy_server.py", "serve_openpi.py", mode)


def test_openpi_server_moves_our_joints() -> None:
    observation = fakes.observation()
    with openpi_server("ramp") as port:
        policy = openpi_client(port)
        policy.check(fakes.OBSERVATION, fakes.ACTION)
        for _ in range(3):
            chunk = policy.predict(observation, CONTEXT)
        policy.close()
    steps = np.radians(np.arange(1, 9))[:, None]
    np.testing.assert_allclose(chunk["joint_target"], observation["joint_position"] + steps, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "error", "words"),
    [
        ("raise", RobotError, r"KeyError: 'observation/.*state'"),
        ("nan", IllegalAction, r"action 4.joint_target\[1\] \(lift\) is nan"),
        ("shape", RobotError, r"shape \(10, 2\), expected \(1 or more actions, 3\)"),
        ("slow", DeadlineExceeded, "within 0.3 s"),
    ],
)
def test_openpi_server_that_fails_is_named(mode: str, error: type[Exception], words: str) -> None:
    with openpi_server(mode) as port:
        policy = openpi_client(port, timeout_s=0.3)
        policy.check(fakes.OBSERVATION, fakes.ACTION)
        with pytest.raises(error, match=words) as caught:
            policy.predict(fakes.observation(), CONTEXT)
        assert str(caught.value).isprintable()
        policy.close()


def groot_client(port: int, token: str, hand: str = "hand") -> ServerPolicy:
    parts = [
        ObservationPart(key="video.ego", field="overhead_image", size=(48, 64)),
        ObservationPart(key="state.arm", field="joint_position", elements=("pan", "lift")),
        ObservationPart(key=f"state.{hand}", field="joint_position", elements=("gripper",), theirs=(0.0, 1.0)),
    ]
    actions = [
        ActionPart(key="action.arm", field="joint_target", elements=("pan", "lift")),
        ActionPart(key=f"action.{hand}", field="joint_target", elements=("gripper",), theirs=(0.0, 1.0)),
    ]
    policy = client(f"groot://127.0.0.1:{port}", parts, actions, prompt="lift the cube")
    policy._token = token
    return policy


def test_groot_server_moves_our_joints() -> None:
    observation = fakes.observation()
    with judge_server("openpi", "gr00t", "serve_groot.py", "secret") as port:
        policy = groot_client(port, "secret")
        policy.check(fakes.OBSERVATION, fakes.ACTION)
        for _ in range(3):
            chunk = policy.predict(observation, CONTEXT)["joint_target"]
        policy.close()
        with pytest.raises(SpecMismatch, match=r"state.hand: only the server.*action.jaw: the server does not have it"):
            groot_client(port, "secret", "jaw").check(fakes.OBSERVATION, fakes.ACTION)
        with pytest.raises(RobotError, match="Invalid API token"):
            groot_client(port, "wrong").check(fakes.OBSERVATION, fakes.ACTION)
    steps = 0.01 * np.arange(1, 9)[:, None]
    np.testing.assert_allclose(chunk[:, :2], observation["joint_position"][:2] + steps, atol=1e-6)
    np.testing.assert_allclose(chunk[:, 2], observation["joint_position"][2], atol=1e-6)


def lerobot_client(port: int) -> ServerPolicy:
    parts = [
        ObservationPart(key=f"{joint}.pos", field="joint_position", elements=(joint,), unit="deg", single=True)
        for joint in fakes.JOINTS
    ]
    parts.append(ObservationPart(key="front", field="overhead_image"))
    action = ActionPart(key="action", field="joint_target", unit="deg")
    names = {"prompt": "lift the cube", "policy": "user/model", "policy_type": "smolvla"}
    return client(f"lerobot://127.0.0.1:{port}", parts, [action], **names)


def test_lerobot_service_in_its_safe_form_moves_our_joints() -> None:
    observation = fakes.observation()
    with judge_server("lerobot", "lerobot", "serve_lerobot.py", "safe") as port:
        policy = lerobot_client(port)
        policy.check(fakes.OBSERVATION, fakes.ACTION)
        for _ in range(3):
            chunk = policy.predict(observation, CONTEXT)["joint_target"]
        policy.close()
    steps = np.radians(np.arange(1, 9))[:, None]
    np.testing.assert_allclose(chunk, observation["joint_position"] + steps, atol=1e-5)


def test_a_server_that_expects_pickles_is_named() -> None:
    words = "a released server of LeRobot expects pickles"
    server = judge_server("lerobot", "lerobot", "serve_lerobot.py", "released")
    with server as port, pytest.raises(RobotError, match=words):
        lerobot_client(port).check(fakes.OBSERVATION, fakes.ACTION)


def test_images_are_resized_to_the_byte_as_openpi_does(tmp_path: Path) -> None:
    from rlenv_policy_servers.images import resized

    images = {f"i{n}": np.random.default_rng(n).integers(0, 256, shape, np.uint8)
              for n, shape in enumerate([(480, 640, 3), (24, 32, 3), (333, 127, 3), (64, 64, 3)])}  # fmt: skip
    path = saved(tmp_path / "images.npz", **images)
    code = (
        "import numpy as np, sys; from openpi_client.image_tools import resize_with_pad as r;"
        "np.savez(sys.argv[2], **{k: r(v, 224, 224) for k, v in dict(np.load(sys.argv[1])).items()})"
    )
    python = interpreter("openpi", "websocket_policy_server.py")
    subprocess.run([python, "-c", code, str(path), str(tmp_path / "resized.npz")], check=True, timeout=60)
    with np.load(tmp_path / "resized.npz") as theirs:
        for name, image in images.items():
            np.testing.assert_array_equal(resized(image, 224, 224, pad=True), theirs[name])
