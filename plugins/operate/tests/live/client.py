"""A client of WebSockets in a few lines (RFC 6455), which asks for Foxglove's protocol."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import struct
import time
from typing import Any

__all__ = ["FoxgloveClient", "answer_to"]

_KEY = base64.b64encode(bytes(range(16))).decode()


def answer_to(port: int, target: str, tls: ssl.SSLContext | None = None) -> tuple[bytes, socket.socket]:
    """Ask for a WebSocket; return the head of the answer (and what has come behind it), and the connection."""
    connection: socket.socket = socket.create_connection(("127.0.0.1", port), 5.0)
    if tls is not None:
        connection = tls.wrap_socket(connection, server_hostname="localhost")
    request = (
        f"GET {target} HTTP/1.1\r\nHost: localhost:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {_KEY}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: foxglove.sdk.v1\r\n\r\n"
    )
    connection.sendall(request.encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        block = connection.recv(4096)
        if not block:
            break
        answer += block
    return answer, connection


class FoxgloveClient:
    """Speak Foxglove's protocol (https://github.com/foxglove/ws-protocol, docs/spec.md) for a test.

    Attributes:
        channels: topic -> the server's description.
        services: name -> the server's description.
        messages: topic -> the newest message.
        counts: topic -> number of messages.
        answers: what service calls returned, as (ok, data).
        assets: URI -> its bytes, or None where the server refused.
    """

    def __init__(self, port: int, token: str, tls: ssl.SSLContext | None = None) -> None:
        answer, self._socket = answer_to(port, f"/?token={token}", tls)
        head, _, self._rest = answer.partition(b"\r\n\r\n")
        assert b" 101 " in head.partition(b"\r\n")[0], head
        self.channels: dict[str, dict[str, Any]] = {}
        self.services: dict[str, dict[str, Any]] = {}
        self.messages: dict[str, bytes] = {}
        self.counts: dict[str, int] = {}
        self.answers: list[tuple[bool, Any]] = []
        self.assets: dict[str, bytes | None] = {}
        self._asked = ""
        self._topics: dict[int, str] = {}

    def close(self) -> None:
        self._socket.close()

    def listen(self, condition: Any, seconds: float = 10.0) -> None:
        """Take messages until a condition holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, (sorted(self.channels), self.counts, self.answers)
            self._take()

    def stop(self, payload: bytes) -> None:
        """Call the service ``/stop`` in JSON."""
        number, encoding = int(self.services["/stop"]["id"]), b"json"
        self._send(2, struct.pack("<BIII", 2, number, 77, len(encoding)) + encoding + payload)

    def fetch(self, uri: str) -> None:
        """Ask for an asset; `assets` has it then, or None where the server refused."""
        self._asked = uri
        self._send(1, json.dumps({"op": "fetchAsset", "uri": uri, "requestId": 5}).encode())

    def _take(self) -> None:
        opcode, data = self._frame()
        if opcode == 1:
            self._take_text(json.loads(data))
        elif opcode == 2 and data[0] == 1:
            topic = self._topics[struct.unpack_from("<I", data, 1)[0]]
            self.messages[topic] = data[13:]
            self.counts[topic] = self.counts.get(topic, 0) + 1
        elif opcode == 2 and data[0] == 3:
            length = struct.unpack_from("<I", data, 9)[0]
            self.answers.append((True, json.loads(data[13 + length :])))
        elif opcode == 2 and data[0] == 4:
            request, status, length = struct.unpack_from("<IBI", data, 1)
            assert request == 5
            self.assets[self._asked] = None if status else data[10 + length :]
        elif opcode == 8:
            raise ConnectionError("closed")

    def _take_text(self, message: dict[str, Any]) -> None:
        if message["op"] == "advertise":
            wanted = []
            for channel in message["channels"]:
                self.channels[channel["topic"]] = channel
                self._topics[len(self._topics)] = channel["topic"]
                wanted.append({"id": len(self._topics) - 1, "channelId": channel["id"]})
            self._send(1, json.dumps({"op": "subscribe", "subscriptions": wanted}).encode())
        elif message["op"] == "advertiseServices":
            self.services |= {service["name"]: service for service in message["services"]}
        elif message["op"] == "serviceCallFailure":
            self.answers.append((False, message["message"]))

    def _send(self, opcode: int, data: bytes) -> None:
        mask = os.urandom(4)
        length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        self._socket.sendall(bytes([0x80 | opcode]) + length + mask + masked)

    def _frame(self) -> tuple[int, bytes]:
        first, length = self._read(2)
        if length == 126:
            length = int(struct.unpack(">H", self._read(2))[0])
        elif length == 127:
            length = int(struct.unpack(">Q", self._read(8))[0])
        return first & 15, self._read(length)

    def _read(self, size: int) -> bytes:
        while len(self._rest) < size:
            block = self._socket.recv(1 << 16)
            if not block:
                raise ConnectionError("closed")
            self._rest += block
        data, self._rest = self._rest[:size], self._rest[size:]
        return data
