"""Follow a client's connection attempts, and explain their failures, by ZeroMQ's socket monitor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import zmq
from zmq.utils import z85

from real.protocol.keys import load_pair, load_server
from real.protocol.sockets import SocketMonitor

__all__ = ["ClientKeys", "Handshake", "load_keys"]

_EVENTS = (
    zmq.EVENT_CONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_DISCONNECTED
)  # fmt: skip

_TWICE = 2
"""A handshake that is cut off once may be a server that just goes down; twice is a server that can't read it."""


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """A client's key pair, and the public key of its server."""

    public: str
    secret: bytes
    server: bytes

    def secure(self, socket: zmq.Socket[bytes]) -> None:
        """Encrypt a socket; to be called before it connects."""
        socket.curve_publickey = z85.encode(bytes.fromhex(self.public))
        socket.curve_secretkey = self.secret
        socket.curve_serverkey = self.server


def load_keys(folder: str | Path) -> ClientKeys:
    """Load the keys from a client's folder.

    Raises:
        ValueError: a key is missing or damaged, or other users can read the secret key.
    """
    pair, server = load_pair(folder), load_server(folder)
    return ClientKeys(pair.public, z85.encode(bytes.fromhex(pair.secret)), z85.encode(bytes.fromhex(server)))


class Handshake:
    """Watch one socket's attempts to connect.

    Args:
        socket: a socket that is not connected yet.
        keys: the socket's keys, or None.

    Attributes:
        hopeless: why waiting longer is useless, or None.
        stands: whether the handshake has succeeded, and the connection has not been lost since.
    """

    def __init__(self, socket: zmq.Socket[bytes], keys: ClientKeys | None) -> None:
        self._keys = keys
        self._monitor = SocketMonitor(socket, _EVENTS)
        self._cut_off = 0
        self._last = "the address did not answer at all"
        self.hopeless: str | None = None
        self.stands = False

    def update(self, wait_s: float = 0.0) -> None:
        """Read the events since the last call, and update `hopeless` and `stands`.

        Args:
            wait_s: longest wait for the first event, seconds.
        """
        for event, _ in self._monitor.events(wait_s):
            self._take(event)

    @property
    def last(self) -> str:
        """The stage that the last attempt to connect reached, for a message."""
        return self._last

    def _take(self, event: int) -> None:
        self.stands = event == zmq.EVENT_HANDSHAKE_SUCCEEDED or (self.stands and event != zmq.EVENT_DISCONNECTED)
        if event == zmq.EVENT_DISCONNECTED:
            self._last = "the connection was lost" if self._cut_off == 0 else self._last
        elif event == zmq.EVENT_CLOSED:
            self._last = "nobody listens there"
        elif event == zmq.EVENT_CONNECTED:
            self._last = "somebody listens there, and did not greet"
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._last, self._cut_off = "the connection stands, and the server is silent", 0
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self.hopeless = self._not_allowed()
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            self.hopeless = self._other_mechanism()
        else:
            self._cut_off += 1
            if self._cut_off >= _TWICE:
                self.hopeless = self._cut()
                self._last = self.hopeless

    def _not_allowed(self) -> str:
        public = self._keys.public if self._keys else ""
        return (
            "the server does not let this key in; on its machine, "
            f"`rlenv-robot robot keys allow FOLDER {public} --role move --name NAME` does, "
            "and `rlenv-robot robot keys list FOLDER` shows keys that have expired"
        )

    def _other_mechanism(self) -> str:
        if self._keys is None:
            return "the server wants keys, and none were given: keys=<folder made with `rlenv-robot robot keys new`>"
        return "the server has no keys, so it is not the one that these keys are for; start it with --keys"

    def _cut(self) -> str:
        if self._keys is None:
            return "the server breaks the greeting off: it is no rlenv-robot, or wants keys, and none were given"
        return (
            "the server breaks the greeting off: it can't read it, so its key is another than the server.key here, or "
            "the server has no keys; `rlenv-robot robot keys show FOLDER` on its machine prints the right one"
        )

    def close(self) -> None:
        """Stop watching; to be called before closing the socket. Safe to call more than once."""
        self._monitor.close()
