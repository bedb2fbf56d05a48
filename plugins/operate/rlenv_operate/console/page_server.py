"""Serve a page to people with tokens: its files, its names and origin, TLS, and the thread of the web server."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import logging
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from hal import RobotError
from real.protocol.text import printable
from real.server.connections import raise_descriptor_limit
from rlenv_operate.console.access import Origins, Tokens, Visitor, is_loopback
from rlenv_operate.console.strangers import Strangers, TlsLoop
from rlenv_robot.config.user import user_name

__all__ = ["HEADERS", "POLICY_VIOLATION", "PageFiles", "PageServer", "PageSettings"]

_log = logging.getLogger(__name__)

POLICY_VIOLATION = 1008
"""Code with which the socket of a page is closed that does what no page of ours does."""

HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
"""Headers of every answer: a page loads, sends to and is shown by its own origin alone."""

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """The address of a page, and its access.

    Attributes:
        host: address to listen on.
        port: 0 selects a free one.
        tokens: folder of the list of tokens; None creates one token for this process.
        names: further names under which browsers reach this machine.
        certificate: file (PEM) for TLS, which is required if other machines can reach the page.
        private_key: file (PEM) of the certificate's key.

    Raises:
        ValueError: the port does not exist; other machines could reach the page without TLS or without a list of
            tokens; or one of certificate and key is missing.
    """

    host: str = "127.0.0.1"
    port: int = 8400
    tokens: str | Path | None = None
    names: tuple[str, ...] = ()
    certificate: str | Path | None = None
    private_key: str | Path | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port is {self.port}, allowed are 0 (any free one) to 65535")
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("TLS needs both a certificate and its private key")
        if is_loopback(self.host):
            return
        if self.certificate is None:
            raise ValueError(
                f"the page would be served at {self.host}, which other machines can reach: TLS is required "
                "(--certificate FILE --private-key FILE), or listen at 127.0.0.1"
            )
        if self.tokens is None:
            raise ValueError(
                f"the page would be served at {self.host}, which other machines can reach: give a folder of tokens "
                "(--tokens FOLDER; `rlenv-robot operate tokens new FOLDER --name NAME --role ROLE` makes one)"
            )

    @property
    def tls(self) -> bool:
        """Whether the page is served by HTTPS."""
        return self.certificate is not None

    def open_tokens(self) -> Tokens:
        """Return the tokens of the page's visitors.

        Raises:
            ValueError: the list of tokens is damaged.
        """
        return Tokens(self.tokens, printable(user_name("operator"), 64))


class PageFiles(NamedTuple):
    """The files of a page.

    Attributes:
        package: the package with the folder ``page`` of the files.
        names: the files' names; ``index.html`` is also served at ``/``.
    """

    package: str
    names: Sequence[str]


class PageServer:
    """A web server in a thread of its own, for one page.

    Args:
        name: name of the page, for threads and errors, such as ``the console``.
        settings: address and access.
        tokens: the tokens of the page's visitors, by `PageSettings.open_tokens`.
        files: the page's files.
        routes: what else is served.
        uvicorn_options: further settings of uvicorn, such as limits of web sockets.

    Attributes:
        port: the port on which it listens, from the constructor on.
        origins: the names and the origin under which browsers may reach the page.
        strangers: the connections of clients without a token.

    Raises:
        OSError: the address is in use.
    """

    def __init__(
        self,
        name: str,
        settings: PageSettings,
        tokens: Tokens,
        files: PageFiles,
        routes: Sequence[BaseRoute],
        **uvicorn_options: Any,
    ) -> None:
        self._name, self._settings, self._tokens = name, settings, tokens
        self.strangers = Strangers()
        self._listener = _listen(name, settings.host, settings.port)
        self.port: int = self._listener.getsockname()[1]
        self.origins = Origins((settings.host, *settings.names), self.port, tls=settings.tls)
        self._files = {f"/{file}": _File(files.package, file) for file in files.names}
        self._files["/"] = self._files.pop("/index.html")
        app = Starlette(routes=[*(Route(path, self._file, methods=["GET"]) for path in self._files), *routes])
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                _OnlyOurHosts(app, self.origins), log_config=None, access_log=False, server_header=False,
                timeout_graceful_shutdown=1, limit_concurrency=256, lifespan="off", http=self.strangers.protocol,
                proxy_headers=False, ssl_certfile=settings.certificate, ssl_keyfile=settings.private_key,
                **uvicorn_options,
            )
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, name=f"rlenv-robot {name}", daemon=True)

    @property
    def url(self) -> str:
        """The address of the page; a token of this process follows after ``#``."""
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        token = f"#token={self._tokens.own}" if self._tokens.own is not None else ""
        return f"{'https' if self._settings.tls else 'http'}://{host}:{self.port}/{token}"

    def visitor(self, request: HTTPConnection) -> Visitor | None:
        """Return the visitor whose token a request bears in ``Authorization``, or None; the token is read anew."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        visitor = self._tokens.admit(token) if kind.lower() == "bearer" else None
        if visitor is not None:
            self.strangers.admit(request.scope.get("client"))
        return visitor

    def start(self) -> None:
        """Start serving in the background.

        Raises:
            RobotError: the certificate can't be used.
        """
        raise_descriptor_limit()  # handshakes that are not finished have a descriptor each
        self._uvicorn.config.load()  # raises here what would end the thread
        self._thread.start()
        while not self._uvicorn.started:
            if not self._thread.is_alive():
                raise RobotError(f"the web server of {self._name} could not start; its log says why")
            time.sleep(0.005)

    def close(self) -> None:
        """Stop serving. Safe to call more than once."""
        self._uvicorn.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=TlsLoop if self._settings.tls else None) as runner:
                runner.run(self._uvicorn.serve([self._listener]))
        except SystemExit:  # uvicorn's way to say that it could not start
            _log.error("the web server of %s could not start", self._name)

    async def _file(self, request: Request) -> Response:
        return self._files[request.url.path].answer(request, tls=self._settings.tls)


def _listen(name: str, host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise OSError(f"{name} can't listen at {host}:{port}: {error}; choose another --port") from None


class _File:
    """A file of the page, compressed once."""

    def __init__(self, package: str, name: str) -> None:
        data = resources.files(package).joinpath("page", name).read_bytes()
        self._kind, self._data, self._packed = _TYPES[Path(name).suffix], data, gzip.compress(data, 9, mtime=0)
        self._tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'

    def answer(self, request: Request, *, tls: bool) -> Response:
        headers = {**HEADERS, "etag": self._tag, "vary": "accept-encoding"}
        if tls:
            headers["strict-transport-security"] = "max-age=31536000"
        if request.headers.get("if-none-match") == self._tag:
            return Response(status_code=304, headers=headers)
        packed = "gzip" in request.headers.get("accept-encoding", "")
        if packed:
            headers["content-encoding"] = "gzip"
        return Response(self._packed if packed else self._data, headers=headers, media_type=self._kind)


class _OnlyOurHosts:
    """Refuse requests for names that are not ours: a stranger's name may point to this machine."""

    def __init__(self, app: ASGIApp, origins: Origins) -> None:
        self._app, self._origins = app, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            hosts = [value.decode("latin-1") for key, value in scope["headers"] if key == b"host"]
            if len(hosts) != 1 or not self._origins.serves(hosts[0]):
                if scope["type"] == "websocket":
                    await WebSocket(scope, receive, send).close(POLICY_VIOLATION)
                else:
                    answer = PlainTextResponse("this name is not served here; see --name\n", 421)
                    await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)
