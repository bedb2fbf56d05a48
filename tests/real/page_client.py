"""A client of the wire in Python, written from docs/wire.md alone: pyzmq and msgpack, and nothing of this project."""

from __future__ import annotations

from typing import Any

import msgpack
import zmq

VERSION = 4
HELLO, RESET, STEP, STOP, RELEASE, STATUS = 1, 2, 3, 4, 5, 7
WELCOME, READING, EVENT, ERROR, DONE = 16, 17, 18, 19, 20

Answer = tuple[int, Any]
"""The kind of an answer and its detail."""


class PageClient:
    """One connection to a server, by a DEALER socket.

    Args:
        address: of the control socket, or of the endpoint for stops.
        patience_s: longest wait for an answer, seconds.
        keys: the server's public key, and this client's public and secret key, in Z85; None: no keys.
    """

    def __init__(self, address: str, patience_s: float = 60.0, keys: tuple[str, str, str] | None = None) -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, int(patience_s * 1000))
        if keys is not None:
            self.socket.curve_serverkey, self.socket.curve_publickey, self.socket.curve_secretkey = (
                key.encode() for key in keys
            )
        self.socket.connect(address)
        self.address = address
        self.session = self.sequence = 0

    def send(self, kind: int, detail: Any = None, row: bytes | None = None, times: int | None = None) -> int:
        """Send a request and return its sequence."""
        self.sequence += 1
        self.socket.send(msgpack.packb([VERSION, kind, self.session, self.sequence, times, detail, row]))
        return self.sequence

    def receive(self, sequence: int) -> Answer:
        """Wait for the answer to a request; progress and answers to other requests are left out."""
        while True:
            frames = self.socket.recv_multipart()
            version, kind, session, answered, _, detail, _ = msgpack.unpackb(frames[0])
            assert version == VERSION, version
            if answered == sequence and kind != EVENT:
                if kind == WELCOME:
                    self.session = session
                return kind, detail

    def next(self) -> tuple[int, int, Any, Any, bytes]:
        """Wait for any message; return its kind, sequence, times, detail and row."""
        version, kind, session, sequence, times, detail, row = msgpack.unpackb(self.socket.recv())
        assert version == VERSION, version
        assert session in (0, self.session), session
        return kind, sequence, times, detail, row

    def ask(self, kind: int, detail: Any = None) -> Answer:
        """Send a request and wait for its answer."""
        return self.receive(self.send(kind, detail))

    def hello(self, take: str = "force") -> Answer:
        """Ask for the right to move the robot."""
        detail = {"digest": "", "name": "a stranger", "move": True, "replaces": 0, "take": take, "resume": False}
        return self.ask(HELLO, detail)

    def reset(self, why: str | None = None, number: int | None = None) -> int:
        """Send a RESET, which clears a stop if there is a reason, and return its sequence."""
        detail: dict[str, Any] = {"options": {} if why is None else {"clear_stop": why}, "deadline_s": 60.0}
        if number is not None:
            detail["stop_number"] = number
        return self.send(RESET, detail)

    def stop(self, reason: str, *, numbered: bool = True) -> Answer:
        """Stop the robot and wait for the answer."""
        detail: dict[str, Any] = {"reason": reason, "orderly": False}
        return self.ask(STOP, {**detail, "numbered": True} if numbered else detail)

    def status(self) -> dict[str, Any]:
        """Return the server's status."""
        kind, detail = self.ask(STATUS)
        assert kind == DONE, detail
        status: dict[str, Any] = detail
        return status

    def stop_endpoint(self) -> PageClient:
        """Return a connection to the endpoint for stops: the port counts, at the host that this client knows."""
        port = self.status()["stop"].rpartition(":")[2]
        return PageClient(f"{self.address.rpartition(':')[0]}:{port}")

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
