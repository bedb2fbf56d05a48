"""Serve environments over OpenEnv's protocol: JSON over WebSocket and HTTP, with messages derived from their specs.

Each WebSocket connection to ``/ws`` is a session with its own environment; all HTTP requests share one more. The
messages are those of openenv-core 0.3: ``{"type": "reset" | "step" | "state" | "close", "data": {...}}``, answered by
``{"type": "observation", "data": {observation, reward, done}}``, ``{"type": "state", ...}`` or ``{"type": "error",
"data": {message, code}}``. OpenEnv's protocol has no place for ``truncated`` and information, so the observation
carries both.

The protocol has no authentication: the server listens only on this machine, and refuses pages of other origins.

This module needs Starlette and uvicorn: ``pip install 'rlenv-robot[openenv]'``.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import cast
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from hal.field import JsonDict
from rlenv_language.openenv.session import HTTP, Session, answer_message, answer_request, error_message
from rlenv_robot.env import Environment

__all__ = ["OpenEnvServer"]

_MAX_BYTES = 8 << 20
"""Most bytes of a message, and of the body of an HTTP request."""

_LOCAL = ("127.0.0.1", "localhost", "::1")
_PROTOCOL_ERROR, _TRY_AGAIN_LATER = 1002, 1013  # RFC 6455, section 7.4.1, and its registry


class OpenEnvServer:
    """Serve environments to OpenEnv clients on this machine only.

    Args:
        make: returns a new environment; called once for each session.
        port: port on ``127.0.0.1``; 0 takes a free one.
        sessions: most WebSocket sessions at a time, each with its own environment; use 1 for a robot.

    Attributes:
        url: the server's address after `start`, such as ``http://127.0.0.1:8000``.

    Raises:
        ValueError: ``sessions`` is below 1.
    """

    def __init__(self, make: Callable[[], Environment], port: int = 0, sessions: int = 8) -> None:
        if sessions < 1:
            raise ValueError(f"sessions is {sessions}, it must be at least 1")
        self._make, self._port, self._max_sessions = make, port, sessions
        self.url = ""
        self._open = 0
        self._shared = Session(make)
        routes = [
            WebSocketRoute("/ws", self._serve_session),
            Route("/health", _health),
            *(Route(path, partial(self._answer, call), methods=[method]) for (method, path), call in HTTP.items()),
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: _detail})
        self._server = uvicorn.Server(
            uvicorn.Config(
                _LocalOnly(app), log_config=None, access_log=False, server_header=False, lifespan="off",
                ws="websockets-sansio", ws_max_size=_MAX_BYTES, ws_ping_interval=None, ws_per_message_deflate=False,
                proxy_headers=False, timeout_graceful_shutdown=5,
            )
        )  # fmt: skip
        self._thread: threading.Thread | None = None

    def start(self) -> OpenEnvServer:
        """Start a thread that listens, and return the server.

        Raises:
            OSError: the port is taken.
        """
        listener = socket.create_server(("127.0.0.1", self._port))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, args=(listener,), name="openenv", daemon=True)
        self._thread.start()
        while self._thread.is_alive() and not self._server.started:
            time.sleep(0.002)
        return self

    def _run(self, listener: socket.socket) -> None:
        async def serve() -> None:
            await self._server.serve([listener])
            await self._shared.close()

        with listener:
            asyncio.run(serve())

    def close(self) -> None:
        """End all sessions and close their environments. Safe to call more than once."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._server.should_exit = True
            thread.join()

    def __enter__(self) -> OpenEnvServer:
        return self if self._thread is not None else self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def _serve_session(self, socket: WebSocket) -> None:
        """Answer the messages of one connection until it ends."""
        await socket.accept()
        if self._open >= self._max_sessions:
            await socket.send_text(error_message("CAPACITY_REACHED", f"all {self._max_sessions} sessions are in use"))
            await socket.close(_TRY_AGAIN_LATER)
            return
        self._open += 1
        session = Session(self._make)
        try:
            while (message := await socket.receive())["type"] != "websocket.disconnect":
                if (text := message.get("text")) is None:
                    await socket.close(_PROTOCOL_ERROR, "a message is binary, expected text")
                    return
                answer = await session.run(answer_message, text)
                if answer is not None:  # None answers the client's own message "close"; its close frame follows
                    await socket.send({"type": "websocket.send", "text": answer})
        finally:
            self._open -= 1
            await session.close()

    async def _answer(self, call: Callable[[Session, object], JsonDict], request: Request) -> Response:
        """Answer an HTTP request by a call on the shared session."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BYTES:
                raise HTTPException(413, f"a request has more than {_MAX_BYTES} bytes")
        status, answer = await self._shared.run(answer_request, call, bytes(body))
        return JSONResponse(answer, status)


class _LocalOnly:
    """Refuse requests whose Host or Origin is another machine: a page in a browser could send them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin = urlsplit(headers.get(b"origin", "http://localhost")).hostname
        host = urlsplit(f"//{headers.get(b'host', 'localhost')}").hostname
        if origin in _LOCAL and host in _LOCAL:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).close()  # before it is accepted: HTTP 403
        else:
            refusal = JSONResponse({"detail": "this server is for programs on its own machine"}, 403)
            await refusal(scope, receive, send)


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "healthy"})


async def _detail(request: Request, error: Exception) -> Response:
    refused = cast("HTTPException", error)
    return JSONResponse({"detail": refused.detail}, refused.status_code)
