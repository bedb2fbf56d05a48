"""Servers that fail or lie: each fault is named in time, and costs neither memory nor a second wait."""

from __future__ import annotations

import datetime
import io
import ipaddress
import pickle
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import zmq
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hal import ConnectionLost, DeadlineExceeded, RobotError, SpecMismatch, WireError
from plugins.policy_servers.tests.fakes import ACTION, CONTEXT, OBSERVATION, observation, own_settings
from rlenv_policy_servers.client import ServerPolicy
from rlenv_policy_servers.dialects.codecs import (
    decode_fields,
    encode_field,
    pack_groot,
    pack_openpi,
    pack_safe,
    unpack_groot,
    unpack_openpi,
    unpack_safe,
)

pytest.importorskip("websockets", reason="policy servers of openpi need websockets")

GIB = 1 << 30
CHUNK = {"actions": np.zeros((3, 3), np.float32)}


@contextmanager
def openpi(
    answer: Callable[[Any, Any, int], None], metadata: bytes = b"\x80", tls: ssl.SSLContext | None = None
) -> Iterator[int]:
    """A WebSocket server; ``answer(connection, request, number)`` answers each request of each connection."""
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.server import serve

    def talk(connection: Any) -> None:
        try:
            connection.send(metadata)
            for number, request in enumerate(connection):
                answer(connection, msgpack.unpackb(request, strict_map_key=False), number)
        except (ConnectionClosed, OSError):
            pass

    with serve(talk, "127.0.0.1", 0, max_size=None, compression=None, ssl=tls) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.socket.getsockname()[1]
        finally:
            server.shutdown()
            thread.join(5)


def client(server: str, **settings: Any) -> ServerPolicy:
    from dataclasses import replace

    own = own_settings(server.partition(":")[0].removesuffix("s"))
    return ServerPolicy(replace(own, server=server, **{"timeout_s": 0.5, "connect_s": 1.0, **settings}))


def predicted(port: int, **settings: Any) -> Any:
    policy = client(f"openpi://127.0.0.1:{port}", **settings)
    try:
        policy.check(OBSERVATION, ACTION)
        return policy.predict(observation(), CONTEXT)
    finally:
        policy.close()


@pytest.mark.parametrize("scheme", ["openpi", "openpis", "groot", "lerobot"])
def test_no_server_is_named_in_time(scheme: str) -> None:
    if scheme == "lerobot":
        pytest.importorskip("grpc", reason="policy servers of LeRobot need grpcio")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        begun = time.monotonic()
        with pytest.raises((ConnectionLost, DeadlineExceeded), match=f"{scheme}://127.0.0.1:{port}"):
            client(f"{scheme}://127.0.0.1:{port}", connect_s=0.4).check(OBSERVATION, ACTION)
        assert time.monotonic() - begun < 2.0


@pytest.mark.parametrize("scheme", ["openpi", "openpis", "groot", "lerobot"])
def test_a_server_that_says_nothing_is_left_in_time(scheme: str) -> None:
    if scheme == "lerobot":
        pytest.importorskip("grpc", reason="policy servers of LeRobot need grpcio")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        with pytest.raises((DeadlineExceeded, ConnectionLost), match=f"{scheme}://"):
            client(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}", connect_s=0.4).check(OBSERVATION, ACTION)
        assert time.monotonic() - begun < 2.5


def test_a_server_that_trickles_its_handshake_is_left_in_time() -> None:
    """Each byte alone would renew a time-out of the socket."""
    ended = threading.Event()

    def trickle(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            while not ended.wait(0.05):
                try:
                    connection.sendall(b"H")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=trickle, args=(server,))
        thread.start()
        begun = time.monotonic()
        with pytest.raises((DeadlineExceeded, ConnectionLost)):
            client(f"openpi://127.0.0.1:{server.getsockname()[1]}", connect_s=0.5).check(OBSERVATION, ACTION)
        assert time.monotonic() - begun < 2.0
        ended.set()
        thread.join(5)


def test_tls_to_a_plain_server_is_named() -> None:
    with openpi(lambda *_: None) as port, pytest.raises(ConnectionLost, match="does not speak TLS"):
        client(f"openpis://127.0.0.1:{port}").check(OBSERVATION, ACTION)


