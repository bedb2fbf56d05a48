"""Admit clients by their keys: CURVE on the server's sockets, pyzmq's ZAP authenticator, and the list of keys."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

from real.control.limits import RateLimiter
from real.protocol.access import ACCESS
from real.protocol.keys import CONTROL, STOPS, TELEMETRY, Allowed, Entry, load_pair, note_seen
from real.server.connections import IO_THREADS

__all__ = ["Authenticator"]

_log = logging.getLogger(__name__)

_MAY_ENTER = {CONTROL: ACCESS["STATUS"].roles, STOPS: ACCESS["STOP"].roles, TELEMETRY: ACCESS["telemetry"].roles}
_REFRESH_S = 0.1
_LINES_PER_S, _LINES_AT_ONCE = 2.0, 50
"""Bounds on log lines about handshakes, so that repeated connections can't fill the disk."""


class Authenticator:
    """Admit the clients with keys on the list, and look up their rights.

    pyzmq's thread answers the handshakes, so that a busy robot keeps no client waiting. The authenticator has its own
    ZeroMQ context, since a context can have only one authenticator.

    Args:
        folder: folder of the server's keys.

    Raises:
        ValueError: the folder's key or list is missing or damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder, self._pair = folder, load_pair(folder)
        self._allowed = Allowed(folder)
        self._lock = threading.Lock()
        self._refreshed_s = 0.0
        self._entered: dict[str, set[str]] = {domain: set() for domain in _MAY_ENTER}
        self._losses = dict.fromkeys(_MAY_ENTER, 0)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(IO_THREADS)
        self._zap: _Zap | None = None
        self._shut_out: dict[tuple[str, str], float] = {}  # until when, by domain and key; only keys of the list
        self._lines = RateLimiter(_LINES_PER_S, _LINES_AT_ONCE)

    @property
    def public(self) -> str:
        """The server's public key, which its clients need."""
        return self._pair.public

    def open(self) -> None:
        """Begin to answer handshakes. Call this before any socket is bound, since without it ZeroMQ admits everybody.

        Raises:
            RuntimeError: pyzmq's thread did not start.
        """
        self._zap = _Zap(self.context)
        for domain in _MAY_ENTER:
            self._zap.configure_curve_callback(domain, self)
        self._zap.start()
        self._zap.thread.name = "rlenv-robot authenticator"

    def secure(self, socket: zmq.Socket[bytes], domain: str) -> None:
        """Require a key from every peer of a socket. Call this before the socket is bound."""
        socket.curve_server = True
        socket.curve_secretkey = z85.encode(bytes.fromhex(self._pair.secret))
        socket.zap_domain = domain.encode()

    def entry(self, key: str, max_age_s: float = _REFRESH_S) -> Entry | None:
        """Return the list's entry for a public key, or None if there is none or it has expired.

        A key that is revoked or expires loses its rights within 0.1 s.

        Args:
            key: the public key, 64 hexadecimal digits.
            max_age_s: longest time since the last check of the list's file, seconds.
        """
        with self._lock:
            self._refresh(max_age_s)
            return self._allowed.find(key)

    def refusal(self, key: str) -> str:
        """Return why a public key has no rights, for a message that begins with "this key"."""
        with self._lock:
            return self._allowed.refusal(key) or "may do this again"

    def admitted(self, domain: str) -> tuple[frozenset[str], int]:
        """Return the public keys that may use a domain's sockets now, and the number of connected keys removed."""
        with self._lock:
            self._refresh(_REFRESH_S)
            roles, find = _MAY_ENTER[domain], self._allowed.find
            entries = (find(entry.key) for entry in self._allowed)
            keys = frozenset(entry.key for entry in entries if entry is not None and entry.role in roles)
            lost = self._entered[domain] - keys
            self._entered[domain] -= lost
            self._losses[domain] += len(lost)
            return keys, self._losses[domain]

    def _refresh(self, max_age_s: float) -> None:
        now_s = time.monotonic()
        if now_s - self._refreshed_s >= max_age_s:
            self._refreshed_s = now_s
            if self._allowed.refresh():
                _log.info("the list %s was read anew; %s", self._allowed.path, self._allowed.problem or "it is sound")

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether a client may connect; pyzmq calls this on its thread, with the key in Z85."""
        public = z85.decode(key).hex()
        if time.monotonic() < self._shut_out.get((domain, public), 0.0):
            return False
        entry, address = self.entry(public, 0.0), self._zap.address if self._zap is not None else ""
        logs = not self._lines.spent
        if logs:
            self._lines.take()
        if entry is None or entry.role not in _MAY_ENTER[domain]:
            if logs:
                _log.warning(
                "refused %s at the %s socket: key %s is %s; `rlenv-robot robot keys allow` lets it in",
                address, domain, public,
                self.refusal(public).removeprefix("is ") if entry is None
                else f"{entry.name}'s, with the role {entry.role}",
            )  # fmt: skip
            return False
        with self._lock:
            self._entered[domain].add(public)
        note_seen(self._folder, public)
        if logs:
            _log.info("%s (%s) came from %s", entry.name, entry.role, address)
        return True

    def shut_out(self, key: str, seconds: float, domain: str = CONTROL) -> None:
        """Refuse new connections of a key to one domain's sockets for a number of seconds; other domains stay open."""
        self._shut_out[domain, key] = time.monotonic() + seconds

    def close(self) -> None:
        """End the thread and the context, after all its sockets were closed. Safe to call more than once."""
        if self._zap is not None:
            self._zap.stop()
        self.context.term()


class _Zap(ThreadAuthenticator):
    """pyzmq's authenticator, which also knows from where the handshake comes, and names users by their keys in hex."""

    address = ""

    async def handle_zap_message(self, msg: list[bytes]) -> None:
        self.address = msg[3].decode(errors="replace") if len(msg) > 3 else ""
        try:
            await super().handle_zap_message(msg)
        except Exception:  # one handshake that can't be read must not end the thread that answers all others
            _log.exception("a handshake could not be answered")

    def curve_user_id(self, client_public_key: bytes) -> str:
        return client_public_key.hex()
