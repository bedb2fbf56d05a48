"""Limit the connections of clients without a token, so that they can't lock other visitors out."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["HANDSHAKE_S", "LONGEST_S", "MOST_STRANGERS", "Strangers", "TlsLoop"]

MOST_STRANGERS = 128
"""Maximum number of connections without a token; a further one replaces the oldest."""

LONGEST_S = 20.0
"""Maximum life of a connection without a token, in seconds; a browser fetches the page's four files in that time."""

HANDSHAKE_S = 5.0
"""Time limit of the TLS handshake, in seconds."""


class Strangers:
    """The connections of clients that have shown no token yet, oldest first. For the web server's thread only.

    A connection counts from its first byte: while its request is half sent, while it is kept alive, and until its
    WebSocket has logged in. So half-sent requests can't use up the server's connections.

    Args:
        most: maximum number of connections.
        longest_s: maximum life of a connection, seconds.
    """

    def __init__(self, most: int = MOST_STRANGERS, longest_s: float = LONGEST_S) -> None:
        self._most, self._longest_s = most, longest_s
        self._ends: dict[asyncio.Transport, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def protocol(self) -> type[H11Protocol]:
        """The protocol class for ``http`` in uvicorn's settings: uvicorn's own, with its connections counted here."""
        return type("StrangerProtocol", (_StrangerProtocol,), {"strangers": self})

    def come(self, transport: asyncio.Transport) -> None:
        """Count a new connection; close the oldest one if there are too many."""
        for ended in [one for one in self._ends if one.is_closing()]:  # a web socket's end is told to nobody here
            self.go(ended)
        if len(self._ends) >= self._most:
            self._cut(next(iter(self._ends)))
        self._ends[transport] = asyncio.get_running_loop().call_later(self._longest_s, self._cut, transport)

    def go(self, transport: asyncio.Transport) -> None:
        """Stop counting a connection that has ended."""
        end = self._ends.pop(transport, None)
        if end is not None:
            end.cancel()

    def admit(self, client: Any) -> None:
        """Stop counting a connection whose client has shown a valid token.

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
    """An event loop with a limit of `HANDSHAKE_S` on TLS handshakes, for which uvicorn has no setting."""

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        """Create a server as the base class does, with the shorter limit if it speaks TLS."""
        if options.get("ssl") is not None:
            options = {"ssl_handshake_timeout": HANDSHAKE_S, **options}
        return await super().create_server(*args, **options)