def test_tls_is_used_and_an_unknown_certificate_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = self_signed(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with openpi(lambda connection, *_: connection.send(pack_openpi(CHUNK)), pack_openpi({}), tls) as port:
        with pytest.raises(ConnectionLost, match="its certificate is not trusted"):
            client(f"openpis://127.0.0.1:{port}").check(OBSERVATION, ACTION)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        policy = mapped(port, scheme="openpis")
        assert policy.predict(observation(), CONTEXT)["joint_target"].shape == (3, 3)
        policy.close()


def self_signed(folder: Path) -> Path:
    """Return a file with a key and a certificate of 127.0.0.1, valid for a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "policy")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - datetime.timedelta(hours=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=1)).add_extension(address, critical=False)
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    content = key.private_bytes(serialization.Encoding.PEM, form, plain)
    content += builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    path = folder / "server.pem"
    path.write_bytes(content)
    return path


def test_a_token_that_is_refused_is_named_without_the_token() -> None:
    from plugins.policy_servers.tests.fakes import serving

    with serving("openpi", token="right") as (server, _):
        policy = client(f"openpi://127.0.0.1:{server.port}")
        policy._token = "wrong-and-secret"
        with pytest.raises(ConnectionLost, match="HTTP status 401; give its token") as caught:
            policy.check(OBSERVATION, ACTION)
        assert "secret" not in str(caught.value)


def test_half_a_frame_is_waited_for_until_the_deadline_and_not_used() -> None:
    frame = pack_openpi(CHUNK)
    half = b"\x82\x7e" + len(frame).to_bytes(2, "big") + frame[:9]
    server = openpi(lambda connection, *_: connection.socket.sendall(half))
    with server as port, pytest.raises(DeadlineExceeded, match=r"no answer within 0.5 s"):
        predicted(port)


def test_half_a_frame_and_the_end_is_a_lost_connection() -> None:
    def answer(connection: Any, *_: Any) -> None:
        connection.socket.sendall(b"\x82\x7e\x01\x00half")
        connection.socket.shutdown(socket.SHUT_RDWR)

    with openpi(answer) as port, pytest.raises(ConnectionLost, match="has closed the connection"):
        predicted(port)


def test_an_announced_gibibyte_takes_no_memory() -> None:
    with openpi(lambda connection, *_: connection.socket.sendall(b"\x82\x7f" + GIB.to_bytes(8, "big"))) as port:
        tracemalloc.start()
        with pytest.raises(WireError, match="more than 1 MiB; max_mib allows more"):
            predicted(port, max_mib=1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 20 << 20


def test_a_traceback_becomes_one_printable_line() -> None:
    text = "Traceback\n" + "x" * 100_000 + "\nValueError: \x1b[31mno such key\x07"
    server = openpi(lambda connection, *_: connection.send(text))
    with server as port, pytest.raises(RobotError, match="has refused the request: ValueError: ") as caught:
        predicted(port)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("metadata", [b"\x93\x01\x02\x03", b"\xc1", b"\xdf\xff\xff\xff\xff"])
def test_a_description_that_is_no_map_is_refused(metadata: bytes) -> None:
    with openpi(lambda *_: None, metadata) as port, pytest.raises(WireError):
        predicted(port)


def array(dtype: str, shape: list[int], data: bytes) -> bytes:
    inner = {b"__ndarray__": True, b"data": data, b"dtype": dtype, b"shape": shape}
    return msgpack.packb({"actions": inner})


@pytest.mark.parametrize(
    "frame",
    [
        array("<f4", [1 << 40, 3], b""),
        array("<f4", [-1, 3], b"\0" * 12),
        array("|O", [1], b"\0" * 8),
        array("f4,f4", [1], b"\0" * 8),
        array("<f4", [1, 3], b"\0" * 11),
        array("no", [1, 3], b"\0" * 12),
        msgpack.packb({"actions": {b"__ndarray__": True}}),
        msgpack.packb([1]),
        pack_openpi({"other": np.zeros((1, 3))}),
        b"",
    ],
)
def test_a_frame_with_a_damaged_array_is_refused(frame: bytes) -> None:
    with openpi(lambda connection, *_: connection.send(frame)) as port, pytest.raises(RobotError):
        predicted(port)


def test_an_answer_after_the_deadline_is_never_taken_for_the_next_one() -> None:
    """The first answer comes 0.3 s late. The next request gets its own answer, over another connection."""
    asked = []

    def answer(connection: Any, request: Any, number: int) -> None:
        asked.append(request)
        mark = len(asked) * 0.1
        if len(asked) == 1:
            time.sleep(0.6)
        connection.send(pack_openpi({"actions": np.full((3, 3), mark, np.float32)}))

    with openpi(answer, pack_openpi({})) as port:
        policy = mapped(port, timeout_s=0.3)
        with pytest.raises(DeadlineExceeded):
            policy.predict(observation(), CONTEXT)
        chunk = policy.predict(observation(), CONTEXT)["joint_target"]
        policy.close()
    np.testing.assert_allclose(chunk, 0.2, rtol=1e-6)


def mapped(port: int, scheme: str = "openpi", **settings: Any) -> ServerPolicy:
    from rlenv_policy_servers.part import ActionPart, ObservationPart

    policy = client(
        f"{scheme}://127.0.0.1:{port}",
        observation=[ObservationPart(key="state", field="joint_position")],
        action=[ActionPart(key="actions", field="joint_target")],
        **settings,
    )
    policy.check(OBSERVATION, ACTION)
    return policy


def test_an_answer_that_is_there_when_a_busy_machine_wakes_up_late_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer comes after the deadline, and the waiting thread only then gets the processor."""
    from websockets.sync.client import ClientConnection

    waiting = ClientConnection.recv

    def late(connection: Any, timeout: float | None = None, **options: Any) -> Any:
        frame = waiting(connection, timeout=5.0 if timeout else timeout, **options)
        time.sleep(0.3 if timeout and timeout < 0.4 else 0.0)
        return frame

    with openpi(lambda connection, *_: connection.send(pack_openpi(CHUNK)), pack_openpi({})) as port:
        policy = mapped(port, timeout_s=0.2)
        monkeypatch.setattr(ClientConnection, "recv", late)
        with pytest.raises(DeadlineExceeded):
            policy.predict(observation(), CONTEXT)
        policy.close()


def test_a_second_answer_to_one_request_is_not_the_next_one() -> None:
    def twice(connection: Any, request: Any, number: int) -> None:
        connection.send(pack_openpi({**CHUNK, "server_timing": {"infer_ms": 0.25}}))
        connection.send(pack_openpi({**CHUNK, "server_timing": {"infer_ms": 0.25}}))

    with openpi(twice, pack_openpi({})) as port:
        policy = mapped(port)
        policy.predict(observation(), CONTEXT)
        with pytest.raises(ConnectionLost, match=r"a frame that nobody asked for|the same answer twice"):
            policy.predict(observation(), CONTEXT)
        policy.close()


def test_an_answer_that_repeats_the_last_one_with_its_time_is_refused() -> None:
    frame = pack_openpi({**CHUNK, "server_timing": {"infer_ms": 0.25}})
    with openpi(lambda connection, *_: connection.send(frame), pack_openpi({})) as port:
        policy = mapped(port)
        policy.predict(observation(), CONTEXT)
        with pytest.raises(ConnectionLost, match="the same answer twice"):
            policy.predict(observation(), CONTEXT)
        policy.close()


def test_each_episode_has_a_connection_of_its_own() -> None:
    connections = set()

    def answer(connection: Any, *_: Any) -> None:
        connections.add(connection.id)
        connection.send(pack_openpi(CHUNK))

    with openpi(answer, pack_openpi({})) as port:
        policy = mapped(port)
        for _ in range(3):
            policy.reset()
            policy.predict(observation(), CONTEXT)
            policy.predict(observation(), CONTEXT)
        policy.close()
    assert len(connections) == 3


@pytest.mark.parametrize("dialect", ["openpi", "groot", "lerobot"])
def test_close_ends_a_wait_of_another_thread(dialect: str) -> None:
    if dialect == "lerobot":
        pytest.importorskip("grpc", reason="policy servers of LeRobot need grpcio")
    from plugins.policy_servers.tests.fakes import Ramp, serving

    waiting, going_on = threading.Event(), threading.Event()

    class Slow(Ramp):
        def predict(self, observation: Any, context: Any) -> Any:
            waiting.set()
            going_on.wait(10)
            return super().predict(observation, context)

    with serving(dialect, Slow) as (server, _), ThreadPoolExecutor(1) as pool:
        policy = client(f"{dialect}://127.0.0.1:{server.port}", timeout_s=30.0)
        policy.check(OBSERVATION, ACTION)
        future = pool.submit(policy.predict, observation(), CONTEXT)
        assert waiting.wait(5)
        begun = time.monotonic()
        policy.close()
        assert isinstance(future.exception(2), ConnectionLost)
        assert time.monotonic() - begun < 1.0
        policy.close()
        with pytest.raises(ConnectionLost, match="was closed"):
            policy.predict(observation(), CONTEXT)
        going_on.set()


# -- GR00T ------------------------------------------------------------------------------------------------------


def npy(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=allow_pickle)
    return stream.getvalue()


def test_npy_is_read_as_numpy_reads_it() -> None:
    for dtype in ("<f4", ">f8", "|u1", "<i8", "|b1"):
        for order in ("C", "F"):
            values = np.asarray(np.arange(24).reshape(2, 3, 4), dtype, order=order)
            message = unpack_groot(msgpack.packb({"a": {"__ndarray_class__": True, "as_npy": npy(values)}}))
            assert isinstance(message, dict)
            np.testing.assert_array_equal(message["a"], values)


@pytest.mark.parametrize(
    "data",
    [
        npy(np.array([{"run": "code"}], object), allow_pickle=True),
        npy(np.zeros((1, 2, 3)))[:-1],
        npy(np.zeros((1, 2, 3))).replace(b"(1, 2, 3)", b"(9, 9, 9)"),
        npy(np.zeros(3)).replace(b"\x93NUMPY\x01", b"\x93NUMPY\x09"),
        pickle.dumps([1, 2]),
        b"",
    ],
)
def test_npy_that_is_damaged_or_holds_a_pickle_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        unpack_groot(msgpack.packb({"a": {"__ndarray_class__": True, "as_npy": data}}))


@contextmanager
def groot(answer: Callable[[dict[str, Any]], object]) -> Iterator[int]:
    socket_ = zmq.Context.instance().socket(zmq.REP)
    port = socket_.bind_to_random_port("tcp://127.0.0.1")
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            if socket_.poll(20):
                request = unpack_groot(socket_.recv())
                assert isinstance(request, dict)
                assert request["endpoint"] != "kill"
                socket_.send(pack_groot(answer(request)))
        socket_.close(0)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield port
    finally:
        ended.set()
        thread.join(5)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": "Traceback\nKeyError: \x1b[2J'state'"}, r"refused the request: KeyError: .*'state'"),
        ([{"joint_target": np.zeros((2, 4, 3), np.float32)}, {}], r"\(2, 4, 3\), expected \(1, actions, columns\)"),
        ([{"joint_target": [1, 2]}, {}], "is list, expected"),
        ([{"joint_target": np.full((1, 4, 3), np.nan, np.float32)}, {}], "is nan"),
        ([{"arm": np.zeros((1, 4, 3), np.float32)}, {}], "has no 'action.joint_target'"),
        ([], "expected action and info"),
        ("text", "expected action and info"),
    ],
)
def test_a_groot_server_that_answers_wrongly_is_named(answer: object, words: str) -> None:
    from rlenv_policy_servers.part import ActionPart, ObservationPart

    with groot(lambda request: answer if request["endpoint"] == "get_action" else {}) as port:
        policy = client(
            f"groot://127.0.0.1:{port}",
            observation=[ObservationPart(key="state.arm", field="joint_position")],
            action=[ActionPart(key="action.joint_target", field="joint_target")],
        )
        policy.check(OBSERVATION, ACTION)
        with pytest.raises(RobotError, match=words) as caught:
            policy.predict(observation(), CONTEXT)
        assert str(caught.value).isprintable()
        policy.close()


