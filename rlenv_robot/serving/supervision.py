"""Report to systemd that a server is ready, works, and ends, so that systemd restarts a server that hangs."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping

__all__ = ["Supervision"]

_log = logging.getLogger(__name__)

_SHARE = 0.25
"""Time between two signs of life, as a share of the time that systemd allows; sd_watchdog_enabled(3) advises half."""

_LONGEST_S = 1.0
"""Longest time between two looks, in seconds."""


class Supervision:
    """Speak systemd's notification protocol (sd_notify(3)): READY, WATCHDOG, STATUS and STOPPING.

    Without ``NOTIFY_SOCKET`` in the environment, as in a terminal, nothing is sent. A background thread sends the
    watchdog messages, each only after a check of the process, since a timer alone would also run in a hung process.

    Args:
        trouble: returns why this process does not work, or None. It is called on the background thread.
        status: returns the state as one line. It is called on the background thread.
        environ: environment variables of this process.
    """

    def __init__(
        self,
        trouble: Callable[[], str | None],
        status: Callable[[], str],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._trouble, self._status = trouble, status
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._watchdog_s = _watchdog_s(environ)
        self._told = ""
        self._silent = self._stopping = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot supervision", daemon=True)

    def ready(self) -> Supervision:
        """Report that clients can connect, and start sending watchdog messages."""
        if self._address is not None:
            self._send("READY=1")
            self._thread.start()
        return self

    def stopping(self) -> None:
        """Report that the process is ending. From now on watchdog messages continue until its deadline."""
        self._stopping = True
        self._send("STOPPING=1")

    def close(self) -> None:
        """End the thread. Safe to call more than once."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        wait_s = _LONGEST_S if self._watchdog_s is None else min(_SHARE * self._watchdog_s, _LONGEST_S)
        while True:
            try:
                self._look()
            except Exception:  # a fault of a look is no sign of life, and no reason never to look again
                _log.exception("the server could not be checked for its supervisor")
            if self._over.wait(wait_s):
                return

    def _look(self) -> None:
        trouble = None if self._stopping else self._trouble()
        told = f"STATUS={trouble or self._status()}".replace("\n", " ")
        if told != self._told:
            self._told = told
            self._send(told)
        if trouble is None:
            self._silent = False
            if self._watchdog_s is not None:
                self._send("WATCHDOG=1")
        elif not self._silent:
            self._silent = True
            _log.critical("%s; the supervisor gets no more watchdog messages, and will restart this process", trouble)

    def _send(self, text: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
                notify.setblocking(False)
                notify.sendto(text.encode(errors="backslashreplace"), self._address)
        except OSError as error:
            _log.warning("the supervisor could not be notified of %s: %s", text, error)


def _address(path: str) -> str | None:
    """Return the socket's address: a path, or with ``@`` in front a name in the abstract namespace."""
    if path.startswith("@"):
        return "\0" + path[1:]
    return path if path.startswith("/") else None


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Return how long systemd waits for a sign of life from this process, in seconds; None: it waits for none."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        microseconds = int(environ.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return microseconds / 1e6 if microseconds > 0 else None
