"""Admit WebSocket clients by the token in their URL, with TLS, and forward them to a server on this machine."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from real.protocol.access import may
from real.protocol.text import printable
from rlenv_operate.console.access import Tokens, Visitor, is_loopback

__all__ = ["Gate", "check_exposure"]

_log = logging.getLogger(__name__)

_MOST_HEAD, _HEAD_S = 8192, 5.0
"""Maximum size of a request's head, bytes, and time limit for TLS and the head, in seconds."""

_MOST_CLIENTS, _MOST_WAITING = 32, 64
_RIGHTS_S = 0.5
"""Time between two looks at a client's rights, in seconds."""

_END_S = 0.5
"""Longest wait for a client to take what was sent to it before its connection is cut off, in seconds."""

_REFUSED_S = 0.2
"""Wait before a wrong token is answered, in seconds."""

_BLOCK = 1 << 16


def check_exposure(host: str, *, tls: bool, tokens: bool) -> None:
    """Raise an error if the live view would be open to other machines without both TLS and a list of tokens.

    Raises:
        ValueError: TLS or the tokens are missing.
    """
    if is_loopback(host):
        return
    if not tls:
        raise ValueError(
            f"the live view would listen at {host}, which other machines can reach: TLS is required "
            "(--certificate FILE --private-key FILE), or listen at 127.0.0.1"
        )
    if not tokens:
        raise ValueError(
            f"the live view would listen at {host}, which other machines can reach: give a folder of tokens "
            "(--tokens FOLDER; `rlenv-robot operate tokens new FOLDER --name NAME --role watch` makes one)"
        )


class Gate:
    """Admit clients on a background thread.

    A client is admitted if its URL is ``.../?token=TOKEN`` with a token of at least the role ``watch``. It is
    disconnected within half a second of losing its rights. A client that does not read does not delay the others.

    Args:
        tokens: the tokens of the clients.
        host: address to listen on.
        port: 0 selects a free one.
        target: host and port of the server behind the gate.
        certificate: file (PEM) for TLS; None for no TLS.
        private_key: file (PEM) of the certificate's key.

    Attributes:
        port: the port that the gate listens on.

    Raises:
        OSError: the address is in use, or a file can't be read.
        ValueError: certificate and key can't be used, or other machines would reach the gate without them.
    """

    def __init__(
        self,
        tokens: Tokens,
        host: str,
        port: int,
        target: tuple[str, int],
        certificate: str | Path | None = None,
        private_key: str | Path | None = None,
    ) -> None:
        check_exposure(host, tls=certificate is not None, tokens=tokens.own is None)
        self._tokens, self._host, self._target = tokens, host, target
        self._tls = None if certificate is None else _tls(certificate, private_key)
        self._clients: dict[Visitor, int] = {}
        self._waiting = 0
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        opened: Future[int] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(port, opened), name="rlenv-robot live view gate", daemon=True
        )
        self._thread.start()
        try:
            self.port = opened.result()
        except BaseException:
            self._thread.join()
            raise

    @property
    def url(self) -> str:
        """The address for clients, including the token of this process if there is one."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        token = self._tokens.own or "TOKEN"
        return f"{'ws' if self._tls is None else 'wss'}://{host}:{self.port}/?token={token}"

    def close(self) -> None:
        """Disconnect all clients, and end the thread. Safe to call more than once."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- on the gate's thread ----------------------------------------------------------------------------

    def _run(self, port: int, opened: Future[int]) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._listen(port, opened))
        except BaseException as error:
            if opened.done():
                _log.exception("the gate of the live view has ended")
            else:
                opened.set_exception(error)

    async def _listen(self, port: int, opened: Future[int]) -> None:
        server = await asyncio.start_server(
            self._visit, self._host, port, limit=_BLOCK, ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else _HEAD_S,
        )  # fmt: skip
        opened.set_result(int(server.sockets[0].getsockname()[1]))
        await self._over.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # what was cut off is closed in the loop's next round

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._waiting >= _MOST_WAITING:
                return
            self._waiting += 1
            try:
                admitted = await self._admit(reader, writer)
            finally:
                self._waiting -= 1
            if admitted is not None:
                await self._serve(*admitted, reader, writer)
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # the client has gone, or sent no request
        except asyncio.CancelledError:
            pass  # the gate closes; asyncio would report the cancelled task as an error of ours
        finally:
            await _end(writer)

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[Visitor, bytes] | None:
        """Return the visitor of a request and the request without its token; answer a refused one."""
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_S)
        line, _, rest = head.partition(b"\r\n")
        words = line.decode("ascii", "replace").split(" ")
        if len(head) > _MOST_HEAD or len(words) != 3 or words[0] != "GET":
            await _answer(writer, "400 Bad Request", "expected a WebSocket client")
            return None
        try:
            given = parse_qs(urlsplit(words[1]).query).get("token", [""])[0]
        except ValueError:
            given = ""
        visitor = self._tokens.admit(given)
        if visitor is None:
            await asyncio.sleep(_REFUSED_S)
            _log.warning("refused a client of the live view: its URL has no valid token")
            await _answer(writer, "401 Unauthorized", "no valid token: end the URL with /?token=TOKEN")
            return None
        if not may(visitor.role, "watch"):
            await _answer(
                writer, "403 Forbidden", f"the token's role is {visitor.role}: allowed are watch, move, operate"
            )
            return None
        if sum(self._clients.values()) >= _MOST_CLIENTS:
            await _answer(writer, "503 Service Unavailable", f"{_MOST_CLIENTS} clients are connected already")
            return None
        return visitor, b"GET / HTTP/1.1\r\n" + rest

    async def _serve(
        self, visitor: Visitor, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass bytes on in both directions until one side ends, or the visitor loses the rights."""
        _log.info("%s (%s) watches by the live view", printable(visitor.name, 64), visitor.role.value)
        inner_reader, inner_writer = await asyncio.open_connection(*self._target, limit=_BLOCK)
        self._clients[visitor] = self._clients.get(visitor, 0) + 1
        try:
            inner_writer.write(head)
            tasks = [
                asyncio.create_task(_pass_on(reader, inner_writer)),
                asyncio.create_task(_pass_on(inner_reader, writer)),
                asyncio.create_task(self._until_rights_end(visitor)),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._clients[visitor] -= 1
            if not self._clients[visitor]:
                del self._clients[visitor]
            await _end(inner_writer)

    async def _until_rights_end(self, visitor: Visitor) -> None:
        while True:
            await asyncio.sleep(_RIGHTS_S)
            now = self._tokens.current(visitor)
            if now is None or not may(now.role, "watch"):
                _log.info("%s has lost the right to watch", printable(visitor.name, 64))
                return


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while block := await reader.read(_BLOCK):
        writer.write(block)
        await writer.drain()


async def _end(writer: asyncio.StreamWriter) -> None:
    """Close a connection once all is sent, or cut it off where the other side does not take it."""
    writer.close()
    try:
        await asyncio.wait_for(writer.wait_closed(), _END_S)
    except (OSError, TimeoutError):
        writer.transport.abort()


async def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


def _tls(certificate: str | Path, private_key: str | Path | None) -> ssl.SSLContext:
    if private_key is None:
        raise ValueError("TLS needs both a certificate and its private key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, private_key)
    except ssl.SSLError as error:
        raise ValueError(f"{certificate} and {private_key} can't be used for TLS: {error}") from error
    return context
