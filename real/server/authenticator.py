"""The server's door: CURVE on its sockets, and an answer to every handshake (ZAP, RFC 27) from the allow-list."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import zmq
from zmq.utils import z85

from real.protocol.keys import Allowed, Entry, Role, load_pair

__all__ = ["CONTROL", "TELEMETRY", "Authenticator"]

_log = logging.getLogger(__name__)

CONTROL, TELEMETRY = "control", "telemetry"
"""ZAP domains: the socket that takes orders, and the one that only tells."""

_MAY_ENTER = {CONTROL: frozenset(Role), TELEMETRY: frozenset(Role) - {Role.STOP}}
_SLICE_MS = 100


class Authenticator:
    """Lets in who is on the list, and says what each may do.

    It has a ZeroMQ context of its own, since a context has one such door, and a thread that answers handshakes, so
    that a busy robot keeps nobody waiting at it.

    Args:
        folder: of the server's keys.

    Raises:
        ValueError: the folder's key or list is missing or damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        self._pair = load_pair(folder)
        self._allowed = Allowed(folder)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    @property
    def public(self) -> str:
        """The server's public key, which its clients need."""
        return self._pair.public

    def open(self) -> None:
        """Begin to answer. Before any socket is bound: ZeroMQ lets everybody in where nobody answers."""
        zap = self.context.socket(zmq.REP)
        zap.rcvtimeo, zap.linger = _SLICE_MS, 0
        zap.bind("inproc://zeromq.zap.01")
        self._thread = threading.Thread(target=self._run, args=(zap,), name="rlenv-robot gate", daemon=True)
        self._thread.start()

    def secure(self, socket: zmq.Socket[bytes], domain: str) -> None:
        """Ask every peer of a socket for its key; before the socket is bound."""
        socket.curve_server = True
        socket.curve_secretkey = z85.encode(bytes.fromhex(self._pair.secret))
        socket.zap_domain = domain.encode()

    def entry(self, key: str) -> Entry | None:
        """The line of a public key as the list stands now, or None: a key taken off it loses its rights at once."""
        with self._lock:
            return self._allowed.find(key)

    def refresh(self) -> None:
        """Look whether the list has changed."""
        with self._lock:
            if self._allowed.refresh():
                _log.info("the list %s was read anew; %s", self._allowed.path, self._allowed.problem or "it is sound")

    def close(self) -> None:
        """End the thread and the context; its sockets must be closed by then. Twice is fine."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self.context.term()

    def _run(self, zap: zmq.Socket[bytes]) -> None:
        with zap:
            while not self._over.is_set():
                try:
                    request = zap.recv_multipart()
                except zmq.Again:
                    self.refresh()
                    continue
                self.refresh()
                zap.send_multipart(self._answer(request))

    def _answer(self, request: list[bytes]) -> list[bytes]:
        """ZAP's reply: version, request, status, its text, user, metadata. The user is the public key in hex."""
        _, number, domain, address, _, mechanism, *credentials = request
        key = credentials[0].hex() if mechanism == b"CURVE" and len(credentials) == 1 else ""
        entry = self.entry(key)
        if entry is None or entry.role not in _MAY_ENTER.get(domain.decode(), ()):
            _log.warning(
                "refused %s at the %s door: key %s is %s; `rlenv-robot keys allow` lets it in",
                address.decode(), domain.decode(), key or "missing",
                "not on the list" if entry is None else f"{entry.name}'s, with the role {entry.role}",
            )  # fmt: skip
            return [b"1.0", number, b"400", b"not allowed", b"", b""]
        _log.info("%s (%s) came from %s", entry.name, entry.role, address.decode())
        return [b"1.0", number, b"200", b"", key.encode(), b""]
