"""Bound the connections of clients that have shown no token, so that they keep nobody else from the page."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["HANDSHAKE_S", "LONGEST_S", "MOST_STRANGERS", "Strangers", "TlsLoop"]

MOST_STRANGERS = 128
"""Connections without a token at a time; a further one takes the place of the oldest."""

LONGEST_S = 20.0
"""Longest life of a connection without a token, seconds; a browser fetches the four files of the page in one."""

HANDSHAKE_S = 5.0
"""Longest time for the handshake of TLS, seconds."""


class Strangers:
    """The connections whose client has shown no token yet, oldest first. For the thread of the web server.

    A connection is a stranger's from its first byte on: while its request is half sent, while it is kept alive, and
    while its web socket has not logged in. So half-sent requests can't use up the server's connections.

    Args:
        most: connections at a time.
        longest_s: longest life of one, seconds.
    """

    def __init__(self, most: int = MOST_STRANGERS, longest_s: float = LONGEST_S) -> None:
        self._most, self._longest_s = most, longest_s
        self._ends: dict[asyncio.Transport, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def protocol(self) -> type[H11Protocol]:
        """The protocol of a connection, for ``http`` of uvicorn's settings: uvicorn's own, counted here."""
        return type("StrangerProtocol", (_StrangerProtocol,), {"strangers": self})

    def come(self, transport: asyncio.Transport) -> None:
        """Count a new connection, in the place of the oldest one where there are too many."""
        for ended in [one for one in self._ends if one.is_closing()]:  # a web socket's end is told to nobody here
            self.go(ended)
        if len(self._ends) >= self._most:
            self._cut(next(iter(self._ends)))
        self._ends[transport] = asyncio.get_running_loop().call_later(self._longest_s, self._cut, transport)

    def go(self, transport: asyncio.Transport) -> None:
        """Count a connection no more, which has ended."""
        end = self._ends.pop(transport, None)
        if end is not None:
            end.cancel()

    def admit(self, client: Any) -> None:
        """Count a connection no more, since its client has shown a valid token.

        Args:
            client: host and port of the client, as in an ASGI scope.
        """
        if client is not None:
            for transport in [one for one in self._ends if _peer(one) == tuple(client)]:
                self.go(transport)

    def _cut(self, transport: asyncio.Transport) -> None:
        self.go(transport)
        transport.abort()


def _peer(transport: asyncio.Transport) -> tuple[str, int] | None:
    name = transport.get_extra_info("peername")
    return None if name is None else (str(name[0]), int(name[1]))


class _StrangerProtocol(H11Protocol):
    """uvicorn's protocol for HTTP, whose connections begin as a stranger's."""

    strangers: Strangers

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.strangers.come(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.strangers.go(self.transport)
        super().connection_lost(exc)


class TlsLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers give up a TLS handshake after `HANDSHAKE_S`; uvicorn has no setting for that."""

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        """Make a server as the base class does, with the shorter limit where it speaks TLS."""
        if options.get("ssl") is not None:
            options = {"ssl_handshake_timeout": HANDSHAKE_S, **options}
        return await super().create_server(*args, **options)
