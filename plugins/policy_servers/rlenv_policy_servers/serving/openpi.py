"""Serve a policy to clients of openpi."""

from __future__ import annotations

import http
import logging
import time
from typing import TYPE_CHECKING, Any

from hal import RobotError, WireError
from rlenv_policy_servers.dialects.codecs import pack_openpi, unpack_openpi
from rlenv_policy_servers.serving.service import PolicyService

if TYPE_CHECKING:
    from websockets.http11 import Request, Response
    from websockets.sync.server import ServerConnection

__all__ = ["OpenPiServer"]

_LOG = logging.getLogger(__name__)


class OpenPiServer:
    """A WebSocket server for clients of openpi, with a thread for each. ``GET /healthz`` answers ``OK``.

    Args:
        service: the policy and its clients.
        host: the address to listen on.
        port: 0 selects a free one.
        max_bytes: largest message that is accepted.

    Attributes:
        port: the port.
    """

    def __init__(self, service: PolicyService, host: str, port: int, max_bytes: int) -> None:
        from websockets.sync.server import serve

        self._service = service
        logging.getLogger("websockets.server").setLevel(logging.ERROR)
        self._server = serve(
            self._talk, host, port, compression=None, max_size=max_bytes, process_request=self._admit, close_timeout=1.0
        )
        self.port = int(self._server.socket.getsockname()[1])

    def serve(self) -> None:
        """Answer clients until `close` is called."""
        self._server.serve_forever()

    def close(self) -> None:
        """Stop listening, and forget all clients. Safe to call more than once."""
        self._server.shutdown()
        self._service.close()

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path == "/healthz":
            return connection.respond(http.HTTPStatus.OK, "OK\n")
        header = request.headers.get("Authorization", "")
        if not self._service.admits(header.removeprefix("Api-Key ")):
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "The token is missing or wrong.\n")
        return None

    def _talk(self, connection: ServerConnection) -> None:
        from websockets.exceptions import ConnectionClosed

        key = connection.id
        try:
            client = self._service.client(key)
            connection.send(pack_openpi({"rlenv_robot": self._service.metadata}))
            before: dict[str, float] = {}
            while True:
                frame = connection.recv(timeout=self._service.idle_s)
                begun = time.perf_counter()
                message = _message(frame)
                prompt = str(message.pop("prompt", ""))
                answer: dict[str, Any] = dict(client.answer(message, prompt))
                infer_ms = (time.perf_counter() - begun) * 1e3
                connection.send(pack_openpi({**answer, "server_timing": {"infer_ms": infer_ms, **before}}))
                before = {"prev_total_ms": (time.perf_counter() - begun) * 1e3}
        except (ConnectionClosed, TimeoutError):
            pass
        except RobotError as error:
            _refuse(connection, str(error))
        except Exception:
            _LOG.exception("the policy failed")
            _refuse(connection, "the policy failed; its server's log has the traceback")
        finally:
            self._service.release(key)


def _message(frame: str | bytes) -> dict[str, Any]:
    content = unpack_openpi(frame) if isinstance(frame, bytes) else None
    if not isinstance(content, dict):
        raise WireError("a request is a binary frame with a map")
    flat = dict[str, Any]()
    for key, value in content.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{name}": inner for name, inner in value.items()}
        else:
            flat[str(key)] = value
    return flat


def _refuse(connection: ServerConnection, text: str) -> None:
    from websockets.exceptions import ConnectionClosed

    try:
        connection.send(text)  # as openpi's own server sends a traceback
        connection.close(1011, "the previous frame has the reason")
    except ConnectionClosed:
        pass