@pytest.mark.parametrize(
    ("language", "settings", "words"),
    [
        (
            "annotation.human.task_description",
            {"prompt": "lift"},
            r"description: only the server.*language.task: the s",
        ),
        ("task", {}, "language.task: only the server has it"),
        ("task", {"prompt": "lift", "frames": [-1, 0]}, r"takes the frames \[-1, 0\], and only the newest one"),
        ("annotation.x", {"prompt": "lift", "prompt_key": "language.annotation.x"}, ""),
    ],
)
def test_the_modalities_of_a_groot_server_are_compared(language: str, settings: dict[str, Any], words: str) -> None:
    from rlenv_policy_servers.part import ActionPart, ObservationPart

    frames = settings.pop("frames", [0])
    names = {"state": "arm", "action": "arm", "language": language}
    modalities = {
        kind: {
            "__ModalityConfig_class__": True,
            "as_json": {"delta_indices": [0] if kind == "language" else frames, "modality_keys": [name]},
        }
        for kind, name in names.items()
    }
    with groot(lambda request: modalities if request["endpoint"] == "get_modality_config" else {}) as port:
        policy = client(
            f"groot://127.0.0.1:{port}",
            observation=[ObservationPart(key="state.arm", field="joint_position")],
            action=[ActionPart(key="action.arm", field="joint_target")],
            **{"prompt_field": "", **settings},
        )
        with pytest.raises(SpecMismatch, match=words) if words else nullcontext():
            policy.check(OBSERVATION, ACTION)
        policy.close()


