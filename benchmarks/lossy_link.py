"""Round trips over a link that loses packets: ZeroMQ in four ways, sealed UDP datagrams, and QUIC datagrams.

A client sends a message of a step's size at a fixed rate and waits for an answer of a state's size, without a robot and
without this package's server. Each way has two network namespaces of its own, with `tests/real/ip_relay.py` between
them: the kernel's own TCP and UDP meet the loss. The ways run side by side, so that other programs hurt all alike.

    python benchmarks/lossy_link.py [--seconds 20] [--hz 50 100 200] [--loss 0 0.001 0.01 0.03] [--round-trip-ms 0 5 20]

| way | what it is |
|---|---|
| zeromq | DEALER and ROUTER with CURVE |
| rto_min | the same; the routes at both ends have ``rto_min 10ms`` |
| thin | the same; ``net.ipv4.tcp_thin_linear_timeouts`` is 1 at both ends (libzmq can't set TCP_THIN_LINEAR_TIMEOUTS) |
| repeats | zeromq; a step without an answer is sent again on its connection (`real.client.connection.ResendTimer`) |
| both | rto_min and repeats |
| datagrams | UDP, sealed by ChaCha20-Poly1305; a step without an answer is sent again in the same way |
| quic | QUIC's DATAGRAM frames (RFC 9221) by aioquic, sent again in the same way |

A step is late if its round trip takes longer than a period and the link's own round trip. The server counts a hold
where two steps are further apart than two periods and the link's round trip, and a lost episode where they are further
apart than 0.2 s, the watchdog's default. Needs the right to make network namespaces (root), iproute2 and /dev/net/tun;
``quic`` needs aioquic, and is left out without it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import select
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import zmq
from zmq.utils import z85

from real.client.connection import RESEND_MS, ResendTimer
from tests.real.ip_relay import IPRelay

WATCHDOG_S = 0.2
STEP_BYTES, STATE_BYTES = 80, 300
PORT = 5555
LONGEST_S = 3.0
CUT_S, BETWEEN_CUTS_S = 0.1, 0.5
WAYS = ("zeromq", "rto_min", "thin", "repeats", "both", "datagrams", "quic")
SERVER_KEYS, CLIENT_KEYS = zmq.curve_keypair(), zmq.curve_keypair()
SEQUENCE = struct.Struct(">Q")

Handle = Callable[[bytes], bytes | None]


# -- ways: each serves, and connects to two functions: send, and receive within so many seconds --------------------


def serve_zeromq(address: str, handle: Handle, over: threading.Event, secret: str) -> None:
    socket_ = zmq.Context.instance().socket(zmq.ROUTER)
    socket_.curve_server, socket_.curve_secretkey = True, z85.encode(bytes.fromhex(secret))
    socket_.bind(f"tcp://{address}:{PORT}")
    while not over.is_set():
        if socket_.poll(100):
            peer, message = socket_.recv_multipart()
            if (answer := handle(message)) is not None:
                socket_.send_multipart([peer, answer])


def connect_zeromq(address: str, public: str) -> tuple[Callable[[bytes], Any], Callable[[float], bytes | None]]:
    socket_ = zmq.Context.instance().socket(zmq.DEALER)
    socket_.curve_publickey, socket_.curve_secretkey = CLIENT_KEYS
    socket_.curve_serverkey = z85.encode(bytes.fromhex(public))
    socket_.connect(f"tcp://{address}:{PORT}")
    return socket_.send, lambda wait_s: socket_.recv() if socket_.poll(max(1, round(1e3 * wait_s))) else None


class Sealed:
    """One end of sealed datagrams: a counter of 8 bytes, then the encrypted message."""

    def __init__(self, socket_: socket.socket, key: str, direction: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        self.socket, self._cipher, self._sent = socket_, ChaCha20Poly1305(bytes.fromhex(key)), 0
        self._out, self._in = direction + bytes(3), bytes([1 - direction[0]]) + bytes(3)

    def seal(self, message: bytes) -> bytes:
        self._sent += 1
        head = SEQUENCE.pack(self._sent)
        return head + self._cipher.encrypt(self._out + head, message, head)

    def open(self, datagram: bytes) -> bytes:
        return self._cipher.decrypt(self._in + datagram[:8], datagram[8:], datagram[:8])


def serve_datagrams(address: str, handle: Handle, over: threading.Event, secret: str) -> None:
    end = Sealed(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), secret, b"\1")
    end.socket.bind((address, PORT))
    end.socket.settimeout(0.1)
    while not over.is_set():
        try:
            datagram, client = end.socket.recvfrom(1500)
        except TimeoutError:
            continue
        if (answer := handle(end.open(datagram))) is not None:
            end.socket.sendto(end.seal(answer), client)


def connect_datagrams(address: str, secret: str) -> tuple[Callable[[bytes], Any], Callable[[float], bytes | None]]:
    end = Sealed(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), secret, b"\0")
    end.socket.connect((address, PORT))

    def receive(wait_s: float) -> bytes | None:
        end.socket.settimeout(max(wait_s, 0.001))
        try:
            return end.open(end.socket.recv(1500))
        except OSError:
            return None

    return lambda message: end.socket.send(end.seal(message)), receive


class Quic:
    """One end of a QUIC connection over a socket, without asyncio."""

    def __init__(self, socket_: socket.socket, connection: Any) -> None:
        self.socket, self.connection = socket_, connection

    def flush(self) -> None:
        for datagram, address in self.connection.datagrams_to_send(time.monotonic()):
            self.socket.sendto(datagram, address)

    def send(self, message: bytes) -> None:
        self.connection.send_datagram_frame(message)
        self.flush()

    def receive(self, wait_s: float) -> bytes | None:
        from aioquic.quic.events import DatagramFrameReceived

        until_s = time.monotonic() + wait_s
        while True:
            while (event := self.connection.next_event()) is not None:
                if isinstance(event, DatagramFrameReceived):
                    return bytes(event.data)
            timer_s, now_s = self.connection.get_timer(), time.monotonic()
            if now_s >= until_s:
                return None
            next_s = until_s if timer_s is None else min(until_s, timer_s)
            if select.select([self.socket], [], [], max(0.0, next_s - now_s))[0]:
                datagram, address = self.socket.recvfrom(2048)
                self.connection.receive_datagram(datagram, address, time.monotonic())
            elif timer_s is not None and time.monotonic() >= timer_s:
                self.connection.handle_timer(time.monotonic())
            self.flush()


def serve_quic(address: str, handle: Handle, over: threading.Event, folder: str) -> None:
    from aioquic.buffer import Buffer
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.connection import QuicConnection
    from aioquic.quic.packet import pull_quic_header

    socket_ = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    socket_.bind((address, PORT))
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["step"], max_datagram_frame_size=1200)
    configuration.load_cert_chain(f"{folder}/certificate.pem", f"{folder}/key.pem")
    datagram, client = socket_.recvfrom(2048)
    header = pull_quic_header(Buffer(data=datagram), host_cid_length=configuration.connection_id_length)
    connection = QuicConnection(configuration=configuration, original_destination_connection_id=header.destination_cid)
    connection.receive_datagram(datagram, client, time.monotonic())
    end = Quic(socket_, connection)
    end.flush()
    while not over.is_set():
        message = end.receive(0.1)
        if message is not None and (answer := handle(message)) is not None:
            end.send(answer)


def connect_quic(address: str, folder: str) -> tuple[Callable[[bytes], Any], Callable[[float], bytes | None]]:
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.connection import QuicConnection

    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=["step"], max_datagram_frame_size=1200, verify_mode=ssl.CERT_NONE
    )
    socket_ = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    socket_.bind(("0.0.0.0", 0))
    end = Quic(socket_, QuicConnection(configuration=configuration))
    end.connection.connect((address, PORT), now=time.monotonic())
    end.flush()
    end.receive(1.0)  # the handshake
    return end.send, end.receive


def make_certificate(folder: str) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    certificate = builder.sign(key, hashes.SHA256())
    Path(folder, "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    Path(folder, "key.pem").write_bytes(pem)


# -- both ends -----------------------------------------------------------------------------------------------------


def drive(way: str, address: str, secret: str, hz: float, seconds: float) -> None:
    """Step at a fixed rate for so long; print the round trips, seconds."""
    connect: Any = {"datagrams": connect_datagrams, "quic": connect_quic}.get(way, connect_zeromq)
    send, receive = connect(address, secret)
    repeats, period_s = way in ("repeats", "both", "datagrams", "quic"), 1 / hz
    timer = ResendTimer((WATCHDOG_S - period_s) / 3)
    took: list[float] = []
    sequence = 0

    def step() -> float:
        nonlocal sequence
        sequence += 1
        message = SEQUENCE.pack(sequence) + bytes(STEP_BYTES - 8)
        began_s, wait_s = time.monotonic(), timer.first_ms / 1e3 if repeats else LONGEST_S
        while time.monotonic() - began_s < LONGEST_S:
            send(message)
            until_s = time.monotonic() + wait_s
            while (left_s := until_s - time.monotonic()) > 0:
                answer = receive(left_s)
                if answer is not None and SEQUENCE.unpack_from(answer)[0] == sequence:
                    timer.note(began_s, ended_s := time.monotonic())
                    return ended_s - began_s
            wait_s = RESEND_MS / 1e3
        return LONGEST_S

    for _ in range(20):
        step()
    print("driving", flush=True)
    next_s = time.monotonic()
    end_s = next_s + seconds
    while next_s < end_s:
        time.sleep(max(0.0, next_s - time.monotonic()))
        took.append(step())
        next_s = max(next_s + period_s, time.monotonic())
    print(json.dumps(took), flush=True)


def run_way(way: str, hz: float, loss: float, round_trip_s: float, cuts: bool, seconds: float) -> dict[str, Any]:
    """Measure one way over one link, in this process's network namespace and another one."""
    came: list[float] = []
    newest, kept = 0, b""

    def handle(message: bytes) -> bytes | None:
        nonlocal newest, kept
        (sequence,) = SEQUENCE.unpack_from(message)
        if sequence < newest:
            return None
        if sequence > newest:
            newest, kept = sequence, message[:8] + bytes(STATE_BYTES - 8)
            came.append(time.monotonic())
        return kept

    over = threading.Event()
    with IPRelay(seed=1) as relay, tempfile.TemporaryDirectory() as folder:
        if way in ("rto_min", "both"):
            for prefix, to in (((), relay.there), (("-n", relay.name), relay.here)):
                shown = subprocess.check_output(("ip", *prefix, "route", "show", to), text=True)
                subprocess.run(("ip", *prefix, "route", "change", *shown.split(), "rto_min", "10ms"), check=True)
        if way == "thin":
            write = "echo 1 > /proc/sys/net/ipv4/tcp_thin_linear_timeouts"
            for command in (("sh", "-c", write), relay.command("sh", "-c", write)):
                subprocess.run(command, check=True)
        if way == "quic":
            make_certificate(folder)
        theirs = ours = {"datagrams": os.urandom(32).hex(), "quic": folder}.get(way, "")
        if not ours:
            ours, theirs = (z85.decode(key).hex() for key in SERVER_KEYS[::-1])
        serve: Any = {"datagrams": serve_datagrams, "quic": serve_quic}.get(way, serve_zeromq)
        threading.Thread(target=serve, args=(relay.here, handle, over, ours), daemon=True).start()
        command = (sys.executable, __file__, "--drive", way, relay.here, theirs, str(hz), str(seconds))
        relay.disturb(delay_s=round_trip_s / 2)
        client = subprocess.Popen(relay.command(*command), stdout=subprocess.PIPE, text=True)
        assert client.stdout is not None
        assert client.stdout.readline().strip() == "driving"
        relay.disturb(delay_s=round_trip_s / 2, loss=loss)
        first, done = len(came), threading.Event()

        def cut() -> None:
            dice = np.random.default_rng(1)
            while not done.wait(BETWEEN_CUTS_S + dice.uniform(0, 1 / hz)):
                relay.cut(CUT_S)

        thread = threading.Thread(target=cut)
        if cuts:
            thread.start()
        took = np.array(json.loads(client.stdout.readline()))
        done.set()
        over.set()
        if cuts:
            thread.join()
    gaps, period_s = np.diff(came[first:]), 1 / hz
    percentiles = dict(zip(("median", "p99", "p99.9"), 1e3 * np.percentile(took, (50, 99, 99.9)), strict=True))
    return {
        "steps": len(took), **{name: round(float(value), 2) for name, value in percentiles.items()},
        "longest": round(1e3 * float(took.max()), 1),
        "late": int((took > period_s + round_trip_s).sum()),
        "holds": int((gaps > 2 * period_s + round_trip_s).sum()),
        "lost": int((gaps > WATCHDOG_S).sum()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each row")
    parser.add_argument("--hz", type=float, nargs="+", default=[50, 100, 200])
    parser.add_argument("--loss", type=float, nargs="+", default=[0, 0.001, 0.01, 0.03], help="share lost, each way")
    parser.add_argument("--round-trip-ms", type=float, nargs="+", default=[0, 5, 20])
    parser.add_argument("--cuts", action="store_true", help="cut the link for 100 ms, two times a second")
    parser.add_argument("--ways", choices=WAYS, nargs="+", default=WAYS)
    parser.add_argument("--drive", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--worker", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        way, address, secret, hz, seconds = options.drive
        drive(way, address, secret, float(hz), float(seconds))
        return
    if options.worker:
        way, *figures = options.worker
        hz, loss, round_trip_s, cuts, seconds = map(float, figures)
        print(json.dumps(run_way(way, hz, loss, round_trip_s, bool(cuts), seconds)))
        return
    ways = [way for way in options.ways if way != "quic" or find_spec("aioquic") is not None]
    print("| rate | loss | round trip | way | steps | median | p99 | p99.9 | longest | late | holds | episodes lost |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for hz in options.hz:
        for trip_ms in options.round_trip_ms:
            for loss in options.loss:
                measure(ways, hz, loss, trip_ms, options.cuts, options.seconds)


def measure(ways: list[str], hz: float, loss: float, trip_ms: float, cuts: bool, seconds: float) -> None:
    """Measure the ways side by side, and print a row for each."""
    figures = (str(hz), str(loss), str(trip_ms / 1e3), str(int(cuts)), str(seconds))
    commands = [("unshare", "-n", sys.executable, __file__, "--worker", way, *figures) for way in ways]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    for way, worker in zip(ways, workers, strict=True):
        output, _ = worker.communicate()
        row = json.loads(output) if worker.returncode == 0 else dict.fromkeys(("steps",), "failed")
        link = f"| {hz:g} Hz | {loss:.1%}{' and cuts' if cuts else ''} | {trip_ms:g} ms | {way} | "
        print(link + " | ".join(str(value) for value in row.values()) + " |", flush=True)
    print(f"<!-- load {os.getloadavg()[0]:.1f} -->", flush=True)


if __name__ == "__main__":
    main()
