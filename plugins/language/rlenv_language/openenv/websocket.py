"""The server's side of WebSocket (RFC 6455) over asyncio streams: handshake, messages, close."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Final

__all__ = ["WebSocketError", "accept_key", "frame", "read_message"]

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA

PROTOCOL_ERROR: Final = 1002
NOT_UTF8: Final = 1007
TOO_BIG: Final = 1009


class WebSocketError(Exception):
    """The other side broke the protocol.

    Attributes:
        code: of the close frame that answers (RFC 6455, section 7.4.1).
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def accept_key(key: str) -> str:
    """Return the header ``Sec-WebSocket-Accept`` for the client's ``Sec-WebSocket-Key``."""
    return base64.b64encode(hashlib.sha1((key + _MAGIC).encode()).digest()).decode()


def frame(opcode: int, payload: bytes) -> bytes:
    """Return one unfragmented frame of a server, which is not masked."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, size)) + payload
    if size < 1 << 16:
        return bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big") + payload
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big") + payload


async def read_message(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int) -> str | None:
    """Return the next text message; None where the client closes. Pings are answered.

    Args:
        reader, writer: of the connection.
        most: bytes of a message; a longer one is refused before memory is taken for it.

    Raises:
        WebSocketError: the client broke the protocol, or sent no text.
        asyncio.IncompleteReadError: the connection was cut.
    """
    collected = bytearray()
    started = False
    while True:
        final, opcode, payload = await _read_frame(reader, most - len(collected))
        if opcode == CLOSE:
            writer.write(frame(CLOSE, payload[:2]))
            await writer.drain()
            return None
        if opcode == PING:
            writer.write(frame(PONG, payload))
            await writer.drain()
            continue
        if opcode == PONG:
            continue
        if opcode != (CONTINUATION if started else TEXT):
            raise WebSocketError(PROTOCOL_ERROR, f"a frame has the opcode {opcode}, expected text")
        started = True
        collected += payload
        if final:
            try:
                return collected.decode("utf-8")
            except UnicodeDecodeError:
                raise WebSocketError(NOT_UTF8, "a text message is not UTF-8") from None


async def _read_frame(reader: asyncio.StreamReader, most: int) -> tuple[bool, int, bytes]:
    first, second = await reader.readexactly(2)
    final, opcode, size = bool(first & 0x80), first & 0x0F, second & 0x7F
    if first & 0x70 or not second & 0x80:
        raise WebSocketError(PROTOCOL_ERROR, "a frame has reserved bits, or a client's frame is not masked")
    if opcode >= CLOSE and (not final or size > 125):
        raise WebSocketError(PROTOCOL_ERROR, "a control frame is fragmented or longer than 125 bytes")
    if size == 126:
        size = int.from_bytes(await reader.readexactly(2), "big")
    elif size == 127:
        size = int.from_bytes(await reader.readexactly(8), "big")
    if size > most and opcode < CLOSE:
        raise WebSocketError(TOO_BIG, f"a message is longer than the {most} bytes that are left")
    mask = await reader.readexactly(4)
    return final, opcode, _unmasked(await reader.readexactly(size), mask)


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")
