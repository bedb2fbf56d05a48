"""Talk to a policy server of openpi: a WebSocket with one binary frame for each request and answer."""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any

from hal import ConnectionLost, DeadlineExceeded, RobotError, WireError
from rlenv_policy_servers.dialects.codecs import pack_openpi, unpack_openpi
from rlenv_policy_servers.dialects.session import Expiry, SessionSettings, refusal

__all__ = ["OpenPiSession"]


class OpenPiSession:
    """A `rlenv_policy_servers.dialects.session.Session` with a server of openpi.

    The protocol has no number of a request, so an answer is only known by its place: the next frame after the request.
    Therefore a frame that nobody asked for, and a frame that equals the last answer including its measured time, end
    the session.

    Args:
        settings: address, token and limits.

    Raises:
        DeadlineExceeded: no connection or no description came in time.
        ConnectionLost: nobody listens there, or the server refuses the connection.
        RobotError: the package websockets is missing, or the answer is not that of a policy server.
    """

    def __init__(self, settings: SessionSettings) -> None:
        try:
            from websockets.sync.client import connect
        except ImportError as error:
            raise RobotError("openpi:// needs websockets: pip install 'rlenv-robot[policy-servers]'") from error
        self._settings, self._stack, self._last = settings, ExitStack(), b""
        address = settings.address
        secure = address.scheme == "openpis"
        headers = {"Authorization": f"Api-Key {settings.token}"} if settings.token else None
        with self._errors(), Expiry(f"{address}: no description", settings.connect_s, self.abort) as expiry:
            raw = socket.create_connection((address.host.strip("[]"), address.port), timeout=settings.connect_s)
            self._raw = raw
            self._stack.callback(raw.close)
            raw.settimeout(None)
            self._socket = self._stack.enter_context(
                connect(
                    f"{'wss' if secure else 'ws'}://{address.host}:{address.port}", sock=raw, compression=None,
                    ssl=ssl.create_default_context() if secure else None,
                    additional_headers=headers, max_size=settings.max_bytes, open_timeout=settings.connect_s,
                    ping_interval=None, close_timeout=0.2, proxy=None,
                )
            )  # fmt: skip
            self.description: Mapping[str, Any] = self._received(expiry)

    def ask(self, request: Mapping[str, Any], prompt: str, timeout_s: float) -> Mapping[str, object]:
        """Send a request and return the answer, as `rlenv_policy_servers.dialects.session.Session.ask` says."""
        message = _nested(request)
        if prompt:
            message[self._settings.prompt_key or "prompt"] = prompt
        with self._errors(), Expiry(f"{self._settings.address}: no answer", timeout_s, self.abort) as expiry:
            self._refuse_frames()
            self._socket.send(pack_openpi(message))
            return self._received(expiry)

    def _refuse_frames(self) -> None:
        with suppress(TimeoutError):
            self._socket.recv(timeout=0)
            raise ConnectionLost(
                f"{self._settings.address} has sent a frame that nobody asked for; the session was closed"
            )

    def _received(self, expiry: Expiry) -> dict[str, Any]:
        try:
            frame = self._socket.recv(timeout=expiry.left_s)
        except TimeoutError:
            raise expiry.error() from None
        expiry.check()
        if isinstance(frame, str):
            raise refusal(self._settings.address, frame)
        content = unpack_openpi(frame)
        if not isinstance(content, dict):
            raise WireError(f"{self._settings.address} has sent a {type(content).__name__}, expected a map")
        digest = hashlib.sha256(frame).digest()
        if digest == self._last and "server_timing" in content:
            raise ConnectionLost(
                f"{self._settings.address} has sent the same answer twice, with the same measured time; the session "
                "was closed"
            )
        self._last = digest
        return content

    def _errors(self) -> _Translated:
        return _Translated(self)

    def abort(self) -> None:
        """End a wait of another thread, by shutting the connection."""
        with suppress(OSError, AttributeError):  # it is closed already, or not yet open
            self._raw.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._stack.close()


class _Translated:
    """Turn errors of websockets, TLS and sockets into ours, and close the session."""

    def __init__(self, session: OpenPiSession) -> None:
        self._session, self._address = session, session._settings.address

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

        if error is None:
            return
        self._session.abort()
        self._session.close()
        if isinstance(error, RobotError) or not isinstance(error, Exception):
            return
        address = self._address
        if isinstance(error, ConnectionRefusedError | socket.gaierror):
            raise ConnectionLost(f"{address}: nobody listens there: {error}") from None
        if isinstance(error, TimeoutError):
            raise DeadlineExceeded(f"{address}: no connection", self._session._settings.connect_s) from None
        if isinstance(error, InvalidStatus):
            status = error.response.status_code
            hint = "; give its token as token_file or token_env" if status in (401, 403) else ""
            raise ConnectionLost(f"{address} has refused the connection with HTTP status {status}{hint}") from None
        if isinstance(error, ConnectionClosed) and error.sent is not None and error.sent.code == 1009:
            most = self._session._settings.max_bytes >> 20
            raise WireError(f"{address} has sent a message of more than {most} MiB; max_mib allows more") from None
        if isinstance(error, ssl.SSLError) or (address.scheme == "openpis" and isinstance(error, EOFError | OSError)):
            raise ConnectionLost(f"{address} does not speak TLS, or its certificate is not trusted: {error}") from None
        if isinstance(error, OSError | EOFError | WebSocketException):
            raise ConnectionLost(f"{address} has closed the connection: {str(error)[:200]}") from None


def _nested(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with a map for each key with a dot: ``images.top`` is ``top`` in the map ``images``."""
    message: dict[str, Any] = {}
    for key, value in request.items():
        *folders, name = key.split(".")
        inner = message
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[name] = value
    return message