# -- LeRobot ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_refused_by_name_and_not_loaded(protocol: int) -> None:
    pytest.importorskip("safetensors", reason="LeRobot's safe form needs safetensors")

    class Bomb:
        def __reduce__(self) -> Any:
            return pytest.fail, ("the pickle was loaded",)

    with pytest.raises(WireError, match=r"is a pickle, which is refused.*CVE-2026-25874"):
        unpack_safe(pickle.dumps(Bomb(), protocol), "TimedActions")
    with pytest.raises(WireError, match="perhaps it is a pickle"):
        unpack_safe(pickle.dumps([1.5], 0), "TimedActions")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0\0", b"\x7f\xff\xff\xff{}", b"\0\0\0\2[]", b"\0\0\0\2{}", b"\0\0\0\1{",
        b"\0\0\0\x17" + b'{"type":"TimedActions"}' + b"\xff" * 16, b"\0\0\x27\x10" + b"[" * 10000,
    ],
)  # fmt: skip
def test_a_damaged_message_of_lerobot_is_refused(data: bytes) -> None:
    pytest.importorskip("safetensors", reason="LeRobot's safe form needs safetensors")
    with pytest.raises(WireError):
        unpack_safe(data, "TimedActions")


def test_a_message_of_lerobot_of_another_type_is_refused() -> None:
    pytest.importorskip("safetensors", reason="LeRobot's safe form needs safetensors")
    with pytest.raises(WireError):
        unpack_safe(pack_safe({"type": "Other"}), "TimedActions")


def test_protobuf_fields_are_read_and_damage_is_refused() -> None:
    message = encode_field(1, 300) + encode_field(2, b"x" * 200) + b"\x1d\0\0\0\0" + encode_field(1000, b"{}")
    assert decode_fields(message) == {1: 300, 2: b"x" * 200, 3: b"\0\0\0\0", 1000: b"{}"}
    for cut in (b"\x12\x05abc", b"\x80", b"\x0b", b"\x08" + b"\xff" * 11):
        with pytest.raises(WireError):
            decode_fields(cut)


def test_openpi_arrays_keep_type_and_shape() -> None:
    message = {"a": np.arange(6, dtype=">i2").reshape(2, 3), "b": np.float32(1.5), "c": [1, "x", None]}
    again = unpack_openpi(pack_openpi(message))
    assert isinstance(again, dict)
    np.testing.assert_array_equal(again["a"], message["a"])
    assert again["b"] == 1.5
    assert again["c"] == [1, "x", None]
    assert not again["a"].flags.writeable
